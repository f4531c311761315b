/* checkpoint.c - makes a checkpoint of a job: begins the consistent cut, copies the state, adds the results of
 * preconditioner tasks that return later, and hands the checkpoint over. */
#include "checkpoint.h"

#include "checkpoint_state.h"
#include "wal.h"
#include "pending_sets.h"
#include "wal_records.h"
#include "consistent_cut.h"
#include "export.h"
#include "fragment_ranks.h"
#include "global_clip.h"
#include "header_image.h"
#include "import.h"
#include "checkpoint_policy.h"
#include "worker_states.h"
#include "pages.h"
#include "param_image.h"
#include "param_set.h"
#include "riders.h"
#include "plan_bytes.h"
#include "mutant.h"
#include "save.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Estimated time to copy a parameter, in ns of one core: PARAM_NS, and BYTE_NS for each byte of its state. This
 * includes page faults in new memory. */
#define PARAM_NS 2000.0
#define BYTE_NS 0.2
#define STATE_NS 100.0 /* estimated ns to copy a worker state, with BYTE_NS for each byte in addition */

/* Most bytes of a parameter in the image besides the state of its optimizer: counters, name and scalars. */
enum { RECORD_BYTES = 1024 + PD_MAX_SCALARS * sizeof(pd_scalar_mean) };

/* Up to SLICE parameters that are copied in parallel. budget_ns: time left to copy, in ns of one core. */
enum { SLICE = 64 };
typedef struct pd_slice {
    pd_param *param[SLICE];
    size_t n;
    double budget_ns;
} pd_slice;

/* Memory of copies of at least so many bytes is kept for the next checkpoint. Memory of smaller copies is freed. */
enum { SPARE_LEAST = 64 << 10 };

/* Longest time (ns) that a checkpoint waits until all parameters have reached its step. It is LAST_WAIT_NS when the
 * server drains, because then all rounds that can end have ended, and only steps under way remain. */
static const uint64_t WAIT_NS = 10 * 1000000000ull, LAST_WAIT_NS = 2 * 1000000000ull;

static int name_params(pd_checkpoint_image *image, const pd_steps *steps)
{
    for (; image->n_params < steps->n_params; image->n_params++) {
        const pd_param *param = &steps->params[image->n_params];
        pd_checkpoint_param *to = &image->params[image->n_params];
        if ((to->name = strdup(param->name)) == NULL) return PD_NO_MEMORY;
        to->shape = param->shape;
        to->elements = param->elements;
    }
    return PD_OK;
}

int pd_checkpoint_image_of(pd_checkpoint_image **out, const pd_job *job)
{
    pd_checkpoint_image *image = *out = calloc(1, sizeof *image);

    if (image == NULL) return PD_NO_MEMORY;
    image->number = job->steps.number;
    image->creator = job->saved.creator;
    image->keep = job->steps.values.at[PD_JOB_KEY_CHECKPOINT_KEEP];
    /* Where sets are open, a shard goes back alone. */
    image->has_common = job->checkpointing.common > 0 || (job->steps.shards > 1 && !job->steps.sets.open);
    image->common = job->checkpointing.floored ? job->checkpointing.floor : 0;
    image->params = calloc(job->steps.n_params, sizeof *image->params);
    image->worker_states = calloc(job->steps.members.ranks, sizeof *image->worker_states);
    if (image->params == NULL || image->worker_states == NULL || (image->job = strdup(job->steps.name)) == NULL)
        return PD_NO_MEMORY;
    return name_params(image, &job->steps);
}

void pd_checkpoint_image_drop_weights(pd_checkpoint_image *image)
{
    for (uint32_t i = 0; i < image->n_params; i++) {
        pd_published_unref(image->params[i].published);
        image->params[i].published = NULL;
    }
}

static void free_archive(pd_archive *archive)
{
    uint8_t *bytes;
    size_t n;

    if (archive == NULL) return;
    pd_archive_fail(archive, PD_CANCELLED, "not needed any more");
    (void)pd_archive_end(archive, &bytes, &n, NULL);
    free(archive);
}

static void free_making(pd_job *job)
{
    pd_checkpoint *making = job->checkpointing.making;

    job->checkpointing.making = NULL;
    if (making == NULL) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++) free_archive(making->parts[i].archive);
    if (making->image != NULL) pd_checkpoint_image_drop_weights(making->image);
    pd_checkpoint_image_free(making->image);
    pd_effect_free(making->effect);
    free(making);
}

