/* checkpoint_due.c - decides when a job gets a checkpoint, takes it back from the checkpoint writer, and watches the
 * disk. If the disk needs longer than disk_timeout for a checkpoint or for WAL records, this is logged, and the job
 * does what its on_disk_error says. While the disk does not answer, the time between two log lines doubles. */
#include "checkpoint_due.h"

#include "checkpoint.h"
#include "checkpoint_policy.h"
#include "checkpoint_state.h"
#include "pending_sets.h"
#include "wal_records.h"
#include "consistent_cut.h"
#include "export.h"
#include "fragment_ranks.h"
#include "import.h"
#include "mutant.h"
#include "ranks.h"
#include "wal.h"

#include <inttypes.h>
#include <stdio.h>

static const uint64_t MS = 1000000;

/* Returns how long (ns) the disk may take for a checkpoint: disk_timeout, and twice the time that it should take by the
 * disk's speed, or that the last checkpoint took if this is longer. */
static uint64_t checkpoint_limit(const pd_job *job)
{
    uint64_t speed = job->steps.config->disk_speed, ns = job->checkpointing.newest.written_ns;
    double expected = speed > 0 ? (double)job->checkpointing.load.checkpoint_bytes / (double)speed * 1e9 : 0;

    return job->steps.values.at[PD_JOB_KEY_DISK_TIMEOUT] + 2 * ((double)ns > expected ? ns : (uint64_t)expected);
}

static bool has_entries(const pd_job *job)
{
    return job->steps.wal != NULL && job->steps.wal->inputs.under_way > 0 && !job->checkpointing.steps.waits;
}

/* Returns whether reports of steps or leases wait for a record of decisions that the disk has. */
static bool has_decisions(const pd_job *job)
{
    return pd_withheld_waits_for_record(&job->steps.withheld);
}

static void note(pd_disk_watch *watch, bool busy, uint64_t results, uint64_t now_ns, uint64_t limit_ns)
{
    if (!busy)
        *watch = (pd_disk_watch){ 0 };
    else if (!watch->runs || watch->results != results)
        *watch = (pd_disk_watch){ .runs = true, .results = results, .since_ns = now_ns, .next_ns = now_ns + limit_ns };
}

/* Starts, restarts or stops the watch of the checkpoint and the watch of the WAL records that the disk is writing. Call
 * it after the job has handed over or got back a checkpoint or a record. */
static void watch_disk(pd_job *job, uint64_t now_ns)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;

    note(&checkpointing->watch, checkpointing->writing, checkpointing->results, now_ns, checkpoint_limit(job));
    note(&checkpointing->steps.watch, has_entries(job), checkpointing->steps.results, now_ns,
         job->steps.values.at[PD_JOB_KEY_DISK_TIMEOUT]);
    note(&checkpointing->decisions.watch, has_decisions(job), checkpointing->decisions.results, now_ns,
         job->steps.values.at[PD_JOB_KEY_DISK_TIMEOUT]);
}

/* Returns the time (ns) at which tick_watch must be called next; UINT64_MAX: the disk is writing nothing for the
 * job. */
static uint64_t next_watch(const pd_job *job)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;
    uint64_t at = checkpointing->watch.runs && checkpointing->writing ? checkpointing->watch.next_ns : UINT64_MAX;

    if (checkpointing->steps.watch.runs && has_entries(job) && checkpointing->steps.watch.next_ns < at)
        at = checkpointing->steps.watch.next_ns;
    if (checkpointing->decisions.watch.runs && has_decisions(job) && checkpointing->decisions.watch.next_ns < at)
        at = checkpointing->decisions.watch.next_ns;
    return at;
}

/* Returns whether it is time to log that the disk does not answer. If so, sets the time of the next such line. */
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
           (pd_log_facts){ .job = job->steps.name, .step = &job->checkpointing.cut.step },
           "the disk has not answered for %.3g s: it has the checkpoint of step %" PRIu64 "; steps up to %" PRIu64
           " are durable",
           seconds(&job->checkpointing.watch, now_ns), job->checkpointing.cut.step, job->checkpointing.durable_step);
    /* If WAL records continued to wait for this checkpoint, they would stop the job. */
    if (goes_on(job) && job->checkpointing.steps.waits) pd_wal_leave(job);
    if (!job->checkpointing.decisions.on) pd_wal_answer_anyway(job);
    pd_pause_begin(job);
}

