/* op.h - the operations of the user: each has a ticket, and waits for the answers to its frames. */
#ifndef PD_OP_H
#define PD_OP_H

#include "core_state.h"

/* Makes an operation, and gives it a ticket. NULL: out of memory. */
pd_op *pd_op_new(pd_core *core, unsigned method);
/* Makes an operation for a call, unless the handle is at its end or has too many operations. PD_NO_MEMORY,
 * PD_RESOURCE_EXHAUSTED, or the error of the end. */
int    pd_op_begin(pd_core *core, unsigned method, pd_op **op, pd_error *err);
/* Returns the operation with that ticket; NULL: none. */
pd_op *pd_op_find(const pd_core *core, pd_ticket_id ticket);
void   pd_op_free(pd_core *core, pd_op *op);
/* Sets the error of an operation, unless it has one. */
void   pd_op_fail(pd_op *op, const pd_error *error);
/* Ends an operation, and the steps and pushes that it marks as under way. */
void   pd_op_done(pd_core *core, pd_op *op);
/* Counts one answer; the last one ends the operation. */
void   pd_op_answered(pd_core *core, pd_op *op);
/* Ends a frame that needs no answer any more. Its operation waits until its bytes have left, since they are the
 * caller's memory. */
void   pd_op_retire(pd_core *core, pd_outgoing_frame *frame);

#endif
