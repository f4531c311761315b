/* membership.c - lets ranks join a job, and removes those that have left or were lost for too long. */
#include "membership.h"

#include "declaration.h"
#include "fragment.h"
#include "initial_weights.h"
#include "leases.h"
#include "ranks.h"
#include "reserves.h"
#include "round_ranges.h"
#include "whole.h"

#include <stdio.h>

static const uint64_t second = 1000000000ull;

/* ---- units ---- */

static bool are_mates(const pd_job *job, uint32_t a, uint32_t b)
{
    const pd_rank_saved *one = &job->ranks[a].saved, *other = &job->ranks[b].saved;

    return a == b || (one->grouped && other->grouped && one->group == other->group);
}

/* Returns whether the rank is a member, or has a process that has declared its parameters. */
static bool takes_part(const pd_job *job, uint32_t r)
{
    return pd_is_member(job, r) || (job->ranks[r].state == PD_RANK_CONNECTED && job->steps.quotas[r].declared);
}

/* Returns the lowest rank of the group of rank `r` that takes part. */
static uint32_t unit_of(const pd_job *job, uint32_t r)
{
    for (uint32_t lowest = 0; job->ranks[r].saved.grouped && lowest < job->steps.members.ranks; lowest++)
        if (are_mates(job, lowest, r) && takes_part(job, lowest)) return lowest;
    return r;
}

/* Tells the steps which ranks count together. A rank that has a nonce has had a process, which has named its group. */
static void set_units(pd_job *job)
{
    job->steps.grouped = false;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        job->steps.grouped |= takes_part(job, r) && job->ranks[r].saved.grouped;
        pd_fragments_set_unit(&job->steps, r, takes_part(job, r) ? unit_of(job, r) : r, job->ranks[r].saved.nonce != 0);
    }
}

/* The ranks of a unit that take part, and the largest number of ranks that the unit has had. */
typedef struct unit {
    pd_rank_set ranks;
    uint32_t most;
} unit;

static unit find_unit(const pd_job *job, uint32_t rank)
{
    unit found = { .most = 1 };

    pd_rank_set_none(&found.ranks, job->steps.members.ranks);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (r != rank && !(are_mates(job, r, rank) && takes_part(job, r))) continue;
        pd_rank_set_add(&found.ranks, r);
        if (job->ranks[r].saved.mates > found.most) found.most = job->ranks[r].saved.mates;
    }
    return found;
}

/* Finds a ranged parameter of which the ranks lack elements, and the first gap. NULL: they have all. */
static const pd_param *find_gap(const pd_job *job, const pd_rank_set *of, pd_rank_range *gap)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].ranged && pd_round_gap_of(&job->steps.params[i].round, of, gap))
            return &job->steps.params[i];
    return NULL;
}

/* Returns whether each slot has a worker that has declared its parameters: then no further worker can come. */
static bool is_full(const pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (job->ranks[r].state != PD_RANK_CONNECTED || !job->steps.quotas[r].declared) return false;
    return true;
}

/* Returns whether the unit has all its ranks. One that lacks ranks for which there is no slot is complete as it is: it
 * had more while a process and the one that has taken its place were both connected. */
static bool is_complete(const pd_job *job, const unit *of)
{
    pd_rank_range gap;

    return (of->ranks.n >= of->most || is_full(job)) && find_gap(job, &of->ranks, &gap) == NULL;
}

/* ---- slots ---- */

static bool was_superseded(const pd_rank *rank, uint64_t nonce)
{
    for (uint32_t i = 0; i < rank->saved.n_superseded && i < PD_SUPERSEDED; i++)
        if (rank->saved.superseded[i] == nonce) return true;
    return false;
}

/* Returns whether another worker may take the slot: nobody has it, or who had it has left or was removed. */
static bool is_free(const pd_job *job, uint32_t r)
{
    switch (job->ranks[r].state) {
    case PD_RANK_ABSENT:
    case PD_RANK_LEFT: return true;
    case PD_RANK_LOST: return !pd_is_member(job, r);
    case PD_RANK_CONNECTED: break;
    }
    return false;
}

