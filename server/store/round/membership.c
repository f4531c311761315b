/* membership.c - makes the set of expected ranks (from which rounds need contributions) in which every rank is
 * expected. */
#include "membership.h"

#include <assert.h>

void pd_membership_all(pd_membership *members, uint32_t ranks)
{
    assert(ranks <= PD_MAX_WORLD);
    *members = (pd_membership){ .epoch = 1, .ranks = ranks, .expected = ranks };
    for (uint32_t rank = 0; rank < ranks; rank++) members->set[rank / 64] |= (uint64_t)1 << rank % 64;
}
