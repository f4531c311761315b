/* checkpoint_policy.c - decides whether a job has checkpoints and at which steps, and warns if the job writes more than
 * the disk can take. */
#include "checkpoint_policy.h"

#include "fragment_ranks.h"

#include "job.h"
#include "plan_bytes.h"
#include "wal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int make_farewell(pd_job *job)
{
    pd_checkpoint_image *image = calloc(1, sizeof *image);

    job->checkpointing.farewell = pd_job_effect(job, PD_EFF_WRITE_CHECKPOINT);
    if (job->checkpointing.farewell == NULL || image == NULL || (image->job = strdup(job->steps.name)) == NULL) {
        free(image);
        return PD_NO_MEMORY;
    }
    image->ended = true;
    image->number = job->steps.number;
    job->checkpointing.farewell->u.checkpoint_image = image;
    return PD_OK;
}

int pd_checkpoint_policy_begin(pd_job *job, pd_error *err)
{
    pd_durability wanted = (pd_durability)job->steps.values.at[PD_JOB_KEY_DURABILITY];
    bool keeps = job->steps.config->keeps;

    if ((wanted == PD_DURABLE_CHECKPOINT || wanted == PD_DURABLE_LOG) && !keeps)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s asks for durability = %s, but this server has no directory for checkpoints: set "
                       "server.state_dir, or leave durability out",
                       job->steps.name, wanted == PD_DURABLE_LOG ? "log" : "checkpoint");
    job->checkpointing.durable = keeps && wanted != PD_DURABLE_NONE;
    job->checkpointing.steps.wanted = wanted == PD_DURABLE_LOG;
    job->checkpointing.next = job->checkpointing.soon = UINT64_MAX;
    if (!job->checkpointing.durable) return PD_OK;
    if (make_farewell(job) != PD_OK) return pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", job->steps.name);
    pd_checkpoint_policy_plan(job);
    return PD_OK;
}

void pd_checkpoint_policy_end(pd_job *job)
{
    pd_effect *farewell = job->checkpointing.farewell;

    if (farewell == NULL || !job->checkpointing.on_disk) return;
    farewell->u.checkpoint_image->creator = job->saved.creator;
    job->checkpointing.farewell = NULL;
    pd_effects_add(job->steps.outbox, farewell);
}

/* Returns pd_effect.u.durable.mirrored. A mirror that lacks PD_MIRROR_LACKS checkpoints does not count: else one that
 * hangs would hold the common step for ever, and all servers would keep the WAL since then. */
static uint64_t count_mirrored(const pd_job *job)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;
    uint32_t lacks = 0;

    if (!job->steps.config->mirrors) return 0;
    while (lacks < checkpointing->kept.n && checkpointing->kept.at[lacks] > checkpointing->mirrored_step) lacks++;
    return lacks < PD_MIRROR_LACKS ? 1 + checkpointing->mirrored_step : PD_MIRROR_LAGS;
}

static void fill(const pd_job *job, pd_effect *effect)
{
    effect->u.durable.step = job->checkpointing.durable_step;
    effect->u.durable.unbroken = pd_checkpoint_policy_unbroken(job);
    effect->u.durable.mirrored = count_mirrored(job);
}

void pd_checkpoint_policy_tell(pd_job *job)
{
    pd_effect *effect = job->checkpointing.newest.exists ? pd_job_effect(job, PD_EFF_DURABLE) : NULL;

    if (effect == NULL) return;
    fill(job, effect);
    pd_effects_add(job->steps.outbox, effect);
}

void pd_checkpoint_policy_answer(pd_job *job, pd_request *request)
{
    pd_effect *effect = pd_request_become(request, PD_EFF_DURABLE, (pd_ticket){ 0, 0 }, job->steps.number);

    fill(job, effect);
    pd_withheld_send(&job->steps.withheld, job->steps.outbox, effect);
}

uint32_t pd_checkpoint_policy_window(const pd_job *job)
{
    uint32_t least = 0;

    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        const pd_rank *rank = &job->ranks[r];
        if (rank->state == PD_RANK_CONNECTED && rank->window > 0 && (least == 0 || rank->window < least))
            least = rank->window;
    }
    return least;
}

void pd_checkpoint_policy_plan(pd_job *job)
{
    uint64_t every = job->steps.values.at[PD_JOB_KEY_CHECKPOINT_EVERY], step;
    uint32_t window = pd_checkpoint_policy_window(job);

    if (!job->checkpointing.durable) return;
    /* With a stream of steps, its records make steps durable, so resend windows do not depend on checkpoints. */
    if (pd_wal_records_steps(&job->steps)) window = 0;
    if (window > 0 && (every == 0 || window / 2 < every)) every = window > 1 ? window / 2 : 1;
    job->checkpointing.every = every;
    job->checkpointing.next = UINT64_MAX;
    if (every == 0) return;
    step = pd_job_largest_step(job);
    if (step < UINT64_MAX - every) job->checkpointing.next = (step / every + 1) * every;
}

bool pd_checkpoint_policy_replays(const pd_job *job, uint64_t *first, uint64_t *last)
{
    const pd_step_stream *stream = &job->checkpointing.steps;
    const pd_kept_steps *kept = &job->checkpointing.kept;

    *first = *last = 0;
    if (job->steps.n_fragments > 1 || !stream->wanted) return false;
    *first = UINT64_MAX;
    *last = pd_wal_records_steps(&job->steps) && !stream->waits ? UINT64_MAX : stream->end;
    for (uint32_t i = 0; i < kept->n && kept->at[i] >= stream->oldest; i++)
        if (kept->at[i] < *last) *first = kept->at[i];
    return true;
}

