/* logging.c - makes the entries of a job's log, hands them to the WAL thread, and takes them back. */
#include "logging.h"

#include "archive.h"
#include "checkpoint_state.h"
#include "wal.h"
#include "control_log.h"
#include "checkpoint_policy.h"
#include "wal_image.h"
#include "param_set.h"
#include "riders.h"
#include "mutant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DISTANCE_MOST = 1024 }; /* most steps between two attempts to begin entries anew */

/* ---- an entry in memory ---- */

void pd_logging_drop(pd_wal_record *record)
{
    if (record == NULL) return;
    for (uint32_t i = 0; i < record->n_parts; i++) {
        if (record->parts[i].pool != NULL)
            pd_buffer_pool_give(record->parts[i].pool, (void *)(uintptr_t)record->parts[i].at);
        record->parts[i].pool = NULL;
    }
    pd_wal_record_free(record);
}

static void drop_effect(pd_effect *effect)
{
    pd_logging_drop(effect->u.wal);
    pd_effect_free(effect);
}

static int write_head(pd_job *job, pd_wal_record *record, pd_error *err)
{
    pd_archive archive;

    pd_archive_begin_write(&archive);
    pd_wal_image_visit_inputs(&archive, job, record->step);
    pd_wal_image_visit_rest(&archive, job, record->step);
    return pd_archive_end(&archive, &record->head, &record->head_bytes, err);
}

static void take_aggregates(const pd_steps *steps, pd_wal_record *record)
{
    for (uint32_t i = 0; i < steps->n_params; i++) {
        pd_step_input *input = &steps->wal->inputs.at[i];
        if (input->aggregate == NULL) continue;
        record->parts[i] =
            (pd_wal_part){ input->aggregate, steps->params[i].elements, steps->params[i].buffers.pool[PD_F32] };
        if (PD_MUTANT(logged_aggregates_reused)) {
            pd_buffer_pool_give(steps->params[i].buffers.pool[PD_F32], input->aggregate);
            record->parts[i].pool = NULL;
        }
        input->aggregate = NULL;
    }
}

static int check_roots(const pd_steps *steps, pd_error *err)
{
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->wal->params[i].taken.missed)
            return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%.160s has taken more roots in one step than an entry can name",
                           steps->params[i].name);
    return PD_OK;
}

static int make_records(pd_job *job, pd_effect **out, pd_error *err)
{
    pd_effect *effect = pd_effect_new(PD_EFF_WAL, (pd_ticket){ 0, 0 }, job->steps.number);
    pd_wal_record *record = calloc(1, sizeof *record);

    if (effect != NULL && record != NULL && (record->job = strdup(job->steps.name)) != NULL &&
        (record->parts = calloc(job->steps.n_params, sizeof *record->parts)) != NULL) {
        record->number = job->steps.number;
        record->creator = job->saved.creator;
        record->step = job->steps.wal->inputs.step;
        record->n_parts = job->steps.n_params;
        effect->u.wal = record;
        *out = effect;
        return PD_OK;
    }
    pd_wal_record_free(record);
    pd_effect_free(effect);
    return pd_fail(err, PD_NO_MEMORY, "out of memory for its records");
}

/* Makes the entry of the present step, which all parameters have closed. After an error nothing has changed. */
static int make_entry(pd_job *job, pd_effect **out, pd_error *err)
{
    pd_effect *effect = NULL;
    int rc = check_roots(&job->steps, err);

    if (rc != PD_OK || (rc = make_records(job, &effect, err)) != PD_OK) return rc;
    rc = write_head(job, effect->u.wal, err);
    if (rc == PD_OK) rc = pd_job_check_total(job, effect->u.wal->head_bytes, err);
    if (rc != PD_OK) {
        drop_effect(effect);
        return rc;
    }
    take_aggregates(&job->steps, effect->u.wal);
    pd_account_take(&job->steps.account, effect->u.wal->head_bytes);
    *out = effect;
    return PD_OK;
}

/* Logs once that the job waits for the disk, with the figures of an entry. */
static void say_slow(pd_job *job, const pd_wal_record *last)
{
    if (job->checkpointing.log.slow || last->error.code != PD_OK) return;
    job->checkpointing.log.slow = true;
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .step = &last->step },
           "the log is as fast as the disk, and the job waits for it: %d entries are under way, and the last one of "
           "%" PRIu64 " bytes took %" PRIu64 " ms. durability = checkpoint does not wait",
           PD_WAL_MOST, last->bytes, last->ns / 1000000);
}

