/* fragment_ranks.c - makes fragments, and counts what each rank owes to a step. */
#include "fragment_ranks.h"

#include "mutant.h"

#include <assert.h>
#include <stdlib.h>

static bool is_of(const pd_fragment *fragment, const pd_param *param)
{
    return param->fragment == fragment;
}

/* ---- making fragments ---- */

uint64_t pd_fragments_bytes(uint32_t ranks, uint32_t fragments)
{
    return fragments *
           (sizeof(pd_fragment) + ranks * (sizeof(pd_fragment_rank) + sizeof(double)) + 4 * pd_counted_bytes(ranks));
}

static void mark_used(bool used[PD_MAX_FRAGMENTS], const pd_param_decl *decls, size_t n)
{
    for (size_t i = 0; i < n; i++) used[decls[i].fragment] = true;
}

uint32_t pd_fragments_count(const pd_param_decl *decls, size_t n)
{
    bool used[PD_MAX_FRAGMENTS] = { false };
    uint32_t count = 0;

    mark_used(used, decls, n);
    for (uint32_t f = 0; f < PD_MAX_FRAGMENTS; f++) count += used[f];
    return count;
}

static int make(const pd_steps *steps, pd_fragment *fragment, uint32_t declared)
{
    uint32_t ranks = steps->members.ranks;

    fragment->number = (uint32_t)(fragment - steps->fragments);
    fragment->declared = declared;
    fragment->ranks = calloc(ranks, sizeof *fragment->ranks);
    fragment->damped = calloc(ranks, sizeof *fragment->damped);
    if (fragment->ranks == NULL || fragment->damped == NULL) return PD_NO_MEMORY;
    for (uint32_t r = 0; r < ranks; r++) fragment->ranks[r] = (pd_fragment_rank){ .unit = r, .owed = UINT32_MAX };
    fragment->expected = steps->members;
    return PD_OK;
}

static void put_in(pd_fragment *fragment, pd_param *param)
{
    param->fragment = fragment;
    param->round.expected = &fragment->expected;
    if (fragment->n_params++ == 0) fragment->first = param->index;
}

int pd_fragments_make(pd_steps *steps, const pd_param_decl *decls)
{
    bool used[PD_MAX_FRAGMENTS] = { false };
    pd_fragment *of[PD_MAX_FRAGMENTS] = { NULL };
    uint32_t n = pd_fragments_count(decls, steps->n_params);

    mark_used(used, decls, steps->n_params);
    if ((steps->fragments = calloc(n, sizeof *steps->fragments)) == NULL) return PD_NO_MEMORY;
    steps->n_fragments = n;
    for (uint32_t f = 0, at = 0; f < PD_MAX_FRAGMENTS; f++) {
        if (!used[f]) continue;
        of[f] = &steps->fragments[at++];
        if (make(steps, of[f], f) != PD_OK) return PD_NO_MEMORY;
    }
    for (uint32_t i = 0; i < steps->n_params; i++) put_in(of[decls[i].fragment], &steps->params[i]);
    pd_fragments_resume(steps);
    return PD_OK;
}

void pd_fragments_free(pd_steps *steps)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++) {
        pd_fragment *fragment = &steps->fragments[i];
        pd_counted_unref(fragment->set);
        pd_counted_unref(fragment->next);
        free(fragment->damped);
        free(fragment->ranks);
    }
    free(steps->fragments);
    steps->fragments = NULL;
    steps->n_fragments = 0;
}

void pd_fragments_resume(pd_steps *steps)
{
    steps->place = 0;
    for (uint32_t i = 0; i < steps->n_fragments; i++) {
        pd_fragment *fragment = &steps->fragments[i];
        fragment->fixed = UINT64_MAX;
        for (uint32_t p = 0; p < steps->n_params; p++)
            if (is_of(fragment, &steps->params[p]) && steps->params[p].saved.step < fragment->fixed)
                fragment->fixed = steps->params[p].saved.step;
        fragment->n_closed = fragment->n_params;
        fragment->expected = steps->members;
        steps->place += steps->sets.open ? fragment->fixed : 0;
        for (uint32_t r = 0; r < steps->members.ranks; r++) {
            if (PD_MUTANT(last_not_in_image)) fragment->ranks[r].saved = (pd_fragment_rank_saved){ 0 };
            fragment->ranks[r].next = fragment->fixed + 1;
        }
    }
}

