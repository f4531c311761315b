/* drain.h - before a server stops: rounds under way are finished, no new ones begin. Step thread. */
#ifndef PD_DRAIN_H
#define PD_DRAIN_H

#include "jobs.h"

/* Begins zeroed. */
typedef struct pd_drain {
    bool        draining;
    pd_request *waiting;                /* who waits for the end, linked by mail.next */
} pd_drain;

/* Takes a PD_REQ_DRAIN. From now on no round begins beyond the step that its job is at. */
void     pd_drain_take(pd_drain *drain, const pd_jobs *jobs, pd_effects *outbox, pd_request *request, uint64_t now_ns);
/* Answers the drains that are over: every round that can close has, or the deadline has passed (PD_DEADLINE_EXCEEDED,
 * naming an open round). */
void     pd_drain_answer(pd_drain *drain, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns);
/* Returns the next deadline; UINT64_MAX: none. */
uint64_t pd_drain_next_tick(const pd_drain *drain);
/* Frees the requests that wait, without an answer. */
void     pd_drain_free(pd_drain *drain);

#endif
