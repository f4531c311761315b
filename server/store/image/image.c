/* image.c - writes or reads an image, the durable state of a job: the structs named `saved`, weights, optimizers,
 * overrides and scalars (numbers such as the loss). */
#include "image.h"

#include "declared_job.h"
#include "global_clip.h"
#include "override_image.h"
#include "param_set.h"
#include "plant.h"
#include "printable.h"
#include "round_scalars.h"
#include "save.h"
#include "step_group.h"

#include <stdlib.h>
#include <string.h>

/* ---- one table of fields for each struct that is saved; writing and reading both use it ---- */

static const pd_field job_fields[] = { PD_FIELD(pd_job_saved, creator),
                                       PD_FIELD(pd_job_saved, barrier),
                                       PD_FIELD(pd_job_saved, refused),
                                       PD_FIELD(pd_job_saved, duplicates),
                                       { 0 } };
static const pd_table job_table = { "job", sizeof(pd_job_saved), job_fields };

static const pd_field rank_fields[] = { PD_FIELD(pd_rank_saved, nonce),
                                        PD_FIELD(pd_rank_saved, process),
                                        PD_FIELD(pd_rank_saved, present),
                                        PD_FIELD(pd_rank_saved, sealed),
                                        PD_FIELD(pd_rank_saved, superseded),
                                        PD_FIELD(pd_rank_saved, n_superseded),
                                        PD_FIELD(pd_rank_saved, initialiser),
                                        PD_FIELD(pd_rank_saved, step),
                                        PD_FIELD(pd_rank_saved, contributions),
                                        PD_FIELD(pd_rank_saved, barrier_base),
                                        { 0 } };
static const pd_table rank_table = { "rank", sizeof(pd_rank_saved), rank_fields };

static const pd_field steps_fields[] = {
    PD_FIELD(pd_steps_saved, contributions), PD_FIELD(pd_steps_saved, steps),         PD_FIELD(pd_steps_saved, skipped),
    PD_FIELD(pd_steps_saved, refused_steps), PD_FIELD(pd_steps_saved, skipped_whole), { 0 }
};
static const pd_table steps_table = { "steps", sizeof(pd_steps_saved), steps_fields };

static const pd_field group_fields[] = { PD_FIELD(pd_step_group_saved, base),
                                         PD_FIELD(pd_step_group_saved, unknown),
                                         PD_FIELD(pd_step_group_saved, missed),
                                         PD_FIELD(pd_step_group_saved, brought),
                                         { 0 } };
static const pd_table group_table = { "step group", sizeof(pd_step_group_saved), group_fields };

static const pd_field clip_fields[] = { PD_FIELD(pd_global_clip_saved, last),
                                        PD_FIELD(pd_global_clip_saved, clipped),
                                        { 0 } };
static const pd_table clip_table = { "clip", sizeof(pd_global_clip_saved), clip_fields };

static const pd_field param_fields[] = { PD_FIELD_IN(pd_param_saved, step, 0, INT64_MAX / 2),
                                         PD_FIELD(pd_param_saved, skipped),
                                         PD_FIELD(pd_param_saved, refused),
                                         PD_FIELD(pd_param_saved, gaps),
                                         PD_FIELD(pd_param_saved, contributions),
                                         PD_FIELD_IN(pd_param_saved, outcome, 0, PD_REFUSED),
                                         PD_FIELD(pd_param_saved, initialiser),
                                         { 0 } };
static const pd_table param_table = { "parameter", sizeof(pd_param_saved), param_fields };

static const pd_field mean_fields[] = {
    PD_FIELD(pd_scalar_mean, name), PD_FIELD(pd_scalar_mean, mean), PD_FIELD(pd_scalar_mean, weight), { 0 }
};
static const pd_table mean_table = { "scalar", sizeof(pd_scalar_mean), mean_fields };

/* ---- the state of one parameter ---- */

static void visit_scalars(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    size_t n = param->scalars != NULL ? param->scalars->n_last : 0;
    pd_error err;

    pd_archive_count(archive, &n, PD_MAX_SCALARS, 1);
    if (n == 0) return;
    if (param->scalars == NULL && pd_scalars_make(steps, param, &err) != PD_OK) {
        pd_archive_fail(archive, err.code, "%.160s: no memory for scalars", param->name);
        return;
    }
    pd_archive_records(archive, &mean_table, param->scalars->last, n);
    param->scalars->n_last = (uint32_t)n;
}

static void read_weights(pd_archive *archive, pd_steps *steps, pd_param *param, uint64_t version)
{
    if (pd_archive_status(archive) != PD_OK) return;
    if ((param->next = pd_snapshot_new(param->pool, param->elements)) == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "%.160s: out of memory for its weights", param->name);
        return;
    }
    param->next->job = steps->number;
    param->next->param = param->index;
    param->next->version = version;
    pd_archive_bytes(archive, param->next->at[PD_F32], (size_t)param->elements * sizeof(float));
    pd_params_convert(&param, 1, steps->config->threads);
    param->current = param->next;
    param->next = NULL;
    steps->n_begun++;
}

static void visit_weights(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    uint64_t version = param->current != NULL ? param->current->version : 0;

    pd_archive_value(archive, &version);
    if (pd_archive_is_reading(archive))
        read_weights(archive, steps, param, version);
    else
        pd_archive_bytes(archive, param->current->at[PD_F32], (size_t)param->elements * sizeof(float));
}

