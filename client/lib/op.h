/* op.h - the operations: calls of the user. Each has a ticket, and waits for the answers to its frames. */
#ifndef PD_OP_H
#define PD_OP_H

#include "core_state.h"

/* Makes an operation, and gives it a ticket. NULL: out of memory. */
pd_op *pd_op_new(pd_core *core, unsigned method);
/* Makes an operation. Returns the error that ended the client handle (the
 * user's pd_client) if it has ended, PD_RESOURCE_EXHAUSTED if too many calls are waiting, and PD_NO_MEMORY if out of
 * memory. */
int pd_op_begin(pd_core *core, unsigned method, pd_op **op, pd_error *err);
/* Returns the operation that has this ticket; NULL: there is none. */
pd_op *pd_op_find(const pd_core *core, pd_ticket_id ticket);
void pd_op_free(pd_core *core, pd_op *op);
/* Sets the error with which the operation ends, unless an earlier error is set. */
void pd_op_fail(pd_op *op, const pd_error *error);
/* Marks an operation as done. Its parameters may be pushed again. If it closed a step, another step may be closed
 * now. */
void pd_op_done(pd_core *core, pd_op *op);
/* Counts one answered frame of the operation. The operation is done when the last of its frames is answered. */
void pd_op_answered(pd_core *core, pd_op *op);
/* Removes a frame that needs no further answer from the queue, and counts it as answered in its operation. If the
 * frame's bytes are being sent, both happen only after that, since the bytes are the caller's memory. */
void pd_op_retire(pd_core *core, pd_outgoing_frame *frame);

#endif
