/* generation.h - lets the workers of a launch that was formed again take over a job that lives. Step thread.
 *
 * A launch (such as torchrun's) may end its processes and start others, possibly of another number. The Hellos of its
 * workers then give a higher generation. The first of them ends the connections of all earlier processes, which cannot
 * come back. If the number of workers is the same, the new processes take the ranks of the old ones, and the job goes
 * on from its last step. If it is another one, the job is resized (image/resize.h) as soon as no step is under way;
 * until then the new workers wait. */
#ifndef PD_GENERATION_H
#define PD_GENERATION_H

#include "job.h"

/* Returns whether the Hello is of a later launch than the workers that the job has. */
bool pd_generation_is_later(const pd_job *job, const pd_request *hello);
/* Checks that the Hello is not of an earlier launch. PD_FAILED_PRECONDITION. */
int pd_generation_check(const pd_job *job, const pd_request *hello, pd_error *err);
/* Lets the launch of a Hello, which is later, take over the job: ends the connections of all workers, and refuses those
 * that wait at a barrier. The caller has checked that the Hello describes the job. */
void pd_generation_rise(pd_job *job, const pd_request *hello, uint64_t now_ns);
/* Returns whether no worker is connected, and each was lost for longer than reconnect_grace. */
bool pd_generation_has_gone(const pd_job *job, uint64_t now_ns);

#endif
