/* membership.h - the ranks of a job, and which of them are expected to contribute. Pure.
 *
 * Today every rank is expected as long as the job lives, and the epoch stays 1. Elastic jobs will change the set of
 * expected ranks between two steps. Each change raises the epoch, and a round keeps the set of the epoch in which it
 * began. */
#ifndef PD_MEMBERSHIP_H
#define PD_MEMBERSHIP_H

#include "store_config.h"

typedef struct pd_membership {
    /* number of the present set of expected ranks: 1 at first, and 1 more after each change of the set */
    uint64_t epoch;
    /* number of ranks of the job; a round has a slot for each of the ranks 0 to ranks - 1 */
    uint32_t ranks;
    uint32_t expected;               /* number of ranks that are expected to contribute */
    uint64_t set[PD_MAX_WORLD / 64]; /* bit r: rank r is expected to contribute */
} pd_membership;

/* Fills *members with the ranks 0 to ranks - 1, all of them expected to contribute, in epoch 1. */
void pd_membership_all(pd_membership *members, uint32_t ranks);

static inline bool pd_membership_expects(const pd_membership *members, uint32_t rank)
{
    return members->set[rank / 64] >> rank % 64 & 1;
}

#endif