/* Ends the consistent cut of the checkpoint, so that all quiesced parameters continue. */
static void end_cut(pd_job *job, uint64_t now_ns)
{
    pd_checkpoint *making = job->checkpointing.making;

    if (making->cut_ended) return;
    making->cut_ended = true;
    pd_cut_end(&job->steps);
    pd_riders_release(&job->steps);
    pd_export_go_on(job, now_ns);
}

/* Gives up the checkpoint that is being made: logs why, and refuses the requests that wait for it. */
static void give_up(pd_job *job, const pd_error *err, uint64_t now_ns)
{
    uint64_t step = job->checkpointing.cut.step;

    if (job->checkpointing.last.begun)
        pd_checkpoint_policy_say_lost(job, err);
    else
        pd_say(job->steps.outbox, PD_SAY_WARNING,
               (pd_log_facts){ .job = job->steps.name, .step = &step, .code = err->code },
               "the checkpoint of step %" PRIu64 " was given up: %.300s", step, err->text);
    end_cut(job, now_ns);
    free_making(job);
    pd_wal_checkpointed(job, false);
    pd_checkpoint_failed(job, step, err);
}

/* Returns whether all parameters can be copied at the steps that they have: no step is under way, no gradients are
 * being clipped together, and no set of ranks is fixed for the next one. */
static bool is_at_rest(const pd_job *job)
{
    if (pd_global_clip_runs(&job->steps) || pd_fragments_have_set(&job->steps)) return false;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        if (param->stage >= PD_READY || !pd_optim_may_be_written(param->optim)) return false;
    }
    return true;
}

void pd_checkpoint_describe_lag(const pd_job *job, pd_error *err)
{
    const pd_param *late = job->checkpointing.making->cut_ended ? NULL : pd_cut_awaited(&job->steps);
    char ranks[160];

    if (late == NULL) {
        pd_fail(err, PD_DEADLINE_EXCEEDED, "job %.100s: %u results of preconditioner tasks are still missing",
                job->steps.name, job->steps.tasks_out);
        return;
    }
    pd_round_missing(&late->round, ranks, sizeof ranks);
    if (late->round.open && ranks[0] == '\0')
        pd_fail(err, PD_DEADLINE_EXCEEDED, "job %.100s: step %" PRIu64 " of %.160s is still under way", job->steps.name,
                late->saved.step + 1, late->name);
    else
        pd_fail(err, PD_DEADLINE_EXCEEDED,
                "job %.100s: %.160s has not reached step %" PRIu64 ", which others have: waiting for %s%s",
                job->steps.name, late->name, job->steps.cut->parts[late->index].step,
                late->round.open ? "rank " : "every rank", late->round.open ? ranks : "");
}

static int write_header(pd_job *job, pd_error *err)
{
    pd_checkpoint *making = job->checkpointing.making;
    pd_archive archive;

    making->headed = job->steps.cut->fixed = true;
    pd_fragments_wake(&job->steps);
    job->checkpointing.cut.changes = job->checkpointing.changes;
    if (pd_wal_put_overrides(&job->steps, err) != PD_OK) return err->code;
    pd_archive_begin_write(&archive);
    pd_header_image_write(&archive, job);
    return pd_archive_end(&archive, &making->image->head, &making->image->head_bytes, err);
}

/* Writes the header if all parameters have reached the step of the checkpoint, or if the time to wait is over and they
 * can be copied at the steps that they have. Otherwise waits, or gives the checkpoint up. */
static void await_params(pd_job *job, uint64_t now_ns)
{
    pd_checkpoint *making = job->checkpointing.making;
    bool late = job->steps.cut->behind > 0;
    pd_error err;

    if (job->checkpointing.last.state == PD_LAST_WANTED) job->checkpointing.last.begun = making->last = true;
    if (pd_import_writes(job)) {
        pd_fail(&err, PD_FAILED_PRECONDITION, "optimizer state is being imported");
        give_up(job, &err, now_ns);
        return;
    }
    if (late && !making->last && now_ns < making->until_ns) return;
    if (late && !is_at_rest(job)) {
        if (now_ns < making->until_ns) return;
        pd_checkpoint_describe_lag(job, &err);
        give_up(job, &err, now_ns);
        return;
    }
    if (late) pd_cut_take_early(&job->steps);
    if (write_header(job, &err) != PD_OK) {
        give_up(job, &err, now_ns);
        return;
    }
    pd_wal_copied(job, pd_cut_is_even(job->steps.cut));
}