static void tell_entries(pd_job *job, uint64_t now_ns)
{
    pd_job_say(job, PD_SAY_WARNING,
               "the disk has not answered for %.3g s: it has %u WAL records; steps up to %" PRIu64 " are durable; %s "
               "(on_disk_error)",
               seconds(&job->checkpointing.steps.watch, now_ns), job->steps.wal->inputs.under_way,
               job->checkpointing.durable_step,
               goes_on(job)
                   ? "the job continues, and the WAL resumes when the disk has answered and a checkpoint is durable"
                   : "the job waits for the disk");
    if (goes_on(job)) pd_wal_leave(job);
}

static void tell_decisions(pd_job *job, uint64_t now_ns)
{
    uint64_t step = job->steps.withheld.handed;
    char what[64] = "of leases of shares";

    if (step > 0) snprintf(what, sizeof what, "of the ranks that count in step %" PRIu64, step);
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .step = step > 0 ? &step : NULL },
           "the disk has not answered for %.3g s: it has the record %s; %s (on_disk_error)",
           seconds(&job->checkpointing.decisions.watch, now_ns), what,
           goes_on(job) ? "workers are answered: if the server is killed before a checkpoint is durable, other ranks "
                          "may count in this step"
                        : "workers wait for the disk");
    pd_wal_answer_anyway(job);
}

/* Updates the watches. If the disk has not answered in time, logs this and does what on_disk_error says. */
static void tick_watch(pd_job *job, uint64_t now_ns)
{
    watch_disk(job, now_ns);
    if (is_late(&job->checkpointing.watch, now_ns)) tell_checkpoint(job, now_ns);
    if (is_late(&job->checkpointing.steps.watch, now_ns)) tell_entries(job, now_ns);
    if (is_late(&job->checkpointing.decisions.watch, now_ns)) tell_decisions(job, now_ns);
}

/* Returns whether all parameters have weights. Without them the job has no state for a checkpoint. */
static bool has_state(const pd_job *job)
{
    return job->steps.n_params > 0 && job->steps.progress.n_begun == job->steps.n_params && job->planning == NULL;
}

static bool is_asked_for(const pd_job *job)
{
    uint64_t step = job->checkpointing.asked.first != NULL ? pd_cut_least_step(&job->steps) : 0;
    bool logs = pd_wal_records_steps(&job->steps);

    for (const pd_request *request = job->checkpointing.asked.first; request != NULL;
         request = pd_request_next(request))
        /* A request without job_name is of a worker, which needs a durable step. The WAL makes it durable if it records
         * steps. */
        if (request->u.checkpoint.step <= step && !(logs && request->u.checkpoint.job_name == NULL)) return true;
    return false;
}

/* Counts a multiple of checkpoint_every that passes without a checkpoint. Logs why, if the count is a power of two. */
static void skip(pd_job *job)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;
    uint32_t window = pd_checkpoint_policy_window(job);
    const char *why =
        checkpointing->writing || checkpointing->making != NULL
            ? "the one before it is still being written: the disk is too slow for this distance (checkpoint_every)"
        : job->steps.cut != NULL ? "the job is being exported"
                                 : "optimizer state is being imported";
    char more[128] = "";

    if (!pd_is_power_of_two(++checkpointing->counts.skipped)) return;
    if (window > 0 && job->steps.progress.furthest > checkpointing->durable_step + window)
        snprintf(more, sizeof more,
                 "; a rank can send its last %u steps again, which do not reach back to step %" PRIu64, window,
                 checkpointing->durable_step);
    pd_say(job->steps.outbox, PD_SAY_WARNING,
           (pd_log_facts){ .job = job->steps.name, .step = &job->steps.progress.furthest },
           "no checkpoint of step %" PRIu64 ", since %s%s (%" PRIu64 " skipped so far)", job->steps.progress.furthest,
           why, more, checkpointing->counts.skipped);
}

