/* plan_make.h - makes the plan for a declared parameter, its state and preconditioner tasks, and
 * checks that the plan keeps the rules for optimizers. Called by the step thread, or by the thread that plans. */
#ifndef PD_PLAN_MAKE_H
#define PD_PLAN_MAKE_H

#include "plan.h"
#include "paramd/optim.h"

/* Makes the plan for a declared parameter: lists its state and its preconditioner tasks, but allocates no state. A
 * caller can so check a limit on bytes before memory is allocated. Fills *plan; free it with pd_plan_free. After an
 * error the plan is empty, and the error's text begins with the parameter's name. PD_INVALID_ARGUMENT: the optimizer
 * refuses the hyperparameters or the shape. PD_NO_MEMORY: out of memory. */
int pd_plan_make(pd_plan *plan, const pd_declaration *declaration, const double *fact, pd_error *err);

#endif
