/* leases.c - counts and gives leases when the set of a step is fixed, and tells workers of theirs. */
#include "leases.h"

#include "mutant.h"
#include "shares.h"

/* Tells the worker of a rank what is leased to it. The answer to its push to the step that has just been fixed brings
 * it. Without memory it is told later. */
static void tell(pd_steps *steps, pd_fragment *fragment, uint32_t rank)
{
    pd_ticket ticket = { steps->quotas[rank].conn, 0 };
    pd_effect *effect = pd_effect_new(PD_EFF_LEASES, ticket, steps->number);

    fragment->ranks[rank].untold = effect == NULL;
    if (effect == NULL) {
        fragment->look = true;
        return;
    }
    pd_shares_fill(steps->shares, rank, &effect->u.leases);
    effect->u.leases.step = fragment->fixed;
    pd_effects_add(steps->outbox, effect);
}

static int join_members(pd_steps *steps, uint32_t wants)
{
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (pd_rank_set_has(&steps->members, r) && pd_shares_join(steps->shares, r, wants) != PD_OK)
            return PD_NO_MEMORY;
    return PD_OK;
}

/* Makes the shares of the job, and gives all members their first leases. PD_NO_MEMORY: there are none. */
static int begin(pd_steps *steps, uint32_t wants)
{
    if (pd_shares_make(&steps->shares, steps->members.ranks) == PD_OK && join_members(steps, wants) == PD_OK)
        return PD_OK;
    pd_shares_free(steps->shares);
    steps->shares = NULL;
    return PD_NO_MEMORY;
}

int pd_leases_declared(pd_steps *steps, uint32_t rank, uint32_t wants)
{
    if (wants == 0 || !steps->sets.open) return PD_OK;
    if (steps->shares == NULL && begin(steps, wants) != PD_OK) return PD_NO_MEMORY;
    steps->fragments[0].ranks[rank].wants = wants;
    return pd_shares_join(steps->shares, rank, wants);
}

/* Gives the rank one more lease. */
static void give(pd_steps *steps, pd_fragment_rank *ranks, uint32_t rank)
{
    (void)pd_shares_give(steps->shares, rank, ranks[rank].wants);
    ranks[rank].carries = false;
    ranks[rank].untold = true;
}

void pd_leases_fixed(pd_steps *steps, pd_fragment *fragment)
{
    if (steps->shares == NULL || fragment->number != 0) return;
    for (uint32_t r = 0; r < steps->members.ranks; r++) {
        bool counts = pd_counted_has(fragment->set, r);
        if (PD_MUTANT(share_used_by_late)) counts = counts || pd_rank_set_has(&steps->members, r);
        if (!pd_shares_has(steps->shares, r) || !counts) continue;
        pd_shares_count(steps->shares, r);
        give(steps, fragment->ranks, r);
    }
    /* A push that is kept may still count: it has nothing of a lease that is given after it. */
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (pd_shares_has(steps->shares, r) && fragment->ranks[r].carries && fragment->ranks[r].step == 0)
            give(steps, fragment->ranks, r);
    (void)pd_leases_tell(steps);
}

void pd_leases_removed(pd_steps *steps, uint32_t rank)
{
    if (steps->shares == NULL) return;
    if (PD_MUTANT(share_lost_with_rank)) pd_shares_count(steps->shares, rank);
    pd_shares_remove(steps->shares, rank);
}

bool pd_leases_tell(pd_steps *steps)
{
    bool all = true;

    for (uint32_t r = 0; steps->shares != NULL && r < steps->members.ranks; r++) {
        if (!steps->fragments[0].ranks[r].untold) continue;
        tell(steps, &steps->fragments[0], r);
        all = all && !steps->fragments[0].ranks[r].untold;
    }
    return all;
}