static void choose(pd_job *job, pd_param *param, pd_slice *slice)
{
    slice->budget_ns -= PARAM_NS + BYTE_NS * (double)pd_optim_state_bytes(param->optim);
    slice->param[slice->n++] = param;
    job->checkpointing.making->parts[param->index].chosen = true;
}

/* Chooses the parameters to copy next: at least one, and as many as the time allows. Quiesced parameters come first. */
static void choose_some(pd_job *job, pd_slice *slice)
{
    pd_checkpoint *making = job->checkpointing.making;

    slice->n = 0;
    for (pd_param *param = job->steps.queue.stopped; param != NULL; param = param->links.next_ready)
        if (slice->n < SLICE && slice->budget_ns > 0 && pd_cut_stops(&job->steps, param)) choose(job, param, slice);
    for (; making->at < job->steps.n_params && slice->n < SLICE && slice->budget_ns > 0; making->at++)
        if (!making->parts[making->at].chosen) choose(job, &job->steps.params[making->at], slice);
}

/* Returns the size of the memory into which a parameter's state is copied. */
static size_t copy_bytes(const pd_param *param)
{
    return (size_t)pd_plan_image_bytes(pd_optim_plan(param->optim)) + RECORD_BYTES;
}

/* Returns memory for the copy of a parameter's state: memory of an earlier checkpoint, or new memory. NULL: out of
 * memory. */
static void *take_memory(pd_job *job, const pd_param *param)
{
    uint8_t *spare = NULL;

    if (job->checkpointing.spares.at != NULL) {
        spare = job->checkpointing.spares.at[param->index];
        job->checkpointing.spares.at[param->index] = NULL;
    }
    return spare != NULL ? spare : pd_pages_new(copy_bytes(param));
}

void pd_checkpoint_spare(pd_job *job, pd_checkpoint_image *image)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;

    if (checkpointing->spares.at == NULL &&
        (checkpointing->spares.at = calloc(image->n_params, sizeof *checkpointing->spares.at)) != NULL)
        checkpointing->spares.n = image->n_params;
    for (uint32_t i = 0; i < checkpointing->spares.n; i++) {
        if (copy_bytes(&job->steps.params[i]) < SPARE_LEAST || checkpointing->spares.at[i] != NULL) continue;
        checkpointing->spares.at[i] = image->params[i].state;
        image->params[i].state = NULL;
    }
}

/* Ends the archive of a parameter. Shrinks the memory of a small copy to its size. The memory of a large copy keeps its
 * size, because the next checkpoint uses it again. */
static int end_archive(pd_archive *archive, pd_checkpoint_param *to, const pd_param *param, pd_error *err)
{
    uint8_t *less;
    int rc;

    pd_param_image_write_end(archive);
    rc = pd_archive_end(archive, &to->state, &to->state_bytes, err);
    if (rc != PD_OK || copy_bytes(param) >= SPARE_LEAST) return rc;
    if ((less = realloc(to->state, to->state_bytes)) != NULL) to->state = less;
    return PD_OK;
}

/* Copies the state of a parameter. If preconditioner tasks of the parameter are under way, its archive stays open for
 * their results. Several threads may copy different parameters at the same time. */
static int copy_state(pd_job *job, pd_param *param, pd_error *err)
{
    pd_checkpoint *making = job->checkpointing.making;
    pd_checkpoint_part *part = &making->parts[param->index];
    pd_archive *archive = part->archive = malloc(sizeof *archive);
    void *memory = archive != NULL ? take_memory(job, param) : NULL;
    int rc;

    if (memory == NULL) {
        free(archive);
        part->archive = NULL;
        return pd_fail(err, PD_NO_MEMORY, "out of memory for a copy of %.160s", param->name);
    }
    pd_archive_begin_write(archive);
    pd_archive_use(archive, memory, copy_bytes(param));
    part->awaited = pd_param_image_write(archive, &job->steps, param);
    if (pd_archive_status(archive) == PD_OK && part->awaited > 0) return PD_OK;
    part->awaited = 0;
    part->archive = NULL;
    rc = end_archive(archive, &making->image->params[param->index], param, err);
    free(archive);
    return rc;
}

/* Adds a parameter whose state was copied to the checkpoint, and lets the parameter continue. */
static void add_copy(pd_job *job, pd_param *param)
{
    pd_checkpoint *making = job->checkpointing.making;
    pd_checkpoint_param *to = &making->image->params[param->index];

    to->step = param->saved.step;
    to->published = job->steps.cut->parts[param->index].weights;
    to->published->store_refs++;
    to->weights = to->published->at[PD_F32];
    making->open += making->parts[param->index].archive != NULL;
    making->copied++;
    pd_cut_pass(&job->steps, param);
    pd_riders_release_one(&job->steps, param);
}

