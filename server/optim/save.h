/* save.h - an optimizer's state as part of an image: all that a restart of the daemon must restore, byte for byte.
 * Called by the step thread. */
#ifndef PD_SAVE_H
#define PD_SAVE_H

#include "archive.h"
#include "optimizer.h"

/* Returns whether the whole state can be written by pd_optim_visit: no step is under way, and all pending tasks are
 * back from the preconditioner pool. */
bool pd_optim_may_be_saved(const pd_optim *optim);
/* Returns whether the state can be written by pd_optim_write: no step is under way, and no task waits to be handed to
 * the preconditioner pool. */
bool pd_optim_may_be_written(const pd_optim *optim);
/* Writes the state of an optimizer to an image, or reads it into an optimizer that was just made from the same
 * declaration. The next step after reading gives the same bits as it would have given without the restart.
 *
 * The state is: the slots as they are stored, the counter of steps, the pd_root_state of each root, and the results of
 * pending tasks with their hyperparameters.
 *
 * If the image does not fit the optimizer, the archive gets an error. Then the optimizer must not be used: it can only
 * be freed. */
void pd_optim_visit(pd_archive *archive, pd_optim *optim);

/* Writes the state to an image, except the results of tasks that are still at the preconditioner pool. Returns how many
 * these are. Each of them must be given to pd_optim_write_task when it is back, before pd_optim_deliver; then
 * pd_archive_leave ends the writing. The optimizer may take steps meanwhile. Only one image at a time may wait for the
 * tasks of an optimizer. */
size_t pd_optim_write(pd_archive *archive, pd_optim *optim);
/* Writes the result of a task that is back, if the image waits for it. Returns true if it has written the result; the
 * image then no longer waits for this task. */
bool pd_optim_write_task(pd_archive *archive, pd_task *task);

#define PD_PENDING_ROOT "pending_root" /* used in exports and imports in place of the name of a slot */

/* Returns the number of numbers in pending root k. Exports and imports see a pending task as a pending root: a list of
 * numbers. Pending roots are numbered in the order of capture, k < pd_optim_tasks_left. They can be read only while
 * pd_optim_may_be_saved returns true. */
int64_t pd_pending_root_length(const pd_optim *optim, size_t k);
/* Copies numbers [first, first + n) of pending root k to `out`. */
void pd_pending_root_read(const pd_optim *optim, size_t k, int64_t first, int64_t n, double *out);
int64_t pd_pending_root_most(const pd_plan *plan); /* returns the length of the longest pending root */
/* Checks that the n numbers `in` are a pending root of this optimizer after `count` steps. PD_INVALID_ARGUMENT: they
 * are not. */
int pd_pending_root_check(const pd_optim *optim, const double *in, int64_t n, int64_t count, pd_error *err);
/* Adds a pending root that pd_pending_root_check has accepted. PD_NO_MEMORY: nothing has changed. */
int pd_pending_root_write(pd_optim *optim, const double *in);

#endif