static void visit_param(pd_archive *archive, pd_steps *steps, pd_param *param)
{
    pd_archive_enter(archive, "parameter");
    pd_archive_agree(archive, "parameter", param->name);
    pd_archive_fields(archive, &param_table, &param->saved);
    if (PD_PLANTED(image_forgets_outcome)) param->saved.outcome = 0;
    visit_weights(archive, steps, param);
    pd_optim_visit(archive, param->optim);
    visit_scalars(archive, steps, param);
    pd_archive_leave(archive);
}

/* ---- the whole state of a job ---- */

static void visit_groups(pd_archive *archive, pd_steps *steps)
{
    for (size_t r = 0; r < steps->n_rules; r++) pd_archive_fields(archive, &group_table, &steps->groups[r].saved);
    if (steps->clip != NULL) pd_archive_fields(archive, &clip_table, pd_global_clip_saved_of(steps));
}

static void visit_job(pd_archive *archive, pd_job *job)
{
    pd_archive_enter(archive, "job");
    pd_archive_fields(archive, &job_table, &job->saved);
    pd_archive_fields(archive, &steps_table, &job->steps.saved);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        pd_archive_fields(archive, &rank_table, &job->ranks[r].saved);
    visit_groups(archive, &job->steps);
    for (uint32_t i = 0; i < job->steps.n_params && pd_archive_status(archive) == PD_OK; i++)
        visit_param(archive, &job->steps, &job->steps.params[i]);
    pd_overrides_visit(archive, job);
    pd_archive_leave(archive);
}

/* ---- writing an image ---- */

static bool is_at_rest(const pd_param *param)
{
    return (param->stage == PD_COLLECTING || param->stage == PD_HELD) && pd_optim_may_be_saved(param->optim);
}

bool pd_image_is_possible(const pd_job *job)
{
    if (job->steps.n_params == 0 || job->steps.n_begun < job->steps.n_params || job->planning != NULL ||
        job->import != NULL || job->steps.cut != NULL || job->steps.tasks_out > 0 || pd_global_clip_runs(&job->steps))
        return false;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (!is_at_rest(&job->steps.params[i])) return false;
    return true;
}

int pd_image_write(pd_job *job, uint8_t **image, size_t *n, pd_error *err)
{
    pd_declared_job declared;
    pd_archive archive;
    int rc = pd_declared_job_of(&declared, job, err);

    *image = NULL;
    if (rc != PD_OK) return rc;
    pd_archive_begin_write(&archive);
    pd_declared_job_visit(&archive, &declared);
    visit_job(&archive, job);
    pd_declared_job_free(&declared);
    return pd_archive_end(&archive, image, n, err);
}

/* ---- reading an image ---- */

/* Finishes a job after its image (saved state) was read. Each rank that had a process is marked as lost, because its
 * connection ended with the old server. The job is marked `unpublished`, because the loop thread has none of its
 * weights yet. */
static void settle(pd_job *job, uint64_t now_ns)
{
    for (size_t r = 0; r < job->steps.n_rules; r++) pd_step_group_recount(&job->steps.groups[r]);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        pd_rank *rank = &job->ranks[r];
        if (PD_PLANTED(image_forgets_superseded)) rank->saved.n_superseded = 0;
        if (!rank->saved.present) continue;
        rank->state = PD_RANK_LOST;
        rank->since_ns = now_ns;
        pd_text_print(rank->reason, sizeof rank->reason, "the server has started anew");
    }
    job->unpublished = true;
    job->linger_ns = now_ns + job->steps.values.at[PD_JOB_KEY_JOB_LINGER];
}

/* Reads what workers have declared from an image (the saved state of a job), makes the job, and reads the job's state.
 * *out must be NULL before the call; it becomes the job once this is made. After an error *out may be a job whose state
 * was read only in part, which the caller frees. */
static int read_job(pd_archive *archive, const pd_jobs *jobs, const pd_job_env *env, pd_job **out, pd_error *err)
{
    pd_declared_job declared = { 0 };
    int rc;

    pd_declared_job_visit(archive, &declared);
    if ((rc = pd_archive_status(archive)) == PD_OK) {
        if (pd_jobs_find(jobs, declared.name) != NULL)
            rc = pd_fail(err, PD_FAILED_PRECONDITION,
                         "there is a job %.200s already: drop it before its image is "
                         "read",
                         declared.name);
        else
            rc = pd_declared_job_make(out, &declared, env, jobs->last_number + 1, err);
        if (rc != PD_OK) pd_archive_fail(archive, rc, "%s", err->text);
    }
    if (rc == PD_OK) visit_job(archive, *out);
    pd_declared_job_free(&declared);
    return pd_archive_end(archive, NULL, NULL, err);
}

int pd_image_read(pd_jobs *jobs, const pd_job_env *env, const uint8_t *image, size_t n, uint64_t now_ns, pd_error *err)
{
    pd_archive archive;
    pd_job *job = NULL;
    int rc;

    pd_archive_begin_read(&archive, image, n);
    rc = read_job(&archive, jobs, env, &job, err);
    if (rc == PD_OK) settle(job, now_ns);
    if (rc == PD_OK) rc = pd_jobs_add(jobs, job, err);
    if (rc == PD_OK || job == NULL) return rc;
    pd_param_set_forget(job);
    pd_job_free(job);
    return rc;
}
