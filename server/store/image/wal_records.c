/* wal_records.c - makes the records of a job's WAL, hands them to the WAL thread, and takes them back. */
#include "wal_records.h"

#include "archive.h"
#include "checkpoint_policy.h"
#include "checkpoint_state.h"
#include "consistent_cut.h"
#include "fragment_ranks.h"
#include "job_course.h"
#include "mutant.h"
#include "param_set.h"
#include "pending_sets.h"
#include "riders.h"
#include "wal.h"
#include "wal_image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DISTANCE_MOST = 1024 }; /* most steps between an error and the checkpoint after which a stream begins anew */

void pd_wal_record_drop(pd_wal_record *record)
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
    pd_wal_record_drop(effect->u.wal);
    pd_effect_free(effect);
}

/* Allocates an effect with a record that has room for n aggregates. */
static int new_record(const pd_job *job, pd_wal_stream stream, uint32_t n, pd_effect **out, pd_error *err)
{
    pd_effect *effect = pd_effect_new(PD_EFF_WAL, (pd_ticket){ 0, 0 }, job->steps.number);
    pd_wal_record *record = calloc(1, sizeof *record);

    if (effect == NULL || record == NULL || (record->job = strdup(job->steps.name)) == NULL ||
        (n > 0 && (record->parts = calloc(n, sizeof *record->parts)) == NULL)) {
        pd_wal_record_free(record);
        pd_effect_free(effect);
        return pd_fail(err, PD_NO_MEMORY, "out of memory for a record");
    }
    record->stream = stream;
    record->number = job->steps.number;
    record->creator = job->saved.creator;
    record->n_parts = n;
    effect->u.wal = record;
    *out = effect;
    return PD_OK;
}

/* Returns the number of steps between an error and the checkpoint with which the stream begins anew. `distance`: this
 * number for the previous error; 0: there was none. */
static uint64_t next_distance(uint64_t distance)
{
    return distance == 0 ? 1 : distance < DISTANCE_MOST ? 2 * distance : DISTANCE_MOST;
}

static int write_decisions(const pd_job *job, pd_wal_record *record, pd_error *err)
{
    pd_archive archive;
    int rc;

    pd_archive_begin_write(&archive);
    pd_wal_image_write_decisions(&archive, job);
    rc = pd_archive_end(&archive, &record->head, &record->head_bytes, err);
    return rc == PD_OK && job->steps.wal->decisions.renews ? pd_job_check_total(job, record->head_bytes, err) : rc;
}

/* Drops what waits for the next record. */
static void drop_made(pd_job *job)
{
    pd_wal_drop_made(job->steps.wal);
    for (uint32_t r = 0; job->checkpointing.decisions.ranks > 0 && r < job->steps.members.ranks; r++)
        job->ranks[r].news = false;
    job->checkpointing.decisions.ranks = 0;
}

static bool has_made(const pd_job *job)
{
    return job->steps.wal->decisions.made.first != NULL || job->checkpointing.decisions.ranks > 0;
}

/* Hands a record of the decisions that wait to the WAL thread. After an error they still wait. */
static int hand_over_decisions(pd_job *job, pd_error *err)
{
    pd_decision_stream *stream = &job->checkpointing.decisions;
    pd_effect *effect = NULL;
    int rc = new_record(job, PD_WAL_DECISIONS, 0, &effect, err);

    if (rc != PD_OK) return rc;
    if ((rc = write_decisions(job, effect->u.wal, err)) != PD_OK) {
        drop_effect(effect);
        return rc;
    }
    if (job->steps.wal->decisions.renews) {
        stream->renewed += effect->u.wal->head_bytes;
        pd_account_take(&job->steps.account, effect->u.wal->head_bytes);
    }
    job->steps.wal->decisions.renews = false;
    if (stream->fresh) stream->base = stream->number;
    stream->fresh = false;
    effect->u.wal->base = stream->base;
    effect->u.wal->step = ++stream->number;
    stream->under_way++;
    pd_withheld_handed(&job->steps.withheld);
    drop_made(job);
    pd_effects_add(job->steps.outbox, effect);
    return PD_OK;
}

