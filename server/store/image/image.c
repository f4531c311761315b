/* image.c - writes or reads an image of a whole job (the header, then each parameter and its weights), and makes a job
 * from a checkpoint. */
#include "image.h"

#include "wal_records.h"
#include "fragment_ranks.h"
#include "global_clip.h"
#include "header_image.h"
#include "mutant.h"
#include "worker_states.h"
#include "param_image.h"
#include "param_set.h"
#include "repeats.h"
#include "save.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_at_rest(const pd_param *param)
{
    return (param->stage == PD_COLLECTING || param->stage == PD_HELD) && pd_optim_may_be_saved(param->optim);
}

bool pd_image_is_possible(const pd_job *job)
{
    if (job->steps.n_params == 0 || job->steps.progress.n_begun < job->steps.n_params || job->planning != NULL ||
        job->import != NULL || job->steps.cut != NULL || job->steps.tasks_out > 0 || pd_global_clip_runs(&job->steps) ||
        pd_fragments_have_set(&job->steps))
        return false;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (!is_at_rest(&job->steps.params[i])) return false;
    return true;
}

static void visit_param(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    size_t bytes = (size_t)param->elements * sizeof(float);

    pd_param_image_visit(archive, steps, param);
    if (!pd_archive_is_reading(archive)) {
        pd_archive_bytes(archive, param->current->at[PD_F32], bytes);
    } else if (pd_archive_status(archive) == PD_OK) {
        pd_archive_bytes(archive, param->next->at[PD_F32], bytes);
        pd_param_image_publish(steps, param);
    }
}

static void visit_params(pd_archive *archive, pd_job *job)
{
    for (uint32_t i = 0; i < job->steps.n_params && pd_archive_status(archive) == PD_OK; i++)
        visit_param(archive, &job->steps, &job->steps.params[i]);
}

int pd_image_write(pd_job *job, uint8_t **image, size_t *n, pd_error *err)
{
    pd_archive archive;

    pd_archive_begin_write(&archive);
    pd_header_image_write(&archive, job);
    visit_params(&archive, job);
    return pd_archive_end(&archive, image, n, err);
}

int pd_image_read(pd_jobs *jobs, const pd_job_env *env, const uint8_t *image, size_t n, uint64_t now_ns, pd_error *err)
{
    pd_archive archive;
    pd_job *job = NULL;
    int rc;

    pd_archive_begin_read(&archive, image, n);
    pd_header_image_read(&archive, jobs, env, &job);
    if (job != NULL) visit_params(&archive, job);
    rc = pd_archive_end(&archive, NULL, NULL, err);
    if (rc == PD_OK) rc = pd_header_image_settle(job, now_ns, err);
    if (rc == PD_OK) rc = pd_jobs_add(jobs, job, err);
    if (rc == PD_OK || job == NULL) return rc;
    pd_param_set_forget(job);
    pd_job_free(job);
    return rc;
}

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

/* Copies the weights of a checkpoint that is in memory, the weights of parameter i to the memory to[i]. */
static int copy_weights(const pd_checkpoint_image *image, float *const *to, pd_error *err)
{
    for (uint32_t i = 0; i < image->n_params; i++) {
        const pd_checkpoint_param *param = &image->params[i];
        if (param->weights == NULL)
            return pd_fail(err, PD_DATA_LOSS, "the checkpoint has no weights of %.160s", param->name);
        memcpy(to[i], param->weights, (size_t)param->elements * sizeof(float));
    }
    return PD_OK;
}

/* Reads the weights of all parameters into new published versions (pd_param.next), and publishes them. */
static int read_weights(pd_steps *steps, const pd_checkpoint_image *image, pd_error *err)
{
    float **to = calloc(image->n_params + 1u, sizeof *to);
    int rc;

    if (to == NULL) return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for its weights", steps->name);
    for (uint32_t i = 0; i < image->n_params; i++) to[i] = steps->params[i].next->at[PD_F32];
    rc = image->read_weights != NULL ? image->read_weights(image->read_arg, to, err) : copy_weights(image, to, err);
    free(to);
    for (uint32_t i = 0; rc == PD_OK && i < image->n_params; i++) pd_param_image_publish(steps, &steps->params[i]);
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

static int read_all(const pd_jobs *jobs, const pd_job_env *env, const pd_checkpoint_image *image, uint64_t now_ns,
                    pd_job **out, pd_error *err)
{
    int rc = read_header(jobs, env, image, out, err);
    pd_job *job = *out;

    if (rc == PD_OK) warm(env->config, job);
    for (uint32_t i = 0; rc == PD_OK && i < image->n_params; i++) {
        if (image->read_state != NULL && (rc = image->read_state(image->read_arg, i, err)) != PD_OK) return rc;
        rc = read_param(&job->steps, &job->steps.params[i], &image->params[i], i, err);
    }
    if (rc == PD_OK && image->read_state != NULL) rc = image->read_state(image->read_arg, image->n_params, err);
    if (rc == PD_OK) rc = read_weights(&job->steps, image, err);
    for (uint32_t i = 0; rc == PD_OK && i < image->n_worker_states; i++)
        rc = take_worker_state(job, &image->worker_states[i], err);
    if (rc != PD_OK || (rc = pd_header_image_settle(job, now_ns, err)) != PD_OK) return rc;
    job->checkpointing.on_disk = job->checkpointing.says_over = true;
    job->checkpointing.newest = (pd_newest_checkpoint){
        .exists = true, .step = image->step, .place = image->place, .bytes = image->bytes, .durable_ns = now_ns
    };
    job->checkpointing.durable_step = image->step;
    job->checkpointing.durable_place = image->place;
    note_kept(job);
    job->checkpointing.steps.retry = image->step + 1;
    pd_wal_restored(job, is_even(job));
    pd_repeats_begin(job, now_ns);
    return PD_OK;
}

int pd_restore(pd_jobs *jobs, const pd_job_env *env, const pd_checkpoint_image *image, uint64_t now_ns, pd_error *err)
{
    pd_job *job = NULL;
    int rc = read_all(jobs, env, image, now_ns, &job, err);

    if (rc == PD_OK) rc = pd_jobs_add(jobs, job, err);
    if (rc == PD_OK || job == NULL) return rc;
    if (env->config->warm != NULL) env->config->warm(env->config->warm_arg, NULL, 0);
    pd_param_set_forget(job);
    pd_job_free(job);
    return rc;
}
