/* inbox.h - frames that need arithmetic before they are taken: initial weights, and pushes under nonfinite = reject.
 * Step thread. */
#ifndef PD_INBOX_H
#define PD_INBOX_H

#include "job.h"

/* Takes a frame of initial weights: files it where they are averaged, else puts it into the inbox. */
void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns);
/* Takes frames out of the inbox for about one batch: scanned or copied, then taken or refused. */
void pd_job_take_inbox(pd_job *job, uint64_t now_ns);

#endif
