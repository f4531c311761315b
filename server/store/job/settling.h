/* settling.h - answers the workers that carry tallies between the shards of a job (step/settle.h). Step thread.
 *
 * A worker asks each shard for its next tally, and when it has one of each, brings all of them to each shard. All ranks
 * do so, so none can be missed. A rank may have one request of each kind under way; a new ask replaces the old one. */
#ifndef PD_SETTLING_H
#define PD_SETTLING_H

#include "job.h"

/* Handles a PD_REQ_SETTLE. It waits if this shard has not made the tally yet. Takes ownership of the request. */
void pd_job_settle(pd_job *job, pd_request *request);
/* Answers requests whose tallies were made, and takes the verdicts among them. Call it after each request and each
 * batch of work. */
void pd_settling_look(pd_job *job, uint64_t now_ns);
/* Refuses all requests that wait. */
void pd_settling_refuse(pd_job *job, const pd_error *err);

#endif
