/* drain.h - drains the server before it stops: rounds under way are finished, and no new ones begin. Step thread. */
#ifndef PD_DRAIN_H
#define PD_DRAIN_H

#include "jobs.h"

/* State of the drain: whether the server drains, and the drain requests that wait for an answer. Begins zeroed. */
typedef struct pd_drain {
    bool draining;
    pd_request_queue waiting; /* drain requests that are not answered yet */
    /* time until which answers wait for the last checkpoints of jobs, once the rounds have ended; 0: they do not wait.
     * last_ns: duration of this wait, as the requests say */
    uint64_t last_until_ns, last_ns;
    /* numbers of two jobs: of the one whose rounds, and of the one whose last checkpoint, answers last had to wait for.
     * These jobs are checked first, so that most requests check no other job. */
    uint32_t open, unkept;
} pd_drain;

/* Takes a PD_REQ_DRAIN. From now on no job begins a round beyond the highest step that any of its parameters has
 * reached. */
void pd_drain_take(pd_drain *drain, const pd_jobs *jobs, pd_effects *outbox, pd_request *request, uint64_t now_ns);
/* Once every round that can close has closed, or the deadline of a drain request has passed, asks for the last
 * checkpoint of each job that has checkpoints. Returns whether it has done so just now. */
bool pd_drain_keep(pd_drain *drain, const pd_jobs *jobs, uint64_t now_ns);
/* Answers the waiting drain requests. A request succeeds once every round that can close has closed. It fails with
 * PD_DEADLINE_EXCEEDED, which names an open round, once its deadline has passed. Before either answer, each job that
 * has checkpoints gets a last one (pd_checkpoint_policy.last), and the answer waits until it is on the disk or has
 * failed, for as long as the request says. If the checkpoint has failed or is late, and the job would lose steps, the
 * answer is PD_ABORTED, which names the job. */
void pd_drain_answer(pd_drain *drain, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns);
/* Returns the earliest deadline of the waiting drain requests; UINT64_MAX: no request waits. */
uint64_t pd_drain_next_tick(const pd_drain *drain);
/* Frees the waiting drain requests without an answer. */
void pd_drain_free(pd_drain *drain);

#endif
