/* root_coupled.h - inverse matrix roots by two iterations in float32 of Meta's Distributed Shampoo. */
#ifndef PD_ROOT_COUPLED_H
#define PD_ROOT_COUPLED_H

#include "root_types.h"

/* These functions compute a root as pd_root does for PD_ROOT_COUPLED and PD_ROOT_HIGHER_ORDER, but without retries, and
 * without computing diagonal matrices element by element. */
int pd_root_coupled(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
int pd_root_higher_order(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

#endif
