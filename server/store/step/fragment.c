/* fragment.c - counts whole units, and fixes which ranks count in a step. */
#include "fragment.h"

#include "mutant.h"

#include "chunk_queues.h"
#include "consistent_cut.h"
#include "contribute.h"
#include "leases.h"
#include "wal.h"

#include <stdio.h>
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool is_of(const pd_fragment *fragment, const pd_param *param)
{
    return param->fragment == fragment;
}

/* ---- releasing contributions ---- */

/* Ends what a removed rank still had: it has counted in its last step, or does not count. A process that has declared
 * again meanwhile, and waits for the others of its group, keeps its leases. */
static void end_leaver(pd_steps *steps, pd_fragment *fragment, uint32_t rank)
{
    if (!fragment->ranks[rank].leaver) return;
    fragment->ranks[rank].leaver = false;
    if (fragment->number == 0 && !steps->quotas[rank].declared) pd_leases_removed(steps, rank);
}

static void release_slot(pd_steps *steps, pd_param *param, pd_chunk *chunk, uint32_t rank)
{
    pd_contribution *given = &chunk->contributions[rank];

    if (given->state == PD_CONTRIBUTION_OUTSIDE) return;
    if (given->state == PD_CONTRIBUTION_EMPTY) {
        given->refused = given->weighed = false;
        return;
    }
    if (given->state == PD_CONTRIBUTION_HELD) pd_frame_let_go(steps, given->frame);
    if (given->state == PD_CONTRIBUTION_SPILLED) pd_buffer_pool_give(param->buffers.spills, given->u.spill);
    pd_round_take_back(&param->round, chunk, rank);
    pd_chunk_let_go(steps, chunk);
}

/* Releases what a rank has given to the step that is collected. */
static void release(pd_steps *steps, pd_fragment *fragment, uint32_t rank)
{
    fragment->ranks[rank].carries = false;
    if (fragment->ranks[rank].step == 0) return;
    for (uint32_t i = 0; i < steps->n_params; i++) {
        pd_param *param = &steps->params[i];
        /* Where the rank still counts in the step before, nothing of its next push can be there. */
        if (!is_of(fragment, param) || (param->round.fixed && pd_round_counts(&param->round, rank))) continue;
        for (uint32_t c = 0; c < param->round.n_chunks; c++) release_slot(steps, param, &param->round.chunks[c], rank);
        pd_contribute_forget(steps, param, rank);
    }
    fragment->ranks[rank].step = fragment->ranks[rank].whole_ns = 0;
    end_leaver(steps, fragment, rank);
}

/* Releases what a rank has given to the step that is collected, since its process gives that up. If the rank was
 * removed when its unit was whole, the others of the unit do not count without it either. */
static void give_up(pd_steps *steps, pd_fragment *fragment, uint32_t rank)
{
    bool leaver = fragment->ranks[rank].leaver;
    uint32_t unit = fragment->ranks[rank].left_with;

    release(steps, fragment, rank);
    for (uint32_t r = 0; leaver && r < steps->members.ranks; r++)
        if (fragment->ranks[r].leaver && fragment->ranks[r].left_with == unit) release(steps, fragment, r);
}

/* ---- units ---- */

/* What is known of a unit, at the index of its lowest rank. */
enum { THERE = 1, PARTIAL = 2, EXPECTED = 4, MEMBER = 8, GIVES = 16 };

/* The units of a fragment, and how many of them there are. */
typedef struct tally {
    uint8_t unit[PD_MAX_WORLD];
    uint32_t members, expected, expected_whole, whole;
    bool unknown; /* the job has groups, and some member has not said yet which one it belongs to */
    bool gives;   /* some whole unit has a gradient, not only reports that there is none */
    bool others;  /* an expected rank whose worker is connected is not whole yet */
} tally;

/* Returns whether the rank's contributions were kept when the last set was fixed. */
static bool is_kept(const pd_fragment *fragment, uint32_t rank)
{
    return fragment->ranks[rank].step > 0 && fragment->ranks[rank].step <= fragment->fixed;
}

