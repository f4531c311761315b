/* root_tracked.h - roots in float32 from the last eigenbasis. */
#ifndef PD_ROOT_TRACKED_H
#define PD_ROOT_TRACKED_H

#include "root_types.h"

/* As pd_root by PD_ROOT_TRACKED, without retries. Diagonal matrices are like all others. */
int pd_root_tracked(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report);

#endif