/* Returns whether the job needs a checkpoint of its initial weights: without it, a server that is killed before the
 * first multiple of checkpoint_every would lose the job. From this checkpoint, workers send their steps again from
 * their resend windows, or compute them again. A job that makes checkpoints only on demand gets none here, because
 * workers would have to go back to it from any later step. A stream of steps needs a first checkpoint in any case
 * (pd_wal_wants_checkpoint). */
static bool is_first(const pd_job *job)
{
    return !job->checkpointing.newest.exists && !job->checkpointing.begun && has_state(job) &&
           job->checkpointing.every > 0;
}

/* Returns whether the job needs a checkpoint that says that the job is over (job.h), so that a restarted server does
 * not wait for its workers. A job without a checkpoint on the disk needs none: a restart does not restore it. */
static bool must_say_over(const pd_job *job)
{
    return pd_job_is_over(job) && job->checkpointing.on_disk && !job->checkpointing.says_over;
}

/* Returns whether the last checkpoint before the server stops is not needed, because the newest one on the disk has
 * all state, or the job has no state yet. */
static bool is_durable_already(const pd_job *job)
{
    if (!has_state(job)) return true;
    if (must_say_over(job) || job->checkpointing.newest.changes != job->checkpointing.changes) return false;
    for (uint32_t i = 0; job->checkpointing.newest.exists && i < job->steps.n_params; i++)
        if (job->steps.params[i].saved.step != job->steps.params[i].fragment->kept) return false;
    return job->checkpointing.newest.exists;
}

static void begin_due(pd_job *job, uint64_t now_ns)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;
    bool multiple = job->steps.progress.furthest >= checkpointing->next,
         last = checkpointing->last.state == PD_LAST_WANTED,
         asked = is_asked_for(job) || is_first(job) || must_say_over(job) ||
                 job->steps.progress.furthest >= checkpointing->soon || pd_wal_wants_checkpoint(job) ||
                 pd_retry_wants_checkpoint(job, now_ns);

    if (!multiple && !last && !asked) return;
    if (!checkpointing->writing && !pd_import_writes(job) && has_state(job)) pd_export_wait_again(job);
    if (checkpointing->writing || job->steps.cut != NULL || pd_import_writes(job) || !has_state(job)) {
        if (last && !checkpointing->writing && !has_state(job)) checkpointing->last.state = PD_LAST_DONE;
        if (!multiple) return;
        skip(job);
        pd_checkpoint_policy_plan(job);
        return;
    }
    if (last && is_durable_already(job)) {
        checkpointing->last.state = PD_LAST_DONE;
        return;
    }
    /* A stream that has to end ends first, so that it begins anew with this checkpoint: reports may wait for that. */
    if (job->steps.sets.open) pd_wal_look_decisions(job);
    checkpointing->begun = true;
    checkpointing->says_over = pd_job_is_over(job);
    checkpointing->soon = UINT64_MAX;
    pd_retry_tried(job, now_ns);
    pd_outrun_look(job, now_ns);
    pd_checkpoint_begin(job,
                        last || asked || pd_fragments_have_set(&job->steps) ? pd_cut_least_step(&job->steps)
                                                                            : job->steps.progress.furthest,
                        last, now_ns);
    pd_checkpoint_policy_plan(job);
}

void pd_checkpoint_look(pd_job *job, uint64_t now_ns)
{
    if (!job->checkpointing.durable || job->gone) return;
    if (job->checkpointing.making != NULL) {
        pd_checkpoint_go_on(job, now_ns);
        if (job->checkpointing.making != NULL && job->steps.progress.furthest >= job->checkpointing.next) {
            /* If a request has begun a checkpoint of the same step that is due now, no checkpoint is skipped. */
            if (job->checkpointing.cut.step < job->checkpointing.next) skip(job);
            pd_checkpoint_policy_plan(job);
        }
    }
    if (job->checkpointing.making == NULL && !job->goes_back) begin_due(job, now_ns);
    watch_disk(job, now_ns);
}

static int check_ask(const pd_job *job, pd_error *err)
{
    if (job->checkpointing.durable) return PD_OK;
    if (job->steps.values.at[PD_JOB_KEY_DURABILITY] == PD_DURABLE_NONE)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s has no checkpoints: its durability is none",
                       job->steps.name);
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s has no checkpoints, because this server has no directory for them (server.state_dir)",
                   job->steps.name);
}