static bool is_lost_for_long(const pd_job *job, uint32_t r, uint64_t now_ns)
{
    return job->ranks[r].state == PD_RANK_LOST && now_ns - job->ranks[r].since_ns > job->steps.sets.reconnect_grace_ns;
}

/* Returns whether another worker may take the slot now, or could if no slot were free. */
static bool is_open(const pd_job *job, uint32_t r, uint64_t now_ns)
{
    return is_free(job, r) || is_lost_for_long(job, r, now_ns);
}

int pd_members_find_slot(const pd_job *job, const pd_request *hello, uint64_t now_ns, uint32_t *rank, pd_error *err)
{
    uint64_t nonce = hello->u.hello.nonce;
    uint32_t free_slot = PD_MAX_WORLD, lost = PD_MAX_WORLD, barred = PD_MAX_WORLD;

    for (uint32_t r = job->steps.members.ranks; r-- > 0;) {
        const pd_rank *at = &job->ranks[r];
        if (at->state != PD_RANK_ABSENT && at->saved.nonce == nonce) {
            *rank = r;
            return PD_OK;
        }
        if (!is_open(job, r, now_ns)) continue;
        if (was_superseded(at, nonce))
            barred = r;
        else if (is_free(job, r))
            free_slot = r;
        else
            lost = r;
    }
    *rank = free_slot < PD_MAX_WORLD ? free_slot : lost;
    if (*rank < PD_MAX_WORLD) return PD_OK;
    /* Nobody else may come: the job would wait for the rank, and this process for another rank. */
    if (barred < PD_MAX_WORLD)
        return pd_fail(
            err, PD_ABORTED,
            "rank %u of job %.100s was taken over by another process, %.100s, and no other rank is free: this "
            "one stays out",
            barred, job->steps.name, job->ranks[barred].label);
    return pd_fail(err, PD_UNAVAILABLE,
                   "job %.100s has a worker at each of its %u ranks: this one waits until one leaves or is removed "
                   "(paramctl kick); or give the job more max_workers",
                   job->steps.name, job->steps.members.ranks);
}

/* ---- telling ---- */

uint32_t pd_members_leader(const pd_job *job)
{
    if (!job->steps.sets.open) return 0;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (pd_is_member(job, r) && job->ranks[r].state == PD_RANK_CONNECTED) return r;
    return PD_MAX_WORLD;
}

/* Returns whether the loop thread knows another leader than the job has. */
static bool has_new_leader(const pd_job *job)
{
    return job->steps.sets.open && job->membership.leader != pd_members_leader(job);
}

void pd_members_tell(pd_job *job, uint64_t now_ns)
{
    pd_effect *effect;
    pd_counted *set;

    job->membership.untold = false;
    if (!job->steps.sets.open) return;
    effect = pd_job_effect(job, PD_EFF_MEMBERS);
    set = effect != NULL ? pd_counted_new(job->steps.members.ranks) : NULL;
    if (set == NULL) {
        pd_effect_free(effect);
        job->membership.untold = true;
        job->membership.retry_ns = now_ns + second;
        return;
    }
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (pd_is_member(job, r)) pd_counted_add(set, r, 0);
    effect->u.members.epoch = job->steps.epoch;
    effect->u.members.course = job->saved.course;
    effect->u.members.leader = job->membership.leader = pd_members_leader(job);
    effect->u.members.set = set;
    pd_withheld_send(&job->steps.withheld, job->steps.outbox, effect);
}

/* Notes that the members have changed. */
static void change(pd_job *job)
{
    job->steps.epoch++;
    job->steps.changes++;
    job->membership.untold = true;
    job->membership.retry_ns = 0;
}

/* ---- initial weights ---- */

/* Returns whether the job waits for the rank, or has a worker there. */
static bool is_there(const pd_job *job, uint32_t r)
{
    return r < job->steps.members.ranks && (pd_is_member(job, r) || job->ranks[r].state == PD_RANK_CONNECTED);
}

