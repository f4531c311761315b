/* succession.h - decides what becomes of a job when a Hello comes for its name: the process continues it, waits, is
 * refused, or begins the job anew. PROTOCOL.md, section 7, has the same table. Step thread. */
#ifndef PD_SUCCESSION_H
#define PD_SUCCESSION_H

#include "job.h"

/* Decides about a Hello for the name of this job. PD_OK: *anew says whether the Hello begins the job anew, which ends
 * this one, or continues it. PD_UNAVAILABLE: the worker must wait, and the text says for whom. PD_ALREADY_EXISTS: the
 * job is in training. PD_FAILED_PRECONDITION: the job belongs to another run. PD_NOT_FOUND: the Hello rejoins a job
 * that is over. */
int pd_succession_decide(pd_job *job, const pd_request *hello, uint64_t now_ns, bool *anew, pd_error *err);
/* Fails with PD_UNAVAILABLE: a worker that only joins waits until rank 0 has created the job. */
int pd_succession_wait_for_creator(const pd_request *hello, pd_error *err);
/* Notes that the process of this Hello continues the job: with the intent to resume, the job belongs to its run from
 * now on. PD_NO_MEMORY. */
int pd_succession_take_run(pd_job *job, const pd_request *hello, pd_error *err);

#endif
