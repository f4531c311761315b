/* policy.h - the interface of a round's policy: which contributions a round takes, when a chunk (a section of the
 * parameter) and a round are complete, and what happens at a deadline.
 *
 * A policy is one row of a table (base/job_keys.h): pure functions over a round's records. A round asks its
 * policy, and nothing else in the store compares numbers of ranks. `sync` (sync.c) is the only policy today. Three
 * more are planned. Below, `admit` and the other names are those of the functions of a policy:
 *
 *   quorum(K, grace): a round closes with the contributions of K ranks, after a grace period.
 *       admit: for the open step, NEW for every expected rank. For a closed step, DUPLICATE if the round counted the
 *       rank's contribution (pd_round_counted), else LATE.
 *       chunk_is_complete: K ranks have contributed, and the round has fixed the set of ranks that it counts. Until
 *       then contributions wait in frames or in spilled memory, as those of a median do (step/collect.h).
 *       round_is_complete: fixes that set when all ranks have contributed, or K have and the grace period is over.
 *       overdue: CLOSE if K ranks have contributed, else REPORT.
 *       A closed round names the ranks that it counted (pd_closed.counted). The loop thread answers PD_LATE to the
 *       others.
 *   async: each contribution is a round of its own.
 *       admit: NEW for every step up to the open one. The round is complete with the contribution of one rank. The step
 *       of a push says from which weights its gradient was made.
 *   bounded(s): as async, but limits how far ranks may be apart.
 *       admit: EARLY for a rank more than s steps ahead of the slowest expected rank. Its push waits, or is refused as
 *       a push for a step after the open one is today.
 *
 * These policies need three things that do not exist yet: a job key for K, grace and s; a deadline of a round at the
 * end of the grace period; and for async several open rounds of one parameter at the same time (pd_param.round would
 * be the oldest). */
#ifndef PD_POLICY_H
#define PD_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct pd_round;
struct pd_chunk;

typedef enum pd_admit {
    /* The step's round is open. The contribution is filed, unless the rank's slot
     * shows that the rank has given it before. */
    PD_ADMIT_NEW,
    /* The step's round has closed with a contribution of the rank. The push is answered, but its data are dropped. */
    PD_ADMIT_DUPLICATE,
    /* The step's round has closed without the rank. The push is answered so, and its data are dropped. */
    PD_ADMIT_LATE,
    PD_ADMIT_EARLY, /* the step's round is not open yet, so the push is refused */
} pd_admit;

typedef enum pd_overdue {
    PD_OVERDUE_REPORT, /* workers that wait get an error that names the missing ranks; the round stays open */
    PD_OVERDUE_CLOSE,  /* The round gets pd_round.closing set: it is complete with the contributions that have come. */
} pd_overdue;

typedef struct pd_policy {
    const char *name; /* the policy's name, as the job key `rounds` has it */
    /* Decides whether the rank may contribute to step `step` of a parameter. `closed` is the parameter's last closed
     * step, so its open round is that of step `closed` + 1. */
    pd_admit (*admit)(const struct pd_round *round, uint32_t rank, uint64_t closed, uint64_t step);
    /* Return whether all contributions have come that a chunk needs, or that all chunks of the round need. */
    bool (*chunk_is_complete)(const struct pd_round *round, const struct pd_chunk *chunk);
    bool (*round_is_complete)(const struct pd_round *round);
    /* Decides what happens to a round that is not complete at its deadline. */
    pd_overdue (*overdue)(const struct pd_round *round);
} pd_policy;

#endif
