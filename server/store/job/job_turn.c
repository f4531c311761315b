/* job_turn.c - does one batch of a job's work (Declare requests, imports, exports, frames that must be scanned, rounds
 * and steps), and the work of its deadlines. */
#include "job_turn.h"

#include "declare.h"
#include "export.h"
#include "import.h"
#include "inbox.h"
#include "override_command.h"
#include "overdue.h"
#include "reserves.h"
#include "work.h"

static const uint64_t second = 1000000000ull;

/* Declare requests, commands that set values, and imports each get this time of one thread in a batch (the work that
 * a job does in one go), at most half of it. So the job's rounds and other jobs go on meanwhile. */
#define SLICE_NS 5e6

bool pd_job_has_work(const pd_job *job, uint64_t now_ns)
{
    if ((job->declares.first != NULL || job->sets.first != NULL) && !job->gone) return true;
    if (job->gone || now_ns < job->steps.shortage.retry_ns) return false;
    return pd_import_writes(job) || job->inbox.first != NULL || pd_steps_have_work(&job->steps);
}

void pd_job_work(pd_job *job, uint64_t now_ns)
{
    const pd_store_config *config = job->steps.config;
    double slice_ns = config->batch_ns / 2 < SLICE_NS ? config->batch_ns / 2 : SLICE_NS;

    job->steps.changes++;
    if (job->declares.first != NULL) pd_job_declare_some(job, slice_ns, now_ns);
    if (job->sets.first != NULL) pd_job_set_some(job, slice_ns, now_ns);
    if (pd_job_set_holds(job) || now_ns < job->steps.shortage.retry_ns) return;
    if (pd_import_writes(job)) {
        pd_import_write_some(job, slice_ns, now_ns);
        return;
    }
    job->steps.shortage.retry_ns = 0;
    if (job->inbox.first != NULL) pd_overdue_look(job);
    pd_job_take_inbox(job, now_ns);
    pd_steps_work(&job->steps, config->batch_ns * config->threads, now_ns);
    if (job->steps.progress.furthest > 0) pd_speed_note(&job->speed, job->steps.progress.furthest, now_ns);
    pd_export_look(job, now_ns);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t pd_job_next_tick(const pd_job *job)
{
    uint64_t at = earlier(pd_overdue_next(job), earlier(pd_import_expires_ns(job), pd_export_expires_ns(job)));

    at = earlier(at, pd_reserves_next(job));
    if (job->linger_ns > 0) at = earlier(at, job->linger_ns);
    return job->steps.shortage.retry_ns > 0 ? earlier(at, job->steps.shortage.retry_ns) : at;
}

bool pd_job_tick(pd_job *job, uint64_t now_ns, pd_error *err)
{
    pd_overdue_tick(job, now_ns);
    pd_import_tick(job, now_ns);
    pd_export_tick(job, now_ns);
    pd_reserves_tick(job, now_ns);
    if (job->steps.shortage.retry_ns > 0 && now_ns >= job->steps.shortage.retry_ns) job->steps.shortage.retry_ns = 0;
    if (job->linger_ns == 0 || now_ns < job->linger_ns) return true;
    if (job->steps.n_params == 0)
        pd_fail(err, PD_ABORTED, "job %.100s has ended: its last worker has gone, and none had declared parameters",
                job->steps.name);
    else
        pd_fail(err, PD_ABORTED, "job %.100s has ended: its last worker has been gone for %llu s (job_linger)",
                job->steps.name, (unsigned long long)(job->steps.values.at[PD_JOB_KEY_JOB_LINGER] / second));
    return false;
}
