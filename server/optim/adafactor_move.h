/* adafactor_move.h - the phases of adafactor that use its moments. */
#ifndef PD_ADAFACTOR_MOVE_H
#define PD_ADAFACTOR_MOVE_H

#include "row.h"

void pd_adafactor_lengths(const pd_unit *unit);     /* blocks: sums of the update's squares */
void pd_adafactor_limits(const pd_unit *unit);      /* whole: each group's rate and clip */
void pd_adafactor_move(const pd_unit *unit);        /* blocks */

#endif
