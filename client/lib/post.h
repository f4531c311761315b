/* post.h - packs a protobuf message as a frame and queues it for sending. */
#ifndef PD_POST_H
#define PD_POST_H

#include "core_state.h"

/* Queues a message as a frame of its own. `op` is the user's call that waits for the answer; NULL: none waits.
 * PD_OUT_OF_RANGE: the message is too long. PD_NO_MEMORY: out of memory. */
int pd_core_post(pd_core *core, unsigned method, const ProtobufCMessage *message, pd_lane lane, pd_op *op);
/* Queues a message as a frame of its own with a payload, which is copied. Errors as in pd_core_post. */
int pd_core_post_with(pd_core *core, unsigned method, const ProtobufCMessage *message, const struct iovec *payload,
                      pd_lane lane, pd_op *op);

#endif