/* Returns whether the fragment waits for nothing of the rank. A rank without elements owes nothing. */
static bool is_done(const pd_fragment *fragment, uint32_t rank)
{
    if (PD_MUTANT(kept_though_partial) && is_kept(fragment, rank)) return true;
    return pd_fragment_is_whole(fragment, rank) || fragment->ranks[rank].owed == 0;
}

static void look_at_rank(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank, tally *t)
{
    uint8_t *unit = &t->unit[fragment->ranks[rank].unit];
    bool member = pd_rank_set_has(&steps->members, rank), expected = pd_rank_set_has(&fragment->expected, rank);

    if (member) *unit |= MEMBER;
    if (expected) *unit |= EXPECTED;
    if (fragment->ranks[rank].step > 0) *unit |= THERE;
    if (fragment->ranks[rank].step > 0 && fragment->ranks[rank].gives) *unit |= GIVES;
    if (expected && steps->quotas[rank].declared && !is_done(fragment, rank)) t->others = true;
    if ((member || expected || fragment->ranks[rank].step > 0) && !is_done(fragment, rank)) *unit |= PARTIAL;
    if (fragment->ranks[rank].step > 0 && !member && !fragment->ranks[rank].leaver) *unit |= PARTIAL;
    if (steps->grouped && member && !fragment->ranks[rank].known) t->unknown = true;
}

static void count_units(const pd_steps *steps, const pd_fragment *fragment, tally *t)
{
    memset(t, 0, sizeof *t);
    for (uint32_t r = 0; r < steps->members.ranks; r++) look_at_rank(steps, fragment, r, t);
    for (uint32_t r = 0; r < steps->members.ranks; r++) {
        bool whole = (t->unit[r] & (THERE | PARTIAL)) == THERE;
        t->members += (t->unit[r] & MEMBER) != 0;
        t->whole += whole;
        t->gives |= whole && (t->unit[r] & GIVES) != 0;
        t->expected += (t->unit[r] & EXPECTED) != 0;
        t->expected_whole += (t->unit[r] & EXPECTED) != 0 && whole;
    }
}

/* Returns whether the rank counts if the set is fixed now. */
static bool counts_now(const pd_fragment *fragment, uint32_t rank, const tally *t)
{
    return (pd_fragment_is_whole(fragment, rank) || (PD_MUTANT(kept_though_partial) && is_kept(fragment, rank))) &&
           ((t->unit[fragment->ranks[rank].unit] & PARTIAL) == 0 || PD_MUTANT(group_counts_in_part));
}

uint32_t pd_fragment_expected(const pd_steps *steps, const pd_fragment *fragment, uint32_t *whole)
{
    tally t;

    count_units(steps, fragment, &t);
    *whole = t.expected_whole;
    return t.expected;
}

uint32_t pd_fragment_quorum(const pd_steps *steps, const pd_fragment *fragment)
{
    uint32_t whole;

    return least(steps->sets.quorum, pd_fragment_expected(steps, fragment, &whole));
}

/* Returns whether the next set must be that of before a restart: a recorded one (*recorded), or, if that becomes NULL,
 * one in which all ranks count. */
static bool repeats(const pd_steps *steps, const pd_fragment *fragment, const pd_counted **recorded)
{
    *recorded = pd_wal_recorded_set(steps, fragment, fragment->fixed + 1);
    return *recorded != NULL || steps->repeats.awaits || fragment->fixed < fragment->seen;
}

/* Returns whether the rank is whole, with a contribution of this age to the step that is collected. */
static bool has_come(const pd_fragment *fragment, uint32_t rank, uint64_t age)
{
    return pd_fragment_is_whole(fragment, rank) && fragment->ranks[rank].step + age == fragment->fixed + 1;
}

/* Returns whether the step that is collected waits for the rank if it is not whole: it is expected, or has joined since
 * the step was opened and belongs to a unit that is. */
