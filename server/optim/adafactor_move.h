/* adafactor_move.h - declares the phases of adafactor that compute clip factors and new
 * weights from its second moments. */
#ifndef PD_ADAFACTOR_MOVE_H
#define PD_ADAFACTOR_MOVE_H

#include "optimizer_ops.h"

/* called once per block: sums the squares of the updates of the block's elements, for
 * clipping */
void pd_adafactor_lengths(const pd_unit *unit);
/* called once per step: computes learning rate and clip factor of each group (one of the independent tensors that a
 * parameter may stack) */
void pd_adafactor_limits(const pd_unit *unit);
/* called once per block: computes the new weights and the new momentum of the block */
void pd_adafactor_move(const pd_unit *unit);

#endif
