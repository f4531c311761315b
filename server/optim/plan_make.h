/* plan_make.h - makes the plan of a declaration and checks that it is sound. Called by the step thread, or by the
 * thread that plans. */
#ifndef PD_PLAN_MAKE_H
#define PD_PLAN_MAKE_H

#include "plan.h"
#include "paramd/optim.h"

/* Makes the plan of a declaration, without any state. pd_optim_new calls it first; it also allows to check a limit
 * on bytes before memory is allocated. Fills *plan; free it with pd_plan_free. After an error the plan is empty, and
 * the text begins with the parameter's name. PD_INVALID_ARGUMENT: the optimizer refuses the hyperparameters or the
 * shape. PD_NO_MEMORY. */
int pd_plan_make(pd_plan *plan, const pd_declaration *declaration, const double *fact, pd_error *err);

#endif
