/* job_turn.c - does one batch of a job's work (Declare requests, commands, imports, exports, frames that must be
 * scanned, rounds and steps) and what its deadlines require; releases what the job holds when it ends. */
#include "job_turn.h"

#include "ranks.h"
#include "settling.h"
#include "collect.h"
#include "declare.h"
#include "export.h"
#include "fragment.h"
#include "import.h"
#include "membership.h"
#include "push.h"
#include "overdue.h"
#include "override_command.h"
#include "repeats.h"
#include "reserves.h"
#include "wal.h"
#include "work.h"

static const uint64_t second = 1000000000ull;

/* Nanoseconds of one thread in a batch for each of Declare requests, commands that set values, and imports; at most
 * half of the batch. So the job's rounds and other jobs continue meanwhile. */
#define SLICE_NS 5e6

bool pd_job_has_work(const pd_job *job, uint64_t now_ns)
{
    if ((job->waiting.declares.first != NULL || job->waiting.sets.first != NULL) && !job->gone) return true;
    if (job->gone || now_ns < job->steps.shortage.retry_ns) return false;
    return pd_import_writes(job) || job->waiting.inbox.first != NULL || pd_steps_have_work(&job->steps);
}

void pd_job_work(pd_job *job, uint64_t now_ns)
{
    const pd_store_config *config = job->steps.config;
    double slice_ns = config->batch_ns / 2 < SLICE_NS ? config->batch_ns / 2 : SLICE_NS;

    job->steps.changes++;
    if (job->waiting.declares.first != NULL) pd_job_declare_some(job, slice_ns, now_ns);
    if (job->waiting.sets.first != NULL) pd_job_set_some(job, slice_ns, now_ns);
    if (pd_job_set_holds(job) || now_ns < job->steps.shortage.retry_ns) return;
    if (pd_import_writes(job)) {
        pd_import_write_some(job, slice_ns, now_ns);
        return;
    }
    job->steps.shortage.retry_ns = 0;
    if (job->waiting.inbox.first != NULL) pd_overdue_look(job);
    pd_job_take_inbox(job, now_ns);
    pd_steps_work(&job->steps, config->batch_ns * config->threads, now_ns);
    pd_repeats_look(job, now_ns);
    if (job->steps.progress.furthest > 0) pd_speed_note(&job->figures.speed, job->steps.progress.furthest, now_ns);
    pd_export_look(job, now_ns);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t pd_job_next_tick(const pd_job *job)
{
    uint64_t at = earlier(pd_overdue_next(job), earlier(pd_import_expires_ns(job), pd_export_expires_ns(job)));

    at = earlier(at, earlier(pd_reserves_next(job), pd_fragments_next(&job->steps)));
    at = earlier(at, earlier(pd_repeats_next(job), pd_members_next(job)));
    if (job->timers.linger_ns > 0) at = earlier(at, job->timers.linger_ns);
    return job->steps.shortage.retry_ns > 0 ? earlier(at, job->steps.shortage.retry_ns) : at;
}

pd_fate pd_job_tick(pd_job *job, uint64_t now_ns, pd_error *err)
{
    if (!pd_members_look(job, now_ns, err)) return PD_JOB_FAILS;
    pd_overdue_tick(job, now_ns);
    pd_import_tick(job, now_ns);
    pd_export_tick(job, now_ns);
    pd_reserves_tick(job, now_ns);
    pd_fragments_tick(&job->steps, now_ns);
    pd_repeats_look(job, now_ns);
    if (job->steps.shortage.retry_ns > 0 && now_ns >= job->steps.shortage.retry_ns) job->steps.shortage.retry_ns = 0;
    if (job->timers.linger_ns == 0 || now_ns < job->timers.linger_ns) return PD_JOB_STAYS;
    if (job->steps.n_params == 0)
        pd_fail(err, PD_ABORTED, "job %.100s has ended: its last worker has gone, and none had declared parameters",
                job->steps.name);
    else
        pd_fail(err, PD_ABORTED, "job %.100s has ended: its last worker has been gone for %llu s (job_linger)",
                job->steps.name, (unsigned long long)(job->steps.values.at[PD_JOB_KEY_JOB_LINGER] / second));
    return PD_JOB_ENDS;
}

static void release_slots(pd_job *job)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_round *round = &job->steps.params[i].round;
        for (uint32_t s = 0; s < round->n_chunks * pd_round_ranks(round); s++) {
            pd_contribution *given = &round->chunks[0].contributions[s];
            if (given->state != PD_CONTRIBUTION_HELD) continue;
            pd_frame_let_go(&job->steps, given->frame);
            *given = (pd_contribution){ .state = PD_CONTRIBUTION_EMPTY };
        }
        pd_collect_release(&job->steps.params[i]);
    }
}

void pd_job_release(pd_job *job, const pd_error *err)
{
    pd_job_refuse_declares(job, err);
    pd_job_refuse_sets(job, err);
    release_slots(job);
    pd_request_queue_refuse(&job->waiting.inbox, job->steps.outbox, err);
    pd_barriers_refuse(job, err);
    pd_settling_refuse(job, err);
    pd_import_release(job, err);
    pd_export_release(job, err);
    job->steps.chunks.ready = job->steps.chunks.waiting = NULL;
    job->steps.queue.waiting = job->steps.queue.ready = job->steps.queue.stopped = NULL;
    pd_wal_end_steps(&job->steps);
    pd_withheld_drop(&job->steps.withheld);
    job->steps.queue.n_open = 0;
    pd_reserves_forget(job);
    job->gone_notice->u.error = *err;
    pd_effects_add(job->steps.outbox, job->gone_notice);
    job->gone_notice = NULL;
}
