/* checkpoint_retry.c - tries a checkpoint again by time, where no step comes that would make the next one due. */
#include "checkpoint_retry.h"

#include "cut.h"
#include "import.h"

/* The time between two attempts to make a checkpoint: at first, and at most. */
static const uint64_t FIRST_NS = 1000000000, MOST_NS = 60 * 1000000000ull;

/* Returns whether no step can be expected that makes the next checkpoint due: no worker is connected, or the server
 * drains and has tried the job's last checkpoint. */
static bool is_idle(const pd_job *job)
{
    return job->connected == 0 || job->checkpointing.last == PD_LAST_DONE;
}

bool pd_retry_is_by_time(const pd_job *job)
{
    return job->checkpointing.paused || (job->checkpointing.unwritten > 0 && is_idle(job));
}

void pd_retry_at_once(pd_job *job)
{
    job->checkpointing.retry_ns = 0;
    job->checkpointing.retry_wait_ns = FIRST_NS;
}

bool pd_retry_wants_checkpoint(const pd_job *job, uint64_t now_ns)
{
    return pd_retry_is_by_time(job) && now_ns >= job->checkpointing.retry_ns;
}

void pd_retry_tried(pd_job *job, uint64_t now_ns)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;

    /* Attempts that steps have made due do not count: the first one by time comes soon after them. */
    if (checkpointing->retry_wait_ns == 0 || !pd_retry_is_by_time(job)) checkpointing->retry_wait_ns = FIRST_NS;
    checkpointing->retry_ns = now_ns + checkpointing->retry_wait_ns;
    checkpointing->retry_wait_ns =
        checkpointing->retry_wait_ns < MOST_NS / 2 ? 2 * checkpointing->retry_wait_ns : MOST_NS;
}

void pd_retry_end(pd_job *job)
{
    job->checkpointing.retry_wait_ns = 0;
}

/* Returns whether a checkpoint could begin now. When it can again, the job is looked at in any case. */
static bool may_try(const pd_job *job)
{
    return !job->checkpointing.writing && job->checkpointing.making == NULL && job->steps.cut == NULL &&
           !pd_import_writes(job) && !job->gone;
}

uint64_t pd_retry_next_tick(const pd_job *job)
{
    return pd_retry_is_by_time(job) && may_try(job) ? job->checkpointing.retry_ns : UINT64_MAX;
}