/* ---- stopping the entries ---- */

static void drop_waiting(pd_job *job)
{
    pd_effect *next;

    for (pd_effect *effect = job->checkpointing.log.first; effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        pd_account_give(&job->steps.account, effect->u.wal->head_bytes);
        drop_effect(effect);
        job->steps.wal->inputs.under_way--;
    }
    job->checkpointing.log.first = job->checkpointing.log.last = NULL;
}

static void stop(pd_job *job)
{
    drop_waiting(job);
    pd_wal_end_steps(&job->steps);
    job->checkpointing.log.broken++;
    job->checkpointing.log.moved = NULL;
    job->checkpointing.log.waits = false;
    pd_riders_release(&job->steps);
    pd_checkpoint_policy_plan(job);
}

/* Stops the entries because of an error, and logs it. */
static void fail(pd_job *job, uint64_t step, const pd_error *err)
{
    pd_log_facts facts = { .job = job->steps.name, .step = &step, .code = err->code };

    pd_say(job->steps.outbox, PD_SAY_WARNING, facts,
           "the entry of step %" PRIu64 " could not be written to the log: %.300s; a checkpoint is begun, and entries "
           "go on after it",
           step, err->text);
    snprintf(job->checkpointing.error, sizeof job->checkpointing.error, "%.250s", err->text);
    stop(job);
    pd_pause_begin(job);
}

void pd_logging_leave(pd_job *job)
{
    if (!pd_wal_records_steps(&job->steps)) return;
    stop(job);
    job->checkpointing.log.left = job->steps.wal->inputs.under_way > 0;
    pd_checkpoint_policy_soon(job);
}

/* Notes that the disk has answered at last: entries can begin again after another checkpoint. */
static void rejoin(pd_job *job)
{
    job->checkpointing.log.left = false;
    job->checkpointing.log.retry = job->steps.progress.furthest;
}

static void note_moved(pd_job *job)
{
    pd_say(job->steps.outbox, PD_SAY_INFO,
           (pd_log_facts){ .job = job->steps.name, .step = &job->steps.wal->inputs.step },
           "%s, which no entry of the log can say: a checkpoint is begun, and entries go on after it",
           job->checkpointing.log.moved);
    stop(job);
}

void pd_logging_not_kept(pd_job *job, uint64_t step)
{
    pd_log_keeping *log = &job->checkpointing.log;

    if (!log->wanted) return;
    log->distance = log->distance == 0 ? 1 : log->distance < DISTANCE_MOST ? 2 * log->distance : DISTANCE_MOST;
    log->retry = job->steps.progress.furthest + log->distance;
    if (pd_wal_records_steps(&job->steps) && log->waits && job->steps.wal->inputs.base == step) stop(job);
}

/* Returns whether the checkpoint that entries follow is durable: that of step `base`, with all that has changed before
 * its cut otherwise than by a step. */
static bool has_base(const pd_job *job, uint64_t base)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;

    return checkpointing->newest.exists && checkpointing->newest.step >= base &&
           checkpointing->newest.changes == checkpointing->cut.changes;
}

/* ---- handing entries over ---- */

static void hand_over(pd_job *job, pd_effect *effect)
{
    effect->mail.next = NULL;
    effect->u.wal->base = job->checkpointing.newest.step;
    if (effect->u.wal->step <= job->checkpointing.newest.step) {
        /* The checkpoint was cut while the entry waited, and makes it superfluous. */
        pd_account_give(&job->steps.account, effect->u.wal->head_bytes);
        drop_effect(effect);
        job->steps.wal->inputs.under_way--;
        return;
    }
    if (PD_MUTANT(entry_durable_unwritten)) {
        job->checkpointing.durable_step = effect->u.wal->step;
        pd_checkpoint_policy_tell(job);
    }
    pd_effects_add(job->steps.outbox, effect);
}

static void wait_for_checkpoint(pd_job *job, pd_effect *effect)
{
    pd_log_keeping *log = &job->checkpointing.log;

    effect->mail.next = NULL;
    if (log->first == NULL)
        log->first = effect;
    else
        log->last->mail.next = &effect->mail;
    log->last = effect;
}

