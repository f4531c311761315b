/* membership.h - the workers of a job: the ranks that it has, and those that are expected to contribute. Pure.
 *
 * Today every rank is expected as long as the job lives, and the epoch stays 1. Elastic jobs will change the set
 * between two steps: each change raises the epoch, and a round keeps to the set of the epoch in which it began. */
#ifndef PD_MEMBERSHIP_H
#define PD_MEMBERSHIP_H

#include "store_config.h"

typedef struct pd_membership {
    uint64_t epoch;                     /* rises with each change of the set; 1 at first */
    uint32_t ranks;                     /* ranks that the job has, 0 … ranks - 1: each round has a slot for each */
    uint32_t expected;                  /* how many of them are expected */
    uint64_t set[PD_MAX_WORLD / 64];    /* bit r: rank r is expected */
} pd_membership;

/* Fills *members with `ranks` ranks, all of them expected, in epoch 1. */
void pd_membership_all(pd_membership *members, uint32_t ranks);

static inline bool pd_membership_expects(const pd_membership *members, uint32_t rank)
{
    return members->set[rank / 64] >> rank % 64 & 1;
}

#endif
