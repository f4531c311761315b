/* push.h - handles pushes, which bring a rank's contributions; and the inbox, a queue of frames whose elements must be
 * scanned or copied before the frames are filed: initial weights, and pushes under nonfinite = reject. Step thread. */
#ifndef PD_PUSH_H
#define PD_PUSH_H

#include "job.h"

/* Takes ownership of a push. Adds its contributions to their rounds, or refuses it, at once. If nonfinite = reject, a
 * push whose elements must be checked first goes into the inbox instead. */
void pd_job_push(pd_job *job, pd_request *request, uint64_t now_ns);

/* Takes ownership of a frame with initial weights. If the job averages initial weights, adds it at once to its
 * round as a contribution; otherwise puts it into the inbox. */
void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns);
/* Notes that a rank waits for ingest memory (PD_REQ_STALLED), once the frames in the inbox are filed: only then the
 * rank holds memory of which it can be relieved. Takes ownership of the request. */
void pd_job_stalled(pd_job *job, pd_request *request);
/* Takes frames from the inbox for about one batch of work. Scans or copies the elements of each frame, then files or
 * refuses the frame. */
void pd_job_take_inbox(pd_job *job, uint64_t now_ns);

#endif