void pd_checkpoint_ask(pd_job *job, pd_request *request, uint64_t now_ns)
{
    uint64_t *deadline_ns = &request->u.checkpoint.wait_ns;
    pd_error err;
    int rc = request->u.checkpoint.job_name != NULL || pd_rank_speaker(job, request, &err) != NULL ? PD_OK : err.code;

    if (rc == PD_OK) rc = check_ask(job, &err);
    if (rc != PD_OK) {
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    if (request->u.checkpoint.step == 0) request->u.checkpoint.step = pd_steps_least(&job->steps);
    request->u.checkpoint.changes = job->checkpointing.changes;
    if (job->checkpointing.newest.exists && pd_checkpoint_suffices(job, request)) {
        pd_checkpoint_answer(job, request, 0, 0);
        return;
    }
    if (__builtin_add_overflow(now_ns, *deadline_ns, deadline_ns)) *deadline_ns = UINT64_MAX;
    pd_request_queue_add(&job->checkpointing.asked, request);
    pd_checkpoint_look(job, now_ns);
}

/* Logs that a checkpoint could not be written. Of many failures in a row, logs only those whose number is a power of
 * two: on a full disk a fast job would otherwise log a hundred lines a second. */
static void say_failure(const pd_job *job, const pd_checkpoint_image *image)
{
    uint64_t unwritten = job->checkpointing.counts.unwritten;
    char next[64] = "", many[48] = "";

    if (job->checkpointing.last.begun) {
        pd_checkpoint_policy_say_lost(job, &image->error);
        return;
    }
    if (!pd_is_power_of_two(unwritten)) return;
    if (unwritten > 1) snprintf(many, sizeof many, " (%" PRIu64 " in a row)", unwritten);
    if (pd_retry_is_by_time(job))
        snprintf(next, sizeof next, "; it is tried again by %.0f s from now",
                 (double)job->checkpointing.retry.wait_ns / 1e9);
    else if (job->checkpointing.next != UINT64_MAX)
        snprintf(next, sizeof next, "; it is tried again at step %" PRIu64, job->checkpointing.next);
    pd_say(job->steps.outbox, PD_SAY_WARNING,
           (pd_log_facts){ .job = job->steps.name, .step = &image->step, .code = image->error.code },
           "the checkpoint of step %" PRIu64 " could not be written: %.300s%s%s", image->step, image->error.text, next,
           many);
}

static void note_failure(pd_job *job, const pd_checkpoint_image *image)
{
    pd_error err;

    pd_fail(&err, PD_UNAVAILABLE, "job %.100s: the checkpoint of step %" PRIu64 " could not be written: %.300s",
            job->steps.name, image->step, image->error.text);
    job->checkpointing.counts.unwritten++;
    say_failure(job, image);
    pd_checkpoint_failed(job, image->step, &err);
    snprintf(job->checkpointing.error, sizeof job->checkpointing.error, "%.250s", image->error.text);
}

/* Notes the step of a fragment that the checkpoint has. A cut that was taken early may have an earlier one. */
static void note_fragment(pd_fragment *fragment, const pd_checkpoint_image *image)
{
    fragment->kept = image->params[fragment->first].step;
    if (fragment->kept > fragment->durable) fragment->durable = fragment->kept;
}

static void note_success(pd_job *job, const pd_checkpoint_image *image, uint64_t now_ns)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;

    checkpointing->newest = (pd_newest_checkpoint){ .exists = true,
                                                    .step = image->step,
                                                    .place = image->place,
                                                    .bytes = image->bytes,
                                                    .durable_ns = now_ns,
                                                    .written_ns = image->ns,
                                                    .changes = checkpointing->cut.changes };
    if (image->step > checkpointing->durable_step) checkpointing->durable_step = image->step;
    if (image->place > checkpointing->durable_place) checkpointing->durable_place = image->place;
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) note_fragment(&job->steps.fragments[f], image);
    checkpointing->kept = image->kept;
    checkpointing->counts.written++;
    checkpointing->counts.unwritten = 0;
    checkpointing->error[0] = '\0';
    pd_checkpoint_ended(job);
    pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name, .step = &image->step },
           "step %" PRIu64 " is durable: a checkpoint of %" PRIu64 " bytes was written in %" PRIu64 " ms", image->step,
           image->bytes, image->ns / MS);
}

