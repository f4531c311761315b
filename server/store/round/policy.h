/* policy.h - the interface of a round's policy: which contributions a round takes, when a chunk and a round are
 * complete, and what happens at a deadline.
 *
 * A policy is one row of a table (base/policy_names.h): pure functions over a round's records. A round asks its
 * policy, and nothing else in the store compares numbers of ranks. `sync` (sync.c) is the only policy today. These
 * others are planned:
 *
 *   quorum(K, grace): a round closes with the contributions of K ranks, after a grace period.
 *       admit: for the open step, NEW for every expected rank. For a closed step, DUPLICATE if the round counted the
 *       rank's contribution (pd_round_counted), else LATE.
 *       chunk_is_complete: K ranks have contributed, and the round has fixed the set of ranks that it counts. Until
 *       then contributions wait in frames or in spilled memory, as those of a collected aggregate do.
 *       round_is_complete: fixes that set when all ranks have contributed, or K have and the grace period is over.
 *       overdue: CLOSE if K ranks have contributed, else REPORT.
 *       A closed round names the ranks that it left out (pd_closed.counted), and the board answers them PD_LATE.
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
    PD_ADMIT_NEW,       /* the step's round is open: the contribution is filed, unless its slot shows that it is a
                         * duplicate */
    PD_ADMIT_DUPLICATE, /* the step's round is closed and counted the rank: the push is answered, nothing is filed */
    PD_ADMIT_LATE,      /* the step's round was closed without the rank: the push is answered, nothing is filed */
    PD_ADMIT_EARLY,     /* the step's round is not open yet: the push is refused */
} pd_admit;

typedef enum pd_overdue {
    PD_OVERDUE_REPORT, /* waiting workers get an error that names the missing ranks; the round stays open */
    PD_OVERDUE_CLOSE,  /* sets pd_round.closing: the round is complete with the contributions that have come */
} pd_overdue;

typedef struct pd_policy {
    const char *name; /* the policy's name, as the job key `rounds` has it */
    /* Decides whether the rank may contribute to step `step`. `closed` is the last closed step, so step `closed` + 1
     * is the open one. */
    pd_admit (*admit)(const struct pd_round *round, uint32_t rank, uint64_t closed, uint64_t step);
    /* Return whether a chunk, or all chunks of the round, wait for no further rank. */
    bool (*chunk_is_complete)(const struct pd_round *round, const struct pd_chunk *chunk);
    bool (*round_is_complete)(const struct pd_round *round);
    /* Decides what happens at the deadline of a round that is not complete. */
    pd_overdue (*overdue)(const struct pd_round *round);
} pd_policy;

#endif