/* Ends the stream of decisions until the next checkpoint. Commands whose decisions are in records after `number` then
 * wait for this checkpoint. */
static void stop_decisions(pd_job *job, uint64_t number)
{
    pd_decision_stream *stream = &job->checkpointing.decisions;

    stream->on = stream->headed = false;
    stream->moved = NULL;
    stream->since = stream->number;
    job->steps.wal->decisions.on = job->steps.wal->decisions.differs = job->steps.wal->decisions.renews = false;
    pd_withheld_dropped(&job->steps.withheld);
    drop_made(job);
    pd_sets_lost(job, number);
}

/* Sends the reports that need not wait for the disk any more, and lets parameters that they have stopped continue. */
static void release_reports(pd_job *job)
{
    if (job->steps.withheld.effects.first == NULL) return;
    pd_withheld_release(&job->steps.withheld, job->steps.outbox);
    pd_riders_release(&job->steps);
}

/* Notes that the steps up to the durable place are on the disk, because a checkpoint is (`whole`) or their records
 * are. */
static void note_kept(pd_job *job, bool whole)
{
    if (!pd_withheld_durable(&job->steps.withheld, job->checkpointing.durable_place, whole)) return;
    job->membership.untold = true; /* they are told together with the course */
    job->membership.retry_ns = 0;
}

void pd_wal_answer_anyway(pd_job *job)
{
    if (!job->steps.withheld.on || job->steps.values.at[PD_JOB_KEY_ON_DISK_ERROR] != PD_DISK_GO_ON) return;
    pd_withheld_give_up(&job->steps.withheld, job->steps.outbox, pd_course_passing(job));
    pd_riders_release(&job->steps);
}

/* Does what on_disk_error says about reports that no record makes ready to be sent, since the disk has failed: sends
 * them, or withholds them until a checkpoint is durable, and begins no step before that. */
static void settle_reports(pd_job *job)
{
    if (!job->steps.withheld.on) return;
    pd_wal_answer_anyway(job);
    if (job->steps.withheld.on) pd_pause_begin(job);
}

/* Makes a checkpoint due, after which decisions are recorded again: at the next step if a command waits for it.
 * Otherwise the number of steps before it doubles with each error that follows soon after the one before. Without that,
 * a disk that is too slow for the records would cause one checkpoint after the other. */
static void begin_again_later(pd_job *job)
{
    pd_decision_stream *stream = &job->checkpointing.decisions;
    uint64_t due = job->checkpointing.soon;
    bool lasted = job->steps.progress.furthest - stream->begun_step > DISTANCE_MOST;

    stream->distance = next_distance(lasted ? 0 : stream->distance);
    pd_checkpoint_policy_soon(job);
    if (stream->sets.first == NULL) job->checkpointing.soon += stream->distance - 1;
    if (due < job->checkpointing.soon) job->checkpointing.soon = due;
}

static void fail_decisions(pd_job *job, uint64_t number, const pd_error *err)
{
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .code = err->code },
           "decisions not written: %.300s; until the next checkpoint is durable, a restart may take other roots, "
           "ranks or values than these steps took",
           err->text);
    snprintf(job->checkpointing.error, sizeof job->checkpointing.error, "%.250s", err->text);
    stop_decisions(job, number);
    begin_again_later(job);
    if (!job->steps.withheld.logged || pd_wal_lacks_leases(&job->steps)) settle_reports(job);
}

/* Ends the stream of decisions because of a change of the state that is not a decision. Decisions before the change are
 * still written. */
static void end_before_change(pd_job *job)
{
    pd_error err;

    if (job->checkpointing.decisions.on && has_made(job)) (void)hand_over_decisions(job, &err);
    stop_decisions(job, job->checkpointing.decisions.number);
    pd_checkpoint_policy_soon(job);
    /* Reports wait for the checkpoint, and workers take no further step without them. */
    if (job->steps.sets.open) pd_checkpoint_policy_now(job);
}

/* Drops the decisions about roots and rounds that were read from records after a restart, because the state of the job
 * has changed since, and it does not repeat their steps. Values that operators have set stay. */
static void leave_past(pd_job *job)
{
    pd_error err;

    if (job->steps.wal->decisions.n_read == 0) return;
    (void)pd_wal_put_overrides(&job->steps, &err); /* after an error the next step tries again */
    pd_wal_drop_read(&job->steps, false);
}

