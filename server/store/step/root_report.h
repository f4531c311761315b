/* root_report.h - reports a parameter's matrix roots to the log and to operators. Step thread. */
#ifndef PD_ROOT_REPORT_H
#define PD_ROOT_REPORT_H

#include "steps.h"

/* Allocates the records of what the log has reported of each root of the parameter. PD_NO_MEMORY. */
int pd_roots_prepare(pd_param *param);
/* Logs which matrix roots of the parameter have failed, or are good again. Called after each batch of steps. */
void pd_roots_watch(pd_steps *steps, pd_param *param);
/* pd_roots_fill fills one entry of the operators' list of matrix roots; pd_roots_of_param fills the members of a
 * parameter's list entry that sum up its roots. */
void pd_roots_fill(pd_root_info *info, const pd_param *param, size_t task);
void pd_roots_of_param(pd_param_info *info, const pd_param *param);

#endif
