/* image.c - writes or reads an image of a whole job: the header, then each parameter and its weights. */
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
