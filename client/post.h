/* post.h - packs a message as a frame and queues it. */
#ifndef PD_POST_H
#define PD_POST_H

#include "core_state.h"

/* Queues a message as a frame of its own. `op` may be NULL. PD_OUT_OF_RANGE: the message is too long. PD_NO_MEMORY:
 * out of memory. */
int pd_core_post(pd_core *core, unsigned method, const ProtobufCMessage *message, pd_lane lane, pd_op *op);
/* Queues a message with a payload, which is copied. */
int pd_core_post_with(pd_core *core, unsigned method, const ProtobufCMessage *message, const struct iovec *payload,
                      pd_lane lane, pd_op *op);

#endif