static bool lacks_whole_weights(const pd_job *job)
{
    if (job->steps.progress.n_begun == job->steps.n_params || pd_job_averages_init(job)) return false;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (!job->steps.params[i].ranged && job->steps.params[i].current == NULL) return true;
    return false;
}

/* Lets no rank send the initial weights. What has come of them stays: the process that has sent it may come back, and
 * does not send again what was answered. */
static void drop_giver(pd_job *job)
{
    if (job->membership.giver < job->steps.members.ranks) job->membership.gave = job->membership.giver;
    job->membership.giver = job->membership.asked = PD_MAX_WORLD;
}

/* Lets the rank send the initial weights. Forgets what another rank has sent: this one sends them all. (What an earlier
 * process of the same rank has sent is forgotten when weights of this one come: initial_weights.c.) */
static void set_giver(pd_job *job, uint32_t rank)
{
    uint32_t gave = job->membership.gave;

    job->membership.giver = rank;
    job->membership.gave = PD_MAX_WORLD;
    if (gave == rank || gave == PD_MAX_WORLD || pd_job_averages_init(job)) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (!job->steps.params[i].ranged) pd_init_forget(&job->steps.params[i], gave);
}

/* If the rank that is to send the initial weights is gone before all have come, lets a member come again that has
 * declared: a worker learns at its Declare that it is to send them. Whoever declares first sends them. */
static void find_giver(pd_job *job, uint64_t now_ns)
{
    uint32_t r = 0;
    pd_error err;

    if (!job->steps.sets.open || is_there(job, job->membership.giver)) return;
    if (job->membership.giver < PD_MAX_WORLD) drop_giver(job);
    if (is_there(job, job->membership.asked)) return;
    while (r < job->steps.members.ranks && !(pd_is_member(job, r) && job->steps.quotas[r].declared)) r++;
    if (r == job->steps.members.ranks || !lacks_whole_weights(job)) return;
    job->membership.asked = r;
    pd_fail(&err, PD_UNAVAILABLE,
            "the rank that was to send the initial weights of job %.100s is gone: rank %u comes again, to send them",
            job->steps.name, r);
    pd_rank_send_away(job, r, &err, "it is to send the initial weights", now_ns);
}

/* ---- joining ---- */

/* Returns whether ranks that have not declared yet may still complete a unit. */
static bool some_are_to_come(const pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (!takes_part(job, r) || (pd_is_member(job, r) && !job->steps.quotas[r].declared)) return true;
    return false;
}

static int check_unit(const pd_job *job, uint32_t rank, pd_error *err)
{
    unit mine = find_unit(job, rank);
    pd_rank_range gap;
    const pd_param *param = find_gap(job, &mine.ranks, &gap);

    if (param == NULL) return PD_OK;
    if (!job->ranks[rank].saved.grouped)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "parameter %.120s: rank %u lacks elements %lld to %lld of %lld. In job %.60s a step may be taken "
            "without some ranks: give the ranks that share a parameter the same group",
            param->name, rank, (long long)gap.start, (long long)gap.end, (long long)param->elements, job->steps.name);
    if (some_are_to_come(job)) return PD_OK;
    return pd_fail(
        err, PD_FAILED_PRECONDITION,
        "parameter %.120s: no rank of group %u has elements %lld to %lld of %lld. In job %.60s a step may be "
        "taken without some groups: each group declares ranges that cover the parameter",
        param->name, job->ranks[rank].saved.group, (long long)gap.start, (long long)gap.end, (long long)param->elements,
        job->steps.name);
}

/* Returns the number of fragments of the model, also of those that lie on other shards. */
static uint32_t count_fragments(const pd_job *job)
{
    return job->whole != NULL ? job->whole->n_fragments : job->steps.n_fragments;
}

int pd_member_declares(pd_job *job, uint32_t rank, pd_error *err)
{
    if (!job->steps.sets.open) return PD_OK;
    if (pd_declaration_check_ages(job, rank, count_fragments(job), err) != PD_OK) return err->code;
    if (check_unit(job, rank, err) != PD_OK) return PD_FAILED_PRECONDITION;
    if (is_there(job, job->membership.giver)) return PD_OK;
    drop_giver(job);
    set_giver(job, rank);
    return PD_OK;
}

