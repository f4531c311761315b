/* adafactor_sums.h - the phases of adafactor that make its moments. */
#ifndef PD_ADAFACTOR_SUMS_H
#define PD_ADAFACTOR_SUMS_H

#include "row.h"

/* blocks: sums of squares; the new moment of what is not factored */
void pd_adafactor_sums(const pd_unit *unit);
void pd_adafactor_moments(const pd_unit *unit);     /* blocks: a share of the row and column moments each */
void pd_adafactor_means(const pd_unit *unit);       /* whole: the divisors of row moments */

#endif
