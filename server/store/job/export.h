/* export.h - reads weights and optimizer state of a job for an operator, all as of the same step. Step thread.
 *
 * An export begins with a cut (step/cut.h), which chooses the step at which the state is read. The begin request is
 * answered when every parameter has reached that step. Then the operator reads tensors in pieces, in any order and as
 * often as needed, until it ends the export.
 *
 * If only weights are exported, they are read from the snapshots of that step, while training goes on. If optimizer
 * state is exported, too, or if memory has no room for these snapshots beside later ones, the job takes no step
 * beyond the export's step until the export ends.
 *
 * A job has one export at a time. An export ends by itself when its connection is lost, when the parameters do not
 * reach the step in time, after half a minute without a request, and when the job ends. */
#ifndef PD_EXPORT_H
#define PD_EXPORT_H

#include "job.h"

/* Takes ownership of a PD_REQ_EXPORT for this job, and answers it. A begin request is kept and answered later if some
 * parameter has not reached the export's step yet. */
void pd_job_export(pd_job *job, pd_request *request, uint64_t now_ns);
/* Begins the export that an operator has asked for while the cut of a checkpoint was under way, which has ended. */
void pd_export_go_on(pd_job *job, uint64_t now_ns);
/* Answers the export's begin request if it waits and all parameters have reached the export's step. */
void pd_export_look(pd_job *job);
/* pd_export_expires_ns returns the time at which the export ends unless a further request comes; UINT64_MAX: no
 * export is running. pd_export_tick ends the export if that time has passed. */
uint64_t pd_export_expires_ns(const pd_job *job);
void pd_export_tick(pd_job *job, uint64_t now_ns);
/* Ends the job's export if its operator's connection is the one that this PD_REQ_LOST reports as lost. */
void pd_export_lost(pd_job *job, const pd_request *notice);
/* Ends the job's export because the job ends. If the begin request is not answered yet, it is refused with `err`. */
void pd_export_release(pd_job *job, const pd_error *err);

#endif
