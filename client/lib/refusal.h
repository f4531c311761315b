/* refusal.h - ends the user's call after the server has refused one of its frames. */
#ifndef PD_REFUSAL_H
#define PD_REFUSAL_H

#include "core_state.h"

/* Notes in a frame's operation and in its parameters that the server refused the frame. */
void pd_refusal_note(pd_core *core, pd_outgoing_frame *frame, const pd_error *error);
/* Handles a refused frame of an operation: takes the operation's frames that will get no answer any more out of the
 * queue. The operation waits for its other answers for a short time only (REST_NS in core.c). */
void pd_refusal_settle(pd_core *core, pd_op *op, const pd_error *error);
/* Ends an operation that has an error, without waiting for its other answers. Items (parameters of the call) without an
 * answer get the same error. The user may push them again: the server has kept the gradients that it received, so it
 * answers at once. */
void pd_core_abandon(pd_core *core, pd_op *op);

#endif