static bool is_waited_for(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank)
{
    bool waits = pd_rank_set_has(&fragment->expected, rank);

    for (uint32_t r = 0; !waits && pd_rank_set_has(&steps->members, rank) && r < steps->members.ranks; r++)
        waits = fragment->ranks[r].unit == fragment->ranks[rank].unit && pd_rank_set_has(&fragment->expected, r);
    return waits;
}

bool pd_fragment_misses(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank)
{
    const pd_counted *recorded;

    if (fragment->opened_ns == 0) return false;
    if (!repeats(steps, fragment, &recorded)) return !is_done(fragment, rank) && is_waited_for(steps, fragment, rank);
    return pd_counted_has(recorded, rank) && !has_come(fragment, rank, pd_counted_age(recorded, rank));
}

char *pd_fragment_missing(const pd_steps *steps, const pd_fragment *fragment, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t r = 0; r < fragment->expected.ranks; r++) {
        if (!pd_fragment_misses(steps, fragment, r)) continue;
        if (used + 16 > size) {
            snprintf(text + used, size - used, ",...");
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%u", used > 0 ? "," : "", r);
    }
    return text;
}

/* ---- members ---- */

void pd_fragments_join(pd_steps *steps, uint32_t rank, uint32_t unit)
{
    pd_rank_set_add(&steps->members, rank);
    for (uint32_t i = 0; i < steps->n_fragments; i++) {
        steps->fragments[i].ranks[rank].unit = unit;
        if (PD_MUTANT(welcome_waited_for)) pd_rank_set_add(&steps->fragments[i].expected, rank);
        steps->fragments[i].ranks[rank].leaver = false;
        steps->fragments[i].ranks[rank].joined = steps->epoch + 1;
        steps->fragments[i].ranks[rank].next = steps->fragments[i].fixed + 1;
        steps->fragments[i].look = true;
    }
}

void pd_fragments_set_unit(pd_steps *steps, uint32_t rank, uint32_t unit, bool known)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++) {
        pd_fragment_rank *r = &steps->fragments[i].ranks[rank];
        if (r->unit == unit && r->known == known) continue;
        r->unit = unit;
        r->known = known;
        steps->fragments[i].look = true;
    }
}

void pd_fragments_restart(pd_steps *steps, uint32_t rank)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++) {
        give_up(steps, &steps->fragments[i], rank);
        steps->fragments[i].ranks[rank].refused = 0;
        steps->fragments[i].ranks[rank].next = steps->fragments[i].fixed + 1;
        steps->fragments[i].look = true;
    }
}

/* Returns whether the set that is repeated after a restart needs what the rank has given. */
static bool is_repeated(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank)
{
    const pd_counted *recorded;

    return repeats(steps, fragment, &recorded) && pd_counted_has(recorded, rank) &&
           has_come(fragment, rank, pd_counted_age(recorded, rank));
}

void pd_fragments_overtaken(pd_steps *steps, const pd_fragment *only, uint32_t rank, uint64_t step)
{
    for (uint32_t i = 0; steps->sets.open && i < steps->n_fragments; i++) {
        pd_fragment *fragment = &steps->fragments[i];
        uint64_t before = fragment->ranks[rank].step;
        if (only != NULL && fragment != only) continue;
        if (before == 0 || before >= step || step > fragment->fixed + 1 || is_repeated(steps, fragment, rank)) continue;
        give_up(steps, fragment, rank);
        pd_fragment_late(fragment, rank, before);
        fragment->ranks[rank].next = step;
        fragment->look = true;
    }
}

static void end_collecting(pd_fragment *fragment)
{
    fragment->opened_ns = fragment->deadline_ns = 0;
    fragment->state = PD_FRAGMENT_IDLE;
}

/* Lets the step that is collected go on when all ranks have gone that it has waited for: it waits for the members that
 * stay. If there are none and nothing has been given, whoever contributes next opens the step again. */
static void lose_last(const pd_steps *steps, pd_fragment *fragment)
{
    bool any = false;

    fragment->expected = steps->members;
    for (uint32_t r = 0; r < steps->members.ranks; r++) any = any || fragment->ranks[r].step > 0;
    if (fragment->expected.n == 0 && !any) end_collecting(fragment);
}

