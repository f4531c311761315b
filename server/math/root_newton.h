/* root_newton.h - Google's coupled Newton iteration in float64. */
#ifndef PD_ROOT_NEWTON_H
#define PD_ROOT_NEWTON_H

#include "root_types.h"

/* As pd_root by PD_ROOT_NEWTON, without retries. Diagonal matrices are like all others. */
int pd_root_newton(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

#endif
