/* root_eigh.h - roots from a symmetric eigendecomposition. */
#ifndef PD_ROOT_EIGH_H
#define PD_ROOT_EIGH_H

#include "root_types.h"

/* As pd_root by PD_ROOT_EIGH and PD_ROOT_EIGH64, without retries. Diagonal matrices are like all others. */
int pd_root_eigh(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
int pd_root_eigh64(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
/* The root of a float64 A (n, n), dense: computed in float64, X rounded to float32 at the end. Only for eigh64 with
 * PD_RIDGE_SHIFTED; no retries. A may exceed float32. */
int pd_root_wide(pd_mat X, const double *A, const pd_root_want *want, pd_root_report *report);

#endif
