/* export.h - reads weights and optimizer state of a job for an operator, all as of the same step. Step thread.
 *
 * An export begins with a cut (step/consistent_cut.h), which chooses the step at which the state is read. The begin
 * request is answered when every parameter has reached that step. Then the operator reads parts of tensors, in any
 * order and as often as needed, until it ends the export.
 *
 * If only weights are exported, they are read from the published versions of that step, while training continues: such
 * an export never stops a step. The older weights that it keeps count against the job's memory. If they have no room,
 * the export is refused, unless no worker is connected. The export is ended when a job needs its memory. If optimizer
 * state is exported, too, the job takes no step beyond the export's step until the export ends.
 *
 * A job has one export at a time. A bounded number of others wait, until their deadlines, for its end or for the end of
 * a checkpoint's cut. Waiting identities take turns. An export of weights whose step is not reached yet gives up its
 * cut to a checkpoint. An export ends by itself when its connection is lost, when the parameters do not reach the step
 * in time, after half a minute without a request, after a time that follows from its bytes, and when the job ends. */
#ifndef PD_EXPORT_H
#define PD_EXPORT_H

#include "job.h"

/* Takes ownership of a PD_REQ_EXPORT for this job, and answers it. A begin request is kept and answered later if it
 * must wait for another export, or if some parameter has not reached the export's step yet. */
void pd_job_export(pd_job *job, pd_request *request, uint64_t now_ns);
/* Begins the next waiting export, unless another export or the cut of a checkpoint is under way. */
void pd_export_go_on(pd_job *job, uint64_t now_ns);
/* Answers the export's begin request if it waits and all parameters have reached the export's step. */
void pd_export_look(pd_job *job, uint64_t now_ns);
/* If an export of weights has not reached its step yet, puts it back among the waiting exports, so that a checkpoint
 * can begin its cut. */
void pd_export_wait_again(pd_job *job);
/* pd_export_expires_ns returns the earliest time at which the export under way ends for lack of requests, or a waiting
 * one is refused; UINT64_MAX: never. pd_export_tick ends or refuses the exports whose time has passed. */
uint64_t pd_export_expires_ns(const pd_job *job);
void pd_export_tick(pd_job *job, uint64_t now_ns);
/* pd_export_spare_bytes returns how many bytes are counted for an export of weights that is under way; 0: there is
 * none. pd_export_give_way ends such an export, for the reason `why`. Exports with optimizer state stay. */
uint64_t pd_export_spare_bytes(const pd_job *job);
void pd_export_give_way(pd_job *job, const char *why);
/* Call it when a worker joins, so that the job may train: ends an export of weights whose older weights are not
 * charged. */
void pd_export_worker_comes(pd_job *job);
/* Ends the job's export if its operator's connection is the one that this PD_REQ_LOST reports as lost. */
void pd_export_lost(pd_job *job, const pd_request *notice);
/* Ends the job's export because the job ends. Begin requests that are not answered yet are refused with `err`. */
void pd_export_release(pd_job *job, const pd_error *err);

#endif
