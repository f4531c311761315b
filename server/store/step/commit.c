/* commit.c - closes a round: counts it, publishes the new weights, reports to the loop thread, and makes the round
 * ready for the next step. */
#include "commit.h"

#include "riders.h"
#include "round_scalars.h"
#include "step_group.h"
#include "stretch.h"

#include <string.h>

static void count_refusal(pd_steps *steps, pd_param *param, const char *why)
{
    param->saved.refused++;
    if (pd_is_power_of_two(++steps->saved.refused_steps))
        pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &param->saved.step },
               "step %llu of %.60s is refused: %.200s (%llu so far); if all later ones are, `paramctl reset-state "
               "%.60s %.60s` "
               "sets the optimizer's state back",
               (unsigned long long)param->saved.step, param->name, why, (unsigned long long)steps->saved.refused_steps,
               steps->name, param->name);
}

static void count_outcome(pd_steps *steps, pd_param *param, pd_outcome outcome)
{
    char text[384];

    if (outcome == PD_STEPPED) steps->saved.steps++;
    if (outcome == PD_NO_GRADIENT) steps->figures.no_gradient++;
    if (outcome != PD_SKIPPED) return;
    steps->saved.skipped++;
    if (pd_is_power_of_two(++param->saved.skipped) && !pd_steps_are_whole(steps))
        pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &param->saved.step },
               "step %llu of %.60s is skipped: %s (%llu skipped so far)", (unsigned long long)param->saved.step,
               param->name, pd_param_why_skipped(param, text, sizeof text), (unsigned long long)param->saved.skipped);
}

/* Counts and logs a round in which some elements of the parameter had a gradient and others had none. Such a round
 * closes without a step, because to step a part of a tensor would be worse. */
static void count_gap(pd_steps *steps, pd_param *param)
{
    pd_rank_range gap;

    if (pd_round_given(&param->round) != PD_GIVEN_PART || !pd_is_power_of_two(++param->saved.gaps)) return;
    pd_round_gap(&param->round, true, &gap);
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &param->saved.step },
           "step %llu of %s closes without a gradient: all ranks that have "
           "elements %lld to %lld were absent, others were not (%llu times so far)",
           (unsigned long long)param->saved.step, param->name, (long long)gap.start, (long long)gap.end,
           (unsigned long long)param->saved.gaps);
}

static void tell_refusal(pd_steps *steps, pd_param *param, pd_closed *closed)
{
    const char *why = pd_optim_refused(param->optim)->text;

    count_refusal(steps, param, why);
    closed->why = pd_reason_new(why);
}

/* Stores the mean of a scalar with its step, for operators. Names beyond the first PD_MAX_SCALARS are left out. */
static void note_scalar(pd_steps *steps, const pd_scalar_mean *mean, uint64_t step)
{
    size_t i = 0;

    while (i < steps->figures.n_scalars && strcmp(steps->figures.scalars[i].name, mean->name) != 0) i++;
    if (i == PD_MAX_SCALARS) return;
    if (i == steps->figures.n_scalars) {
        memcpy(steps->figures.scalars[i].name, mean->name, sizeof mean->name);
        steps->figures.n_scalars++;
    }
    if (step < steps->figures.scalars[i].step) return;
    steps->figures.scalars[i].mean = mean->mean;
    steps->figures.scalars[i].step = step;
}

/* Stores the number of the newest step and the means of the scalars that its round has, for operators. */
static void note_progress(pd_steps *steps, const pd_param *param, const pd_scalar_means *scalars)
{
    if (param->saved.step > steps->progress.furthest) steps->progress.furthest = param->saved.step;
    for (size_t i = 0; scalars != NULL && i < scalars->n; i++) {
        note_scalar(steps, &scalars->at[i], param->saved.step);
        if (strcmp(scalars->at[i].name, "loss") != 0 || param->saved.step < steps->figures.loss_step) continue;
        steps->figures.loss = scalars->at[i].mean;
        steps->figures.loss_step = param->saved.step;
    }
}

static void reset_round(pd_steps *steps, pd_param *param)
{
    pd_buffer_pool_give(param->buffers.pool[PD_F32], param->buffers.accumulator);
    param->buffers.accumulator = NULL;
    pd_round_reset(&param->round);
    param->stage = PD_COLLECTING;
    param->change.told.known = false;
    param->change.number = 0;
    steps->queue.n_open--;
}

static void publish_next(const pd_steps *steps, pd_param *param, pd_closed *closed)
{
    pd_param_publish(steps->unread, param, param->next, param->end.outcome, closed);
    param->next = NULL;
}

void pd_round_close(pd_steps *steps, pd_param *param, pd_closed *closed)
{
    if (param->current == NULL) {
        publish_next(steps, param, closed);
        steps->progress.n_begun++;
        reset_round(steps, param);
        return;
    }
    param->saved.step++;
    pd_steps_closed(steps, param);
    param->saved.outcome = (uint32_t)param->end.outcome;
    pd_step_times_closed(&steps->times, param->saved.step, steps->n_params);
    count_outcome(steps, param, param->end.outcome);
    if (param->end.outcome == PD_NO_GRADIENT) count_gap(steps, param);
    publish_next(steps, param, closed);
    closed->scalars = pd_scalars_close(param);
    note_progress(steps, param, closed->scalars);
    pd_riders_closed(steps, param);
    closed->counted = param->end.counted;
    param->end.counted = NULL;
    if (param->end.outcome == PD_REFUSED) tell_refusal(steps, param, closed);
    if (param->pushed != NULL) param->pushed->mask = 0;
    reset_round(steps, param);
    pd_param_moved_on(steps, param);
}
