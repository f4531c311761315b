/* lingering.h - tells a worker about a job that lingers: all its workers are gone, and the job waits for new ones. */
#ifndef PD_LINGERING_H
#define PD_LINGERING_H

#include "job.h"

/* Returns for how many more milliseconds the job lingers, rounded up; 0: a worker is connected. */
uint32_t pd_linger_ms(const pd_job *job, uint64_t now_ns);
/* Adds to the error of a refused Hello that the job lingers, at which step it is, and what the user can do. Changes
 * nothing if a worker is connected. */
void pd_linger_explain(pd_job *job, uint64_t now_ns, pd_error *err);

#endif
