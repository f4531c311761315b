/* inbox.h - a queue of frames whose elements must be scanned or copied before the frames are filed: initial weights,
 * and pushes under nonfinite = reject. Step thread. */
#ifndef PD_INBOX_H
#define PD_INBOX_H

#include "job.h"

/* Takes a frame of initial weights. Files it at once if initial weights are averaged; otherwise puts it into the
 * inbox. */
void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns);
/* Takes frames from the inbox for about one batch of work. Scans or copies each frame, then files or refuses it. */
void pd_job_take_inbox(pd_job *job, uint64_t now_ns);

#endif
