/* root_coupled.h - Meta's coupled iterations in float32. */
#ifndef PD_ROOT_COUPLED_H
#define PD_ROOT_COUPLED_H

#include "root_types.h"

/* Compute a root like pd_root does for PD_ROOT_COUPLED and PD_ROOT_HIGHER_ORDER, but without retries and without the
 * shortcut for diagonal matrices. */
int pd_root_coupled(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);
int pd_root_higher_order(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report);

#endif