/* Returns whether a record of decisions is due: there are decisions, or the chain on the disk must end, because its
 * decisions may not apply any more (after an import, for example) and a restart must not repeat them. An empty record
 * then begins a new chain. */
static bool has_news(const pd_job *job)
{
    const pd_decision_stream *stream = &job->checkpointing.decisions;

    return has_made(job) || (stream->fresh && stream->number > 0);
}

void pd_wal_look_decisions(pd_job *job)
{
    pd_wal *wal = job->steps.wal;
    pd_error err = { 0 };

    if (wal == NULL || job->gone) return;
    if (job->checkpointing.decisions.moved != NULL) leave_past(job);
    if (!wal->decisions.on) return;
    if (job->checkpointing.decisions.moved != NULL || wal->decisions.differs) {
        end_before_change(job);
        return;
    }
    if (wal->decisions.overflow)
        pd_fail(&err, PD_RESOURCE_EXHAUSTED, "more than %" PRIu64 " bytes of decisions wait for the disk",
                wal->decisions.most);
    else if (job->checkpointing.decisions.on && job->checkpointing.decisions.under_way == 0 && has_news(job))
        (void)hand_over_decisions(job, &err);
    if (err.code != PD_OK) fail_decisions(job, job->checkpointing.decisions.number, &err);
}

static void settle_decisions(pd_job *job, const pd_wal_record *record)
{
    pd_decision_stream *stream = &job->checkpointing.decisions;

    stream->results++;
    if (--stream->under_way == 0) {
        pd_account_give(&job->steps.account, stream->renewed);
        stream->renewed = 0;
    }
    pd_withheld_returned(&job->steps.withheld, record->error.code == PD_OK);
    release_reports(job);
    if (record->error.code == PD_OK)
        pd_sets_recorded(job, record->step);
    else if (record->step > stream->since)
        fail_decisions(job, record->step - 1, &record->error);
    else
        pd_sets_lost_record(job, record->step);
    pd_wal_look_decisions(job);
}

static void copied_decisions(pd_job *job)
{
    pd_decision_stream *stream = &job->checkpointing.decisions;

    /* A job that repeats steps after a restart still needs all records with decisions of these steps, also those from
     * before the cut. So this checkpoint makes none of them obsolete. */
    stream->mark = pd_wal_repeats(&job->steps) && !PD_MUTANT(repeated_given_up) ? stream->base : stream->number;
    stream->copied = job->checkpointing.cut.place;
    if (PD_MUTANT(decisions_base_early)) stream->base = stream->mark;
    pd_sets_copied(job);
    pd_withheld_copied(&job->steps.withheld);
    if (stream->on) return;
    stream->headed = true;
    stream->moved = NULL;
    pd_withheld_dropped(&job->steps.withheld);
    drop_made(job);
    job->steps.wal->decisions.differs = false;
    job->steps.wal->decisions.renews = pd_wal_repeats(&job->steps);
    job->steps.wal->decisions.on = true;
}

/* Begins a chain of decisions that follows the checkpoint that is durable now. */
static void begin_decisions(pd_job *job)
{
    pd_decision_stream *stream = &job->checkpointing.decisions;

    stream->on = stream->fresh = true;
    stream->headed = false;
    stream->begun_step = job->steps.progress.furthest;
    stream->since = stream->number;
    pd_sets_number(job, stream->number + 1);
}

static void checkpointed_decisions(pd_job *job, bool good)
{
    pd_decision_stream *stream = &job->checkpointing.decisions;

    pd_sets_settle(job, good);
    if (!stream->on && !good && stream->headed) {
        stop_decisions(job, stream->number);
        if (stream->sets.first != NULL) pd_checkpoint_policy_soon(job);
    } else if (!stream->on && good && stream->headed) {
        begin_decisions(job);
    } else if (stream->on && good && stream->mark > stream->base) {
        stream->base = stream->mark;
    }
    pd_wal_look_decisions(job);
}

