/* root_newton.h - Google's coupled Newton iteration in float64. */
#ifndef PD_ROOT_NEWTON_H
#define PD_ROOT_NEWTON_H

#include "root_types.h"

/* Computes a root like pd_root does for PD_ROOT_NEWTON, but without retries and without the shortcut for diagonal
 * matrices. */
int pd_root_newton(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

#endif
