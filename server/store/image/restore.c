/* restore.c - makes a job from a checkpoint: at once when the server starts, in parts when a job goes back. */
#include "restore.h"

#include "fragment_ranks.h"
#include "header_image.h"
#include "mutant.h"
#include "param_image.h"
#include "param_set.h"
#include "repeats.h"
#include "wal_records.h"
#include "wal_replay.h"
#include "worker_states.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int check_header(const pd_job *job, const pd_checkpoint_image *image, pd_error *err)
{
    if (strcmp(job->steps.name, image->job) != 0)
        return pd_fail(err, PD_DATA_LOSS, "the checkpoint is of job %.100s, but its header of job %.100s", image->job,
                       job->steps.name);
    if (job->saved.creator != image->creator)
        return pd_fail(err, PD_DATA_LOSS,
                       "job %.100s: the checkpoint has creator %016" PRIx64 ", but its header %016" PRIx64, image->job,
                       image->creator, job->saved.creator);
    if (image->foreign && job->steps.values.at[PD_JOB_KEY_EXACT] != 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s: the checkpoint was made with other BLAS kernels or instructions, so later steps "
                       "may differ in their last bits, which exact = yes refuses",
                       image->job);
    if (job->steps.n_params == image->n_params) return PD_OK;
    return pd_fail(err, PD_DATA_LOSS, "job %.100s: the checkpoint has %u parameters, but its header %u", image->job,
                   image->n_params, job->steps.n_params);
}

static int check_param(const pd_param *param, const pd_checkpoint_param *image, uint32_t i, pd_error *err)
{
    char ours[128], theirs[128];

    if (image->name == NULL || strcmp(param->name, image->name) != 0)
        return pd_fail(err, PD_DATA_LOSS, "parameter %u of the checkpoint is %.160s, but %.160s in its header", i,
                       image->name != NULL ? image->name : "without a name", param->name);
    if (!pd_shape_equal(&param->shape, &image->shape) || param->elements != image->elements)
        return pd_fail(err, PD_DATA_LOSS,
                       "%.160s has the shape %s and %lld elements in the checkpoint, but %s and %lld in its header",
                       param->name, pd_shape_text(&image->shape, theirs, sizeof theirs), (long long)image->elements,
                       pd_shape_text(&param->shape, ours, sizeof ours), (long long)param->elements);
    return PD_OK;
}

static int read_header(const pd_jobs *jobs, const pd_job_env *env, const pd_checkpoint_image *image, pd_job **out,
                       pd_error *err)
{
    pd_archive archive;
    int rc;

    pd_archive_begin_read(&archive, image->head, image->head_bytes);
    pd_header_image_read(&archive, jobs, env, out);
    rc = pd_archive_end(&archive, NULL, NULL, err);
    return rc != PD_OK ? rc : check_header(*out, image, err);
}

static int read_param(pd_steps *steps, pd_param *param, const pd_checkpoint_param *image, uint32_t i, pd_error *err)
{
    pd_archive archive;
    int rc = check_param(param, image, i, err);

    if (rc != PD_OK) return rc;
    pd_archive_begin_read(&archive, image->state, image->state_bytes);
    pd_param_image_visit(&archive, steps, param);
    if ((rc = pd_archive_end(&archive, NULL, NULL, err)) != PD_OK) return rc;
    if (param->saved.step != image->step)
        return pd_fail(err, PD_DATA_LOSS, "%.160s is at step %" PRIu64 " in the checkpoint, but its state at %" PRIu64,
                       param->name, image->step, param->saved.step);
    if (PD_MUTANT(counted_in_cut_and_again) && param->saved.step > 0) param->saved.step--;
    return PD_OK;
}

/* Reads the weights of all parameters from the disk into new published versions (pd_param.next). */
static int read_weights(pd_steps *steps, const pd_checkpoint_image *image, pd_error *err)
{
    float **to = calloc(image->n_params + 1u, sizeof *to);
    int rc;

    if (to == NULL) return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for its weights", steps->name);
    for (uint32_t i = 0; i < image->n_params; i++) to[i] = steps->params[i].next->at[PD_F32];
    rc = image->read_weights(image->read_arg, to, err);
    free(to);
    return rc;
}

static int take_worker_state(pd_job *job, const pd_worker_state *state, pd_error *err)
{
    if (state->rank >= job->steps.members.ranks || state->bytes > PD_WORKER_STATE_MAX)
        return pd_fail(err, PD_DATA_LOSS, "job %.100s: a worker state of rank %u with %zu bytes does not fit %u ranks",
                       job->steps.name, state->rank, state->bytes, job->steps.members.ranks);
    return pd_worker_states_put(job, &job->ranks[state->rank], state->step, state->at, state->bytes, err);
}

