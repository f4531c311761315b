/* info.h - answers operators' requests for a page of a list: of jobs, parameters, workers, roots, overrides,
 * state, rounds or members.
 * Step thread. */
#ifndef PD_INFO_H
#define PD_INFO_H

#include "effects.h"
#include "request.h"

/* The struct pd_jobs is defined in jobs.h. That header is not included here, because the loop thread uses this one,
 * too, and must not see jobs. */
struct pd_jobs;

/* Returns the description of list number `what`, in the numbers of ListKind in paramd.proto; 0 is the list of jobs
 * that the Status request gets. NULL: no list has this number. */
const pd_info_list *pd_info_list_of(uint32_t what);
/* Answers a PD_REQ_INFO, an operator's request for one page of a list, for about *budget_ns, from which it subtracts
 * the time. Returns false if the answer needs more time: call again with the same request. The list of jobs leaves out
 * jobs for which the operator has no role. Only an admin of a job sees the identities and nonces of its workers.
 * `roles` NULL: the server has none. Takes ownership of the request when it is answered. */
bool pd_info_answer_some(const struct pd_jobs *jobs, pd_roles *roles, pd_effects *outbox, bool draining,
                         pd_request *request, double *budget_ns, uint64_t now_ns);

#endif
