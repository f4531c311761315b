/* control_log.c - hands the records of a job's control log to the WAL thread, takes entries back, and reads them at
 * the start. */
#include "control_log.h"

#include "archive.h"
#include "wal.h"
#include "control_keeping.h"
#include "checkpoint_policy.h"
#include "override_command.h"
#include "param_set.h"
#include "mutant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RECORDS = 1 << 24, MOST_COMMAND = 1 << 28 };
enum { DISTANCE_MOST = 1024 }; /* most steps between an error and the checkpoint with which records begin anew */

/* ---- an entry as bytes ---- */

static const pd_field record_fields[] = {
    PD_FIELD_IN(pd_decision, kind, 0, PD_DECISION_SET), PD_FIELD(pd_decision, param), PD_FIELD(pd_decision, step), { 0 }
};
static const pd_table record_table = { "record", sizeof(pd_decision), record_fields };

static const pd_field root_fields[] = {
    PD_FIELD(pd_taken_root, task), PD_FIELD(pd_taken_root, count), PD_FIELD(pd_taken_root, status), { 0 }
};
static const pd_table root_table = { "taken root", sizeof(pd_taken_root), root_fields };

static void write_record(pd_archive *archive, pd_decision *record, uint32_t ranks)
{
    size_t n_ranks = record->counted != NULL ? ranks : 0;

    pd_archive_fields(archive, &record_table, record);
    pd_archive_count(archive, &record->taken.n, MOST_RECORDS, 1);
    pd_archive_records(archive, &root_table, record->taken.at, record->taken.n);
    pd_archive_count(archive, &n_ranks, PD_MAX_WORLD, 1);
    for (uint32_t r = 0; r < n_ranks; r++) {
        bool counts = pd_counted_has(record->counted, r);
        pd_archive_value(archive, &counts);
    }
    pd_archive_count(archive, &record->command_bytes, MOST_COMMAND, 1);
    pd_archive_bytes(archive, record->command, record->command_bytes);
}

/* Writes the records of a list; NULL: only counts them. Returns their number. Leaves out overrides that were read back:
 * the checkpoint before the entry has them. */
static size_t write_list(pd_archive *archive, const pd_decision_list *list, uint32_t ranks)
{
    size_t n = 0;

    for (pd_decision *r = list->first; r != NULL; r = r->next) {
        if (r->override != NULL) continue;
        if (archive != NULL) write_record(archive, r, ranks);
        n++;
    }
    return n;
}

static size_t write_records(pd_archive *archive, const pd_job *job)
{
    const pd_wal *wal = job->steps.wal;
    uint32_t ranks = job->steps.members.ranks;
    size_t n = write_list(archive, &wal->decisions.made, ranks);

    for (uint32_t i = 0; wal->decisions.renews && i < job->steps.n_params; i++)
        n += write_list(archive, &wal->params[i].read, ranks);
    return n;
}

static int write_entry(const pd_job *job, pd_wal_record *logged, pd_error *err)
{
    uint64_t floor = job->checkpointing.newest.step;
    size_t n = write_records(NULL, job);
    pd_archive archive;
    int rc;

    pd_archive_begin_write(&archive);
    pd_archive_enter(&archive, "control");
    pd_archive_value(&archive, &floor);
    pd_archive_count(&archive, &n, MOST_RECORDS, 1);
    (void)write_records(&archive, job);
    pd_archive_leave(&archive);
    rc = pd_archive_end(&archive, &logged->head, &logged->head_bytes, err);
    return rc == PD_OK && job->steps.wal->decisions.renews ? pd_job_check_total(job, logged->head_bytes, err) : rc;
}

/* ---- handing entries over ---- */

/* Makes an entry of the records that wait. PD_NO_MEMORY: they still wait. */
static int make_entry(pd_job *job, pd_effect **out, pd_error *err)
{
    pd_effect *effect = pd_effect_new(PD_EFF_WAL, (pd_ticket){ 0, 0 }, job->steps.number);
    pd_wal_record *logged = calloc(1, sizeof *logged);

    if (effect == NULL || logged == NULL || (logged->job = strdup(job->steps.name)) == NULL)
        pd_fail(err, PD_NO_MEMORY, "out of memory for its entry");
    else if (write_entry(job, logged, err) == PD_OK) {
        logged->stream = PD_WAL_DECISIONS;
        logged->number = job->steps.number;
        logged->creator = job->saved.creator;
        effect->u.wal = logged;
        *out = effect;
        return PD_OK;
    }
    pd_wal_record_free(logged);
    pd_effect_free(effect);
    return err->code;
}

