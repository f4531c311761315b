/* info.h - answers operators' lists: status, jobs, parameters, workers, roots, overrides, state; a page of each. Step
 * thread. */
#ifndef PD_INFO_H
#define PD_INFO_H

#include "effects.h"
#include "request.h"

/* The struct pd_jobs is defined in jobs.h. That header is not included here, because the loop thread uses this one,
 * too, and must not see jobs. */
struct pd_jobs;
struct pd_job;

/* Returns the description of list number `what`, in the numbers of ListKind in paramd.proto; 0 is the list of jobs
 * that the Status request gets. NULL: no list has this number. */
const pd_info_list *pd_info_list_of(uint32_t what);
/* Answers a PD_REQ_INFO, an operator's request for one page of a list. The list of jobs leaves out those for which the
 * operator has no role, and only an admin of a job sees identities and nonces of its workers. `roles` NULL: the server
 * has none. Takes ownership of the request. */
void pd_info_answer(const struct pd_jobs *jobs, const pd_roles *roles, pd_effects *outbox, bool draining,
                    pd_request *request, uint64_t now_ns);
/* Fill the entry of a job in the list of jobs, and that of a rank in the list of workers. */
void pd_info_fill_job(pd_job_info *info, struct pd_job *job, uint64_t now_ns);
void pd_info_fill_worker(pd_worker_info *info, const struct pd_job *job, uint32_t rank);

#endif