static int write_step(pd_job *job, pd_wal_record *record, pd_error *err)
{
    pd_archive archive;

    pd_archive_begin_write(&archive);
    pd_wal_image_visit_inputs(&archive, job, record->step);
    pd_wal_image_visit_rest(&archive, job);
    return pd_archive_end(&archive, &record->head, &record->head_bytes, err);
}

static void take_aggregates(const pd_steps *steps, pd_wal_record *record)
{
    for (uint32_t i = 0; i < steps->n_params; i++) {
        pd_step_input *input = &steps->wal->inputs.at[i];
        if (input->aggregate == NULL) continue;
        record->parts[i] =
            (pd_wal_part){ input->aggregate, steps->params[i].elements, steps->params[i].buffers.pool[PD_F32] };
        if (PD_MUTANT(recorded_aggregates_reused)) {
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
            return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%.160s has taken more roots in one step than a record can name",
                           steps->params[i].name);
    return PD_OK;
}

/* Makes the record of the present step, which all parameters of its fragment have closed. After an error nothing has
 * changed. */
static int make_step(pd_job *job, pd_effect **out, pd_error *err)
{
    pd_effect *effect = NULL;
    int rc = check_roots(&job->steps, err);

    if (rc != PD_OK || (rc = new_record(job, PD_WAL_STEPS, job->steps.n_params, &effect, err)) != PD_OK) return rc;
    effect->u.wal->step = job->steps.wal->inputs.place;
    effect->u.wal->fragment = job->steps.wal->inputs.fragment->number;
    effect->u.wal->step_of = job->steps.wal->inputs.step;
    rc = write_step(job, effect->u.wal, err);
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

/* Logs once that the job waits for the disk, with the size and the time of its last record. */
static void say_slow(pd_job *job, const pd_wal_record *last)
{
    if (job->checkpointing.steps.slow || last->error.code != PD_OK) return;
    job->checkpointing.steps.slow = true;
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .step = &last->step_of },
           "job waits for the disk: %d records are under way, and the last one of "
           "%" PRIu64 " bytes took %" PRIu64 " ms. durability = checkpoint does not wait",
           PD_WAL_MOST, last->bytes, last->ns / 1000000);
}

static void drop_waiting(pd_job *job)
{
    pd_effect *next;

    for (pd_effect *effect = job->checkpointing.steps.first; effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        pd_account_give(&job->steps.account, effect->u.wal->head_bytes);
        drop_effect(effect);
        job->steps.wal->inputs.under_way--;
    }
    job->checkpointing.steps.first = job->checkpointing.steps.last = NULL;
}

static void stop_steps(pd_job *job)
{
    drop_waiting(job);
    pd_wal_end_steps(&job->steps);
    job->checkpointing.steps.broken++;
    job->checkpointing.steps.moved = NULL;
    job->checkpointing.steps.waits = false;
    pd_riders_release(&job->steps);
    pd_checkpoint_policy_plan(job);
}

/* Returns whether shards of a cluster can have to go back to a step of records that a stream has left on the disk. The
 * floor of checkpoints, of which workers know that all shards have it, must come after them. */
static bool needs_left_records(const pd_job *job)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;

    if (job->steps.shards == 1 || job->steps.sets.open || job->steps.n_fragments > 1) return false;
    if (PD_MUTANT(left_records_replaced)) return false;
    if (checkpointing->steps.end <= checkpointing->steps.oldest) return false;
    return !checkpointing->floored || checkpointing->floor <= checkpointing->steps.end;
}

/* Returns words that say when the stream of steps begins anew. */
static const char *when_again(const pd_job *job)
{
    return needs_left_records(job) ? "once no shard of the cluster can have to go back before it" : "after it";
}

static void fail_step(pd_job *job, uint64_t step, const pd_error *err)
{
    pd_log_facts facts = { .job = job->steps.name, .step = &step, .code = err->code };

    pd_say(job->steps.outbox, PD_SAY_WARNING, facts,
           "record of step %" PRIu64 " not written: %.300s; a checkpoint begins, and records continue %s", step,
           err->text, when_again(job));
    snprintf(job->checkpointing.error, sizeof job->checkpointing.error, "%.250s", err->text);
    stop_steps(job);
    pd_wal_answer_anyway(job);
    pd_pause_begin(job);
}

