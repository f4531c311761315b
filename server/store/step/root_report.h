/* root_report.h - reports a parameter's inverse roots to the log and to operators. Step thread. */
#ifndef PD_ROOT_REPORT_H
#define PD_ROOT_REPORT_H

#include "steps.h"

/* Makes memory for what the log has reported of the parameter's roots. PD_NO_MEMORY. */
int  pd_roots_prepare(pd_param *param);
/* Logs, after a batch, which roots have failed or are good again. */
void pd_roots_watch(pd_steps *steps, pd_param *param);
/* Fills an entry of the list of roots; and the sums over a parameter's roots in the list of parameters. */
void pd_roots_fill(pd_root_info *info, const pd_param *param, size_t task);
void pd_roots_of_param(pd_param_info *info, const pd_param *param);

#endif