static int hand_over(pd_job *job, pd_error *err)
{
    pd_control_keeping *checkpointing = &job->checkpointing.control;
    pd_effect *effect = NULL;

    if (make_entry(job, &effect, err) != PD_OK) return err->code;
    if (job->steps.wal->decisions.renews) {
        checkpointing->renewed += effect->u.wal->head_bytes;
        pd_account_take(&job->steps.account, effect->u.wal->head_bytes);
    }
    job->steps.wal->decisions.renews = false;
    if (checkpointing->fresh) checkpointing->base = checkpointing->number;
    checkpointing->fresh = false;
    effect->u.wal->base = checkpointing->base;
    effect->u.wal->step = ++checkpointing->number;
    checkpointing->under_way++;
    pd_wal_drop_made(job->steps.wal);
    pd_effects_add(job->steps.outbox, effect);
    return PD_OK;
}

/* Ends the records until the next checkpoint. Commands whose records are in entries after `number` wait for it. */
static void stop(pd_job *job, uint64_t number)
{
    pd_control_keeping *checkpointing = &job->checkpointing.control;

    checkpointing->on = checkpointing->headed = false;
    checkpointing->moved = NULL;
    checkpointing->since = checkpointing->number;
    job->steps.wal->decisions.on = job->steps.wal->decisions.differs = job->steps.wal->decisions.renews = false;
    pd_wal_drop_made(job->steps.wal);
    pd_control_lost(job, number);
}

/* Lets a checkpoint begin with which records begin anew: at the next step if a command waits for it. Otherwise the
 * distance doubles with each error that follows soon after the one before. A disk that is too slow for the records
 * would otherwise cause one checkpoint after the other. */
static void begin_again_later(pd_job *job)
{
    pd_control_keeping *checkpointing = &job->checkpointing.control;
    uint64_t due = job->checkpointing.soon;
    bool lasted = job->steps.progress.furthest - checkpointing->begun_step > DISTANCE_MOST;

    checkpointing->distance = checkpointing->distance == 0 || lasted    ? 1
                              : checkpointing->distance < DISTANCE_MOST ? 2 * checkpointing->distance
                                                                        : DISTANCE_MOST;
    pd_checkpoint_policy_soon(job);
    if (checkpointing->sets.first == NULL) job->checkpointing.soon += checkpointing->distance - 1;
    if (due < job->checkpointing.soon) job->checkpointing.soon = due;
}

static void fail(pd_job *job, uint64_t number, const pd_error *err)
{
    pd_say(
        job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .code = err->code },
        "the control log could not be written: %.300s; until the next checkpoint is durable, a restart may take other "
        "roots or values than these steps took",
        err->text);
    snprintf(job->checkpointing.error, sizeof job->checkpointing.error, "%.250s", err->text);
    stop(job, number);
    begin_again_later(job);
}

/* Ends the records because of a change that no record can tell. What came before it is still written. */
static void end_before_change(pd_job *job)
{
    pd_error err;

    if (job->checkpointing.control.on && job->steps.wal->decisions.made.first != NULL) (void)hand_over(job, &err);
    stop(job, job->checkpointing.control.number);
    pd_checkpoint_policy_soon(job);
}

/* Ends the repeating of steps, because they go on from another state than before the restart: roots and rounds of
 * records are not theirs. Values that operators have set stay. */
static void leave_past(pd_job *job)
{
    pd_error err;

    if (job->steps.wal->decisions.n_read == 0) return;
    (void)pd_wal_put_overrides(&job->steps, &err); /* overrides that are left come before the next step */
    pd_wal_drop_read(&job->steps, false);
}

/* Returns whether an entry is due: there are records, or the chain on the disk must end. The job may have left the
 * course that this chain tells (by an import, say), and a restart must not repeat it: a new chain takes its place. */
static bool has_news(const pd_job *job)
{
    const pd_control_keeping *checkpointing = &job->checkpointing.control;

    return job->steps.wal->decisions.made.first != NULL || (checkpointing->fresh && checkpointing->number > 0);
}

void pd_control_look(pd_job *job)
{
    pd_wal *wal = job->steps.wal;
    pd_error err = { 0 };

    if (wal == NULL || job->gone) return;
    if (job->checkpointing.control.moved != NULL) leave_past(job);
    if (!wal->decisions.on) return;
    if (job->checkpointing.control.moved != NULL || wal->decisions.differs) {
        end_before_change(job);
        return;
    }
    if (wal->decisions.overflow)
        pd_fail(&err, PD_RESOURCE_EXHAUSTED, "more than %" PRIu64 " bytes of records wait for the disk",
                wal->decisions.most);
    else if (job->checkpointing.control.on && job->checkpointing.control.under_way == 0 && has_news(job))
        (void)hand_over(job, &err);
    if (err.code != PD_OK) fail(job, job->checkpointing.control.number, &err);
}

