/* checkpoint_asked.c - answers those who have asked for a checkpoint of a job. */
#include "checkpoint_asked.h"

#include <stdio.h>

void pd_checkpoint_answer(pd_job *job, pd_request *request, uint64_t bytes, uint64_t ns)
{
    pd_effect *effect = pd_answer(request, PD_EFF_CHECKPOINT);

    effect->job = job->steps.number;
    effect->u.checkpoint.step = job->checkpointing.durable_step;
    effect->u.checkpoint.bytes = bytes;
    effect->u.checkpoint.ns = ns;
    pd_effects_add(job->steps.outbox, effect);
    pd_request_free(request);
}

bool pd_checkpoint_has_changes(const pd_job *job, const pd_request *request)
{
    return request->u.checkpoint.changes <= job->checkpointing.kept_changes;
}

void pd_checkpoint_answer_all(pd_job *job, uint64_t step, const pd_error *err, uint64_t bytes, uint64_t ns)
{
    pd_request_queue all = job->checkpointing.asked;

    job->checkpointing.asked = (pd_request_queue){ 0 };
    while (all.first != NULL) {
        pd_request *request = pd_request_queue_take(&all);
        if (request->u.checkpoint.step > step || (err == NULL && !pd_checkpoint_has_changes(job, request)))
            pd_request_queue_add(&job->checkpointing.asked, request);
        else if (err != NULL)
            pd_request_refuse(job->steps.outbox, request, err);
        else
            pd_checkpoint_answer(job, request, bytes, ns);
    }
}

void pd_checkpoint_answer_workers(pd_job *job)
{
    pd_request_queue all = job->checkpointing.asked;

    job->checkpointing.asked = (pd_request_queue){ 0 };
    while (all.first != NULL) {
        pd_request *request = pd_request_queue_take(&all);
        if (request->u.checkpoint.job_name == NULL && request->u.checkpoint.step <= job->checkpointing.durable_step &&
            pd_checkpoint_has_changes(job, request))
            pd_checkpoint_answer(job, request, 0, 0);
        else
            pd_request_queue_add(&job->checkpointing.asked, request);
    }
}

void pd_checkpoint_ended(pd_job *job)
{
    if (job->checkpointing.last_begun && job->checkpointing.last == PD_LAST_WANTED)
        job->checkpointing.last = PD_LAST_DONE;
    job->checkpointing.last_begun = false;
}

void pd_checkpoint_failed(pd_job *job, uint64_t step, const pd_error *err)
{
    job->checkpointing.failed++;
    snprintf(job->checkpointing.error, sizeof job->checkpointing.error, "%.250s", err->text);
    pd_checkpoint_ended(job);
    pd_checkpoint_answer_all(job, step, err, 0, 0);
}
