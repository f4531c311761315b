/* root_report.h - reports a parameter's roots in the log and to operators. Step thread. */
#ifndef PD_ROOT_REPORT_H
#define PD_ROOT_REPORT_H

#include "steps.h"

/* Allocates param->roots.log, which stores what the log has reported of each root. PD_NO_MEMORY. */
int pd_roots_prepare(pd_param *param);
/* Logs which roots of the parameter have failed, or are good again after a failure. Call it after each batch. */
void pd_roots_watch(pd_steps *steps, pd_param *param);
/* Fills an entry of the operators' list of roots: the root that the preconditioner task with this index computes. */
void pd_roots_fill(pd_root_info *info, const pd_param *param, size_t task);
/* Fills those members of an entry of the operators' list of parameters that sum up the parameter's roots. */
void pd_roots_of_param(pd_param_info *info, const pd_param *param);

#endif
