/* keeping.c - decides whether a job has checkpoints, and at which steps. */
#include "keeping.h"

#include "step_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the beginning and the end of a job ---- */

static int make_farewell(pd_job *job)
{
    pd_kept *kept = calloc(1, sizeof *kept);

    job->keeping.farewell = pd_effect_new(PD_EFF_KEEP, (pd_ticket){ 0, 0 }, job->steps.number);
    if (job->keeping.farewell == NULL || kept == NULL || (kept->job = strdup(job->steps.name)) == NULL) {
        free(kept);
        return PD_NO_MEMORY;
    }
    kept->ended = true;
    kept->number = job->steps.number;
    job->keeping.farewell->u.kept = kept;
    return PD_OK;
}

int pd_keeping_begin(pd_job *job, pd_error *err)
{
    pd_durability wanted = (pd_durability)job->steps.values.at[PD_JOB_KEY_DURABILITY];
    bool keeps = job->steps.config->keeps;

    if ((wanted == PD_DURABLE_CHECKPOINT || wanted == PD_DURABLE_LOG) && !keeps)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s asks for durability = %s, but this server has no directory for checkpoints: set "
                       "server.state_dir, or leave durability out",
                       job->steps.name, wanted == PD_DURABLE_LOG ? "log" : "checkpoint");
    job->keeping.durable = keeps && wanted != PD_DURABLE_NONE;
    job->keeping.log.wanted = wanted == PD_DURABLE_LOG;
    job->keeping.next = job->keeping.soon = UINT64_MAX;
    if (!job->keeping.durable) return PD_OK;
    if (make_farewell(job) != PD_OK) return pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", job->steps.name);
    pd_keeping_plan(job);
    return PD_OK;
}

void pd_keeping_end(pd_job *job)
{
    pd_effect *farewell = job->keeping.farewell;

    if (farewell == NULL || !job->keeping.on_disk) return;
    farewell->u.kept->creator = job->saved.creator;
    job->keeping.farewell = NULL;
    pd_effects_add(job->steps.outbox, farewell);
}

void pd_keeping_tell(pd_job *job)
{
    pd_effect *effect =
        job->keeping.kept ? pd_effect_new(PD_EFF_DURABLE, (pd_ticket){ 0, 0 }, job->steps.number) : NULL;

    if (effect == NULL) return;
    effect->u.durable_step = job->keeping.durable_step;
    pd_effects_add(job->steps.outbox, effect);
}

/* ---- when the next checkpoint is due ---- */

uint32_t pd_keeping_window(const pd_job *job)
{
    uint32_t least = 0;

    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        const pd_rank *rank = &job->ranks[r];
        if (rank->state == PD_RANK_CONNECTED && rank->window > 0 && (least == 0 || rank->window < least))
            least = rank->window;
    }
    return least;
}

static uint64_t largest_step(const pd_job *job)
{
    uint64_t step = job->steps.furthest;

    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].saved.step > step) step = job->steps.params[i].saved.step;
    return step;
}

void pd_keeping_plan(pd_job *job)
{
    uint64_t every = job->steps.values.at[PD_JOB_KEY_CHECKPOINT_EVERY], step;
    uint32_t window = pd_keeping_window(job);

    if (!job->keeping.durable) return;
    /* With a log, windows end at its entries and not at checkpoints. */
    if (pd_step_log_is_on(&job->steps)) window = 0;
    if (window > 0 && (every == 0 || window / 2 < every)) every = window > 1 ? window / 2 : 1;
    job->keeping.every = every;
    job->keeping.next = UINT64_MAX;
    if (every == 0) return;
    step = largest_step(job);
    if (step < UINT64_MAX - every) job->keeping.next = (step / every + 1) * every;
}

void pd_keeping_soon(pd_job *job)
{
    if (job->keeping.durable && job->keeping.soon > largest_step(job)) job->keeping.soon = largest_step(job) + 1;
}

void pd_keeping_now(pd_job *job)
{
    if (job->keeping.durable) job->keeping.soon = largest_step(job);
}

/* ---- a last checkpoint that has failed ---- */

bool pd_keeping_loses(const pd_job *job)
{
    const pd_keeping *keeping = &job->keeping;
    uint64_t begin = job->steps.values.at[PD_JOB_KEY_START_STEP];

    if (!keeping->durable || job->gone) return false;
    if (keeping->kept && keeping->kept_changes != keeping->changes) return true;
    return largest_step(job) > (keeping->kept ? keeping->durable_step : begin);
}

void pd_keeping_say_lost(const pd_job *job, const pd_error *why)
{
    uint64_t durable = job->keeping.kept ? job->keeping.durable_step : 0, step = largest_step(job);
    char newest[64] = "it has no checkpoint";

    if (job->keeping.kept)
        snprintf(newest, sizeof newest, "its %s of step %" PRIu64,
                 durable > job->keeping.kept_step ? "log has an entry" : "newest checkpoint is", durable);
    pd_say(
        job->steps.outbox, PD_SAY_ERROR, (pd_log_facts){ .job = job->steps.name, .step = &step, .code = why->code },
        "the last checkpoint before the server stops has failed, and steps %" PRIu64 " to %" PRIu64
        " will be lost, since %s: %.160s. Repair the disk or make room, and call `paramctl checkpoint %.256s` before "
        "the server stops; else workers send or compute these steps again",
        durable + 1, step, newest, why->text, job->steps.name);
}