void pd_members_settle(pd_job *job)
{
    if (job->steps.sets.open) set_units(job);
}

/* ---- removing ---- */

/* Returns the time at which a lost member has been lost for too long; UINT64_MAX: it is not lost, or no time runs. */
static uint64_t given_up_at(const pd_job *job, uint32_t r)
{
    uint64_t from = job->ranks[r].since_ns;

    if (job->ranks[r].state != PD_RANK_LOST || job->connected == 0 || !pd_is_member(job, r)) return UINT64_MAX;
    if (from < job->timers.awake_ns) from = job->timers.awake_ns;
    return from + job->steps.sets.reconnect_grace_ns;
}

/* Ends the connections of a removed unit's ranks with UNAVAILABLE, so that their workers send Hello and Declare again
 * and join anew. `rank`: the rank whose loss has removed the unit. `why`: what happened to it, for the error. */
static void send_away(pd_job *job, const unit *gone, uint32_t rank, const char *why, uint64_t now_ns)
{
    pd_error err;

    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (!pd_rank_set_has(&gone->ranks, r) || job->ranks[r].state != PD_RANK_CONNECTED) continue;
        pd_fail(&err, PD_UNAVAILABLE,
                "group %u is removed from job %.100s, since rank %u %.100s: it joins again when it is whole",
                job->ranks[r].saved.group, job->steps.name, rank, why);
        pd_rank_send_away(job, r, &err, "its group was removed", now_ns);
    }
}

/* Removes the unit of a member. `stay`: where the unit is whole, it still counts in the step that is collected. */
static void remove_unit(pd_job *job, uint32_t rank, bool stay, const char *why, uint64_t now_ns)
{
    unit gone = find_unit(job, rank);
    bool left = job->ranks[rank].state == PD_RANK_LEFT;

    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (!pd_rank_set_has(&gone.ranks, r)) continue;
        pd_barrier_forget(job, r);
        pd_reserves_remove(job, r);
    }
    pd_fragments_remove(&job->steps, job->steps.n_fragments > 0 ? unit_of(job, rank) : rank, stay);
    pd_say(job->steps.outbox, left ? PD_SAY_INFO : PD_SAY_WARNING,
           (pd_log_facts){ .job = job->steps.name, .rank = &rank }, "%s %s and is removed: %u members stay",
           job->ranks[rank].label[0] != '\0' ? job->ranks[rank].label : "the rank", why, job->steps.members.n);
    change(job);
    set_units(job);
    send_away(job, &gone, rank, why, now_ns);
}

/* Removes units of members that lack ranks, after no more ranks are to come. */
static void remove_incomplete(pd_job *job, uint64_t now_ns)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (pd_is_member(job, r) && !job->steps.quotas[r].declared) return;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        unit mine;
        if (!pd_is_member(job, r)) continue;
        mine = find_unit(job, r);
        if (!is_complete(job, &mine)) remove_unit(job, r, false, "lacks ranks of its group", now_ns);
    }
}

void pd_member_remove(pd_job *job, uint32_t rank, const char *why, uint64_t now_ns)
{
    if (!pd_is_member(job, rank)) return;
    remove_unit(job, rank, true, why, now_ns);
    if (job->steps.grouped && job->steps.n_params > 0) remove_incomplete(job, now_ns);
    find_giver(job, now_ns);
    pd_barriers_look(job);
}

void pd_members_renew(pd_job *job, uint32_t world, bool any_rank)
{
    if (!job->steps.sets.open) return;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (pd_is_member(job, r))
            pd_fragments_remove(&job->steps, job->steps.n_fragments > 0 ? unit_of(job, r) : r, false);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        job->ranks[r].saved.grouped = false;
        job->ranks[r].saved.mates = 0;
        if (!any_rank && r < world) pd_fragments_join(&job->steps, r, r);
    }
    pd_fragments_renew(&job->steps);
    drop_giver(job);
    if (!any_rank) set_giver(job, 0);
    change(job);
    set_units(job);
}

