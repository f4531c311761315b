/* kick.h - removes a rank from a job, because an operator has asked for it. Step thread. */
#ifndef PD_KICK_H
#define PD_KICK_H

#include "job.h"

/* Removes the rank that the request names, and answers. Its connection is ended, and its process cannot come back; a
 * new process may take the rank. With on_lost_worker = shrink the unit of the rank is no member any more, also if the
 * rank never came. With `wait` the rank stays a member, and the job waits for the new process. With `fail` returns
 * false: the job must end, and *err says why. Takes ownership of the request. */
bool pd_job_kick(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err);

/* Checks that no operator has removed the process that sends a Hello. PD_ABORTED. */
int pd_kick_admits(const pd_job *job, const pd_request *hello, pd_error *err);

#endif
