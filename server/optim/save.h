/* save.h - an optimizer's state as part of an image: all that a restart of the daemon must restore, byte for byte.
 * Called by the step thread. */
#ifndef PD_SAVE_H
#define PD_SAVE_H

#include "archive.h"
#include "optimizer.h"

/* Returns whether the whole state of the optimizer can be written now: no step is under way, and no task is at the
 * preconditioner pool or waits to be handed to it. Tasks that are back from the pool, but whose results are not used
 * yet, are written with their results. */
bool pd_optim_may_be_saved(const pd_optim *optim);
/* Returns whether the optimizer's state can be written by pd_optim_write: no step is under way, and no task waits to be
 * handed to the preconditioner pool. */
bool pd_optim_may_be_written(const pd_optim *optim);
/* Writes the state of an optimizer to an image, or reads it into an optimizer that was just made from the same
 * declaration. The next step after reading gives the same bits as it would have given without the restart.
 *
 * The state is: the tensors as they are stored, the counter of steps, and the record of each root. If tasks are back
 * whose results are not in the tensors yet, these results are part of the state, with the hyperparameters of their
 * tasks.
 *
 * If the image does not fit the optimizer, the archive gets an error. Then the optimizer must not be used: it can only
 * be freed. */
void pd_optim_visit(pd_archive *archive, pd_optim *optim);

/* Writes the state of an optimizer that is at rest to an image, except the results of tasks that are still at the
 * preconditioner pool. Returns how many these are. Each of them must be given to pd_optim_write_task when it is back,
 * before pd_optim_deliver; then pd_optim_write_end ends the writing. The optimizer may take steps meanwhile. Only one
 * image at a time may wait for the tasks of an optimizer. */
size_t pd_optim_write(pd_archive *archive, pd_optim *optim);
/* Writes the result of a task that is back, if the image waits for it. Returns whether it does. */
bool pd_optim_write_task(pd_archive *archive, pd_task *task);
void pd_optim_write_end(pd_archive *archive);

#define PD_PENDING_ROOT "pending_root" /* used in exports and imports in place of the name of a slot */

/* Returns whether pending roots can be read now: no step is under way, and all tasks are back from the preconditioner
 * pool. */
bool pd_pending_roots_are_back(const pd_optim *optim);
/* Returns how many numbers the list that stands for pending root k has. Pending roots are numbered in the order in
 * which the inputs of their tasks were copied; k < pd_optim_tasks_left. */
int64_t pd_pending_root_length(const pd_optim *optim, size_t k);
/* Copies numbers [first, first + n) of the list that stands for pending root k. */
void pd_pending_root_read(const pd_optim *optim, size_t k, int64_t first, int64_t n, double *out);
/* Returns the length of the longest list that can stand for a pending root of this plan. */
int64_t pd_pending_root_most(const pd_plan *plan);
/* Checks that the n numbers `in` stand for a pending root of this optimizer, when its counter of steps stands at
 * `count`. PD_INVALID_ARGUMENT: they do not. */
int pd_pending_root_check(const pd_optim *optim, const double *in, int64_t n, int64_t count, pd_error *err);
/* Adds a pending root from a list of numbers that pd_pending_root_check has accepted. PD_NO_MEMORY: nothing has
 * changed. */
int pd_pending_root_write(pd_optim *optim, const double *in);

#endif