void pd_fragments_wake(pd_steps *steps)
{
    for (uint32_t i = 0; steps->sets.open && i < steps->n_fragments; i++)
        if (steps->fragments[i].opened_ns > 0) steps->fragments[i].look = true;
}

bool pd_fragments_have_set(const pd_steps *steps)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++)
        if (steps->fragments[i].n_closed < steps->fragments[i].n_params) return true;
    return false;
}

uint64_t pd_fragments_fixed(const pd_steps *steps)
{
    uint64_t most = 0;

    for (uint32_t i = 0; steps->sets.open && i < steps->n_fragments; i++)
        if (steps->fragments[i].fixed > most) most = steps->fragments[i].fixed;
    return most;
}

static uint64_t furthest(const pd_steps *steps, const pd_fragment *fragment)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < steps->n_params; i++)
        if (is_of(fragment, &steps->params[i]) && steps->params[i].saved.step > most)
            most = steps->params[i].saved.step;
    return most;
}

uint64_t pd_fragments_place(const pd_steps *steps)
{
    uint64_t sum = 0;

    for (uint32_t f = 0; !steps->sets.open && f < steps->n_fragments; f++) sum += furthest(steps, &steps->fragments[f]);
    return steps->sets.open ? steps->place : sum;
}

uint64_t pd_fragment_told(const pd_steps *steps, const pd_param *param)
{
    uint64_t first = pd_withheld_first(&steps->withheld), step = param->saved.step;

    for (int i = 0; first > 0 && i < PD_PLACES && step > 0; i++)
        if (pd_fragment_place_of(param->fragment, step) >= first) step--;
    return step;
}

uint64_t pd_fragments_told(pd_steps *steps)
{
    uint64_t least = pd_steps_least(steps);

    for (uint32_t i = 0; pd_withheld_first(&steps->withheld) > 0 && i < steps->n_params; i++)
        if (pd_fragment_told(steps, &steps->params[i]) < least) least = pd_fragment_told(steps, &steps->params[i]);
    return least;
}

pd_counted *pd_fragment_last_set(const pd_fragment *fragment)
{
    pd_counted *set = pd_counted_new(fragment->expected.ranks);

    for (uint32_t r = 0; set != NULL && r < fragment->expected.ranks; r++) {
        const pd_fragment_rank_saved *saved = &fragment->ranks[r].saved;
        if (saved->last > 0 && saved->counted == fragment->fixed)
            pd_counted_add(set, r, (uint32_t)(saved->counted - saved->last));
    }
    if (set == NULL || set->n > 0) return set;
    pd_counted_unref(set);
    return NULL;
}

/* ---- contributions ---- */

/* Returns whether the rank's contributions to the step whose set is fixed still lie where those of its next push will:
 * some parameter has not closed that step. Another process of the rank may push meanwhile. */
static bool is_occupied(const pd_fragment *fragment, uint32_t rank)
{
    return fragment->set != NULL && pd_counted_has(fragment->set, rank);
}

pd_filed pd_fragment_judge(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank, uint64_t step,
                           uint64_t *decided)
{
    const pd_fragment_rank *r = &fragment->ranks[rank];
    uint64_t collected = fragment->fixed + 1;

    *decided = step == r->saved.last ? r->saved.counted : step;
    if (step <= r->saved.last) return PD_FILED_COUNTED;
    *decided = fragment->fixed;
    if (step < collected && (collected - step > steps->sets.staleness + PD_MUTANT(filed_after_closed) ||
                             step <= r->late || is_occupied(fragment, rank)))
        return PD_FILED_LATE;
    *decided = collected;
    return PD_FILED_FOR;
}

bool pd_fragment_keeps(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank)
{
    const pd_fragment_rank *r = &fragment->ranks[rank];

    return r->step > 0 && fragment->fixed + 1 - r->step <= steps->sets.staleness && !r->revoked;
}

