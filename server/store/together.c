#include "step_group.h"

#include "global_clip.h"
#include "training.h"

#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

/* ---- groups ---- */

int pd_step_groups_make(pd_job *job)
{
    if ((job->groups = calloc(job->n_rules, sizeof *job->groups)) == NULL) return PD_NO_MEMORY;
    for (uint32_t i = job->n_params; i-- > 0;) {
        pd_param *param = &job->params[i];
        if (!param->rule->hypers.row->counts_by_group) continue;
        param->group = &job->groups[param->rule - job->rules];
        param->next_member = param->group->members;
        param->group->members = param;
        param->group->base = param->step;
        param->group->unknown = param->step + 1;
        param->group->behind++;
    }
    return PD_OK;
}

int64_t pd_step_group_count(const pd_param *param)
{
    assert(param->step < param->group->unknown);
    return (int64_t)(param->step - param->group->missed) + param->group->brought;
}

bool pd_step_group_is_even(const pd_step_group *group)
{
    for (const pd_param *member = group->members; member != NULL; member = member->next_member)
        if (member->step != group->base) return false;
    return true;
}

void pd_step_group_set_count(pd_step_group *group, int64_t count)
{
    assert(pd_step_group_is_even(group));
    group->brought = count - (int64_t)(group->base - group->missed);
    for (pd_param *member = group->members; member != NULL; member = member->next_member) pd_optim_set_count(member->optim, count);
}

bool pd_job_is_whole(const pd_job *job) { return job->clip != NULL || job->values.at[PD_JOB_KEY_NONFINITE_SCOPE] == PD_SCOPE_JOB; }

bool pd_param_may_be_held(const pd_job *job, const pd_param *param) { return param->group != NULL || pd_job_is_whole(job); }

/* ---- bonds ---- */

bool pd_param_is_bound(const pd_job *job, const pd_param *param)
{
    return param->group != NULL && param->rule->hypers.row->refusal != NULL && pd_job_is_whole(job);
}

/* The bond wants its members in the order of the parameters. */
static void bind_group(pd_job *job, pd_step_group *group)
{
    size_t n = 0;

    for (pd_param *member = group->members; member != NULL; member = member->next_member)
        if (member->stage == PD_BEGUN) job->optims[n++] = member->optim;
    assert(n == group->begun);
    pd_optim_bind(job->optims, n, &group->bond);
    for (pd_param *member = group->members; member != NULL; member = member->next_member)
        if (member->stage == PD_BEGUN) pd_job_ready(job, member, PD_STEPPING);
    group->to_begin = group->begun = 0;
    group->bound = true;
}

void pd_param_begun(pd_job *job, pd_param *param)
{
    pd_step_group *group = param->group;

    param->stage = PD_BEGUN;
    if (++group->begun == group->to_begin) bind_group(job, group);
}

void pd_step_group_look(pd_job *job, pd_step_group *group)
{
    if (group == NULL || !group->bound || group->bond.arrived < group->bond.steps) return;
    group->bound = false;
    for (pd_param *member = group->members; member != NULL; member = member->next_member)
        if (member->stage == PD_PARKED) pd_job_ready(job, member, PD_STEPPING);
}

void pd_step_groups_look(pd_job *job)
{
    for (size_t r = 0; r < job->n_rules; r++) pd_step_group_look(job, &job->groups[r]);
}

/* ---- going on ---- */

/* How its round ends, by itself; PD_STEPPED: it takes a step. */
static pd_outcome own_outcome(const pd_job *job, const pd_param *param)
{
    if (pd_round_given(&param->round) != PD_GIVEN_ALL) return PD_NO_GRADIENT;
    if (param->round.weightless) return PD_SKIPPED;
    if (!param->round.finite && job->values.at[PD_JOB_KEY_NONFINITE] != PD_APPLY) return PD_SKIPPED;
    return PD_STEPPED;
}

static void go_on(pd_job *job, pd_param *param)
{
    if (pd_param_may_be_held(job, param)) DL_DELETE2(job->waiting, param, prev_waiting, next_waiting);
    if (param->group != NULL && param->outcome == PD_STEPPED && param->step + 1 == param->group->unknown) param->group->unknown++;
    if (param->outcome == PD_STEPPED && pd_param_is_bound(job, param)) param->group->to_begin++;
    pd_job_ready(job, param, PD_READY);
}

