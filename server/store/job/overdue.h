/* overdue.h - deadlines of rounds and of initial weights. Step thread. */
#ifndef PD_OVERDUE_REPORTS_H
#define PD_OVERDUE_REPORTS_H

#include "job.h"

/* Returns when the next report is due; UINT64_MAX: never. */
uint64_t pd_overdue_next(const pd_job *job);
/* Reports what is overdue: those who wait get an error that names the ranks that they wait for. */
void     pd_overdue_tick(pd_job *job, uint64_t now_ns);

#endif
