/* step_group.c - lets parameters begin their steps, or holds them until other parameters of the job are ready. */
#include "step_group.h"

#include "global_clip.h"
#include "riders.h"
#include "round_ranges.h"
#include "settle.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

int pd_step_groups_make(pd_steps *steps)
{
    if ((steps->together.groups = calloc(steps->n_rules, sizeof *steps->together.groups)) == NULL) return PD_NO_MEMORY;
    for (uint32_t i = steps->n_params; i-- > 0;) {
        pd_param *param = &steps->params[i];
        if (!param->rule->hypers.row->counts_by_group) continue;
        param->group = &steps->together.groups[param->rule - steps->rules];
        param->links.next_member = param->group->members;
        param->group->members = param;
        param->group->saved.base = param->saved.step;
        param->group->saved.unknown = param->saved.step + 1;
        param->group->n_members++;
        param->group->behind++;
    }
    return PD_OK;
}

void pd_step_group_recount(pd_step_group *group)
{
    group->behind = 0;
    for (const pd_param *member = group->members; member != NULL; member = member->links.next_member)
        group->behind += member->saved.step == group->saved.base;
}

int64_t pd_step_group_count(const pd_param *param)
{
    assert(param->saved.step < param->group->saved.unknown);
    return (int64_t)(param->saved.step - param->group->saved.missed) + param->group->saved.brought;
}

bool pd_step_group_is_even(const pd_step_group *group)
{
    return group->behind == group->n_members;
}

void pd_step_group_set_count(pd_step_group *group, int64_t count)
{
    assert(pd_step_group_is_even(group));
    group->saved.brought = count - (int64_t)(group->saved.base - group->saved.missed);
    for (pd_param *member = group->members; member != NULL; member = member->links.next_member)
        pd_optim_set_count(member->optim, count);
}

bool pd_steps_are_whole(const pd_steps *steps)
{
    return steps->together.clip != NULL || steps->values.at[PD_JOB_KEY_NONFINITE_SCOPE] == PD_SCOPE_JOB;
}

bool pd_steps_settle(const pd_steps *steps)
{
    return steps->shards > 1 && pd_steps_are_whole(steps);
}

bool pd_param_may_be_held(const pd_steps *steps, const pd_param *param)
{
    return param->group != NULL || pd_steps_are_whole(steps);
}

bool pd_param_is_bound(const pd_steps *steps, const pd_param *param)
{
    return param->group != NULL && param->rule->hypers.row->refusal != NULL && pd_steps_are_whole(steps);
}

/* Binds the steps of a step group, which have all begun, into one atomic group, and queues their parameters. */
static void bind_group(pd_steps *steps, pd_step_group *group)
{
    size_t n = 0;

    for (pd_param *member = group->members; member != NULL; member = member->links.next_member)
        if (member->stage == PD_PARKED) steps->batch.optims[n++] = member->optim;
    assert(n == group->begun);
    if (steps->together.settle != NULL)
        pd_optim_bind_with_others(steps->batch.optims, n, &group->atomic);
    else
        pd_optim_bind(steps->batch.optims, n, &group->atomic);
    for (pd_param *member = group->members; member != NULL; member = member->links.next_member)
        if (member->stage == PD_PARKED) pd_steps_ready(steps, member, PD_STEPPING);
    group->to_begin = group->begun = 0;
    group->bound = true;
}

void pd_param_begun(pd_steps *steps, pd_param *param)
{
    pd_step_group *group = param->group;

    param->stage = PD_PARKED;
    if (++group->begun == group->to_begin) bind_group(steps, group);
}

bool pd_param_awaits_group(const pd_param *param)
{
    return param->stage == PD_PARKED && param->group != NULL && param->group->to_begin > 0;
}

/* Returns whether all steps of the atomic group on this shard have begun and reported whether they are refused. True if
 * there are none. */
static bool has_reported(const pd_step_group *group)
{
    return group->to_begin == 0 && (!group->bound || pd_atomic_group_has_all(&group->atomic));
}

