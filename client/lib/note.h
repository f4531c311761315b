/* note.h - a worker's note of a step: bytes that only the worker understands, which a checkpoint of the step has. */
#ifndef PD_NOTE_H
#define PD_NOTE_H

#include "core_state.h"

enum { PD_NOTE_BYTES = 1 << 20 }; /* most bytes of a note */

/* Checks the note of a push. `options` may be NULL. PD_INVALID_ARGUMENT: the note is too long, or has no place. */
int pd_note_check(const pd_push_options *options, pd_error *err);
/* Queues the note that the options have, if they have one, as part of a push. The note belongs to the highest step
 * among the push's items. Its bytes are copied. PD_NO_MEMORY. */
int pd_note_post(pd_core *core, pd_op *op, const pd_push_options *options);
/* Checks that the answer to a Recall has the payload that it announces, and notes how long it is. */
int pd_note_expect(pd_core *core, const pd_outgoing_frame *frame, const pd_prefix *prefix, const uint8_t *header);

#endif