void pd_logging_kept(pd_job *job)
{
    pd_log_keeping *log = &job->checkpointing.log;
    pd_effect *next;

    log->distance = 0;
    if (!log->waits || !has_base(job, job->steps.wal->inputs.base)) return;
    log->waits = false;
    for (pd_effect *effect = log->first; effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        hand_over(job, effect);
    }
    log->first = log->last = NULL;
    pd_riders_release(&job->steps);
    pd_checkpoint_policy_plan(job);
}

/* ---- making entries ---- */

void pd_logging_begin(pd_job *job, uint64_t base)
{
    if (!job->checkpointing.log.wanted || job->checkpointing.log.left || pd_wal_records_steps(&job->steps)) return;
    job->checkpointing.log.moved = NULL;
    job->checkpointing.log.waits = !has_base(job, base) && !PD_MUTANT(entries_before_checkpoint);
    pd_wal_begin_steps(&job->steps, base, base);
}

void pd_logging_resume(pd_job *job, uint64_t step)
{
    job->checkpointing.durable_step = job->checkpointing.control.copied = step;
    if (job->checkpointing.log.wanted) pd_wal_begin_steps(&job->steps, job->checkpointing.newest.step, step);
}

static void log_step(pd_job *job)
{
    uint64_t step = job->steps.wal->inputs.step;
    pd_effect *effect;
    pd_error err;

    if (pd_wal_put_overrides(&job->steps, &err) != PD_OK || make_entry(job, &effect, &err) != PD_OK) {
        fail(job, step, &err);
        return;
    }
    job->steps.wal->inputs.under_way++;
    job->checkpointing.control.copied = step;
    pd_wal_next_step(&job->steps);
    if (job->checkpointing.log.waits)
        wait_for_checkpoint(job, effect);
    else
        hand_over(job, effect);
    pd_riders_release(&job->steps);
}

void pd_logging_look(pd_job *job)
{
    if (!pd_wal_records_steps(&job->steps) || job->gone) return;
    if (job->checkpointing.log.moved != NULL)
        note_moved(job);
    else if (job->steps.wal->inputs.missing == 0)
        log_step(job);
}

bool pd_logging_wants_checkpoint(const pd_job *job)
{
    const pd_log_keeping *log = &job->checkpointing.log;

    if (!log->wanted || log->left || pd_wal_records_steps(&job->steps)) return false;
    return job->steps.progress.furthest >= log->retry;
}

/* ---- entries that come back ---- */

/* Notes that the step of an entry is durable, and tells the loop thread. Takes ownership of the request, whose memory
 * becomes the notice. */
static void note_durable(pd_job *job, uint64_t step, pd_request *request)
{
    pd_effect *effect;

    if (step <= job->checkpointing.durable_step) {
        pd_request_free(request);
        return;
    }
    job->checkpointing.durable_step = step;
    effect = pd_request_become(request, PD_EFF_DURABLE, (pd_ticket){ 0, 0 }, job->steps.number);
    effect->u.durable_step = step;
    pd_effects_add(job->steps.outbox, effect);
    pd_checkpoint_answer_workers(job);
}

static void settle(pd_job *job, const pd_wal_record *record, pd_request *request)
{
    if (job->steps.wal->inputs.under_way == PD_WAL_MOST && job->steps.queue.stopped != NULL) say_slow(job, record);
    pd_account_give(&job->steps.account, record->head_bytes);
    job->steps.wal->inputs.under_way--;
    job->checkpointing.log.results++;
    if (job->checkpointing.log.left && job->steps.wal->inputs.under_way == 0) rejoin(job);
    if (record->error.code == PD_OK) {
        job->checkpointing.log.bytes += record->bytes;
        pd_histogram_add(&job->checkpointing.log.times, record->ns);
        note_durable(job, record->step, request);
    } else {
        /* The error of an entry before the base has stopped the entries already. */
        if (pd_wal_records_steps(&job->steps) && record->step > job->steps.wal->inputs.base)
            fail(job, record->step, &record->error);
        pd_request_free(request);
    }
    pd_riders_release(&job->steps);
}

void pd_logging_returned(pd_job *job, pd_request *request)
{
    pd_wal_record *record = request->u.wal;

    if (job != NULL && record->stream == PD_WAL_STEPS) {
        settle(job, record, request);
    } else {
        if (job != NULL) pd_control_returned(job, record);
        pd_request_free(request);
    }
    pd_logging_drop(record);
}

void pd_logging_release(pd_job *job)
{
    if (job->steps.wal != NULL) drop_waiting(job);
}
