/* plan_make.h - the pre-pass over all parameters of a job, and the plan of each: its slots and preconditioner tasks.
 * Called by the step thread, or by the thread that plans. */
#ifndef PD_PLAN_MAKE_H
#define PD_PLAN_MAKE_H

#include "optimizer_ops.h"
#include "paramd/optim.h"
#include "plan.h"

/* Makes the plan for a declared parameter: lists its state and its tasks, but allocates no state. So a caller can check
 * a limit on bytes before memory is allocated. Fills *plan; free it with pd_plan_free. After an error the plan is
 * empty, and the error's text begins with the parameter's name. PD_INVALID_ARGUMENT: the optimizer refuses the
 * hyperparameters or the shape. PD_NO_MEMORY: out of memory. */
int pd_plan_make(pd_plan *plan, const pd_declaration *declaration, const double *stats, pd_error *err);

/* Combines one more value with the result so far: adds it, or takes the larger of the two. A result that is NaN stays
 * NaN. */
double pd_folded(pd_fold fold, double sofar, double value);
/* Computes the model statistics of one optimizer, stats[PD_MAX_MODEL_STATS], from all declarations in the order given.
 * Declarations with other optimizers are ignored. */
void pd_model_stats_of(const pd_optimizer_ops *ops, const pd_declaration *params, size_t n, double *stats);
/* Adds one declaration to the statistics stats[], for callers that do not have all declarations at once, and sets *any.
 * Does nothing if the declaration has another optimizer, or the optimizer has no statistics. *any and stats[] must be
 * zero before the first call. */
void pd_model_stats_add(const pd_optimizer_ops *ops, const pd_declaration *param, bool *any, double *stats);

#endif