/* Finds the first step of the atomic group that is refused on this shard. */
static const pd_param *find_refused(const pd_step_group *group)
{
    size_t place = 0;

    if (!group->bound || !pd_atomic_group_fails(&group->atomic)) return NULL;
    for (const pd_param *member = group->members; member != NULL; member = member->links.next_member)
        if (member->stage == PD_PARKED && ++place == group->atomic.first) return member;
    return NULL;
}

/* Makes the tally of the refusals when all atomic groups have reported. */
static void tally_refusals(pd_steps *steps)
{
    uint8_t refusals[PD_TALLY_REFUSAL * PD_TALLY_RULES_MOST];
    const char *reason = "";
    bool waits = false;
    size_t n = 0;

    for (size_t r = 0; r < steps->n_rules; r++)
        if (!has_reported(&steps->together.groups[r])) return;
    for (size_t r = 0; r < steps->n_rules; r++) {
        const pd_step_group *group = &steps->together.groups[r];
        const pd_param *refused = find_refused(group);
        waits = waits || group->bound;
        if (refused == NULL) continue;
        if (n == 0) reason = group->atomic.why.text;
        pd_tally_put_refusal(refusals, n++,
                             (pd_tally_refusal){ (uint16_t)r, refused->declared, (uint64_t)refused->origin });
    }
    pd_settle_refusals(steps, refusals, n, reason, waits);
}

void pd_step_group_settled(pd_steps *steps, pd_step_group *group, const pd_tally_refusal *refusal, const char *reason)
{
    uint32_t before = 0;

    if (!group->bound) return;
    for (const pd_param *member = group->members; refusal != NULL && member != NULL; member = member->links.next_member)
        before += member->stage == PD_PARKED &&
                  (member->declared < refusal->declared ||
                   (member->declared == refusal->declared && (uint64_t)member->origin <= refusal->origin));
    group->refused = refusal != NULL;
    group->before_refusal = before;
    pd_atomic_group_others(&group->atomic, group->refused, before, reason);
    pd_step_group_look(steps, group);
}

void pd_step_group_look(pd_steps *steps, pd_step_group *group)
{
    if (pd_settle_awaits_refusals(steps)) tally_refusals(steps);
    if (group == NULL || !group->bound || group->atomic.arrived < group->atomic.steps) return;
    group->bound = false;
    for (pd_param *member = group->members; member != NULL; member = member->links.next_member)
        if (member->stage == PD_PARKED) pd_steps_ready(steps, member, PD_STEPPING);
}

const pd_param *pd_step_groups_unsettled(const pd_steps *steps)
{
    for (size_t r = 0; pd_settle_waits(steps) && r < steps->n_rules; r++) {
        const pd_param *member = steps->together.groups[r].bound ? steps->together.groups[r].members : NULL;
        while (member != NULL && member->stage != PD_PARKED) member = member->links.next_member;
        if (member != NULL) return member;
    }
    return NULL;
}

void pd_step_groups_look(pd_steps *steps)
{
    for (size_t r = 0; r < steps->n_rules; r++) pd_step_group_look(steps, &steps->together.groups[r]);
}

/* Returns the outcome that the parameter's round would have if other parameters did not matter. */
static pd_outcome own_outcome(const pd_steps *steps, const pd_param *param)
{
    if (pd_round_given(&param->round) != PD_GIVEN_ALL) return PD_NO_GRADIENT;
    if (param->round.weightless) return PD_SKIPPED;
    if (!param->round.finite && steps->values.at[PD_JOB_KEY_NONFINITE] != PD_APPLY) return PD_SKIPPED;
    return PD_STEPPED;
}

/* Returns whether the parameter would step, but an element of its gradient is so large that the optimizer's state would
 * not stay finite. */
static bool is_too_large(const pd_steps *steps, const pd_param *param)
{
    float most = param->rule->hypers.row->gradient_most;

    if (param->end.outcome != PD_STEPPED || steps->values.at[PD_JOB_KEY_NONFINITE] == PD_APPLY) return false;
    return most > 0 && param->round.largest > most;
}

static void leave_waiting(pd_steps *steps, pd_param *param)
{
    if (pd_param_may_be_held(steps, param))
        DL_DELETE2(steps->queue.waiting, param, links.prev_waiting, links.next_waiting);
}

