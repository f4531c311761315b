/* pending_root.h - pending roots as lists of numbers, for exports and imports of optimizer state. A pending root is a
 * matrix root that is computed, but not yet stored in the state.
 *
 * A preconditioner task is captured when its inputs are copied, and adopted when its root replaces the one in use. The
 * list of a pending root begins with numbers about its task: its index, the step of the capture, its status, why its
 * inputs have no root (pd_unfit), the root's error, the condition number and the time. The number of hyperparameters
 * and their values at the capture follow, and then, unless the task failed, the elements of all results. Called by the
 * step thread. */
#ifndef PD_PENDING_ROOT_H
#define PD_PENDING_ROOT_H

#include "optimizer.h"

#define PD_PENDING_ROOT "pending_root" /* used in exports and imports in place of the name of a state tensor */

/* Returns whether pending roots (matrix roots not yet stored in the optimizer state) can be read now: no step is under
 * way, and all preconditioner tasks are back from the preconditioner pool. */
bool pd_pending_roots_are_back(const pd_optim *optim);
/* Returns how many numbers the list that stands for pending root k (a matrix root not yet stored in the optimizer
 * state) has. Pending roots are numbered in the order in which the inputs of their tasks were copied; k <
 * pd_optim_tasks_left. */
int64_t pd_pending_root_length(const pd_optim *optim, size_t k);
/* Copies numbers [first, first + n) of the list that stands for pending root k. */
void pd_pending_root_read(const pd_optim *optim, size_t k, int64_t first, int64_t n, double *out);
/* Returns the length of the longest list that can stand for a pending root of this plan. */
int64_t pd_pending_root_most(const pd_plan *plan);
/* Checks that the n numbers `in` stand for a pending root of this optimizer (a matrix root not yet stored in its
 * state), when its counter of steps stands at `count`. PD_INVALID_ARGUMENT: they do not. */
int pd_pending_root_check(const pd_optim *optim, const double *in, int64_t n, int64_t count, pd_error *err);
/* Adds a pending root from a list of numbers that pd_pending_root_check has accepted. PD_NO_MEMORY: nothing has
 * changed. */
int pd_pending_root_write(pd_optim *optim, const double *in);

#endif
