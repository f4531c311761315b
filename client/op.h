/* op.h - the operations of the user: each has a ticket, and waits for the answers to its frames. */
#ifndef PD_OP_H
#define PD_OP_H

#include "core_state.h"

/* Makes an operation, and gives it a ticket. NULL: out of memory. */
pd_op *pd_op_new(pd_core *core, unsigned method);
/* Makes an operation for a call of the user. Fails with the handle's error if the handle has ended, with
 * PD_RESOURCE_EXHAUSTED if it has too many operations, and with PD_NO_MEMORY. */
int pd_op_begin(pd_core *core, unsigned method, pd_op **op, pd_error *err);
/* Returns the operation that has this ticket; NULL: there is none. */
pd_op *pd_op_find(const pd_core *core, pd_ticket_id ticket);
void pd_op_free(pd_core *core, pd_op *op);
/* Sets the operation's error, unless an earlier error is set. */
void pd_op_fail(pd_op *op, const pd_error *error);
/* Marks an operation as done. Its parameters may be pushed again, and the step that it closed is no longer being
 * closed. */
void pd_op_done(pd_core *core, pd_op *op);
/* Counts one answered frame of the operation. The last one ends the operation. */
void pd_op_answered(pd_core *core, pd_op *op);
/* Retires a frame that needs no further answer. If the frame's bytes are being sent, its operation ends only after
 * that, since the bytes are the caller's memory. */
void pd_op_retire(pd_core *core, pd_outgoing_frame *frame);

#endif
