/* push.h - pushes: contributions of a rank to the rounds of its parameters. Step thread. */
#ifndef PD_PUSH_H
#define PD_PUSH_H

#include "job.h"

/* Takes a push. Files or refuses it at once; with nonfinite = reject it is put into the inbox, to be scanned first. */
void pd_job_push(pd_job *job, pd_request *request, uint64_t now_ns);
/* Looks for infinities and NaN in a push from the inbox, then files or refuses it. Takes the push. */
void pd_push_take_scanned(pd_job *job, pd_request *frame, uint64_t now_ns);

#endif