void pd_wal_leave(pd_job *job)
{
    if (!pd_wal_records_steps(&job->steps)) return;
    stop_steps(job);
    pd_wal_answer_anyway(job);
    job->checkpointing.steps.left = job->steps.wal->inputs.under_way > 0;
    pd_checkpoint_policy_soon(job);
}

/* Lets the stream of steps begin again with the next checkpoint. Call it when the disk has returned all records. */
static void rejoin(pd_job *job)
{
    job->checkpointing.steps.left = false;
    job->checkpointing.steps.retry = job->steps.progress.furthest;
}

static void note_moved(pd_job *job)
{
    pd_say(job->steps.outbox, PD_SAY_INFO,
           (pd_log_facts){ .job = job->steps.name, .step = &job->steps.wal->inputs.step },
           "%s, which no record tells: a checkpoint begins, and records continue %s", job->checkpointing.steps.moved,
           when_again(job));
    stop_steps(job);
}

/* Returns whether the checkpoint at place `base`, which the records follow, or a later one is durable. It must contain
 * all changes that were made before the last cut by other means than steps. */
static bool has_base(const pd_job *job, uint64_t base)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;

    return checkpointing->newest.exists && checkpointing->newest.place >= base &&
           checkpointing->newest.changes == checkpointing->cut.changes;
}

/* Returns the place of the checkpoint from which on the job needs records. In a cluster all shards may have to go back
 * to any step after the floor of checkpoints: the last one before it stays, and so do records. */
static uint64_t needed_from(const pd_job *job)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;
    const pd_kept_steps *kept = &checkpointing->kept;

    if (job->steps.shards == 1 || job->steps.n_fragments > 1 || kept->n == 0) return checkpointing->newest.place;
    for (uint32_t i = 0; i < kept->n; i++)
        if (checkpointing->floored && kept->at[i] <= checkpointing->floor) return kept->at[i];
    return kept->at[kept->n - 1];
}

static void hand_over_step(pd_job *job, pd_effect *effect)
{
    uint64_t *oldest = &job->checkpointing.steps.oldest, needed = needed_from(job);

    if (needed > *oldest) *oldest = needed;
    effect->mail.next = NULL;
    effect->u.wal->base = *oldest;
    if (effect->u.wal->step <= job->checkpointing.newest.place) {
        /* A checkpoint was made while the record waited, and contains its step. */
        *oldest = job->checkpointing.newest.place;
        pd_account_give(&job->steps.account, effect->u.wal->head_bytes);
        drop_effect(effect);
        job->steps.wal->inputs.under_way--;
        return;
    }
    if (PD_MUTANT(record_durable_unwritten)) {
        job->checkpointing.durable_step = effect->u.wal->step_of;
        pd_checkpoint_policy_tell(job);
    }
    pd_effects_add(job->steps.outbox, effect);
}

static void wait_for_checkpoint(pd_job *job, pd_effect *effect)
{
    pd_step_stream *stream = &job->checkpointing.steps;

    effect->mail.next = NULL;
    if (stream->first == NULL)
        stream->first = effect;
    else
        stream->last->mail.next = &effect->mail;
    stream->last = effect;
}

static void release_waiting(pd_job *job)
{
    pd_step_stream *stream = &job->checkpointing.steps;
    pd_effect *next;

    stream->distance = 0;
    if (!stream->waits || !has_base(job, job->steps.wal->inputs.base)) return;
    stream->waits = false;
    for (pd_effect *effect = stream->first; effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        hand_over_step(job, effect);
    }
    stream->first = stream->last = NULL;
    pd_riders_release(&job->steps);
    pd_checkpoint_policy_plan(job);
}

static void give_up_waiting(pd_job *job)
{
    pd_step_stream *stream = &job->checkpointing.steps;

    if (!stream->wanted) return;
    stream->distance = next_distance(stream->distance);
    stream->retry = job->steps.progress.furthest + stream->distance;
    if (pd_wal_records_steps(&job->steps) && stream->waits &&
        job->steps.wal->inputs.base == job->checkpointing.cut.place)
        stop_steps(job);
}

/* Begins to record the steps after the checkpoint at place `base`, unless steps are recorded already. The first record
 * of the new chain replaces those of the one before it. */
