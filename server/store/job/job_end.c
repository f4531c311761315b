/* job_end.c - releases the requests and buffers that a job still has when it ends. */
#include "job_end.h"

#include "barrier.h"
#include "collect.h"
#include "declare.h"
#include "export.h"
#include "frames.h"
#include "import.h"
#include "override_command.h"
#include "reserves.h"
#include "step_log.h"

static void release_slots(pd_job *job)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_round *round = &job->steps.params[i].round;
        for (uint32_t s = 0; s < round->n_chunks * pd_round_ranks(round); s++) {
            pd_slot *slot = &round->chunks[0].slots[s];
            if (slot->frame != NULL) pd_frame_let_go(&job->steps, slot->frame);
            slot->frame = NULL;
        }
        pd_collect_release(&job->steps.params[i]);
    }
}

static void release_requests(pd_job *job, const pd_error *err)
{
    pd_request_queue_refuse(&job->inbox, job->steps.outbox, err);
    pd_barriers_refuse(job, err);
}

void pd_job_release(pd_job *job, const pd_error *err)
{
    pd_job_refuse_declares(job, err);
    pd_job_refuse_sets(job, err);
    release_slots(job);
    release_requests(job, err);
    pd_import_release(job, err);
    pd_export_release(job, err);
    job->steps.complete = job->steps.partial = job->steps.full = job->steps.loose = NULL;
    job->steps.waiting = job->steps.ready = job->steps.stopped = NULL;
    if (job->steps.log != NULL) pd_step_log_end(&job->steps);
    job->steps.n_open = 0;
    pd_reserves_forget(job);
    job->gone_notice->u.error = *err;
    pd_effects_add(job->steps.outbox, job->gone_notice);
    job->gone_notice = NULL;
}
