/* push_scalars.h - reads the caller's scalars of a push (numbers beside the gradients, such as a loss), sends them
 * with one frame, and returns their means to the caller. */
#ifndef PD_PUSH_SCALARS_H
#define PD_PUSH_SCALARS_H

#include "core_state.h"
#include "pieces.h"

/* The scalars of one push as fields of a frame. The names in it point to the caller's memory. */
typedef struct pd_scalar_load {
    Paramd__Scalar scalar[PD_PUSH_SCALARS], *list[PD_PUSH_SCALARS];
    size_t n;
} pd_scalar_load;

/* Reads and checks the scalars that the caller gave with a push. `options` may be NULL. PD_INVALID_ARGUMENT: a scalar
 * is not valid. PD_RESOURCE_EXHAUSTED: there are too many. */
int pd_scalars_read(pd_scalar_load *load, const pd_push_options *options, pd_error *err);
/* Chooses the item (parameter of the push) whose frame carries the scalars, and notes it in op->bearer. Ranks that push
 * the same parameters choose the same item. Also sets the means of the scalars, which are results, to 0.
 * PD_INVALID_ARGUMENT: this rank has no elements of the chosen parameter. */
int pd_scalars_begin(const pd_core *core, pd_op *op, const pd_push_options *options, pd_error *err);
/* Copies the means of the scalars over all ranks to the caller, from the answer for the item whose frame carried
 * them. */
void pd_scalars_note(const pd_op *op, const Paramd__Outcome *outcome);

#endif