static bool counts_empty(const pd_rule *rule)
{
    const pd_optimizer_ops *ops = rule->hypers.row;

    return ops->counts_empty != NULL && ops->counts_empty(rule->hypers.value);
}

/* Returns whether the parameter's round counts as a step of its group: the parameter steps, or it has no gradient and
 * the optimizer counts such steps, too. A step that all parameters skip does not count. */
static bool round_counts(const pd_steps *steps, const pd_param *param)
{
    if (param->end.outcome == PD_STEPPED) return true;
    return param->end.outcome == PD_NO_GRADIENT && !steps->together.skipped && counts_empty(param->rule);
}

static void go_on(pd_steps *steps, pd_param *param)
{
    leave_waiting(steps, param);
    if (param->group != NULL && round_counts(steps, param) && param->saved.step + 1 == param->group->saved.unknown)
        param->group->saved.unknown++;
    if (param->end.outcome == PD_STEPPED && pd_param_is_bound(steps, param)) param->group->to_begin++;
    pd_riders_admit(steps, param);
}

/* Releases held members of a step group that need not wait any more, because group->saved.unknown has grown. A released
 * member may let `unknown` grow again, so the search is repeated until it releases no more members. */
static void release(pd_steps *steps, pd_step_group *group)
{
    for (uint32_t before = 0; group->n_held > 0 && before != group->n_held;) {
        before = group->n_held;
        for (pd_param *member = group->members; member != NULL; member = member->links.next_member) {
            if (member->stage != PD_HELD || member->saved.step >= group->saved.unknown) continue;
            group->n_held--;
            go_on(steps, member);
        }
    }
}

/* Lets a parameter, whose outcome is decided, begin its step. Holds it instead if its round counts, but the step count
 * of its step group is not known yet. */
static void go_on_in_group(pd_steps *steps, pd_param *param)
{
    pd_step_group *group = param->group;
    uint64_t unknown = group != NULL ? group->saved.unknown : 0;

    if (group != NULL && round_counts(steps, param) && param->saved.step >= unknown) {
        param->stage = PD_HELD;
        group->n_held++;
        return;
    }
    go_on(steps, param);
    if (group != NULL && group->saved.unknown > unknown) release(steps, group);
}

/* Returns a parameter whose own round has the outcome PD_SKIPPED; NULL: there is none. */
static const pd_param *find_skipped(const pd_steps *steps)
{
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->params[i].end.outcome == PD_SKIPPED) return &steps->params[i];
    return NULL;
}

void pd_steps_skip_all(pd_steps *steps, uint64_t step, const char *reason)
{
    steps->together.skipped = true;
    if (pd_is_power_of_two(++steps->saved.skipped_whole))
        pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &step },
               "step %llu of all parameters is skipped (%s), %s (%llu such steps so far)", (unsigned long long)step,
               steps->together.clip != NULL ? "gradients are clipped together" : "nonfinite_scope = job", reason,
               (unsigned long long)steps->saved.skipped_whole);
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->params[i].end.outcome == PD_STEPPED) steps->params[i].end.outcome = PD_SKIPPED;
}

static void skip_all(pd_steps *steps, const pd_param *why)
{
    char text[384];

    pd_steps_skip_all(steps, why->saved.step + 1, pd_param_why_skipped(why, text, sizeof text));
}

static void join_the_job(pd_steps *steps, pd_param *param)
{
    const pd_param *skipped;

    assert(param->stage == PD_COLLECTING);
    param->stage = PD_HELD;
    if (++steps->together.n_held < steps->n_params) return;
    steps->together.n_held = 0;
    steps->together.skipped = false;
    if (steps->together.settle != NULL)
        pd_settle_begin(steps);
    else if ((skipped = find_skipped(steps)) != NULL)
        skip_all(steps, skipped);
    if (steps->together.clip != NULL)
        pd_global_clip_begin(steps);
    else if (steps->together.settle != NULL)
        pd_settle_tally(steps, false, &(pd_exact_sum){ 0 });
    else
        pd_step_groups_go_on(steps);
}

