/* pause.c - lets a job stand still while its steps cannot become durable. */
#include "pause.h"

#include "cut.h"
#include "import.h"
#include "step_log.h"

#include <inttypes.h>

/* The time between two attempts to make a checkpoint: at first, and at most. */
static const uint64_t FIRST_NS = 1000000000, MOST_NS = 60 * 1000000000ull;

void pd_pause_release(pd_steps *steps)
{
    pd_param *param;

    while ((param = pd_step_log_release(steps)) != NULL)
        if (!pd_cut_keeps(steps, param)) pd_steps_ready(steps, param, PD_READY);
}

void pd_pause_begin(pd_job *job)
{
    pd_log_facts facts = { .job = job->steps.name };
    uint64_t step;

    if (job->steps.values.at[PD_JOB_KEY_ON_DISK_ERROR] != PD_DISK_PAUSE || job->keeping.paused) return;
    if (pd_step_log_is_on(&job->steps)) return; /* entries make the steps durable, or hold the job back */
    step = job->steps.limit = pd_cut_least_step(&job->steps);
    job->keeping.paused = true;
    job->keeping.retry_ns = 0;
    job->keeping.retry_wait_ns = FIRST_NS;
    facts.step = &step;
    pd_say(job->steps.outbox, PD_SAY_WARNING, facts,
           "the job pauses after step %" PRIu64 " until a checkpoint is on the disk (on_disk_error = pause)", step);
}

void pd_pause_end(pd_job *job)
{
    if (!job->keeping.paused) return;
    job->keeping.paused = false;
    job->steps.limit = UINT64_MAX;
    pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name },
           "the disk is well again, and the job goes on");
    pd_pause_release(&job->steps);
}

bool pd_pause_wants_checkpoint(const pd_job *job, uint64_t now_ns)
{
    return job->keeping.paused && now_ns >= job->keeping.retry_ns;
}

void pd_pause_tried(pd_job *job, uint64_t now_ns)
{
    pd_keeping *keeping = &job->keeping;

    if (!keeping->paused) return;
    keeping->retry_ns = now_ns + keeping->retry_wait_ns;
    keeping->retry_wait_ns = keeping->retry_wait_ns < MOST_NS / 2 ? 2 * keeping->retry_wait_ns : MOST_NS;
}

/* Returns whether a checkpoint could begin now. When it can again, the job is looked at in any case. */
static bool may_try(const pd_job *job)
{
    return !job->keeping.writing && job->keeping.making == NULL && job->steps.cut == NULL && !pd_import_writes(job) &&
           !job->gone;
}

uint64_t pd_pause_next_tick(const pd_job *job)
{
    return job->keeping.paused && may_try(job) ? job->keeping.retry_ns : UINT64_MAX;
}
