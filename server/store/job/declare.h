/* declare.h - handles Declare requests, in which each rank lists its parameters. The parameters of the first rank are
 * planned (planning.h), and the other ranks must declare the same ones. Step thread. */
#ifndef PD_DECLARE_H
#define PD_DECLARE_H

#include "job.h"

/* Takes ownership of a Declare. Answers it at once if that takes little time and no
 * other one waits; otherwise pd_job_declare_some answers it later. */
void pd_job_declare(pd_job *job, pd_request *request, uint64_t now_ns);
/* Works at the Declares that are not answered yet, oldest first, for about `budget_ns` nanoseconds of one core. */
void pd_job_declare_some(pd_job *job, double budget_ns, uint64_t now_ns);
/* Answers all waiting Declares with `err`, because the job ends. If the first rank's parameters are still being
 * planned, the unfinished plan is discarded. */
void pd_job_refuse_declares(pd_job *job, const pd_error *err);

#endif