/* Returns a parameter whose gradient is too large for its optimizer, even after clipping; NULL: there is none. */
static const pd_param *find_too_large(const pd_steps *steps)
{
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (is_too_large(steps, &steps->params[i])) return &steps->params[i];
    return NULL;
}

/* Does the same in a job whose steps are settled: a gradient on any shard may be too large. */
static void skip_too_large(pd_steps *steps)
{
    const pd_param *large = find_too_large(steps);
    char text[96];

    if (large != NULL) {
        skip_all(steps, large);
        pd_settle_skipped(steps);
    }
    for (size_t r = 0; large == NULL && r < steps->n_rules; r++) {
        float most = steps->rules[r].hypers.row->gradient_most, largest = pd_settle_largest(steps->together.settle, r);
        if (!(most > 0) || !(largest > most) || !pd_settle_steps(steps->together.settle, r)) continue;
        snprintf(text, sizeof text, "on another shard a gradient has an element of %g", (double)largest);
        pd_steps_skip_all(steps, steps->params[0].saved.step + 1, text);
        pd_settle_skipped(steps);
        return;
    }
}

/* Counts the step for the step groups that have a member which steps, on any shard, and for those that count steps
 * without gradients. */
static void count_settled(pd_steps *steps)
{
    bool refusals = false;

    for (size_t r = 0; r < steps->n_rules; r++) {
        pd_step_group *group = &steps->together.groups[r];
        bool stepped = pd_settle_steps(steps->together.settle, r);
        group->refused = false;
        if (!steps->rules[r].hypers.row->counts_by_group) continue;
        if (!stepped && (steps->together.skipped || !counts_empty(&steps->rules[r]))) continue;
        refusals = refusals || (stepped && steps->rules[r].hypers.row->refusal != NULL);
        if (group->members != NULL && group->saved.unknown == steps->params[0].saved.step + 1) group->saved.unknown++;
    }
    if (refusals) pd_settle_await_refusals(steps);
}

void pd_step_groups_go_on(pd_steps *steps)
{
    const pd_param *large = NULL;

    if (steps->together.settle != NULL) {
        skip_too_large(steps);
        count_settled(steps);
    } else if ((large = find_too_large(steps)) != NULL) {
        skip_all(steps, large);
    }
    for (uint32_t i = 0; i < steps->n_params; i++) go_on_in_group(steps, &steps->params[i]);
    if (pd_settle_awaits_refusals(steps)) tally_refusals(steps);
}

void pd_param_collected(pd_steps *steps, pd_param *param)
{
    /* Initial weights are published without waiting for other parameters. */
    if (param->current == NULL) {
        param->end.outcome = (pd_outcome)0;
        leave_waiting(steps, param);
        pd_steps_ready(steps, param, PD_READY);
        return;
    }
    param->end.outcome = own_outcome(steps, param);
    pd_riders_collected(steps, param);
    if (pd_steps_are_whole(steps)) {
        join_the_job(steps, param);
        return;
    }
    if (is_too_large(steps, param)) param->end.outcome = PD_SKIPPED;
    go_on_in_group(steps, param);
}

void pd_param_moved_on(pd_steps *steps, pd_param *param)
{
    pd_step_group *group = param->group;

    if (group == NULL || param->saved.step != group->saved.base + 1 || --group->behind > 0) return;
    group->saved.base++;
    pd_step_group_recount(group);
    /* All members of the step group have closed this round, and none of them has stepped in it. So the round is not
     * counted as a step of the group. */
    if (group->saved.unknown == group->saved.base) {
        group->saved.unknown++;
        group->saved.missed++;
    }
    release(steps, group);
}

const pd_param *pd_param_awaited(const pd_steps *steps, const pd_param *param)
{
    const pd_param *member = param->group != NULL ? param->group->members : NULL;

    if (pd_steps_are_whole(steps)) {
        for (uint32_t i = 0; i < steps->n_params; i++)
            if (steps->params[i].stage != PD_HELD) return &steps->params[i];
    }
    while (member != NULL && member->saved.step > param->group->saved.base) member = member->links.next_member;
    return member;
}
