/* refusal.h - ends operations after the server has refused one of their frames. */
#ifndef PD_REFUSAL_H
#define PD_REFUSAL_H

#include "core_state.h"

/* Notes in a frame's operation and in its parameters that the server refused the frame. */
void pd_refusal_note(pd_core *core, pd_outgoing_frame *frame, const pd_error *error);
/* Retires the frames of the operation that need no answer after a refusal. The operation then waits for its other
 * answers for a short time only (REST_NS in core.c). */
void pd_refusal_settle(pd_core *core, pd_op *op, const pd_error *error);
/* Ends an operation that has an error, without waiting for its other answers. Items without an answer get the same
 * error. The server keeps the gradients that it has received, so it answers at once when they are pushed again. */
void pd_core_abandon(pd_core *core, pd_op *op);

#endif
