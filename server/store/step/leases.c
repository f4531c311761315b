/* leases.c - counts and gives leases when the set of a step is fixed, records what does not follow from sets, and tells
 * workers of theirs. */
#include "leases.h"

#include "mutant.h"
#include "shares.h"
#include "wal.h"

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

/* Counts and records a change that was just made. */
static void note(pd_steps *steps, pd_lease_act act, uint32_t rank, uint32_t wants)
{
    pd_lease_change change = { pd_shares_changed(steps->shares), act, rank, wants };

    pd_wal_lease_changed(steps, steps->fragments[0].fixed, &change);
}

/* Returns whether steps from before a restart are repeated, or may have to be. */
static bool repeats(const pd_steps *steps)
{
    return steps->repeats.awaits || steps->fragments[0].fixed < steps->fragments[0].seen || pd_wal_repeats_sets(steps);
}

static int join(pd_steps *steps, uint32_t rank, uint32_t wants)
{
    if (pd_shares_has(steps->shares, rank)) return PD_OK;
    if (pd_shares_join(steps->shares, rank, wants) != PD_OK) return PD_NO_MEMORY;
    note(steps, PD_LEASE_JOIN, rank, wants);
    return PD_OK;
}

/* Makes the shares of the job, and gives all members their first leases. PD_NO_MEMORY: there are none. */
static int begin(pd_steps *steps, uint32_t wants)
{
    if (pd_shares_make(&steps->shares, steps->members.ranks) == PD_OK &&
        pd_shares_reserve(steps->shares, steps->members.ranks) == PD_OK) {
        for (uint32_t r = 0; r < steps->members.ranks; r++)
            if (pd_rank_set_has(&steps->members, r)) (void)join(steps, r, wants);
        return PD_OK;
    }
    pd_shares_free(steps->shares);
    steps->shares = NULL;
    return PD_NO_MEMORY;
}

static int give_first(pd_steps *steps, uint32_t rank, uint32_t wants)
{
    if (steps->shares == NULL && begin(steps, wants) != PD_OK) return PD_NO_MEMORY;
    return join(steps, rank, wants);
}

int pd_leases_check(const pd_steps *steps, uint32_t wants, pd_error *err)
{
    if (wants == 0 || steps->shard == 0) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "job %.100s: shard 0 of a cluster leases the shares of the data, this is shard %u: ask it for none",
                   steps->name, steps->shard);
}

int pd_leases_declared(pd_steps *steps, uint32_t rank, uint32_t wants)
{
    if (!steps->sets.open) return PD_OK;
    steps->fragments[0].ranks[rank].wants = wants;
    return wants > 0 && !repeats(steps) ? give_first(steps, rank, wants) : PD_OK;
}

/* Sends the answer to a Declare with what is leased to the rank, and the step of fragment 0 after which that is so. */
static void send_answer(pd_steps *steps, uint32_t rank, pd_effect *declared)
{
    const pd_fragment *fragment = &steps->fragments[0];

    pd_shares_fill(steps->shares, rank, &declared->u.declared.leases);
    declared->u.declared.leases.step = fragment->fixed;
    declared->u.declared.place = pd_fragment_place_of(fragment, fragment->fixed);
    for (size_t i = 0; i < declared->u.declared.n; i++) {
        const pd_param *param = &steps->params[declared->u.declared.params[i].param];
        declared->u.declared.params[i].step =
            param->fragment == fragment ? fragment->fixed : pd_fragment_told(steps, param);
    }
    pd_withheld_send(&steps->withheld, steps->outbox, declared);
}

static bool has_lease(const pd_steps *steps, uint32_t rank)
{
    return steps->shares != NULL && pd_shares_has(steps->shares, rank);
}

void pd_leases_answer(pd_steps *steps, uint32_t rank, pd_effect *declared, bool begins)
{
    const pd_fragment_rank *at = &steps->fragments[0].ranks[rank];
    pd_effect **waiting = &steps->quotas[rank].answer;

    pd_effect_free(*waiting); /* of an earlier connection */
    *waiting = NULL;
    if (begins && at->wants > 0 && !has_lease(steps, rank) && repeats(steps))
        *waiting = declared;
    else if (steps->shares != NULL)
        send_answer(steps, rank, declared);
    else
        pd_effects_add(steps->outbox, declared);
}

/* Gives the rank one more lease. */
static void give(pd_steps *steps, pd_fragment_rank *ranks, uint32_t rank)
{
    (void)pd_shares_give(steps->shares, rank, ranks[rank].wants);
    ranks[rank].carries = false;
    ranks[rank].untold = true;
}

/* Gives a further lease to each rank whose late push carries data over. It depends on timing whether such a push has
 * come before the set was fixed. A push that is kept may still count: it has nothing of a lease that is given now. */
static void give_more(pd_steps *steps, pd_fragment *fragment)
{
    for (uint32_t r = 0; r < steps->members.ranks; r++) {
        if (!pd_shares_has(steps->shares, r) || !fragment->ranks[r].carries) continue;
        if (pd_fragment_keeps(steps, fragment, r)) continue;
        give(steps, fragment->ranks, r);
        note(steps, PD_LEASE_MORE, r, fragment->ranks[r].wants);
    }
}

