/* refusal.h - operations of which a frame was refused: what becomes of their other frames. */
#ifndef PD_REFUSAL_H
#define PD_REFUSAL_H

#include "core_state.h"

/* Notes the refusal of a frame in its operation and its parameters. */
void pd_refusal_note(pd_core *core, pd_outgoing_frame *frame, const pd_error *error);
/* Ends the frames of the operation that need no answer after a refusal. The operation waits for its other answers, but
 * not for long. */
void pd_refusal_settle(pd_core *core, pd_op *op, const pd_error *error);
/* Ends an operation that has an error, without waiting for its other answers. Items without an answer end with that
 * error. Gradients of them that the server has stand, so a further push of them is answered at once. */
void pd_core_abandon(pd_core *core, pd_op *op);

#endif
