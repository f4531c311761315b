/* root_report.h - reports a parameter's inverse roots to the log and to operators. Step thread. */
#ifndef PD_ROOT_REPORT_H
#define PD_ROOT_REPORT_H

#include "steps.h"

/* Allocates the records of what the log has reported of the parameter's roots. PD_NO_MEMORY. */
int pd_roots_prepare(pd_param *param);
/* Logs which roots of the parameter have failed or are good again. Called after each batch. */
void pd_roots_watch(pd_steps *steps, pd_param *param);
/* Fill one entry of the list of roots, and the sums over a parameter's roots in its entry of the list of parameters. */
void pd_roots_fill(pd_root_info *info, const pd_param *param, size_t task);
void pd_roots_of_param(pd_param_info *info, const pd_param *param);

#endif
