/* decide.c - decides a step by the tallies of all shards: whether it is skipped, which portions of cut parameters have
 * a gradient, the norm that clips, and which steps are refused. */
#include "decide.h"

#include "global_clip.h"
#include "step_group.h"

/* What the shards have said of a cut parameter together. */
typedef struct cut_sum {
    uint32_t declared, portions;
    uint64_t missing;
    bool skipped;
} cut_sum;

/* Walks through the cut parameters of all tallies in ascending order. */
typedef struct cut_walk {
    pd_tally tally[PD_SHARDS_MOST];
    size_t n;
    uint32_t at[PD_SHARDS_MOST]; /* the next entry of each tally */
} cut_walk;

static void begin_walk(cut_walk *walk, const pd_tally_view *tallies, size_t n)
{
    pd_error err;

    walk->n = n;
    for (size_t s = 0; s < n; s++) {
        (void)pd_tally_open(&walk->tally[s], tallies[s].at, tallies[s].n, &err); /* it was checked */
        walk->at[s] = 0;
    }
}

/* Joins the entries of the next cut parameter. Returns false if there is none. */
static bool next_cut(cut_walk *walk, cut_sum *out)
{
    pd_tally_cut cut;

    *out = (cut_sum){ .declared = UINT32_MAX };
    for (size_t s = 0; s < walk->n; s++) {
        if (walk->at[s] == walk->tally[s].n_cuts) continue;
        cut = pd_tally_cut_at(walk->tally[s].cuts, walk->at[s]);
        if (cut.declared < out->declared) *out = (cut_sum){ .declared = cut.declared, .portions = cut.portions };
    }
    for (size_t s = 0; s < walk->n; s++) {
        if (walk->at[s] == walk->tally[s].n_cuts) continue;
        cut = pd_tally_cut_at(walk->tally[s].cuts, walk->at[s]);
        if (cut.declared != out->declared) continue;
        out->missing += cut.missing;
        out->skipped = out->skipped || cut.skipped;
        walk->at[s]++;
    }
    return out->portions > 0;
}

/* Lets the rounds of the portions of a parameter on this shard end without a gradient. Parameter number *i is the first
 * one that may be such a portion. */
static void drop_gradients(pd_steps *steps, uint32_t declared, uint32_t *i)
{
    while (*i < steps->n_params && steps->params[*i].declared < declared) ++*i;
    for (; *i < steps->n_params && steps->params[*i].declared == declared; ++*i)
        if (steps->params[*i].cut) steps->params[*i].end.outcome = PD_NO_GRADIENT;
}

/* Applies what the shards have said of cut parameters: if one portion has no whole gradient, none has one. *skipped
 * becomes true if a parameter whose portions all have gradients skips the step. Returns whether some portions lacked a
 * gradient and others did not: then the sums and the counts of the tallies do not hold. */
static bool apply_cuts(pd_steps *steps, const pd_tally_view *tallies, size_t n, bool *skipped)
{
    cut_walk walk;
    cut_sum cut;
    uint32_t at = 0;
    bool mixed = false;

    begin_walk(&walk, tallies, n);
    while (next_cut(&walk, &cut)) {
        *skipped = *skipped || (cut.missing == 0 && cut.skipped);
        mixed = mixed || (cut.missing > 0 && cut.missing < cut.portions);
        if (cut.missing > 0) drop_gradients(steps, cut.declared, &at);
    }
    return mixed;
}

/* Goes on after the outcomes are decided, or were changed (`again`). */
static void go_on(pd_steps *steps, bool skipped, bool again, const pd_verdict *verdict)
{
    static const pd_exact_sum nothing;

    if (steps->together.clip != NULL) {
        if (skipped)
            pd_global_clip_skip(steps);
        else if (again)
            pd_global_clip_again(steps);
        else
            pd_global_clip_settled(steps, verdict->seen, &verdict->sum);
    } else if (again) {
        pd_settle_tally(steps, false, &nothing);
    } else {
        pd_step_groups_go_on(steps);
    }
}

static void take_outcomes(pd_steps *steps, const pd_tally_view *tallies, size_t n, const pd_verdict *verdict)
{
    bool skipped = verdict->skipped, mixed = apply_cuts(steps, tallies, n, &skipped);

    if (skipped) pd_steps_skip_all(steps, steps->params[0].saved.step + 1, verdict->reason);
    if (skipped || !mixed) pd_settle_decided(steps, !skipped);
    go_on(steps, skipped, mixed && !skipped, verdict);
}

/* Finds the refusal that comes first in the order of the declaration, of all shards, for one rule. */
static bool find_refusal(const pd_tally_view *tallies, size_t n, size_t rule, pd_tally_refusal *first)
{
    bool found = false;
    pd_tally tally;
    pd_error err;

    for (size_t s = 0; s < n; s++) {
        (void)pd_tally_open(&tally, tallies[s].at, tallies[s].n, &err); /* it was checked */
        for (size_t i = 0; i < tally.n_refusals; i++) {
            pd_tally_refusal refusal = pd_tally_refusal_at(tally.refusals, i);
            if (refusal.rule != rule ||
                (found && (refusal.declared > first->declared ||
                           (refusal.declared == first->declared && refusal.origin >= first->origin))))
                continue;
            *first = refusal;
            found = true;
        }
    }
    return found;
}

static void take_refusals(pd_steps *steps, const pd_tally_view *tallies, size_t n, const pd_verdict *verdict)
{
    for (size_t r = 0; r < steps->n_rules; r++) {
        pd_tally_refusal refusal;
        bool any = find_refusal(tallies, n, r, &refusal);
        pd_step_group_settled(steps, &steps->together.groups[r], any ? &refusal : NULL, verdict->reason);
    }
}

int pd_steps_take_verdict(pd_steps *steps, uint64_t step, uint32_t phase, const pd_tally_view *tallies, size_t n,
                          pd_verdict_state *state, pd_error *err)
{
    pd_verdict verdict;
    int rc = pd_settle_check(steps, step, phase, tallies, n, state, err);

    if (rc != PD_OK || *state != PD_VERDICT_NEW) return rc;
    pd_settle_take(steps, tallies, n, step, phase, &verdict);
    switch (verdict.kind) {
    case PD_TALLY_OUTCOMES: take_outcomes(steps, tallies, n, &verdict); break;
    case PD_TALLY_NORM: pd_global_clip_settled(steps, verdict.seen, &verdict.sum); break;
    case PD_TALLY_REFUSALS: take_refusals(steps, tallies, n, &verdict); break;
    }
    return PD_OK;
}