void pd_control_returned(pd_job *job, const pd_wal_record *logged)
{
    if (--job->checkpointing.control.under_way == 0) {
        pd_account_give(&job->steps.account, job->checkpointing.control.renewed);
        job->checkpointing.control.renewed = 0;
    }
    if (logged->error.code == PD_OK)
        pd_control_written(job, logged->step);
    else if (logged->step > job->checkpointing.control.since)
        fail(job, logged->step - 1, &logged->error);
    else
        pd_control_lost_entry(job, logged->step);
    pd_control_look(job);
}

/* ---- checkpoints ---- */

void pd_control_headed(pd_job *job)
{
    pd_control_keeping *checkpointing = &job->checkpointing.control;

    if (job->steps.wal == NULL) return;
    /* A job that repeats steps after a restart still needs all entries that tell how these steps went, also those
     * written after the cut: then the checkpoint lets none of them be dropped. */
    checkpointing->mark =
        pd_wal_repeats(&job->steps) && !PD_MUTANT(repeated_given_up) ? checkpointing->base : checkpointing->number;
    checkpointing->copied = job->checkpointing.cut.step;
    if (PD_MUTANT(control_base_early)) checkpointing->base = checkpointing->mark;
    pd_control_in_head(job);
    if (checkpointing->on) return;
    checkpointing->headed = true;
    checkpointing->moved = NULL;
    pd_wal_drop_made(job->steps.wal);
    job->steps.wal->decisions.differs = false;
    job->steps.wal->decisions.renews = pd_wal_repeats(&job->steps);
    job->steps.wal->decisions.on = true;
}

/* Lets entries follow the checkpoint that is durable now. */
static void begin(pd_job *job)
{
    pd_control_keeping *checkpointing = &job->checkpointing.control;

    checkpointing->on = checkpointing->fresh = true;
    checkpointing->headed = false;
    checkpointing->begun_step = job->steps.progress.furthest;
    checkpointing->since = checkpointing->number;
    pd_control_number(job, checkpointing->number + 1);
}

void pd_control_kept(pd_job *job, bool good)
{
    pd_control_keeping *checkpointing = &job->checkpointing.control;

    if (job->steps.wal == NULL) return;
    pd_control_settle(job, good);
    if (!checkpointing->on && !good && checkpointing->headed) {
        stop(job, checkpointing->number);
        if (checkpointing->sets.first != NULL) pd_checkpoint_policy_soon(job);
    } else if (!checkpointing->on && good && checkpointing->headed) {
        begin(job);
    } else if (checkpointing->on && good && checkpointing->mark > checkpointing->base) {
        checkpointing->base = checkpointing->mark;
    }
    pd_control_look(job);
}

/* ---- the start ---- */

void pd_control_restored(pd_job *job)
{
    if (job->steps.wal == NULL) return;
    job->checkpointing.control =
        (pd_control_keeping){ .on = true, .fresh = true, .copied = job->checkpointing.newest.step };
    job->steps.wal->decisions.on = true;
}

static int read_ranks(pd_archive *archive, pd_decision *record, size_t n, uint32_t ranks)
{
    if (n == 0) return PD_OK;
    if (n != ranks) return pd_archive_fail(archive, PD_DATA_LOSS, "a round of %zu ranks, but the job has %u", n, ranks);
    if ((record->counted = pd_counted_new(ranks)) == NULL)
        return pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for the ranks of a round");
    for (uint32_t r = 0; r < ranks; r++) {
        bool counts = false;
        pd_archive_value(archive, &counts);
        if (counts) pd_counted_add(record->counted, r);
    }
    return pd_archive_status(archive);
}

static int read_command(pd_archive *archive, pd_decision *record, size_t n)
{
    if (n == 0) return PD_OK;
    if ((record->command = malloc(n)) == NULL)
        return pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for a command");
    record->command_bytes = n;
    pd_archive_bytes(archive, record->command, n);
    return pd_archive_status(archive);
}

