/* lingering.h - describes a job that lingers (all its workers are gone, and it waits for new ones) to a worker. Step
 * thread. */
#ifndef PD_LINGERING_H
#define PD_LINGERING_H

#include "job.h"

/* Returns for how many more milliseconds the job lingers (waits for new workers before it ends), rounded up; 0: a
 * worker is connected, so the job does not linger. */
uint32_t pd_linger_ms(const pd_job *job, uint64_t now_ns);
/* Adds to the error of a refused Hello that the job lingers (waits for new workers), at which step it is, and what
 * the user can do. Changes nothing if a worker is connected. */
void pd_linger_explain(pd_job *job, uint64_t now_ns, pd_error *err);

#endif