/* Takes a unit out of the step that is collected. `whole`: all its ranks are whole, so they stay in the step. */
static void take_out(pd_steps *steps, pd_fragment *fragment, uint32_t unit, bool whole)
{
    bool waits = fragment->expected.n > 0;

    for (uint32_t r = unit; r < steps->members.ranks; r++) {
        if (fragment->ranks[r].unit != unit) continue;
        pd_rank_set_remove(&fragment->expected, r);
        fragment->ranks[r].leaver = whole;
        fragment->ranks[r].left_with = unit;
        if (!whole || PD_MUTANT(removed_though_whole)) release(steps, fragment, r);
        if (fragment->number == 0 && !whole) pd_leases_removed(steps, r);
    }
    if (waits && fragment->expected.n == 0) lose_last(steps, fragment);
    fragment->look = true;
}

void pd_fragments_remove(pd_steps *steps, uint32_t unit, bool stay)
{
    bool whole[PD_MAX_FRAGMENTS] = { false };
    tally t;

    for (uint32_t i = 0; i < steps->n_fragments; i++) {
        count_units(steps, &steps->fragments[i], &t);
        whole[i] = stay && (t.unit[unit] & (THERE | PARTIAL)) == THERE;
    }
    for (uint32_t r = unit; r < steps->members.ranks; r++)
        if (steps->n_fragments > 0 ? steps->fragments[0].ranks[r].unit == unit : r == unit)
            pd_rank_set_remove(&steps->members, r);
    for (uint32_t i = 0; i < steps->n_fragments; i++) take_out(steps, &steps->fragments[i], unit, whole[i]);
}

bool pd_fragments_need(const pd_steps *steps, uint32_t rank)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++)
        if (steps->fragments[i].ranks[rank].step > 0 || steps->fragments[i].n_closed < steps->fragments[i].n_params)
            return true;
    return false;
}

/* ---- sets ---- */

/* Returns whether all ranks of the set that is repeated are whole, with contributions as old as before the restart.
 * `recorded` NULL: all ranks of the job, with contributions to the step that is collected. */
static bool have_come(const pd_fragment *fragment, const pd_counted *recorded)
{
    for (uint32_t r = 0; r < fragment->expected.ranks; r++)
        if (pd_counted_has(recorded, r) && !has_come(fragment, r, pd_counted_age(recorded, r))) return false;
    return true;
}

/* Returns whether the contribution of an expected rank, which is not whole, would be too old for the step after the
 * one that is collected. */
static bool would_be_stale(const pd_steps *steps, const pd_fragment *fragment)
{
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (pd_rank_set_has(&fragment->expected, r) && !is_done(fragment, r) &&
            fragment->fixed + 2 > fragment->ranks[r].next &&
            fragment->fixed + 2 - fragment->ranks[r].next > steps->sets.staleness)
            return true;
    return false;
}

/* Returns the time at which the patience of the whole ranks is used up, so that new weights still reach them in time.
 * *hasty becomes the rank whose patience ends first. */
static uint64_t end_of_patience(const pd_fragment *fragment, uint64_t now_ns, uint32_t *hasty)
{
    uint64_t end = UINT64_MAX;

    for (uint32_t r = 0; r < fragment->expected.ranks; r++) {
        const pd_fragment_rank *rank = &fragment->ranks[r];
        uint64_t own = rank->whole_ns + rank->patience_ns / 10 * 9;
        if (!pd_fragment_is_whole(fragment, r) || own >= end) continue;
        end = own;
        *hasty = r;
    }
    if (end == UINT64_MAX || end < now_ns + fragment->work_ns) return now_ns;
    return end - fragment->work_ns;
}

/* Returns the time at which the last of the whole ranks became whole. */
static uint64_t last_whole(const pd_fragment *fragment)
{
    uint64_t last = 0;

    for (uint32_t r = 0; r < fragment->expected.ranks; r++)
        if (fragment->ranks[r].whole_ns > last) last = fragment->ranks[r].whole_ns;
    return last;
}

