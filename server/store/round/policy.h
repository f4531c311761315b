/* policy.h - the contract of a round's policy: which contributions may enter, when a chunk and a round are complete,
 * what a deadline does.
 *
 * A policy is one row of a table (base/policy_names.h), pure functions over a round's records. The round asks its
 * row, and nothing else in the store compares numbers of ranks. `sync` (sync.c) is the only row today. How the
 * planned ones fit, on paper:
 *
 *   quorum(K, grace)  admit: a rank of the membership's set, for the open step NEW, for a closed one LATE if the rank's contribution is
 *                     not among the counted ones (pd_round_counted), else DUPLICATE. chunk_is_complete: K ranks have come *and the set is
 *                     closed*, so contributions wait in frames or spilled memory as a collected aggregate's do; round_is_complete closes
 *                     the set: all have come, or K have and the grace period is over. overdue: CLOSE where K have come, else REPORT.
 *                     A closed round names the ranks that it left out (pd_closed.counted), and the board answers them PD_LATE.
 *   async             admit: NEW for every step up to the open one: a contribution is a round of its own, complete with one rank.
 *                     The step of a push says which weights it was made from; how stale it may be is `bounded`.
 *   bounded(s)        as async; EARLY where the rank is more than s steps ahead of the slowest expected rank, so its push waits or
 *                     is refused as a push for step t + 2 is today.
 *
 * What these need beyond this file: a key for K, grace and s; the deadline of a round at the grace period; for async
 * several open rounds of one parameter, which lie in pd_round one after the other (pd_param.round is the oldest). */
#ifndef PD_POLICY_H
#define PD_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct pd_round;
struct pd_chunk;

typedef enum pd_admit {
    PD_ADMIT_NEW,               /* for the open round: the slot of its chunk says whether the rank has given it before */
    PD_ADMIT_DUPLICATE,         /* for a closed round, in which the rank's contribution was counted: answered, nothing is filed */
    PD_ADMIT_LATE,              /* for a closed round that was closed without the rank: answered, nothing is filed */
    PD_ADMIT_EARLY,             /* for a round that is not open yet: refused */
} pd_admit;

typedef enum pd_overdue {
    PD_OVERDUE_REPORT,          /* those who wait get an error that names the missing ranks; contributions stand */
    PD_OVERDUE_CLOSE,           /* pd_round.closing is set: the round is complete with what has come */
} pd_overdue;

typedef struct pd_policy {
    const char *name;           /* as users write it: job key `rounds` */
    /* May the rank contribute to step `step`? The round gathers step `closed` + 1. */
    pd_admit (*admit)(const struct pd_round *round, uint32_t rank, uint64_t closed, uint64_t step);
    /* Is nobody waited for any more, of this chunk, and of any chunk of the round? */
    bool (*chunk_is_complete)(const struct pd_round *round, const struct pd_chunk *chunk);
    bool (*round_is_complete)(const struct pd_round *round);
    /* What happens at the deadline of a round that is not complete? */
    pd_overdue (*overdue)(const struct pd_round *round);
} pd_policy;

#endif