static int copy_slice(pd_job *job, const pd_slice *slice, pd_error *err)
{
    pd_error own[SLICE] = { 0 };

#pragma omp parallel for num_threads(job->steps.config->threads) schedule(dynamic) if (slice->n > 1)
    for (size_t i = 0; i < slice->n; i++) (void)copy_state(job, slice->param[i], &own[i]);
    for (size_t i = 0; i < slice->n; i++)
        if (own[i].code != PD_OK)
            return pd_fail(err, own[i].code, "the state of %.160s could not be copied: %.200s", slice->param[i]->name,
                           own[i].text);
    for (size_t i = 0; i < slice->n; i++) add_copy(job, slice->param[i]);
    return PD_OK;
}

static int copy_worker_state(pd_job *job, pd_checkpoint_image *image, uint32_t rank, pd_error *err)
{
    const pd_worker_state *state =
        pd_worker_states_find(&job->ranks[rank], image->step + PD_MUTANT(worker_state_of_another_step));
    pd_worker_state *to = &image->worker_states[image->n_worker_states];

    if (state == NULL) return PD_OK;
    if (pd_job_check_total(job, job->checkpointing.cut.counted + state->bytes, err) != PD_OK) return err->code;
    *to = (pd_worker_state){ .rank = rank, .step = state->step, .bytes = state->bytes };
    if (state->bytes > 0 && (to->at = malloc(state->bytes)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for worker states");
    if (state->bytes > 0) memcpy(to->at, state->at, state->bytes);
    image->n_worker_states++;
    job->checkpointing.cut.counted += state->bytes;
    return PD_OK;
}

/* Copies worker states until all are copied or the time budget is used. */
static int copy_worker_states(pd_job *job, double *budget_ns, pd_error *err)
{
    pd_checkpoint *making = job->checkpointing.making;
    pd_checkpoint_image *image = making->image;

    if (making->states_at == 0) job->checkpointing.cut.counted = 0;
    image->step = UINT64_MAX;
    for (uint32_t i = 0; i < image->n_params; i++)
        if (image->params[i].step < image->step) image->step = image->params[i].step;
    image->place = job->steps.n_fragments > 1 ? job->checkpointing.cut.place : image->step;
    while (*budget_ns > 0 && making->states_at < job->steps.members.ranks) {
        uint64_t before = job->checkpointing.cut.counted;
        if (copy_worker_state(job, image, making->states_at++, err) != PD_OK) return err->code;
        *budget_ns -= STATE_NS + BYTE_NS * (double)(job->checkpointing.cut.counted - before);
    }
    return PD_OK;
}

/* Returns whether the states of all parameters are copied, with all results of preconditioner tasks. */
static bool is_complete(const pd_job *job)
{
    const pd_checkpoint *making = job->checkpointing.making;

    return making->copied == job->steps.n_params && making->open == 0 && !making->failed;
}

bool pd_checkpoint_has_work(const pd_job *job)
{
    const pd_checkpoint *making = job->checkpointing.making;

    if (making == NULL || !making->headed) return false;
    return making->copied < job->steps.n_params || (is_complete(job) && making->states_at < job->steps.members.ranks);
}

/* Copies parameters until all are copied or the time budget is used. */
static int copy_params(pd_job *job, double *budget_ns, pd_error *err)
{
    pd_slice slice = { .budget_ns = *budget_ns * job->steps.config->threads };
    int rc = PD_OK;

    while (rc == PD_OK && job->checkpointing.making->copied < job->steps.n_params && slice.budget_ns > 0) {
        choose_some(job, &slice);
        rc = copy_slice(job, &slice, err);
    }
    *budget_ns = slice.budget_ns / job->steps.config->threads;
    return rc;
}

void pd_checkpoint_work(pd_job *job, uint64_t now_ns)
{
    double budget_ns = job->steps.config->batch_ns / 2;
    pd_error err;
    int rc = copy_params(job, &budget_ns, &err);

    if (rc == PD_OK && job->checkpointing.making->copied == job->steps.n_params) end_cut(job, now_ns);
    if (rc == PD_OK && is_complete(job)) rc = copy_worker_states(job, &budget_ns, &err);
    if (rc != PD_OK) give_up(job, &err, now_ns);
}

void pd_checkpoint_task(pd_job *job, uint32_t param, struct pd_task *task)
{
    pd_checkpoint *making = job->checkpointing.making;
    pd_checkpoint_part *part = making != NULL ? &making->parts[param] : NULL;
    pd_archive *archive = part != NULL ? part->archive : NULL;
    pd_error err;

    if (archive == NULL || !pd_optim_write_task(archive, task) || --part->awaited > 0) return;
    part->archive = NULL;
    making->open--;
    if (end_archive(archive, &making->image->params[param], &job->steps.params[param], &err) != PD_OK) {
        making->failed = true;
        making->error = err;
    }
    free(archive);
}

/* Returns whether the checkpoint is held back until the disk has the record of its last step. A shard of a cluster can
 * have to go back behind its newest checkpoint, by records. With a checkpoint on the disk without that record, a
 * restart would have to begin a chain of records, and nothing would lead to the steps before. The WAL thread returns
 * each record, and a stream that has failed holds nothing back. */
static bool awaits_record(const pd_job *job)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;

    return job->steps.shards > 1 && job->steps.n_fragments == 1 && pd_wal_records_steps(&job->steps) &&
           !checkpointing->steps.waits && checkpointing->cut.place > job->steps.wal->inputs.base &&
           checkpointing->cut.place > checkpointing->durable_place;
}

static void hand_over(pd_job *job)
{
    pd_checkpoint *making = job->checkpointing.making;
    pd_effect *effect = making->effect;

    pd_account_take(&job->steps.account, job->checkpointing.cut.counted);
    effect->u.checkpoint_image = making->image;
    making->image = NULL;
    making->effect = NULL;
    free_making(job);
    job->checkpointing.writing = job->checkpointing.on_disk = true;
    pd_effects_add(job->steps.outbox, effect);
}

void pd_checkpoint_go_on(pd_job *job, uint64_t now_ns)
{
    pd_checkpoint *making = job->checkpointing.making;

    if (!making->headed) {
        await_params(job, now_ns);
    } else if (making->failed) {
        const pd_error err = making->error;
        give_up(job, &err, now_ns);
    } else if (is_complete(job) && making->states_at == job->steps.members.ranks && !awaits_record(job)) {
        hand_over(job);
    }
}

/* Notes at which steps the parameters are in the checkpoint. */
static void note_cut(pd_job *job)
{
    job->checkpointing.cut.step = job->steps.cut->step;
    job->checkpointing.cut.place = job->steps.cut->place;
    job->checkpointing.cut.least = UINT64_MAX;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        uint64_t step = job->steps.cut->parts[i].step;
        if (step < job->checkpointing.cut.least) job->checkpointing.cut.least = step;
    }
}

