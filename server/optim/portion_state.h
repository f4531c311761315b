/* portion_state.h - copies the state of a parameter's optimizer to that of a portion of the parameter, and back.
 * Offline only: paramctl reshard cuts and joins parameters when their job moves to another number of daemons.
 *
 * A portion is some rows (indices of the first dimension) of a parameter that placement.h may cut. Its optimizer has a
 * plan of its own. Slots with the parameter's shape are cut along their rows. Slots of blocks, preconditioner tasks and
 * roots belong to one portion each. All other slots, such as single numbers, are the same in each portion. */
#ifndef PD_PORTION_STATE_H
#define PD_PORTION_STATE_H

#include "optimizer_types.h"

/* Frees the memory of an optimizer's state, and its pending tasks. No step may be under way. Until pd_optim_load only
 * the plan may be used. */
void pd_optim_unload(pd_optim *optim);
/* Allocates the memory of the state again, all zeros. PD_NO_MEMORY: nothing has changed. */
int pd_optim_load(pd_optim *optim);

/* Copies the state of rows [row, ...) of a parameter to the optimizer of the portion that has these rows. A portion may
 * have all rows. PD_INTERNAL: the plans do not fit together. PD_NO_MEMORY. */
int pd_optim_cut(pd_optim *portion, const pd_optim *whole, int64_t row, pd_error *err);
/* Copies the state of a portion to these rows of the parameter. Call it for all portions, the first rows first. What
 * all portions have in common must be equal. PD_DATA_LOSS: it is not. Further errors are those of pd_optim_cut. */
int pd_optim_join(pd_optim *whole, const pd_optim *portion, int64_t row, pd_error *err);

#endif
