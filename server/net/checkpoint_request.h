/* checkpoint_request.h - Checkpoint: an operator or a worker asks for a checkpoint of a job. Loop thread. */
#ifndef PD_CHECKPOINT_REQUEST_H
#define PD_CHECKPOINT_REQUEST_H

#include "conn.h"

/* Asks the store for a checkpoint, which is answered when it is on the disk. PD_INVALID_ARGUMENT: the operator names no
 * job, the worker names one, or the time to wait is too long. PD_NO_MEMORY. */
int pd_run_checkpoint(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers a Checkpoint: the checkpoint is on the disk. */
void pd_reply_checkpoint(pd_conn *conn, pd_pending *pending, const pd_effect *effect);

#endif