/* Returns whether the parameters of each fragment are all at one step. */
static bool is_even(const pd_job *job)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        if (param->saved.step != job->steps.params[param->fragment->first].saved.step) return false;
    }
    return true;
}

/* Notes which steps of fragments the checkpoint has, from which the job was restored. */
static void note_kept(pd_job *job)
{
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) {
        pd_fragment *fragment = &job->steps.fragments[f];
        fragment->kept = fragment->durable = job->steps.params[fragment->first].saved.step;
    }
}

/* Calls config->warm, so that memory pages for the weights of this step and of the next one are populated before their
 * use. */
static void warm(const pd_store_config *config, const pd_job *job)
{
    const pd_segment *segment = pd_shared_weights_segment(job->steps.memory.shared);
    uint64_t bytes = 0;

    if (segment == NULL || config->warm == NULL) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        bytes += 2 * sizeof(float) * (uint64_t)job->steps.params[i].elements;
    config->warm(config->warm_arg, segment->at, bytes < segment->bytes ? bytes : segment->bytes);
}

/* ---- parts ---- */

/* Nanoseconds of one core, by estimate, for a parameter, and for each byte of its state and weights. */
#define PARAM_NS 2000.0
#define BYTE_NS 0.5

/* Most elements of weights that are copied at once: 16 MiB. */
enum { COPIED_AT_ONCE = 4 << 20 };

struct pd_restoring {
    const pd_store_config *config; /* borrowed */
    const pd_checkpoint_image *image;
    pd_job *job;           /* in no table of jobs yet */
    uint32_t states;       /* number of parameters whose state was read */
    bool checked;          /* all states were read, and the file of the states is intact */
    uint32_t weights;      /* number of parameters whose weights were read */
    int64_t elements;      /* number of elements of the next parameter's weights that were copied */
    bool complete;         /* the job could be used: its weights are published */
    pd_wal_repeat *repeat; /* the step of the WAL that is being repeated; NULL: none */
};

/* Reads the state of the next parameter. Returns the estimated time. */
static double read_next_state(pd_restoring *r, int *rc, pd_error *err)
{
    const pd_checkpoint_image *image = r->image;
    uint32_t i = r->states;

    *rc = image->read_state != NULL ? image->read_state(image->read_arg, i, err) : PD_OK;
    if (*rc == PD_OK) *rc = read_param(&r->job->steps, &r->job->steps.params[i], &image->params[i], i, err);
    if (*rc == PD_OK) r->states++;
    return PARAM_NS + BYTE_NS * (double)image->params[i].state_bytes;
}

/* Copies some of the next parameter's weights, which are in memory. Returns the estimated time. */
static double copy_next_weights(pd_restoring *r, int *rc, pd_error *err)
{
    const pd_checkpoint_param *from = &r->image->params[r->weights];
    const pd_param *to = &r->job->steps.params[r->weights];
    int64_t n = from->elements - r->elements;

    if (from->weights == NULL) {
        *rc = pd_fail(err, PD_DATA_LOSS, "the checkpoint has no weights of %.160s", from->name);
        return 0;
    }
    if (n > COPIED_AT_ONCE) n = COPIED_AT_ONCE;
    memcpy((float *)to->next->at[PD_F32] + r->elements, from->weights + r->elements, (size_t)n * sizeof(float));
    r->elements += n;
    if (r->elements == from->elements) {
        r->elements = 0;
        r->weights++;
    }
    return PARAM_NS + BYTE_NS * (double)n * sizeof(float);
}

/* Reads the next part. Returns the estimated time. */
static double read_next(pd_restoring *r, int *rc, pd_error *err)
{
    const pd_checkpoint_image *image = r->image;

    if (r->states < image->n_params) return read_next_state(r, rc, err);
    if (!r->checked) {
        r->checked = true;
        if (image->read_state != NULL) *rc = image->read_state(image->read_arg, image->n_params, err);
        return PARAM_NS;
    }
    if (image->read_weights == NULL) return copy_next_weights(r, rc, err);
    *rc = read_weights(&r->job->steps, image, err);
    r->weights = image->n_params;
    return PARAM_NS;
}