static void settle(pd_job *job, pd_checkpoint_image *image, pd_request *request, uint64_t now_ns)
{
    job->checkpointing.writing = false;
    job->checkpointing.results++;
    pd_checkpoint_spare(job, image);
    pd_account_give(&job->steps.account, job->checkpointing.cut.counted);
    job->checkpointing.cut.counted = 0;
    if (image->error.code != PD_OK && !PD_MUTANT(failed_counts)) {
        note_failure(job, image);
        pd_wal_checkpointed(job, false);
        pd_pause_begin(job);
        pd_request_free(request);
        return;
    }
    note_success(job, image, now_ns);
    pd_wal_checkpointed(job, true);
    pd_retry_end(job);
    pd_pause_end(job);
    pd_checkpoint_policy_answer(job, request);
    pd_checkpoint_answer_all(job, image->bytes, image->ns);
}

void pd_checkpoint_done(pd_job *job, pd_effects *outbox, pd_request *request, uint64_t now_ns)
{
    pd_checkpoint_image *image = request->u.checkpoint_image;

    pd_checkpoint_image_drop_weights(image);
    if (image->ended || job == NULL) {
        if (image->error.code != PD_OK)
            pd_say(outbox, PD_SAY_WARNING, (pd_log_facts){ .job = image->job, .code = image->error.code },
                   "could not record the end of the job on the disk, or write its last checkpoint: %.300s",
                   image->error.text);
        pd_request_free(request);
    } else {
        settle(job, image, request, now_ns);
        pd_checkpoint_look(job, now_ns);
    }
    pd_checkpoint_image_free(image);
}

uint64_t pd_checkpoint_next_tick(const pd_job *job)
{
    const pd_checkpoint *making = job->checkpointing.making;
    uint64_t at = making != NULL && !making->headed ? making->until_ns : UINT64_MAX;

    if (pd_sets_next_tick(job) < at) at = pd_sets_next_tick(job);
    if (pd_retry_next_tick(job) < at) at = pd_retry_next_tick(job);
    if (next_watch(job) < at) at = next_watch(job);
    for (const pd_request *request = job->checkpointing.asked.first; request != NULL;
         request = pd_request_next(request))
        if (request->u.checkpoint.wait_ns < at) at = request->u.checkpoint.wait_ns;
    return at;
}

static void describe_wait(const pd_job *job, const pd_request *request, pd_error *err)
{
    const pd_checkpoint *making = job->checkpointing.making;

    if (making != NULL && (!making->headed || making->open > 0))
        pd_checkpoint_describe_lag(job, err);
    else if (making != NULL || job->checkpointing.writing)
        pd_fail(err, PD_DEADLINE_EXCEEDED,
                "job %.100s: its checkpoint is still being written: ask again, and wait longer", job->steps.name);
    else if (!has_state(job))
        pd_fail(err, PD_DEADLINE_EXCEEDED, "job %.100s: its initial weights are incomplete", job->steps.name);
    else
        pd_fail(err, PD_DEADLINE_EXCEEDED,
                "job %.100s has not reached step %" PRIu64 ", of which a checkpoint was asked for", job->steps.name,
                request->u.checkpoint.step);
}

static void refuse_late(pd_job *job, uint64_t now_ns)
{
    pd_request_queue all = pd_request_queue_take_all(&job->checkpointing.asked);
    pd_request *request;
    pd_error err;

    while ((request = pd_request_queue_take(&all)) != NULL) {
        if (now_ns < request->u.checkpoint.wait_ns) {
            pd_request_queue_add(&job->checkpointing.asked, request);
            continue;
        }
        describe_wait(job, request, &err);
        pd_checkpoint_refuse(job, request, &err);
    }
}

void pd_checkpoint_tick(pd_job *job, uint64_t now_ns)
{
    if (!job->checkpointing.durable) return;
    pd_sets_tick(job, now_ns);
    if (now_ns >= pd_checkpoint_next_tick(job)) refuse_late(job, now_ns);
    tick_watch(job, now_ns);
    pd_checkpoint_look(job, now_ns);
}
