/* inbox.h - a queue of frames (network messages with tensors) whose elements must be scanned or copied before the
 * frames are filed: initial weights, and pushes if the job rejects values that are not finite (nonfinite = reject).
 * Step thread. */
#ifndef PD_INBOX_H
#define PD_INBOX_H

#include "job.h"

/* Takes ownership of a frame with initial weights. If initial weights are averaged, files it at once as a contribution;
 * otherwise puts it into the inbox, the queue of frames to copy. */
void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns);
/* Takes frames from the inbox (the queue of frames to scan or copy) for about one batch of work. Scans or copies the
 * elements of each frame, then files or refuses the frame. */
void pd_job_take_inbox(pd_job *job, uint64_t now_ns);

#endif
