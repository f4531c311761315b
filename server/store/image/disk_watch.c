/* disk_watch.c - notices that the disk does not answer. */
#include "disk_watch.h"

#include "logging.h"
#include "pause.h"
#include "wal.h"

#include <inttypes.h>

/* ---- what the disk has ---- */

/* Returns how long a checkpoint may be with the disk: disk_timeout, and twice the time that its bytes should take. */
static uint64_t checkpoint_limit(const pd_job *job)
{
    uint64_t speed = job->steps.config->disk_speed, ns = job->checkpointing.written_ns;
    double expected = speed > 0 ? (double)job->checkpointing.size / (double)speed * 1e9 : 0;

    return job->steps.values.at[PD_JOB_KEY_DISK_TIMEOUT] + 2 * ((double)ns > expected ? ns : (uint64_t)expected);
}

static bool has_entries(const pd_job *job)
{
    return job->steps.wal != NULL && job->steps.wal->inputs.under_way > 0 && !job->checkpointing.log.waits;
}

static void note(pd_disk_watch *watch, bool busy, uint64_t results, uint64_t now_ns, uint64_t limit_ns)
{
    if (!busy)
        *watch = (pd_disk_watch){ 0 };
    else if (!watch->runs || watch->results != results)
        *watch = (pd_disk_watch){ .runs = true, .results = results, .since_ns = now_ns, .next_ns = now_ns + limit_ns };
}

void pd_disk_watch_look(pd_job *job, uint64_t now_ns)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;

    note(&checkpointing->watch, checkpointing->writing, checkpointing->results, now_ns, checkpoint_limit(job));
    note(&checkpointing->log.watch, has_entries(job), checkpointing->log.results, now_ns,
         job->steps.values.at[PD_JOB_KEY_DISK_TIMEOUT]);
}

uint64_t pd_disk_watch_next_tick(const pd_job *job)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;
    uint64_t at = checkpointing->watch.runs && checkpointing->writing ? checkpointing->watch.next_ns : UINT64_MAX;

    if (checkpointing->log.watch.runs && has_entries(job) && checkpointing->log.watch.next_ns < at)
        at = checkpointing->log.watch.next_ns;
    return at;
}

/* ---- a disk that does not answer ---- */

/* Returns whether it is time to say that the disk does not answer. */
static bool is_late(pd_disk_watch *watch, uint64_t now_ns)
{
    if (!watch->runs || now_ns < watch->next_ns) return false;
    watch->late = true;
    watch->next_ns = now_ns + (now_ns - watch->since_ns);
    return true;
}

static double seconds(const pd_disk_watch *watch, uint64_t now_ns)
{
    return (double)(now_ns - watch->since_ns) / 1e9;
}

static bool goes_on(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_ON_DISK_ERROR] == PD_DISK_GO_ON;
}

static void tell_checkpoint(pd_job *job, uint64_t now_ns)
{
    pd_say(job->steps.outbox, PD_SAY_WARNING,
           (pd_log_facts){ .job = job->steps.name, .step = &job->checkpointing.cut_step },
           "the checkpoint of step %" PRIu64 " has been with the disk for %.3g s, which does not answer; steps up to "
           "%" PRIu64 " are durable",
           job->checkpointing.cut_step, seconds(&job->checkpointing.watch, now_ns), job->checkpointing.durable_step);
    /* Entries that wait for this checkpoint would hold the job back. */
    if (goes_on(job) && job->checkpointing.log.waits) pd_logging_leave(job);
    pd_pause_begin(job);
}

static void tell_entries(pd_job *job, uint64_t now_ns)
{
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name },
           "%u entries of the log have been with the disk for %.3g s, which does not answer; steps up to %" PRIu64
           " are durable; %s (on_disk_error)",
           job->steps.wal->inputs.under_way, seconds(&job->checkpointing.log.watch, now_ns),
           job->checkpointing.durable_step,
           goes_on(job) ? "the job goes on, and entries go on when the disk has answered and a checkpoint is durable"
                        : "the job waits for the disk");
    if (goes_on(job)) pd_logging_leave(job);
}

void pd_disk_watch_tick(pd_job *job, uint64_t now_ns)
{
    pd_disk_watch_look(job, now_ns);
    if (is_late(&job->checkpointing.watch, now_ns)) tell_checkpoint(job, now_ns);
    if (is_late(&job->checkpointing.log.watch, now_ns)) tell_entries(job, now_ns);
}
