/* sim_patience.c - checks how long steps wait for further ranks in jobs with grace = auto: as long as every rank that
 * is whole can do without the answer to its push, and no longer. The model knows between which times a rank has become
 * whole, and how long closing a step has taken at most. */
#include "sim_patience.h"

#include "fragment.h"
#include "sim_judge.h"

typedef unsigned long long number;

/* Returns for how many ns of its patience the rank is waited for, with its push for step `of`. A rank that only ends
 * the step says nothing of patience. */
static uint64_t patience_of(const sim_history *h, uint32_t f, uint32_t rank, uint64_t of)
{
    bool brings = !sim_rank_closes(h->job, rank, of);

    for (uint32_t p = 0; p < h->job->n_params; p++)
        brings = brings || (sim_fragment_of(h->job, p) == f && sim_has_gradient(h->job, rank, of, p));
    return brings ? sim_patience_ms(h->job, rank, of) * SIM_MS / 10 * 9 : 0;
}

/* Notes how long the last set took from its fixing to the last parameter's close, at most. */
static void note_close(sim_patience *seen, const pd_fragment *fragment, uint64_t fixed, uint64_t clock_ns)
{
    bool closed = fragment->fixed != fixed || fragment->n_closed == fragment->n_params;

    if (!seen->closes || !closed) return;
    seen->closes = false;
    if (clock_ns - seen->fixed_ns > seen->work_ns) seen->work_ns = clock_ns - seen->fixed_ns;
}

/* Notes that a set was fixed since the last look. */
static void note_fixed(sim_patience *seen, const pd_fragment *fragment, uint64_t clock_ns)
{
    bool closed = fragment->n_closed == fragment->n_params;

    seen->fixed_ns = seen->looked_ns;
    seen->closes = !closed;
    if (closed && clock_ns - seen->fixed_ns > seen->work_ns) seen->work_ns = clock_ns - seen->fixed_ns;
}

/* Notes when ranks have become whole. A rank that has another connection may have given its push anew. */
static void note_whole(const sim_history *h, sim_patience *seen, const uint64_t *conn, const pd_fragment *fragment,
                       uint64_t clock_ns)
{
    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        bool whole = pd_fragment_is_whole(fragment, rank);
        if (whole && seen->step[rank] != fragment->ranks[rank].step) seen->from_ns[rank] = seen->looked_ns;
        if (whole && (seen->step[rank] != fragment->ranks[rank].step || seen->conn[rank] != conn[rank]))
            seen->to_ns[rank] = clock_ns;
        seen->step[rank] = whole ? fragment->ranks[rank].step : 0;
        seen->conn[rank] = conn[rank];
    }
}

/* Returns the step of the rank's push that came too late for the last set and was released since the last look; 0:
 * there is none. It may have been whole before, though others of its group were not. */
static uint64_t released_since(const sim_history *h, uint32_t f, const pd_fragment *fragment, uint32_t rank)
{
    return fragment->ranks[rank].late > h->fragments[f].watch.late[rank] ? fragment->ranks[rank].late : 0;
}

/* Returns the time up to which the rank can wait at least, with its push that counts in the last set, that is whole,
 * or that was whole at the last look; UINT64_MAX: it has none. */
static uint64_t end_of(const sim_history *h, uint32_t f, const pd_fragment *fragment, uint32_t rank)
{
    const sim_patience *seen = &h->fragments[f].watch.patience;
    uint64_t now = pd_fragment_is_whole(fragment, rank) ? fragment->ranks[rank].step : 0, end = UINT64_MAX;

    if (pd_counted_has(fragment->set, rank)) now = fragment->fixed - pd_counted_age(fragment->set, rank);
    if (!pd_counted_has(fragment->set, rank) && now == 0) now = released_since(h, f, fragment, rank);
    if (seen->step[rank] > 0) end = seen->from_ns[rank] + patience_of(h, f, rank, seen->step[rank]);
    if (now > 0 && now != seen->step[rank] && seen->looked_ns + patience_of(h, f, rank, now) < end)
        end = seen->looked_ns + patience_of(h, f, rank, now);
    return end;
}

/* Checks that a set which leaves out ranks was not fixed while each rank that was whole could still wait. */
static void check_fixed(const sim_history *h, uint32_t f, const pd_fragment *fragment, uint32_t steady,
                        uint64_t clock_ns)
{
    const sim_patience *seen = &h->fragments[f].watch.patience;
    uint64_t end = UINT64_MAX;
    bool waits = false;

    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        uint64_t own = end_of(h, f, fragment, rank);
        waits = waits || (!pd_counted_has(fragment->set, rank) && (steady >> rank & 1) != 0);
        if (own < end) end = own;
    }
    if (waits && clock_ns + seen->work_ns < end)
        sim_fail("grace", "%s: step %llu is taken at %.3f s, but all that were whole can wait until %.3f s at least",
                 h->job->name, (number)fragment->fixed, (double)clock_ns / 1e9, (double)(end - seen->work_ns) / 1e9);
}

/* Returns whether the step that is collected lacks a rank that it waits for. */
static bool lacks_rank(const sim_history *h, const pd_fragment *fragment)
{
    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if (pd_rank_set_has(&fragment->expected, rank) && !pd_fragment_is_whole(fragment, rank)) return true;
    return false;
}

/* Checks that the step waits for no longer than each rank that is whole can. */
static void check_grace(const sim_history *h, uint32_t f, const pd_fragment *fragment, uint64_t clock_ns)
{
    const sim_patience *seen = &h->fragments[f].watch.patience;

    if (fragment->state != PD_FRAGMENT_GRACE || fragment->empty || fragment->look || !lacks_rank(h, fragment)) return;
    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        uint64_t end = seen->to_ns[rank] + patience_of(h, f, rank, seen->step[rank]);
        if (seen->step[rank] > 0 && fragment->deadline_ns > end && fragment->deadline_ns > clock_ns)
            sim_fail("grace", "%s: step %llu waits until %.3f s, but rank %u cannot wait after %.3f s", h->job->name,
                     (number)fragment->fixed + 1, (double)fragment->deadline_ns / 1e9, rank, (double)end / 1e9);
    }
}

void sim_patience_look(sim_history *h, uint32_t f, const pd_fragment *fragment, uint32_t steady, uint64_t clock_ns)
{
    sim_watch *watch = &h->fragments[f].watch;
    sim_patience *seen = &watch->patience;

    if (h->job->open.patience_ns == 0) return;
    note_close(seen, fragment, watch->fixed, clock_ns);
    if (fragment->fixed == watch->fixed + 1 && fragment->set != NULL) check_fixed(h, f, fragment, steady, clock_ns);
    if (fragment->fixed != watch->fixed) note_fixed(seen, fragment, clock_ns);
    note_whole(h, seen, watch->conn, fragment, clock_ns);
    check_grace(h, f, fragment, clock_ns);
    seen->looked_ns = clock_ns;
}
