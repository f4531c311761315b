/* push.h - pushes: contributions of a rank to the rounds of its parameters; and the inbox, a queue of frames whose
 * elements must be scanned or copied before the frames are filed: initial weights, and pushes under nonfinite = reject.
 * Step thread. */
#ifndef PD_PUSH_H
#define PD_PUSH_H

#include "job.h"

/* Takes ownership of a push. Files or refuses it at once; but if nonfinite = reject, it may have to be scanned first
 * and is put into the inbox. */
void pd_job_push(pd_job *job, pd_request *request, uint64_t now_ns);

/* Takes ownership of a frame with initial weights. If initial weights are averaged, files it at once as a contribution;
 * otherwise puts it into the inbox, the queue of frames to copy. */
void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns);
/* Takes frames from the inbox for about one batch of work. Scans or copies the elements of each frame, then files or
 * refuses the frame. */
void pd_job_take_inbox(pd_job *job, uint64_t now_ns);

#endif
