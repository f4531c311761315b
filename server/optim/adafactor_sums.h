/* adafactor_sums.h - declares the phases of adafactor that compute its second moments. */
#ifndef PD_ADAFACTOR_SUMS_H
#define PD_ADAFACTOR_SUMS_H

#include "optimizer_ops.h"

/* called once per block: sums the squares of the block's gradients and weights; if the parameter is not factored, also
 * computes the block's new moment */
void pd_adafactor_sums(const pd_unit *unit);
/* called once per block: each call computes a share of the moments v_row and v_col */
void pd_adafactor_moments(const pd_unit *unit);
/* called once per step: computes the means by which v_row is divided, and the factors from v_row */
void pd_adafactor_means(const pd_unit *unit);

#endif