static void begin_steps(pd_job *job, uint64_t base)
{
    if (!job->checkpointing.steps.wanted || job->checkpointing.steps.left || pd_wal_records_steps(&job->steps)) return;
    if (needs_left_records(job)) return;
    job->checkpointing.steps.moved = NULL;
    job->checkpointing.steps.oldest = job->checkpointing.steps.end = base;
    job->checkpointing.steps.waits = !has_base(job, base) && !PD_MUTANT(records_before_checkpoint);
    pd_wal_begin_steps(&job->steps, base, base);
}

/* Makes `step` the last durable step of the fragment if it is larger. Returns whether more steps of all fragments are
 * durable now. */
static bool note_fragment(pd_job *job, pd_fragment *fragment, uint64_t step)
{
    uint64_t least = step;

    if (step > fragment->durable) fragment->durable = step;
    for (uint32_t f = 0; f < job->steps.n_fragments; f++)
        if (job->steps.fragments[f].durable < least) least = job->steps.fragments[f].durable;
    if (least <= job->checkpointing.durable_step) return false;
    job->checkpointing.durable_step = least;
    return true;
}

void pd_wal_resume(pd_job *job, uint64_t place)
{
    uint32_t fragment = (uint32_t)(job->steps.wal->inputs.fragment - job->steps.fragments);

    job->checkpointing.durable_place = job->checkpointing.decisions.copied = job->checkpointing.steps.end = place;
    (void)note_fragment(job, &job->steps.fragments[fragment], job->steps.wal->inputs.step);
    note_kept(job, false);
    if (job->checkpointing.steps.wanted) pd_wal_begin_steps(&job->steps, job->checkpointing.newest.place, place);
}

static void record_step(pd_job *job)
{
    uint64_t step = job->steps.wal->inputs.step, place = job->steps.wal->inputs.place;
    pd_effect *effect;
    pd_error err;

    if (pd_wal_put_overrides(&job->steps, &err) != PD_OK || make_step(job, &effect, &err) != PD_OK) {
        fail_step(job, step, &err);
        return;
    }
    job->steps.wal->inputs.under_way++;
    job->checkpointing.decisions.copied = place;
    pd_wal_next_step(&job->steps);
    if (job->checkpointing.steps.waits)
        wait_for_checkpoint(job, effect);
    else
        hand_over_step(job, effect);
    pd_riders_release(&job->steps);
}

static void look_steps(pd_job *job)
{
    if (!pd_wal_records_steps(&job->steps) || job->gone) return;
    if (job->checkpointing.steps.moved != NULL)
        note_moved(job);
    else if (pd_wal_is_complete(&job->steps))
        record_step(job);
}

/* Returns whether a checkpoint now brings the floor nearer, for which the stream waits: workers must tell two
 * checkpoints after the left records, one after the other. So the next one begins when they have told the newest. */
static bool moves_floor(const pd_job *job)
{
    const pd_newest_checkpoint *newest = &job->checkpointing.newest;

    if (newest->place <= job->checkpointing.steps.end) return true;
    return job->checkpointing.common >= newest->step && pd_cut_least_step(&job->steps) > newest->step;
}

bool pd_wal_wants_checkpoint(const pd_job *job)
{
    const pd_step_stream *stream = &job->checkpointing.steps;

    if (!stream->wanted || stream->left || pd_wal_records_steps(&job->steps)) return false;
    if (needs_left_records(job) && !moves_floor(job)) return false;
    return job->steps.progress.furthest >= stream->retry;
}

/* Notes that the step of a record is durable, and tells the loop thread and waiting workers if steps of all fragments
 * are. Takes ownership of the request, whose memory becomes the effect for the loop thread. */
static void note_durable(pd_job *job, const pd_wal_record *record, pd_request *request)
{
    bool more = record->step > job->checkpointing.durable_place &&
                note_fragment(job, &job->steps.fragments[record->fragment], record->step_of);

    if (record->step > job->checkpointing.durable_place) {
        job->checkpointing.durable_place = record->step;
        note_kept(job, false);
        release_reports(job);
    }
    if (!more) {
        pd_request_free(request);
        return;
    }
    pd_checkpoint_policy_answer(job, request);
    pd_checkpoint_answer_workers(job);
}