static void remove_gone(pd_job *job, uint64_t now_ns)
{
    char why[64];

    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (!pd_is_member(job, r)) continue;
        if (job->ranks[r].state == PD_RANK_LEFT) {
            pd_member_remove(job, r, "has left", now_ns);
        } else if (now_ns >= given_up_at(job, r)) {
            snprintf(why, sizeof why, "was lost for %.1f s", (double)(now_ns - job->ranks[r].since_ns) * 1e-9);
            pd_member_remove(job, r, why, now_ns);
        }
    }
}

/* Returns how many ranks the unit needs from now on to be complete: as many as it has processes, or had before, unless
 * there is no slot for more. A lost rank does not count, since its process may have been replaced at another rank. */
static uint32_t count_mates(const pd_job *job, const unit *mine)
{
    uint32_t connected = 0;

    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        connected += pd_rank_set_has(&mine->ranks, r) && job->ranks[r].state == PD_RANK_CONNECTED;
    return connected > mine->most || is_full(job) ? connected : mine->most;
}

static void join_unit(pd_job *job, const unit *mine)
{
    bool news = false;
    uint32_t mates = count_mates(job, mine);

    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (!pd_rank_set_has(&mine->ranks, r)) continue;
        job->ranks[r].saved.mates = mates;
        if (pd_is_member(job, r)) continue;
        pd_fragments_join(&job->steps, r, unit_of(job, r));
        news = true;
    }
    if (news) change(job);
}

/* Lets the unit of a rank that has declared join if it is complete, and, if no further worker can come, all others. */
static void join_complete(pd_job *job, uint32_t rank)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        unit of;
        if (r != rank && (pd_is_member(job, r) || !is_full(job))) continue;
        of = find_unit(job, r);
        if (is_complete(job, &of)) join_unit(job, &of);
    }
}

void pd_member_declared(pd_job *job, uint32_t rank, uint64_t now_ns)
{
    if (!job->steps.sets.open) return;
    set_units(job);
    join_complete(job, rank);
    if (job->steps.grouped) remove_incomplete(job, now_ns);
    pd_members_tell(job, now_ns);
}

/* Takes the leases back of workers that are gone, and whose units never were complete. */
static void take_leases_back(pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (!pd_is_member(job, r) && job->ranks[r].state != PD_RANK_CONNECTED &&
            !job->steps.fragments[0].ranks[r].leaver)
            pd_leases_removed(&job->steps, r);
}

/* Returns false if a member was lost for too long, so that the job must end. */
static bool check_lost(const pd_job *job, uint64_t now_ns, pd_error *err)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        const pd_rank *rank = &job->ranks[r];
        if (now_ns < given_up_at(job, r)) continue;
        pd_fail(err, PD_ABORTED,
                "job %.100s has ended (on_lost_worker = fail): rank %u (%.60s) was lost for %.1f s: %.90s. Its "
                "checkpoints stay, and are restored when the server starts again",
                job->steps.name, r, rank->label, (double)(now_ns - rank->since_ns) * 1e-9, rank->reason);
        return false;
    }
    return true;
}

bool pd_members_look(pd_job *job, uint64_t now_ns, pd_error *err)
{
    if (job->steps.sets.on_lost == PD_LOST_FAIL && !check_lost(job, now_ns, err)) return false;
    if (job->steps.sets.on_lost == PD_LOST_SHRINK) remove_gone(job, now_ns);
    if (job->steps.shares != NULL) take_leases_back(job);
    find_giver(job, now_ns);
    if (!job->membership.untold && has_new_leader(job)) pd_members_tell(job, now_ns);
    if (job->membership.untold && now_ns >= job->membership.retry_ns) pd_members_tell(job, now_ns);
    return true;
}

uint64_t pd_members_next(const pd_job *job)
{
    uint64_t next = job->membership.untold ? job->membership.retry_ns : has_new_leader(job) ? 0 : UINT64_MAX;

    if (job->steps.sets.on_lost == PD_LOST_WAIT) return next;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (given_up_at(job, r) < next) next = given_up_at(job, r);
    return next;
}
