/* optimizer.h - one parameter's optimizer. A scheduler runs its steps in batches, with pauses for the preconditioner
 * tasks. A task is pending from its capture to its adoption.
 *
 * How a step runs (one thread at a time calls these functions: the step thread, or the caller's own thread):
 *
 *     pd_optim_begin(optim, io)               advances the step counter; runs nothing yet
 *     do {
 *         pd_batch_run(list, n, threads)      runs the phases of many steps, until a step ends or waits for a task
 *         while ((task = pd_optim_capture(optim)) != NULL) hand it to the preconditioner pool   (pd_task_run, then ...)
 *         pd_optim_deliver(optim, task)       when the task has run
 *     } while (!pd_optim_done(optim))
 *
 * A step is parked (pd_optim_waits) while it needs the result of a task that is still at the preconditioner pool.
 *
 * Steps of different parameters are independent, except those in one atomic group, which fail together (pd_optim_bind).
 * The result of a step has the same bits whatever other steps are in its batch. */
#ifndef PD_OPTIMIZER_H
#define PD_OPTIMIZER_H

#include "optimizer_types.h"
#include "part.h"
#include "plan_bytes.h"
#include "plan_make.h"
#include "task.h"

/* Plans a parameter's optimizer, allocates its state and writes the initial values. `stats` has the model statistics,
 * in the order of the optimizer's table. Copies what it needs of both. Stores the optimizer in *out.
 * PD_INVALID_ARGUMENT: the optimizer refuses the declaration. PD_NO_MEMORY: out of memory. */
int pd_optim_new(pd_optim **out, const pd_declaration *declaration, const double *stats, pd_error *err);
/* Makes an optimizer as pd_optim_new does, but from a plan that was made from the same arguments. The optimizer takes
 * over the plan's arrays, and the plan is empty afterwards. PD_NO_MEMORY: out of memory. */
int pd_optim_planned(pd_optim **out, const pd_declaration *declaration, const double *stats, pd_plan *plan,
                     pd_error *err);
/* Makes an optimizer as pd_optim_planned does, but does not write initial values, since that takes long: call
 * pd_optim_fill until it returns true. */
int pd_optim_bare(pd_optim **out, const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err);
/* Writes initial values of the state, beginning at *at. Moves *at after the written values, and subtracts the estimated
 * time from *budget_ns. Stops when the budget is used up or all values are written. A coded slot is written in one
 * call, even if that exceeds the budget.
 *
 * Returns true if all values are written. If out of memory, returns false with PD_NO_MEMORY in *rc; a later call with
 * the same *at continues with the slot that could not be written. */
bool pd_optim_fill(pd_optim *optim, pd_fill *at, double *budget_ns, int *rc);
/* Says how many bytes the weights of the whole job take. From PD_BEYOND_CACHE on (pages.h), steps write the new weights
 * and the float32 forms of coded slots past the cache. Without this call they do not. Changes no bit of a result. */
void pd_optim_set_job_bytes(pd_optim *optim, int64_t bytes);
void pd_optim_free(pd_optim *optim); /* Frees an optimizer, even while a step is under way. Accepts NULL. */

const pd_plan *pd_optim_plan(const pd_optim *optim);
const pd_hypers *pd_optim_hypers(const pd_optim *optim);
int64_t pd_optim_count(const pd_optim *optim); /* returns the number of the step that was begun last; 0: no step yet */
int64_t pd_optim_elements(const pd_optim *optim);
int64_t pd_optim_state_bytes(const pd_optim *optim);
/* Returns a borrowed view of slot i < plan->n_slots. Temporary and coded slots have memory only during a step. The
 * elements of a float64 slot are double: cast the pointer. */
pd_tensor pd_optim_slot(const pd_optim *optim, size_t i);
/* Returns the estimated time of one step on one core, in ns. Schedulers limit their batches with it. */
double pd_optim_cost_ns(const pd_optim *optim);
pd_root_stats pd_optim_root_stats(const pd_optim *optim);
pd_root_state pd_optim_root(const pd_optim *optim, size_t task);

/* Returns whether the weights to evaluate with are others than the weights (pd_optimizer_ops.readout). */
bool pd_optim_has_readout(const pd_optim *optim);
/* Computes elements [first, first + n) of the weights to evaluate with. `weights` and `out` are these elements alone,
 * `weights` as the last step left them. Call it between two steps, and only if pd_optim_has_readout
 * returns true; several threads may call it for different elements. */
void pd_optim_read_out(const pd_optim *optim, const float *weights, float *out, int64_t first, int64_t n);

