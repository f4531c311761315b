/* overdue.h - handles rounds that are open longer than step_timeout, and initial weights that are missing as long.
 * Step thread. */
#ifndef PD_OVERDUE_H
#define PD_OVERDUE_H

#include "job.h"

/* Returns the time of the next report of overdue rounds (open longer than step_timeout) or missing initial weights;
 * UINT64_MAX: none is due. */
uint64_t pd_overdue_next(const pd_job *job);
/* Makes pd_overdue_tick search soon for requests that wait for a rank which has left for good. Call it when a worker
 * has left, or a request has come that may wait for such a rank. The search takes place at once, unless one has just
 * taken place: searches take at most a hundredth of the time. */
void pd_overdue_look(pd_job *job);
/* Closes or reports overdue rounds, and reports missing initial weights. Workers that wait get an error which names the
 * ranks that they wait for. */
void pd_overdue_tick(pd_job *job, uint64_t now_ns);

#endif