/* Returns the time from which on a quorum has been whole in the open step. Ranks that a repeated set has left out may
 * have been whole before the step was opened. */
static uint64_t quorum_since(const pd_fragment *fragment)
{
    uint64_t last = last_whole(fragment);

    if (PD_MUTANT(grace_from_opening)) return fragment->opened_ns;
    return last > fragment->opened_ns ? last : fragment->opened_ns;
}

/* Begins to wait for further ranks, since a quorum is whole. If nobody of it has a gradient (`empty`), as at the end
 * of their data, the step would serve nobody: it waits as long as for a rank that is lost, or until a gradient is
 * there. */
static void begin_grace(const pd_steps *steps, pd_fragment *fragment, bool empty, uint64_t now_ns)
{
    bool again = fragment->state == PD_FRAGMENT_GRACE;

    fragment->state = PD_FRAGMENT_GRACE;
    fragment->empty = empty;
    fragment->is_over = false;
    if (steps->sets.grace_ns == UINT64_MAX)
        fragment->deadline_ns = end_of_patience(fragment, now_ns, &fragment->hasty);
    else
        fragment->deadline_ns = quorum_since(fragment) + steps->sets.grace_ns;
    if (empty && fragment->deadline_ns < quorum_since(fragment) + steps->sets.reconnect_grace_ns)
        fragment->deadline_ns = quorum_since(fragment) + steps->sets.reconnect_grace_ns;
    fragment->graces += !again && fragment->deadline_ns > now_ns;
}

/* Returns whether the grace must begin, or its end must be found anew: ranks that have become whole since may be less
 * patient than those before, and the step waits longer while nobody who is whole has a gradient. */
static bool is_grace_due(const pd_steps *steps, const pd_fragment *fragment, bool empty)
{
    bool patient = steps->sets.grace_ns == UINT64_MAX && !PD_MUTANT(grace_not_shortened);

    return fragment->state != PD_FRAGMENT_GRACE || fragment->empty != empty || patient;
}

/* Returns whether a rider would stop the parameters before the next step: a cut whose weights are not read yet, a
 * pause, or the WAL. */
static bool is_stopped(const pd_steps *steps, const pd_fragment *fragment)
{
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (is_of(fragment, &steps->params[i]) &&
            (pd_wal_stops(steps, &steps->params[i]) || (pd_cut_stops(steps, &steps->params[i]) && !steps->cut->fixed)))
            return true;
    return false;
}

/* Returns whether the job has fewer members than steps are taken with. */
static bool too_few(const pd_steps *steps, const tally *t)
{
    return (steps->sets.in_ranks ? steps->members.n : t->members) < steps->sets.least;
}

/* Returns the first thing that the set of the next step lacks, besides the end of a grace. */
static pd_set_lack find_lack(const pd_steps *steps, const pd_fragment *fragment, const tally *t)
{
    bool all = t->expected_whole == t->expected;
    const pd_counted *recorded;

    if (fragment->n_closed < fragment->n_params) return PD_SET_LACKS_CLOSE;
    if (is_stopped(steps, fragment)) return PD_SET_LACKS_DISK;
    if (repeats(steps, fragment, &recorded))
        return t->whole > 0 && have_come(fragment, recorded) ? PD_SET_LACKS_NOTHING : PD_SET_LACKS_REPEATED;
    if (t->unknown) return PD_SET_LACKS_GROUPS;
    if (t->whole == 0 || (!all && t->expected_whole < least(steps->sets.quorum, t->expected)))
        return PD_SET_LACKS_QUORUM;
    if (too_few(steps, t)) return PD_SET_LACKS_MEMBERS;
    return steps->sets.waits && would_be_stale(steps, fragment) ? PD_SET_LACKS_STALE : PD_SET_LACKS_NOTHING;
}

pd_set_lack pd_fragment_lack(const pd_steps *steps, const pd_fragment *fragment)
{
    tally t;

    count_units(steps, fragment, &t);
    return find_lack(steps, fragment, &t);
}

