/* root_tracked.h - computes roots in float32 from the last eigenbasis. */
#ifndef PD_ROOT_TRACKED_H
#define PD_ROOT_TRACKED_H

#include "root_types.h"

/* Computes a root like pd_root does for PD_ROOT_TRACKED, but without retries and without the shortcut for diagonal
 * matrices. */
int pd_root_tracked(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report);

#endif