uint64_t pd_checkpoint_policy_unbroken(const pd_job *job)
{
    uint64_t first, last, durable = job->checkpointing.durable_step;

    if (!pd_checkpoint_policy_replays(job, &first, &last)) return 0;
    return first < durable && durable <= last ? first : durable;
}

void pd_checkpoint_policy_soon(pd_job *job)
{
    if (job->checkpointing.durable && job->checkpointing.soon > pd_job_largest_step(job))
        job->checkpointing.soon = pd_job_largest_step(job) + 1;
}

void pd_checkpoint_policy_now(pd_job *job)
{
    if (job->checkpointing.durable) job->checkpointing.soon = 0;
}

bool pd_checkpoint_policy_loses(const pd_job *job)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;
    uint64_t begin = job->steps.values.at[PD_JOB_KEY_START_STEP];

    if (!checkpointing->durable || job->gone) return false;
    if (checkpointing->newest.exists && checkpointing->newest.changes != checkpointing->changes) return true;
    if (job->steps.n_fragments > 1)
        return pd_fragments_place(&job->steps) >
               (checkpointing->newest.exists ? checkpointing->durable_place : begin * job->steps.n_fragments);
    return pd_job_largest_step(job) > (checkpointing->newest.exists ? checkpointing->durable_step : begin);
}

void pd_checkpoint_policy_say_lost(const pd_job *job, const pd_error *why)
{
    uint64_t durable = job->checkpointing.newest.exists ? job->checkpointing.durable_step : 0,
             step = pd_job_largest_step(job);
    char newest[64] = "it has no checkpoint";

    if (job->checkpointing.newest.exists)
        snprintf(newest, sizeof newest, "its %s of step %" PRIu64,
                 durable > job->checkpointing.newest.step ? "WAL has a record" : "newest checkpoint is", durable);
    pd_say(job->steps.outbox, PD_SAY_ERROR, (pd_log_facts){ .job = job->steps.name, .step = &step, .code = why->code },
           "the last checkpoint before the server stops has failed, and steps %" PRIu64 " to %" PRIu64
           " will be lost, since %s: %.160s. Repair the disk or free space, and call `paramctl checkpoint %.256s` "
           "before the server stops; else workers send or compute these steps again",
           durable + 1, step, newest, why->text, job->steps.name);
}

static const double MIB = 1048576;

/* Returns how many seconds the disk takes for so many bytes. */
static double seconds(const pd_job *job, uint64_t bytes)
{
    return (double)bytes / (double)job->steps.config->disk_speed;
}

uint64_t pd_outrun_bytes(const pd_plan *plan)
{
    int64_t image = pd_plan_image_bytes(plan);

    return (uint64_t)plan->elements * sizeof(float) + (image > 0 ? (uint64_t)image : 0);
}

void pd_outrun_begin(pd_job *job, uint64_t checkpoint_bytes, uint64_t entry_bytes)
{
    pd_log_facts facts = { .job = job->steps.name };
    double speed = (double)job->steps.config->disk_speed;

    if (!job->checkpointing.durable || job->steps.config->disk_speed == 0) return;
    job->checkpointing.load.checkpoint_bytes = checkpoint_bytes;
    pd_say(job->steps.outbox, PD_SAY_INFO, facts,
           "a checkpoint has %.1f MiB, which the disk writes in %.2f s (%.0f MiB/s)", (double)checkpoint_bytes / MIB,
           seconds(job, checkpoint_bytes), speed / MIB);
    if (!job->checkpointing.steps.wanted) return;
    job->checkpointing.load.record_bytes = entry_bytes;
    pd_say(job->steps.outbox, PD_SAY_INFO, facts,
           "a WAL record has %.1f MiB, for which the disk takes %.3f s of each step", (double)entry_bytes / MIB,
           seconds(job, entry_bytes));
}

/* Logs a warning if the disk takes too long to write a checkpoint. Returns whether it has logged one. */
static bool warn_of_checkpoints(pd_job *job, double steps_per_s)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;
    double steps = steps_per_s * seconds(job, checkpointing->load.checkpoint_bytes);

    if (checkpointing->every == 0 || steps <= (double)checkpointing->every) return false;
    pd_job_say(
        job, PD_SAY_WARNING,
        "the job outruns the disk: a checkpoint of %.1f MiB takes it %.2f s, in which the job takes %.0f steps, but "
        "checkpoint_every is %" PRIu64 ": some checkpoints will be skipped",
        (double)checkpointing->load.checkpoint_bytes / MIB, seconds(job, checkpointing->load.checkpoint_bytes), steps,
        checkpointing->every);
    return true;
}

static bool warn_of_entries(pd_job *job, double steps_per_s)
{
    double busy = steps_per_s * seconds(job, job->checkpointing.load.record_bytes);

    if (busy <= 0.5) return false;
    pd_job_say(job, PD_SAY_WARNING,
               "the WAL takes %.0f %% of the disk: records of %.1f MiB at %.1f steps a second. durability = checkpoint "
               "writes less",
               100 * busy, (double)job->checkpointing.load.record_bytes / MIB, steps_per_s);
    return true;
}

void pd_outrun_look(pd_job *job, uint64_t now_ns)
{
    double speed = pd_speed_at(&job->figures.speed, now_ns);

    if (job->checkpointing.load.warned || job->checkpointing.load.checkpoint_bytes == 0 || speed <= 0) return;
    job->checkpointing.load.warned = warn_of_checkpoints(job, speed);
    if (job->checkpointing.load.record_bytes > 0) job->checkpointing.load.warned |= warn_of_entries(job, speed);
}
