/* pending_root.h - pending roots (computed and not adopted yet) as lists of numbers, for exports and imports of
 * state.
 *
 * A task is captured when its inputs are copied, and adopted when its root replaces the one in use. The list of a
 * pending root begins with its task: index, step of the capture, status, why its inputs have no root (pd_unfit),
 * error, condition and time. The number of hyperparameters and their values at the capture follow, and then, unless
 * the task failed, the elements of all results. Called by the step thread. */
#ifndef PD_PENDING_ROOT_H
#define PD_PENDING_ROOT_H

#include "optimizer.h"

#define PD_PENDING_ROOT "pending_root" /* used in exports and imports in place of a slot's name */

/* Returns whether pending roots can be read: no step is under way, and all captured tasks are back from the root
 * pool. */
bool pd_pending_roots_are_back(const pd_optim *optim);
/* Returns how many numbers the list of pending root k has. Pending roots are numbered in the order of capture; k <
 * pd_optim_tasks_left. */
int64_t pd_pending_root_length(const pd_optim *optim, size_t k);
/* Copies numbers [first, first + n) of the list of pending root k. */
void pd_pending_root_read(const pd_optim *optim, size_t k, int64_t first, int64_t n, double *out);
/* Returns the length of the longest list that a pending root of the plan can have. */
int64_t pd_pending_root_most(const pd_plan *plan);
/* Checks that the n numbers `in` are the list of a pending root of this optimizer, if its counter of steps is set to
 * `count`. PD_INVALID_ARGUMENT: they are not. */
int pd_pending_root_check(const pd_optim *optim, const double *in, int64_t n, int64_t count, pd_error *err);
/* Adds a pending root from a list that pd_pending_root_check has accepted. PD_NO_MEMORY: nothing has changed. */
int pd_pending_root_write(pd_optim *optim, const double *in);

#endif
