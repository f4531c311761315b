/* feedback.h - quantizes gradients in int8 and int4 for the wire, and keeps what that rounds away (error feedback).
 *
 * A push sends x = gradient + rest, quantized. What becomes of the rest depends on the push:
 *
 *     it counted, in whatever step             rest = x - what was sent
 *     late                                     stays; with PD_FEEDBACK_CARRY: rest = x
 *     skipped, refused, no gradient            stays
 *     sent again                               the same bytes are sent, the rest stays
 *     the server went back (rewind)            0
 *
 * The rest is computed when the next gradient of the parameter is quantized, in the user's thread and without the
 * core's lock: until then `sent` and `codes` have what it is computed from. A parameter is in one push at a time, so
 * they belong to the push under way, or to the last one. */
#ifndef PD_FEEDBACK_H
#define PD_FEEDBACK_H

#include "core.h"

/* Allocates what a quantized parameter needs beside its codes: the rest and the vector that was sent, in float32,
 * unless the handle has no feedback. PD_NO_MEMORY: nothing is allocated. */
int pd_feedback_make(pd_core *core, pd_param_record *record);
void pd_feedback_free(pd_param_record *record);

/* Prepares a push of a quantized parameter: makes memory for its codes. The core must be locked, and the parameter be
 * marked as being pushed. PD_NO_MEMORY: nothing has changed. */
int pd_feedback_begin(pd_core *core, pd_param_record *record);
/* Quantizes a gradient of the parameter's elements. Called after pd_feedback_begin, without the core's lock. */
void pd_feedback_quantize(pd_param_record *record, const float *gradient);
/* Notes what became of the parameter's push (pd_item.outcome). `counts`: the push had a weight. */
void pd_feedback_end(pd_core *core, pd_param_record *record, int outcome, bool counts);
/* Sets the rest to 0 before the next push, because the steps that it belongs to are lost. Returns whether the parameter
 * has a rest. */
bool pd_feedback_forget(pd_param_record *record);

/* Returns the bytes of all pieces of the parameter, each padded to the alignment of payloads. */
uint64_t pd_feedback_bytes(const pd_param_record *record, uint64_t chunk);
/* Returns the codes of the piece that begins at element `first`. */
const uint8_t *pd_feedback_piece(const pd_param_record *record, int64_t first);

#endif
