/* root_newton.h - inverse matrix roots by the Newton iteration in float64 of Google's Distributed Shampoo. */
#ifndef PD_ROOT_NEWTON_H
#define PD_ROOT_NEWTON_H

#include "root_types.h"

/* Computes a root as pd_root does for PD_ROOT_NEWTON, but without retries, and without computing diagonal matrices
 * element by element. */
int pd_root_newton(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

#endif