int pd_restore_begin(pd_restoring **out, const pd_jobs *jobs, const pd_job_env *env, const pd_checkpoint_image *image,
                     pd_error *err)
{
    pd_restoring *r = *out = calloc(1, sizeof *r);
    int rc;

    if (r == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", image->job);
    *r = (pd_restoring){ .config = env->config, .image = image };
    rc = read_header(jobs, env, image, &r->job, err);
    if (rc == PD_OK) {
        warm(env->config, r->job);
        return PD_OK;
    }
    pd_restore_abandon(r);
    *out = NULL;
    return rc;
}

bool pd_restore_some(pd_restoring *r, double budget_ns, int *rc, pd_error *err)
{
    *rc = PD_OK;
    while (*rc == PD_OK && (!r->checked || r->weights < r->image->n_params)) {
        budget_ns -= read_next(r, rc, err);
        if (budget_ns < 0) return *rc != PD_OK || (r->checked && r->weights == r->image->n_params);
    }
    return true;
}

/* Sets what the job knows of its checkpoints: the one from which it was restored is its newest. */
static void set_checkpointing(pd_job *job, const pd_checkpoint_image *image, uint64_t now_ns)
{
    pd_checkpoint_policy *checkpointing = &job->checkpointing;

    checkpointing->on_disk = checkpointing->says_over = true;
    checkpointing->newest = (pd_newest_checkpoint){
        .exists = true, .step = image->step, .place = image->place, .bytes = image->bytes, .durable_ns = now_ns
    };
    checkpointing->kept = image->kept;
    checkpointing->durable_step = image->step;
    checkpointing->durable_place = image->place;
    note_kept(job);
    checkpointing->steps.retry = image->step + 1;
}

/* Completes the job: its weights are published, and it may be used. */
static int complete(pd_restoring *r, uint64_t now_ns, pd_error *err)
{
    const pd_checkpoint_image *image = r->image;
    pd_job *job = r->job;
    int rc = PD_OK;

    job->steps.progress.n_least = 0; /* planning may have looked at the lowest step, before the image's was read */
    for (uint32_t i = 0; i < image->n_params; i++) pd_param_image_publish(&job->steps, &job->steps.params[i]);
    for (uint32_t i = 0; rc == PD_OK && i < image->n_worker_states; i++)
        rc = take_worker_state(job, &image->worker_states[i], err);
    if (rc != PD_OK || (rc = pd_header_image_settle(job, now_ns, err)) != PD_OK) return rc;
    set_checkpointing(job, image, now_ns);
    pd_wal_restored(job, is_even(job), image->oldest_record, image->ended_record);
    pd_repeats_begin(job, now_ns);
    r->complete = true;
    return PD_OK;
}

bool pd_restore_replay(pd_restoring *r, const pd_wal_record *record, double budget_ns, uint64_t now_ns, int *rc,
                       pd_error *err)
{
    *rc = r->complete ? PD_OK : complete(r, now_ns, err);
    if (*rc == PD_OK && r->repeat == NULL) *rc = pd_wal_repeat_begin(&r->repeat, r->job, record, err);
    if (*rc == PD_OK && !pd_wal_repeat_some(r->repeat, budget_ns, now_ns, rc, err)) return false;
    pd_wal_repeat_free(r->repeat);
    r->repeat = NULL;
    return true;
}

int pd_restore_end(pd_restoring *r, pd_jobs *jobs, uint64_t now_ns, pd_job **out, pd_error *err)
{
    int rc = r->complete ? PD_OK : complete(r, now_ns, err);

    if (rc == PD_OK) rc = pd_jobs_add(jobs, r->job, err);
    if (rc == PD_OK) {
        *out = r->job;
        r->job = NULL;
    }
    pd_restore_abandon(r);
    return rc;
}

void pd_restore_abandon(pd_restoring *r)
{
    if (r == NULL) return;
    pd_wal_repeat_free(r->repeat);
    if (r->job != NULL) {
        if (r->config->warm != NULL) r->config->warm(r->config->warm_arg, NULL, 0);
        pd_param_set_forget(r->job);
        pd_job_free(r->job);
    }
    free(r);
}

int pd_restore(pd_jobs *jobs, const pd_job_env *env, const pd_checkpoint_image *image, uint64_t now_ns, pd_error *err)
{
    pd_restoring *r;
    pd_job *job;
    int rc = pd_restore_begin(&r, jobs, env, image, err);

    if (rc != PD_OK) return rc;
    (void)pd_restore_some(r, INFINITY, &rc, err);
    if (rc == PD_OK) return pd_restore_end(r, jobs, now_ns, &job, err);
    pd_restore_abandon(r);
    return rc;
}
