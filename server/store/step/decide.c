/* decide.c - decides a step by the tallies of all shards: whether it is skipped, which portions of cut parameters have
 * a gradient, the norm that clips, and which steps are refused. */
#include "decide.h"

#include "global_clip.h"
#include "step_group.h"

/* Applies what the shards have said of cut parameters: if one portion has no whole gradient, none has one. *skipped
 * becomes true if a parameter whose portions all have gradients skips the step. Returns whether some portions lacked a
 * gradient and others did not: then the sums and the counts of the tallies do not hold. */
static bool apply_cuts(pd_steps *steps, bool *skipped)
{
    bool mixed = false;

    for (uint32_t c = 0; c < steps->n_cut; c++) {
        bool lacks = pd_settle_cut(steps, c, PD_CUTS_LACK);
        *skipped = *skipped || (!lacks && pd_settle_cut(steps, c, PD_CUTS_SKIP));
        mixed = mixed || (lacks && pd_settle_cut(steps, c, PD_CUTS_HAVE));
    }
    for (uint32_t i = 0; i < steps->n_params; i++) {
        pd_param *param = &steps->params[i];
        if (param->cut && pd_settle_cut(steps, param->cut_number, PD_CUTS_LACK)) param->end.outcome = PD_NO_GRADIENT;
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

static void take_outcomes(pd_steps *steps, const pd_verdict *verdict)
{
    bool skipped = verdict->skipped, mixed = apply_cuts(steps, &skipped);

    if (skipped) pd_steps_skip_all(steps, steps->params[0].saved.step + 1, verdict->reason);
    if (skipped || !mixed) pd_settle_decided(steps, !skipped);
    go_on(steps, skipped, mixed && !skipped, verdict);
}

/* Finds the refusal that comes first in the order of the declaration, of all shards, for one rule. */
static bool find_refusal(const pd_tallies *tallies, size_t rule, pd_tally_refusal *first)
{
    bool found = false;
    pd_tally tally;
    pd_error err;

    for (size_t s = 0; s < tallies->n; s++) {
        (void)pd_tally_open(&tally, tallies->at[s].at, tallies->at[s].n, &err); /* it was checked */
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

static void take_refusals(pd_steps *steps, const pd_tallies *tallies, const pd_verdict *verdict)
{
    for (size_t r = 0; r < steps->n_rules; r++) {
        pd_tally_refusal refusal;
        bool any = find_refusal(tallies, r, &refusal);
        pd_step_group_settled(steps, &steps->together.groups[r], any ? &refusal : NULL, verdict->reason);
    }
}

int pd_steps_take_verdict(pd_steps *steps, const pd_tallies *tallies, pd_verdict_state *state, pd_error *err)
{
    pd_verdict verdict;
    int rc = pd_settle_check(steps, tallies, state, err);

    if (rc != PD_OK || *state != PD_VERDICT_NEW) return rc;
    pd_settle_take(steps, tallies, &verdict);
    switch (verdict.kind) {
    case PD_TALLY_OUTCOMES: take_outcomes(steps, &verdict); break;
    case PD_TALLY_NORM: pd_global_clip_settled(steps, verdict.seen, &verdict.sum); break;
    case PD_TALLY_REFUSALS: take_refusals(steps, tallies, &verdict); break;
    }
    return PD_OK;
}
