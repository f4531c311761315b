/* membership.h - the ranks of a job, and which of them are expected to contribute. Pure.
 *
 * Today every rank is expected as long as the job lives, and the epoch stays 1. Elastic jobs will change the set of
 * expected ranks between two steps. Each change raises the epoch, and a round keeps the set of the epoch in which it
 * began. */
#ifndef PD_MEMBERSHIP_H
#define PD_MEMBERSHIP_H

#include "store_config.h"

typedef struct pd_membership {
    uint64_t epoch;                  /* number of the present set: 1 at first, 1 more after each change of the set */
    uint32_t ranks;                  /* number of ranks of the job: each round has a slot for each of the ranks 0 to
                                      * ranks - 1 */
    uint32_t expected;               /* number of expected ranks */
    uint64_t set[PD_MAX_WORLD / 64]; /* bit r: rank r is expected */
} pd_membership;

/* Fills *members with `ranks` ranks, all of them expected, in epoch 1. */
void pd_membership_all(pd_membership *members, uint32_t ranks);

static inline bool pd_membership_expects(const pd_membership *members, uint32_t rank)
{
    return members->set[rank / 64] >> rank % 64 & 1;
}

#endif
