/* adafactor_move.h - the phases of adafactor that use its moments. */
#ifndef PD_ADAFACTOR_MOVE_H
#define PD_ADAFACTOR_MOVE_H

#include "row.h"

void pd_adafactor_lengths(const pd_unit *unit); /* runs per block: sums the squares of the block's updates */
void pd_adafactor_limits(const pd_unit *unit);  /* runs once: computes the rate and the clip factor of each group */
void pd_adafactor_move(const pd_unit *unit);    /* runs per block: computes the new weights */

#endif