/* Returns whether the set of the next step can be fixed now. Begins a grace, or ends it if the quorum is lost. */
static bool may_fix(const pd_steps *steps, pd_fragment *fragment, const tally *t, uint64_t now_ns)
{
    pd_set_lack lack = find_lack(steps, fragment, t);
    bool all = t->expected_whole == t->expected || (!t->gives && !t->others);
    const pd_counted *recorded;

    if ((lack == PD_SET_LACKS_DISK || lack == PD_SET_LACKS_QUORUM) && fragment->state == PD_FRAGMENT_GRACE)
        fragment->state = PD_FRAGMENT_OPEN;
    if (lack != PD_SET_LACKS_NOTHING && lack != PD_SET_LACKS_MEMBERS && lack != PD_SET_LACKS_STALE) return false;
    if (repeats(steps, fragment, &recorded)) return true;
    if (!all && is_grace_due(steps, fragment, !t->gives)) begin_grace(steps, fragment, !t->gives, now_ns);
    if (!all && now_ns < fragment->deadline_ns) return false;
    fragment->is_over = fragment->state == PD_FRAGMENT_GRACE && now_ns >= fragment->deadline_ns;
    return lack == PD_SET_LACKS_NOTHING;
}

/* Notes that the rank counts in the step that has just been fixed. */
static void count_in(const pd_steps *steps, pd_fragment *fragment, uint32_t rank)
{
    pd_fragment_rank *r = &fragment->ranks[rank];
    uint64_t age = fragment->fixed - r->step;

    pd_counted_add(fragment->set, rank, (uint32_t)age);
    fragment->damped[rank] = pd_set_rule_damp(&steps->sets, age);
    fragment->damps |= fragment->damped[rank] != 1;
    r->saved = (pd_fragment_rank_saved){ .last = r->step, .counted = fragment->fixed };
    pd_set_counts_in(&r->counts, age);
    r->next = fragment->fixed + 1;
    if (PD_MUTANT(kept_slot_counted_twice) && age > 0) return;
    r->step = r->whole_ns = 0;
}

/* Keeps the contributions of a rank that does not count in the step that has just been fixed, or releases them if they
 * would be too old for the next one, or are made of shares that another rank has now. */
static void leave_out(pd_steps *steps, pd_fragment *fragment, uint32_t rank)
{
    pd_fragment_rank *r = &fragment->ranks[rank];

    if (r->step == 0) return;
    if (pd_fragment_keeps(steps, fragment, rank)) {
        pd_counted_keep(fragment->set, rank);
        return;
    }
    pd_fragment_late(fragment, rank, r->step);
    if (PD_MUTANT(late_frame_held))
        r->step = r->whole_ns = 0;
    else
        release(steps, fragment, rank);
    r->next = fragment->fixed + 1;
}

/* Lets the rounds of all parameters go on with the ranks of the set. */
static void settle_rounds(pd_steps *steps, pd_fragment *fragment)
{
    for (uint32_t i = 0; i < steps->n_params; i++) {
        pd_param *param = &steps->params[i];
        if (!is_of(fragment, param)) continue;
        param->round.fixed = true;
        param->round.set = fragment->set;
        /* Values of model state are means whatever their age: damped ones would shrink. */
        param->round.damped = fragment->damps && !param->model_state ? fragment->damped : NULL;
        pd_contribute_fixed(steps, param);
    }
}

void pd_fragments_renew(pd_steps *steps)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++) {
        end_collecting(&steps->fragments[i]);
        steps->fragments[i].expected = steps->members;
        for (uint32_t r = 0; r < steps->members.ranks; r++) {
            release(steps, &steps->fragments[i], r);
            steps->fragments[i].ranks[r].owed = UINT32_MAX;
        }
    }
}

/* Opens the next step if contributions to it are there already. */
static void open_kept(pd_steps *steps, pd_fragment *fragment, uint64_t now_ns)
{
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (fragment->ranks[r].step > 0) pd_fragment_open(steps, fragment, now_ns);
}

