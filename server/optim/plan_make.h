/* plan_make.h - makes the plan of a declaration and checks that it is sound. Step thread, or the thread that plans. */
#ifndef PD_PLAN_MAKE_H
#define PD_PLAN_MAKE_H

#include "plan.h"
#include "paramd/optim.h"

/* Makes the plan of a declaration, without any state: pd_optim_new does this first, and a limit on bytes is
 * checked with it before memory is allocated. Fills *plan; pd_plan_free it. After an error the plan is empty, and
 * the text begins with the parameter's name. PD_INVALID_ARGUMENT: the row refuses the hyperparameters or the
 * shape. PD_NO_MEMORY. */
int pd_plan_make(pd_plan *plan, const pd_declaration *declaration, const double *fact, pd_error *err);

#endif
