/* adafactor_sums.h - the phases of adafactor that compute its moments. */
#ifndef PD_ADAFACTOR_SUMS_H
#define PD_ADAFACTOR_SUMS_H

#include "row.h"

/* runs per block: sums squares; for parameters that are not factored it also computes the new moment */
void pd_adafactor_sums(const pd_unit *unit);
void pd_adafactor_moments(const pd_unit *unit); /* runs per block: each call computes a share of v_row and v_col */
void pd_adafactor_means(const pd_unit *unit);   /* runs once: computes the means that divide v_row */

#endif
