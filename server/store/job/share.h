/* share.h - gives workers the job's weights in shared memory. Step thread. */
#ifndef PD_SHARE_H
#define PD_SHARE_H

#include "job.h"

/* Answers a worker with a descriptor of the segment that has its job's weights, if there is one. Takes ownership of the
 * request. */
void pd_job_share(pd_job *job, pd_request *request);

#endif
