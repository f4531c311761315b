/* export.h - reads weights and optimizer state of a job for an operator, all of the same step. Step thread.
 *
 * An export begins with a cut (step/cut.h): a step at which the state is read. The begin request is answered when
 * every parameter has reached that step. Then the operator reads tensors in pieces, in any order and as often as
 * needed, until it ends the export.
 *
 * Weights alone are read from the snapshots of that step, while training goes on. If memory has no room for these
 * beside the later snapshots, or if optimizer state is exported, the job takes no step beyond the cut until the
 * export ends.
 *
 * A job has one export at a time. An export ends by itself when its connection is lost, when the parameters do not
 * reach the step in time, after half a minute without a request, and when the job ends. */
#ifndef PD_EXPORT_H
#define PD_EXPORT_H

#include "job.h"

/* Takes a PD_REQ_EXPORT for this job. Answers it, but keeps a begin request until all parameters have reached the
 * export's step. */
void pd_job_export(pd_job *job, pd_request *request, uint64_t now_ns);
/* Answers the begin request that is kept, if all parameters have reached the export's step. */
void pd_export_look(pd_job *job);
/* Returns the time at which the export ends if no further request comes; UINT64_MAX: no export is running.
 * pd_export_tick ends the export when that time has passed. */
uint64_t pd_export_expires_ns(const pd_job *job);
void pd_export_tick(pd_job *job, uint64_t now_ns);
/* Ends the export if it belongs to the connection of this PD_REQ_LOST. */
void pd_export_lost(pd_job *job, const pd_request *notice);
/* Ends the export because the job ends. A begin request that is not answered yet is refused with `err`. */
void pd_export_release(pd_job *job, const pd_error *err);

#endif