/* Those that wait no longer, and those that waited for these. */
static void release(pd_job *job, pd_step_group *group)
{
    pd_param *param, *next;
    bool any = true;

    while (any) {
        any = false;
        DL_FOREACH_SAFE2(group->held, param, next, next_ready) {
            if (param->step >= group->unknown) continue;
            DL_DELETE2(group->held, param, prev_ready, next_ready);
            go_on(job, param);
            any = true;
        }
    }
}

/* Its outcome is settled. */
static void go_on_in_group(pd_job *job, pd_param *param)
{
    pd_step_group *group = param->group;

    if (group != NULL && param->outcome == PD_STEPPED && param->step >= group->unknown) {
        param->stage = PD_HELD;
        DL_APPEND2(group->held, param, prev_ready, next_ready);
        return;
    }
    go_on(job, param);
    if (group != NULL) release(job, group);
}

/* ---- the job as a whole ---- */

/* One whose own round is skipped, or NULL. */
static const pd_param *find_skipped(const pd_job *job)
{
    for (uint32_t i = 0; i < job->n_params; i++)
        if (job->params[i].outcome == PD_SKIPPED) return &job->params[i];
    return NULL;
}

static void skip_all(pd_job *job, const pd_param *why)
{
    if (pd_is_power_of_two(++job->skipped_whole))
        pd_say(&job->store->outbox, PD_SAY_WARNING, "job %s: step %llu of all parameters is skipped (%s), %s of %s %s (%llu such steps so far)",
               job->name, (unsigned long long)why->step + 1, job->clip != NULL ? "gradients are clipped together" : "nonfinite_scope = job", why->round.weightless ? "all weights" : "the gradient", why->name,
               why->round.weightless ? "are 0" : "is not finite", (unsigned long long)job->skipped_whole);
    for (uint32_t i = 0; i < job->n_params; i++)
        if (job->params[i].outcome == PD_STEPPED) job->params[i].outcome = PD_SKIPPED;
}

static void join_the_job(pd_job *job, pd_param *param)
{
    const pd_param *skipped;

    assert(param->stage == PD_GATHERING);
    param->stage = PD_HELD;
    if (++job->n_held < job->n_params) return;
    job->n_held = 0;
    if ((skipped = find_skipped(job)) != NULL) skip_all(job, skipped);
    if (job->clip != NULL) pd_global_clip_begin(job);
    else pd_params_go_on(job);
}

void pd_params_go_on(pd_job *job)
{
    for (uint32_t i = 0; i < job->n_params; i++) go_on_in_group(job, &job->params[i]);
}

/* ---- from outside ---- */

void pd_param_gathered(pd_job *job, pd_param *param)
{
    if (param->current == NULL) {                       /* initial weights wait for no other parameter's */
        param->outcome = (pd_outcome)0;
        if (pd_param_may_be_held(job, param)) DL_DELETE2(job->waiting, param, prev_waiting, next_waiting);
        pd_job_ready(job, param, PD_READY);
        return;
    }
    param->outcome = own_outcome(job, param);
    if (pd_job_is_whole(job)) join_the_job(job, param);
    else go_on_in_group(job, param);
}

void pd_param_moved_on(pd_job *job, pd_param *param)
{
    pd_step_group *group = param->group;

    if (group == NULL || param->step != group->base + 1 || --group->behind > 0) return;
    group->base++;
    for (const pd_param *member = group->members; member != NULL; member = member->next_member) group->behind += member->step == group->base;
    if (group->unknown == group->base) {                /* all have closed it, and nobody stepped in it */
        group->unknown++;
        group->missed++;
    }
    release(job, group);
}

const pd_param *pd_param_awaited(const pd_job *job, const pd_param *param)
{
    const pd_param *member = param->group != NULL ? param->group->members : NULL;

    if (pd_job_is_whole(job)) {
        for (uint32_t i = 0; i < job->n_params; i++)
            if (job->params[i].stage != PD_HELD) return &job->params[i];
    }
    while (member != NULL && member->step > param->group->base) member = member->next_member;
    return member;
}
