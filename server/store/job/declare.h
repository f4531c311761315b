/* declare.h - a rank declares its set of parameters: the first rank's set is planned (planning.h), the other ranks
 * must declare the same set. Step thread. */
#ifndef PD_DECLARE_H
#define PD_DECLARE_H

#include "job.h"

/* Takes a Declare. Answers it at once if that takes little time; otherwise pd_job_declare_some answers it later. */
void pd_job_declare(pd_job *job, pd_request *request, uint64_t now_ns);
/* Works at the Declares that are not answered yet, for about `budget_ns` nanoseconds of one core. */
void pd_job_declare_some(pd_job *job, double budget_ns, uint64_t now_ns);
/* Answers all waiting Declares with `err`, because the job ends. Discards a plan that is not finished. */
void pd_job_refuse_declares(pd_job *job, const pd_error *err);

#endif