/* Sets the counter of steps. The next step has the number count + 1. Call it between two steps, in two cases:
 * - The parameters of a group count their steps together: the counter also advances in a step in which this parameter
 *   has no gradient.
 * - Saved state is restored.
 *
 * The counter may go back only while no task is captured. */
void pd_optim_set_count(pd_optim *optim, int64_t count);
/* Starts a step. io->gradient must not be NULL. The pointers in `io` must stay valid until the step is done. io->draws
 * must stay valid longer: until all tasks of the step have run, even if the optimizer is freed before. PD_NO_MEMORY:
 * there is no memory for the temporary slots; nothing has changed. */
int pd_optim_begin(pd_optim *optim, const pd_step_io *io);
/* returns true if no step is under way: the last one is complete, or failed */
bool pd_optim_done(const pd_optim *optim);
bool pd_optim_is_idle(const pd_optim *optim); /* returns true if no step is under way, and no task is pending */
/* returns the number of pending tasks, at the pool or back from it */
size_t pd_optim_tasks_left(const pd_optim *optim);
/* Returns why the last step failed: the optimizer's error text, with the parameter's name in front. Valid until the
 * next step begins. NULL: the step did not fail.
 *
 * A failed step counts as a step. The state keeps the changes of the phases before adopt_phase. The other phases did
 * not run, so the new weights were not written. (A step that fails because of its new weights has run all phases:
 * pd_optim_guard.)
 *
 * The result of the task that made the step fail is not stored, and the task counts as failed. Results of tasks before
 * it are stored as in any other step. Tasks after it that are due in this step are thrown away (pd_root_stats.dropped).
 * Tasks that are due in a later step stay. */
const pd_error *pd_optim_refused(const pd_optim *optim);

/* returns true if no step is under way, and no task is at the preconditioner pool */
bool pd_optim_is_quiesced(const pd_optim *optim);
/* Returns the optimizer of a parameter of a model, to read and write its state between two steps. */
pd_optim *pd_model_optim(const pd_model *model, size_t param);
/* Throws pending tasks away, and resets what is known of each root (pd_root_state), except the numbers of adopted and
 * failed tasks. Call it before the state is set back to its initial values (pd_optim_fill), and only while
 * pd_optim_is_quiesced returns true. */
void pd_optim_forget_roots(pd_optim *optim);

/* Makes the steps of n parameters an atomic group: if the optimizer of one of them refuses its step, all fail, with the
 * same error text. This is needed for parameters that count their steps together (counts_by_group).
 *
 * What the caller must keep to:
 * - All steps have begun, and none has run a phase.
 * - The list is in the order of the parameters.
 * - `group` stays valid until all steps are done.
 * - If one of the optimizers is freed before that, all of them are freed, and none runs further.
 *
 * How the steps wait for each other:
 * - Before any of them stores a new root, the steps of the group wait for each other. If no step can be refused,
 *   they do not wait.
 * - A step that waits for another one (pd_optim_waits) may continue when the other one has run, or when one of its
 *   tasks was delivered. So call pd_optim_waits for all steps of the group then.
 *
 * If several steps are refused, the first one in the list decides what happens to the tasks: results of tasks of the
 * steps before it in the list are stored, and results of tasks of the steps after it are thrown away. */
void pd_optim_bind(pd_optim *const *steps, size_t n, pd_atomic_group *group);
/* Does the same for an atomic group that also has steps in other processes. They count as one further step, which has
 * reported when pd_atomic_group_others was called, and the steps always wait for it. */
void pd_optim_bind_with_others(pd_optim *const *steps, size_t n, pd_atomic_group *group);
/* Returns whether all steps of such a group that belong to this process have reported. */
bool pd_atomic_group_has_all(const pd_atomic_group *group);
/* Returns whether a step that has reported fails. Its position in the list is then group->first - 1. */
bool pd_atomic_group_fails(const pd_atomic_group *group);
/* Reports whether a step of the group fails, in any process, and for which reason. `before`: number of the steps in the
 * list that come before the first step that fails, or are that step. A replay calls it before the steps run. */
void pd_atomic_group_others(pd_atomic_group *group, bool fails, size_t before, const char *why);

/* Makes the step that has just begun fail if it turns a finite weight into an infinite one or NaN. Has no effect if the
 * step writes the new weights over the old ones. All phases have run when such a step fails, so the state keeps the
 * changes of the step. */
void pd_optim_guard(pd_optim *optim);

/* Ends a step: frees its temporary memory. Makes the step fail if it is guarded (pd_optim_guard) and its new weights
 * are not finite. */
void pd_optim_end(pd_optim *optim);
void pd_optim_cancel(pd_optim *optim); /* undoes pd_optim_begin; the step must not have run a phase yet */

#endif
