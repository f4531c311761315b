/* info.h - answers operators' lists: status, jobs, parameters, workers, roots, overrides, state; a page of each. Step thread. */
#ifndef PD_INFO_H
#define PD_INFO_H

#include "jobs.h"

/* Answers a PD_REQ_INFO. Takes the request. */
void pd_info_answer(const pd_jobs *jobs, pd_effects *outbox, bool draining, pd_request *request);

#endif