bool pd_fragment_has_ended(const pd_steps *steps, const pd_fragment *fragment, uint32_t rank, uint64_t step)
{
    uint64_t decided;

    if (pd_fragment_judge(steps, fragment, rank, step, &decided) != PD_FILED_FOR) return true;
    return fragment->ranks[rank].step == step && fragment->ranks[rank].missing == 0;
}

pd_admit pd_fragment_admit(const pd_steps *steps, const pd_param *param, uint32_t rank, uint64_t step)
{
    const pd_fragment *fragment = param->fragment;
    uint64_t decided;

    if (step > param->saved.step + 1) return PD_ADMIT_EARLY;
    switch (pd_fragment_judge(steps, fragment, rank, step, &decided)) {
    case PD_FILED_COUNTED: return PD_ADMIT_DUPLICATE;
    case PD_FILED_LATE: return PD_ADMIT_LATE;
    case PD_FILED_FOR: break;
    }
    return fragment->ranks[rank].step == 0 || fragment->ranks[rank].step == step ? PD_ADMIT_NEW : PD_ADMIT_EARLY;
}

void pd_fragment_open(const pd_steps *steps, pd_fragment *fragment, uint64_t now_ns)
{
    if (fragment->opened_ns > 0) return;
    fragment->expected = steps->members;
    fragment->opened_ns = now_ns > 0 ? now_ns : 1;
    fragment->state = PD_FRAGMENT_OPEN;
}

void pd_fragment_came(pd_steps *steps, pd_param *param, uint32_t rank, uint64_t step, bool gives, uint64_t now_ns)
{
    pd_fragment *fragment = param->fragment;
    pd_fragment_rank *r = &fragment->ranks[rank];

    assert(r->step == 0 || r->step == step);
    pd_fragment_open(steps, fragment, now_ns);
    if (r->step == 0) {
        r->step = r->next = step;
        r->missing = r->owed;
        r->gives = false;
    }
    r->came_ns = now_ns;
    r->gives |= gives;
    assert(r->missing > 0);
    if (--r->missing > 0) return;
    r->whole_ns = now_ns;
    fragment->look = true;
}

void pd_fragment_note(pd_fragment *fragment, const pd_request *push)
{
    pd_fragment_rank *rank = &fragment->ranks[push->rank];

    /* A frame that only ends the step says nothing of it. A rank that gives nothing else waits for the answer. */
    if (push->u.data.n == 0) {
        if (rank->step != push->u.data.step) rank->patience_ns = 0;
        return;
    }
    rank->patience_ns = PD_MUTANT(patience_forgotten) ? 0 : push->u.data.patience_ns;
    rank->wants = push->u.data.wants;
    rank->carries = push->u.data.carried;
}

void pd_fragment_late(pd_fragment *fragment, uint32_t rank, uint64_t step)
{
    pd_fragment_rank *r = &fragment->ranks[rank];

    pd_set_counts_late(&r->counts, step);
    if (step > r->late) r->late = step;
    if (r->step == 0) r->next = fragment->fixed + 1;
}

void pd_fragment_refuse(pd_steps *steps, pd_fragment *fragment, uint32_t rank, uint64_t step)
{
    if (!steps->sets.open || fragment->ranks[rank].refused == step) return;
    fragment->ranks[rank].refused = step;
    for (uint32_t i = 0; i < steps->n_params; i++) {
        pd_round *round = &steps->params[i].round;
        for (uint32_t c = 0; is_of(fragment, &steps->params[i]) && c < round->n_chunks; c++)
            round->chunks[c].contributions[rank].refused = false;
    }
}

bool pd_fragment_was_refused(const pd_param *param, uint32_t rank, uint64_t step)
{
    if (param->round.together && param->fragment->ranks[rank].refused != step) return false;
    return pd_round_was_refused(&param->round, rank);
}

void pd_fragments_declared(pd_steps *steps, uint32_t rank)
{
    for (uint32_t i = 0; i < steps->n_fragments; i++) {
        pd_fragment *fragment = &steps->fragments[i];
        uint32_t owed = 0;
        for (uint32_t p = 0; p < steps->n_params; p++)
            if (is_of(fragment, &steps->params[p])) owed += pd_round_count_chunks(&steps->params[p].round, rank);
        fragment->ranks[rank].owed = owed;
        fragment->look = true;
    }
}
