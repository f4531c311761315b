/* pause.c - lets a job stand still while its steps cannot become durable. */
#include "pause.h"

#include "checkpoint_retry.h"
#include "cut.h"
#include "riders.h"
#include "step_log.h"

#include <inttypes.h>

void pd_pause_begin(pd_job *job)
{
    pd_log_facts facts = { .job = job->steps.name };
    uint64_t step;

    if (job->steps.values.at[PD_JOB_KEY_ON_DISK_ERROR] != PD_DISK_PAUSE || job->checkpointing.paused) return;
    if (pd_step_log_is_on(&job->steps)) return; /* entries make the steps durable, or hold the job back */
    step = job->steps.limit = pd_cut_least_step(&job->steps);
    job->checkpointing.paused = true;
    pd_retry_at_once(job);
    facts.step = &step;
    pd_say(job->steps.outbox, PD_SAY_WARNING, facts,
           "the job pauses after step %" PRIu64 " until a checkpoint is on the disk (on_disk_error = pause)", step);
}

void pd_pause_end(pd_job *job)
{
    if (!job->checkpointing.paused) return;
    job->checkpointing.paused = false;
    job->steps.limit = UINT64_MAX;
    pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name },
           "the disk is well again, and the job goes on");
    pd_riders_release(&job->steps);
}