static void fix(pd_steps *steps, pd_fragment *fragment, const tally *t, const pd_counted *recorded, uint64_t now_ns)
{
    fragment->fixed++;
    fragment->places[fragment->fixed % PD_PLACES] = ++steps->place;
    fragment->n_closed = 0;
    fragment->fixed_ns = now_ns;
    if (fragment->number == 0) steps->withheld.open = steps->place;
    fragment->set = fragment->next;
    fragment->next = NULL;
    fragment->damps = false;
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (recorded != NULL ? pd_counted_has(recorded, r) : counts_now(fragment, r, t)) count_in(steps, fragment, r);
    pd_leases_fixed(steps, fragment, recorded != NULL);
    for (uint32_t r = 0; r < steps->members.ranks; r++) {
        if (!pd_counted_has(fragment->set, r)) leave_out(steps, fragment, r);
        fragment->ranks[r].revoked = false;
        if (pd_counted_has(fragment->set, r)) continue;
        if (t->gives && pd_rank_set_has(&steps->members, r))
            pd_set_counts_missed(steps, &fragment->ranks[r].counts, r, fragment->fixed, fragment->ranks[r].step > 0);
    }
    end_collecting(fragment);
    if (recorded == NULL && !pd_wal_is_whole(fragment->set) && fragment->anew == 0) fragment->anew = fragment->fixed;
    pd_wal_fixed(steps, fragment, fragment->set);
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (fragment->ranks[r].step == 0) end_leaver(steps, fragment, r);
    settle_rounds(steps, fragment);
    open_kept(steps, fragment, now_ns);
}

static int look(pd_steps *steps, pd_fragment *fragment, uint64_t now_ns)
{
    const pd_counted *recorded = pd_wal_recorded_set(steps, fragment, fragment->fixed + 1);
    tally t;

    if (fragment->next == NULL && (fragment->next = pd_counted_new(steps->members.ranks)) == NULL) return PD_NO_MEMORY;
    fragment->look = false;
    if (pd_leases_look(steps) != PD_OK) return PD_NO_MEMORY;
    count_units(steps, fragment, &t);
    if (may_fix(steps, fragment, &t, now_ns)) fix(steps, fragment, &t, recorded, now_ns);
    return PD_OK;
}

int pd_fragments_look(pd_steps *steps, uint64_t now_ns)
{
    int rc = PD_OK;

    for (uint32_t i = 0; rc == PD_OK && i < steps->n_fragments; i++)
        if (steps->fragments[i].look && steps->sets.open) rc = look(steps, &steps->fragments[i], now_ns);
    return rc;
}

bool pd_fragments_have_work(const pd_steps *steps)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++)
        if (steps->fragments[i].look && steps->sets.open) return true;
    return false;
}

uint64_t pd_fragments_next(const pd_steps *steps)
{
    uint64_t at = UINT64_MAX;

    for (uint32_t i = 0; i < steps->n_fragments; i++)
        if (steps->fragments[i].state == PD_FRAGMENT_GRACE && !steps->fragments[i].is_over &&
            steps->fragments[i].deadline_ns < at)
            at = steps->fragments[i].deadline_ns;
    return at;
}

void pd_fragments_tick(pd_steps *steps, uint64_t now_ns)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++)
        if (steps->fragments[i].state == PD_FRAGMENT_GRACE && !steps->fragments[i].is_over &&
            steps->fragments[i].deadline_ns <= now_ns)
            steps->fragments[i].look = true;
}

void pd_fragment_closed(pd_steps *steps, pd_param *param, uint64_t now_ns)
{
    pd_fragment *fragment = param->fragment;
    uint64_t took = now_ns - fragment->fixed_ns;

    if (!steps->sets.open || ++fragment->n_closed < fragment->n_params) return;
    pd_counted_unref(fragment->set);
    fragment->set = NULL;
    if (fragment->number == 0) steps->withheld.open = 0;
    fragment->work_ns = fragment->work_ns > 0 ? (fragment->work_ns + took) / 2 : took;
    fragment->look = true;
}
