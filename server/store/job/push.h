/* push.h - pushes: contributions of a rank to the rounds of its parameters. Step thread. */
#ifndef PD_PUSH_H
#define PD_PUSH_H

#include "job.h"

/* Takes ownership of a push. Files or refuses it at once; but if nonfinite = reject, it may have to be scanned first
 * and is put into the inbox (the queue of frames to scan). */
void pd_job_push(pd_job *job, pd_request *request, uint64_t now_ns);
/* Handles a push from the inbox: looks for infinities and NaN, then files or refuses it. Takes ownership of the
 * push. */
void pd_push_take_scanned(pd_job *job, pd_request *frame, uint64_t now_ns);

#endif
