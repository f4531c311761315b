/* declare.h - a rank declares its set of parameters: the first rank's is planned (planning.h), the others must
 * declare the same. Step thread. */
#ifndef PD_DECLARE_H
#define PD_DECLARE_H

#include "job.h"

/* Takes a Declare: answers it at once where that takes little time, else in pd_job_declare_some. */
void pd_job_declare(pd_job *job, pd_request *request, uint64_t now_ns);
/* Works at the Declares that wait, for about so long (ns of one core). */
void pd_job_declare_some(pd_job *job, double budget_ns, uint64_t now_ns);
/* Answers all Declares that wait with `err`: the job ends. A set that is being planned is forgotten. */
void pd_job_refuse_declares(pd_job *job, const pd_error *err);

#endif
