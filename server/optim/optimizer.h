/* optimizer.h - one parameter's optimizer, and its steps in pieces that a scheduler runs in batches.
 *
 * Life of a step (one owner thread: the step thread, or whoever calls):
 *
 *     pd_optim_begin(optim, io)               nothing has run yet; count advanced
 *     do {
 *         pd_batch_run(list, n, threads)      runs each step's phases as far as they go, under shared parallel regions
 *         while ((task = pd_optim_capture(optim)) != NULL) hand it to the root pool   (pd_task_run, then ...)
 *         pd_optim_deliver(optim, task)       when it is back
 *     } while (!pd_optim_done(optim))         a step whose due task is away is parked: pd_optim_waits
 *
 * Steps of different parameters are independent unless they are in one atomic group (pd_optim_bind). They may be
 * batched in any company: the bits are the same. */
#ifndef PD_OPTIMIZER_H
#define PD_OPTIMIZER_H

#include "optimizer_types.h"
#include "part.h"
#include "plan_bytes.h"
#include "plan_make.h"
#include "survey.h"
#include "task.h"

/* Plans and allocates initial state. Copies what it needs of `declaration`. Gives *out.
 * PD_INVALID_ARGUMENT: refused by the row. PD_NO_MEMORY. */
int  pd_optim_new(pd_optim **out, const pd_declaration *declaration, const double *fact, pd_error *err);
/* The same from a plan that was made of these arguments. Takes the plan's arrays and leaves it empty. PD_NO_MEMORY. */
int  pd_optim_planned(pd_optim **out, const pd_declaration *declaration, const double *fact, pd_plan *plan,
                      pd_error *err);
/* The same without initial values, which take long to write: call pd_optim_fill until it returns true. */
int  pd_optim_bare(pd_optim **out, const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);
/* Writes initial values until they are complete or *budget_ns is used up, and subtracts the estimated time from
 * it. A quantized slot is written whole. True: all values are written. False with PD_NO_MEMORY in *rc: nothing has
 * changed. */
bool pd_optim_fill(pd_optim *optim, pd_fill *at, double *budget_ns, int *rc);
void pd_optim_free(pd_optim *optim);                        /* accepts NULL; also during a step */

const pd_plan   *pd_optim_plan(const pd_optim *optim);
const pd_hypers *pd_optim_hypers(const pd_optim *optim);
int64_t          pd_optim_count(const pd_optim *optim);     /* of the step begun last; 0: none yet */
int64_t          pd_optim_elements(const pd_optim *optim);
int64_t          pd_optim_state_bytes(const pd_optim *optim);
/* Borrowed view of slot i, for tests; 0 <= i < plan->n_slots. A temporary or coded slot has memory only during a step.
 * The pointer to a float64 slot must be cast. */
pd_tensor        pd_optim_slot(const pd_optim *optim, size_t i);
/* Estimated time of one step on one core, from bytes moved and operations: for bounded batches. */
double           pd_optim_cost_ns(const pd_optim *optim);
pd_root_stats    pd_optim_root_stats(const pd_optim *optim);
pd_root_state    pd_optim_root(const pd_optim *optim, size_t task);     /* by plan->tasks; 0 <= task < plan->n_tasks */

/* Sets the counter, between two steps and never back: the next step counts as count + 1. For a group of parameters that
 * counts together, whose counter runs on while this one has no gradient; and for state that was saved. */
void pd_optim_set_count(pd_optim *optim, int64_t count);
/* Starts a step. io->gradient must not be NULL. The pointers are borrowed until the step is done, and io->draws until
 * each task that the step captured has run, which may be after the optimizer is freed.
 * PD_NO_MEMORY (temporaries): nothing has changed. */
int  pd_optim_begin(pd_optim *optim, const pd_step_io *io);
/* no step is under way: all phases have run, or the step failed */
bool pd_optim_done(const pd_optim *optim);
/* no step is under way, and no task is away or kept for later */
bool pd_optim_rests(const pd_optim *optim);
/* Returns why the last step failed (the row's refusal, with the parameter's name), until the next one begins; NULL: it
 * did not fail. A failed step is counted, and its phases before adopt_phase keep their effect on the slots. The other
 * phases were not run, and `after` was not written. The refused task counts as failed and is noted. Tasks before it are
 * adopted, or failed, as in any other step. Tasks behind it are thrown away (pd_root_stats.dropped). Tasks that are not
 * due yet stay. */
const pd_error *pd_optim_refused(const pd_optim *optim);

/* Makes n steps an atomic group: if one is refused, all fail, with the same text. Needed for steps of rows with
 * counts_by_group whose parameters are of one group. All steps have begun, none has run, and they are in the order
 * of the parameters. Each waits for the others before its tasks are adopted. Of several members that refuse the
 * first one counts: tasks of members before it are adopted, tasks of members behind it are thrown away. Where no
 * member has a task to adopt nothing can be refused, and no member waits. `group` is the caller's memory until all
 * are done. If one member is freed before, all must be freed, unrun. A member that waits for another one
 * (pd_optim_waits) may go on when the other has run or got a task: look at all then. */
void pd_optim_bind(pd_optim *const *steps, size_t n, pd_atomic_group *group);

/* ---- for batch.c and model.c ---- */

/* Ends a step: frees its temporary memory. */
void pd_optim_end(pd_optim *optim);
/* Undoes pd_optim_begin, before anything has run. */
void pd_optim_cancel(pd_optim *optim);

#endif
