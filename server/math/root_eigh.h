/* root_eigh.h - roots from a symmetric eigendecomposition. */
#ifndef PD_ROOT_EIGH_H
#define PD_ROOT_EIGH_H

#include "root_types.h"

/* Computes a root as pd_root does with PD_ROOT_EIGH or PD_ROOT_EIGH64, but without retries and without a shortcut for
 * diagonal matrices. */
int pd_root_eigh(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
int pd_root_eigh64(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
/* Computes the root of a dense float64 A (n, n) in float64, and rounds X to float32 at the end. Only for eigh64 with
 * PD_RIDGE_SHIFTED; no retries. A may exceed the range of float32. */
int pd_root_wide(pd_mat X, const double *A, const pd_root_want *want, pd_root_report *report);

#endif