/* Makes the changes again that had followed the sets up to the last one that is fixed. */
static void repeat(pd_steps *steps)
{
    const pd_decision *decision;
    pd_fragment_rank *rank;

    while ((decision = pd_wal_recorded_lease(steps)) != NULL && decision->step <= steps->fragments[0].fixed) {
        pd_shares_repeat(steps->shares, &decision->lease);
        rank = &steps->fragments[0].ranks[decision->lease.rank];
        rank->carries = false;
        rank->revoked |= decision->lease.act == PD_LEASE_END && rank->step > 0;
        rank->untold = pd_shares_has(steps->shares, decision->lease.rank);
        pd_wal_lease_repeated(steps);
    }
}

/* Tells workers of leases of which they are not told yet. */
static bool tell_all(pd_steps *steps)
{
    bool all = true;

    for (uint32_t r = 0; steps->shares != NULL && r < steps->members.ranks; r++) {
        if (!steps->fragments[0].ranks[r].untold) continue;
        tell(steps, &steps->fragments[0], r);
        all = all && !steps->fragments[0].ranks[r].untold;
    }
    return all;
}

void pd_leases_fixed(pd_steps *steps, pd_fragment *fragment, bool recorded)
{
    if (steps->shares == NULL || fragment->number != 0) return;
    for (uint32_t r = 0; r < steps->members.ranks; r++) {
        bool counts = pd_counted_has(fragment->set, r);
        if (PD_MUTANT(share_used_by_late)) counts = counts || pd_rank_set_has(&steps->members, r);
        if (!pd_shares_has(steps->shares, r) || !counts) continue;
        pd_shares_count(steps->shares, r);
        give(steps, fragment->ranks, r);
    }
    if (!recorded) give_more(steps, fragment);
    repeat(steps);
    (void)tell_all(steps);
}

void pd_leases_removed(pd_steps *steps, uint32_t rank)
{
    if (steps->shares == NULL || !pd_shares_has(steps->shares, rank) || repeats(steps)) return;
    if (PD_MUTANT(share_lost_with_rank)) pd_shares_count(steps->shares, rank);
    pd_shares_remove(steps->shares, rank);
    note(steps, PD_LEASE_END, rank, 0);
}

/* Returns whether the rank has declared that it wants shares, and has no lease. */
static bool lacks_lease(const pd_steps *steps, uint32_t rank)
{
    return steps->quotas[rank].declared && steps->fragments[0].ranks[rank].wants > 0 && !has_lease(steps, rank);
}

/* Gives a first lease to each rank that has declared while steps were repeated, and answers those that wait. */
static int give_all(pd_steps *steps)
{
    for (uint32_t r = 0; r < steps->members.ranks; r++) {
        pd_fragment_rank *rank = &steps->fragments[0].ranks[r];
        if (lacks_lease(steps, r)) {
            if (give_first(steps, r, rank->wants) != PD_OK) return PD_NO_MEMORY;
            rank->untold = true;
        }
        if (steps->quotas[r].answer == NULL || !has_lease(steps, r)) continue;
        send_answer(steps, r, steps->quotas[r].answer);
        steps->quotas[r].answer = NULL;
    }
    return PD_OK;
}

int pd_leases_look(pd_steps *steps)
{
    if (!repeats(steps) && give_all(steps) != PD_OK) return PD_NO_MEMORY;
    return tell_all(steps) ? PD_OK : PD_NO_MEMORY;
}

bool pd_leases_refuse(const pd_steps *steps, const pd_request *push)
{
    const pd_lease *leases;
    uint32_t n = 0;

    /* The leases of later steps are not given yet. */
    if (steps->shares == NULL || push->u.data.share == 0 || push->u.data.step > steps->fragments[0].fixed + 1)
        return false;
    leases = pd_shares_of(steps->shares, push->rank, &n);
    return n == 0 || leases[0].ranges[0].first + 1 != push->u.data.share;
}

/* ---- after a restart ---- */

int pd_leases_reserve(pd_steps *steps)
{
    if (steps->shares == NULL && pd_shares_make(&steps->shares, steps->members.ranks) != PD_OK) return PD_NO_MEMORY;
    return pd_shares_reserve(steps->shares, steps->wal->decisions.n_read + 1);
}

void pd_leases_read(pd_steps *steps)
{
    repeat(steps);
    while (steps->withheld.logged && pd_wal_recorded_lease(steps) != NULL) pd_wal_lease_repeated(steps);
    if (pd_wal_recorded_lease(steps) != NULL && !steps->withheld.logged)
        for (const pd_decision *r = pd_wal_recorded_lease(steps); r != NULL; r = r->next)
            if (r->kind == PD_DECISION_LEASE && r->step > steps->fragments[0].seen) steps->fragments[0].seen = r->step;
}
