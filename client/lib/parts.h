/* parts.h - the tensors and chunks of a sent frame, and how many bytes of weights the answer brings for each. */
#ifndef PD_PARTS_H
#define PD_PARTS_H

#include "core_state.h"

/* Returns the parameter to which tensor or chunk number `part` of a sent frame belongs. */
pd_param_record *pd_part_known(const pd_core *core, const pd_outgoing_frame *frame, size_t part);
/* Returns how many payload bytes the answer that is being received has for tensor or chunk number `part` of the
 * sent frame: the bytes of its weights, or of the change of these weights. */
size_t pd_part_bytes(const pd_core *core, const pd_outgoing_frame *frame, size_t part);
/* Returns whether these bytes are received in the core's buffer: updates, and all weights of an
 * answer to a frame that was sent again from the window. Other weights are received in the caller's memory. */
bool pd_part_buffered(const pd_core *core, const pd_outgoing_frame *frame, size_t part);

#endif