/* Reads what follows the roots of a record, and checks that the record fits the job. */
static int read_rest(pd_archive *archive, pd_decision *record, const pd_steps *steps)
{
    size_t n = 0;

    pd_archive_count(archive, &n, PD_MAX_WORLD, 1);
    if (pd_archive_status(archive) != PD_OK || read_ranks(archive, record, n, steps->members.ranks) != PD_OK)
        return pd_archive_status(archive);
    pd_archive_count(archive, &n, MOST_COMMAND, 1);
    if (pd_archive_status(archive) != PD_OK || read_command(archive, record, n) != PD_OK)
        return pd_archive_status(archive);
    if ((record->kind == PD_DECISION_SET) == (record->command != NULL) &&
        (record->kind == PD_DECISION_ROUND) == (record->counted != NULL) &&
        (record->kind == PD_DECISION_ROOTS || record->taken.n == 0))
        return PD_OK;
    return pd_archive_fail(archive, PD_DATA_LOSS, "a record of kind %d has parts of another kind", (int)record->kind);
}

static int read_roots(pd_archive *archive, pd_decision **out, const pd_decision *head, const pd_steps *steps)
{
    size_t n = 0;

    pd_archive_count(archive, &n, MOST_RECORDS, 1);
    if (pd_archive_status(archive) == PD_OK &&
        (head->param >= steps->n_params || n > pd_optim_most_taken(steps->params[head->param].optim)))
        pd_archive_fail(archive, PD_DATA_LOSS, "%zu roots of parameter %u of %u", n, head->param, steps->n_params);
    if (pd_archive_status(archive) != PD_OK) return pd_archive_status(archive);
    if ((*out = pd_decision_new(head->kind, head->param, head->step, n)) == NULL)
        return pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for a record");
    pd_archive_records(archive, &root_table, (*out)->taken.at, n);
    return pd_archive_status(archive);
}

/* Gives a record that was read to the job: a command becomes a record for each of its parameters. */
static int take_record(pd_archive *archive, pd_job *job, pd_decision *record)
{
    pd_error err;
    int rc;

    if (record->kind != PD_DECISION_SET) {
        pd_wal_add_read(&job->steps, record);
        return PD_OK;
    }
    /* A command from before the last copy is part of the state with which the job has come back. */
    rc = record->step < job->checkpointing.durable_step
             ? PD_OK
             : pd_job_set_again(job, record->command, record->command_bytes, &err);
    pd_decision_free(record);
    return rc == PD_OK ? rc : pd_archive_fail(archive, rc, "%s", err.text);
}

static int read_record(pd_archive *archive, pd_job *job)
{
    pd_decision head = { 0 }, *record = NULL;

    pd_archive_fields(archive, &record_table, &head);
    if (pd_archive_status(archive) == PD_OK && read_roots(archive, &record, &head, &job->steps) == PD_OK &&
        read_rest(archive, record, &job->steps) == PD_OK)
        return take_record(archive, job, record);
    pd_decision_free(record);
    return pd_archive_status(archive);
}

static int read_entry(pd_job *job, const pd_wal_record *logged, pd_error *err)
{
    uint64_t floor = 0;
    pd_archive archive;
    size_t n = 0;

    pd_archive_begin_read(&archive, logged->head, logged->head_bytes);
    pd_archive_enter(&archive, "control");
    pd_archive_value(&archive, &floor);
    pd_archive_count(&archive, &n, MOST_RECORDS, 1);
    if (pd_archive_status(&archive) == PD_OK && floor > job->checkpointing.newest.step)
        pd_archive_fail(&archive, PD_FAILED_PRECONDITION,
                        "it follows the checkpoint of step %" PRIu64 ", but the job has come back from that of step "
                        "%" PRIu64,
                        floor, job->checkpointing.newest.step);
    for (size_t i = 0; i < n && pd_archive_status(&archive) == PD_OK; i++) (void)read_record(&archive, job);
    job->checkpointing.control.read += n;
    pd_archive_leave(&archive);
    return pd_archive_end(&archive, NULL, NULL, err);
}

int pd_control_load(pd_jobs *jobs, const pd_wal_record *logged, pd_error *err)
{
    pd_job *job = pd_jobs_find(jobs, logged->job);
    int rc;

    if (job == NULL || job->saved.creator != logged->creator || job->steps.wal == NULL)
        return pd_fail(err, PD_NOT_FOUND, "there is no job %.200s for an entry of a control log", logged->job);
    rc = PD_MUTANT(control_unread) ? PD_OK : read_entry(job, logged, err);
    job->checkpointing.control.number = job->checkpointing.control.since = logged->step;
    job->checkpointing.control.base = logged->base;
    job->checkpointing.control.fresh = rc != PD_OK;
    if (rc != PD_OK) pd_wal_drop_read(&job->steps, true);
    return rc;
}