static int make(pd_job *job, uint64_t step, pd_error *err)
{
    pd_checkpoint *making = calloc(1, sizeof *making + job->steps.n_params * sizeof making->parts[0]);

    job->checkpointing.making = making;
    job->checkpointing.cut.step = step;
    if (making == NULL || pd_checkpoint_image_of(&making->image, job) != PD_OK ||
        (making->effect = pd_job_effect(job, PD_EFF_WRITE_CHECKPOINT)) == NULL ||
        pd_cut_begin(&job->steps, step, true) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for its records");
    note_cut(job);
    return PD_OK;
}

void pd_checkpoint_begin(pd_job *job, uint64_t step, bool last, uint64_t now_ns)
{
    pd_error err;

    if (make(job, step, &err) != PD_OK) {
        if (job->checkpointing.making != NULL) job->checkpointing.making->cut_ended = true;
        free_making(job);
        pd_say(job->steps.outbox, PD_SAY_WARNING,
               (pd_log_facts){ .job = job->steps.name, .step = &step, .code = PD_NO_MEMORY },
               "the checkpoint of step %" PRIu64 " was given up: %.300s", step, err.text);
        pd_wal_checkpointed(job, false);
        pd_checkpoint_failed(job, step, &err);
        return;
    }
    job->checkpointing.making->last = job->checkpointing.last.begun = last;
    job->checkpointing.making->until_ns = now_ns + (last ? LAST_WAIT_NS : WAIT_NS);
    pd_checkpoint_go_on(job, now_ns);
}

void pd_checkpoint_release(pd_job *job, const pd_error *err)
{
    pd_checkpoint *making = job->checkpointing.making;

    pd_wal_release(job, err);
    if (making != NULL && !making->cut_ended) pd_cut_end(&job->steps);
    free_making(job);
    pd_request_queue_refuse(&job->checkpointing.asked, job->steps.outbox, err);
}