static void settle_step(pd_job *job, const pd_wal_record *record, pd_request *request)
{
    if (job->steps.wal->inputs.under_way == PD_WAL_MOST && job->steps.queue.stopped != NULL) say_slow(job, record);
    pd_account_give(&job->steps.account, record->head_bytes);
    job->steps.wal->inputs.under_way--;
    job->checkpointing.steps.results++;
    if (job->checkpointing.steps.left && job->steps.wal->inputs.under_way == 0) rejoin(job);
    if (record->error.code == PD_OK) {
        job->checkpointing.steps.bytes += record->bytes;
        if (record->step > job->checkpointing.steps.end) job->checkpointing.steps.end = record->step;
        pd_histogram_add(&job->checkpointing.steps.times, record->ns);
        note_durable(job, record, request);
    } else {
        /* A record before the base belongs to a stream that has ended already. */
        if (pd_wal_records_steps(&job->steps) && record->step > job->steps.wal->inputs.base)
            fail_step(job, record->step_of, &record->error);
        pd_request_free(request);
    }
    pd_riders_release(&job->steps);
}

void pd_wal_look(pd_job *job)
{
    look_steps(job);
    pd_wal_look_decisions(job);
}

void pd_wal_returned(pd_job *job, pd_request *request)
{
    pd_wal_record *record = request->u.wal;

    if (job != NULL && record->stream == PD_WAL_STEPS) {
        settle_step(job, record, request);
    } else {
        if (job != NULL) settle_decisions(job, record);
        pd_request_free(request);
    }
    pd_wal_record_drop(record);
}

/* Returns whether the disk gets what decides the next steps, or gets it once the present checkpoint is durable. */
static bool is_recording(const pd_job *job)
{
    if (job->steps.wal == NULL) return false;
    return job->steps.withheld.logged ? pd_wal_records_steps(&job->steps) : job->steps.wal->decisions.on;
}

/* Begins to withhold reports, if steps or decisions are recorded now. */
static void begin_reports(pd_job *job)
{
    if (job->steps.sets.open && is_recording(job)) pd_withheld_begin(&job->steps.withheld);
}

void pd_wal_copied(pd_job *job, bool even)
{
    if (job->steps.wal != NULL) copied_decisions(job);
    if (even) begin_steps(job, job->steps.cut->place);
    begin_reports(job);
}

void pd_wal_checkpointed(pd_job *job, bool good)
{
    if (good) note_kept(job, true);
    if (good)
        release_waiting(job);
    else
        give_up_waiting(job);
    if (!good) pd_withheld_copy_lost(&job->steps.withheld);
    if (job->steps.wal != NULL) checkpointed_decisions(job, good);
    if (good) begin_reports(job);
    if (good && job->checkpointing.newest.changes == job->checkpointing.changes)
        pd_withheld_course(&job->steps.withheld, 0);
    /* Reports of later steps, whose record has failed meanwhile, wait for the next checkpoint. */
    if (good && job->steps.withheld.lost > 0) pd_checkpoint_policy_now(job);
    if (!good && (!is_recording(job) || pd_wal_lacks_leases(&job->steps))) settle_reports(job);
    release_reports(job);
}

void pd_wal_restored(pd_job *job, bool even, uint64_t oldest, uint64_t ended)
{
    if (job->steps.wal != NULL) {
        job->checkpointing.decisions =
            (pd_decision_stream){ .on = true, .fresh = true, .copied = job->checkpointing.newest.place };
        job->steps.wal->decisions.on = true;
    }
    if (ended > 0) job->checkpointing.steps.end = ended;
    if (ended > 0) job->checkpointing.steps.oldest = oldest;
    if (even) begin_steps(job, job->checkpointing.newest.place);
    if (even && ended == 0 && oldest < job->checkpointing.newest.place) job->checkpointing.steps.oldest = oldest;
    note_kept(job, true);
    begin_reports(job);
}

void pd_wal_release(pd_job *job, const pd_error *err)
{
    if (job->steps.wal != NULL) drop_waiting(job);
    pd_sets_refuse_all(job, err);
}
