/* post.c - packs a protobuf message as a frame and queues it for sending. */
#include "post.h"

int pd_core_post(pd_core *core, unsigned method, const ProtobufCMessage *message, pd_lane lane, pd_op *op)
{
    return pd_core_post_with(core, method, message, &(struct iovec){ NULL, 0 }, lane, op);
}

int pd_core_post_with(pd_core *core, unsigned method, const ProtobufCMessage *message, const struct iovec *payload,
                      pd_lane lane, pd_op *op)
{
    uint8_t *head;
    size_t bytes;
    pd_outgoing_frame *frame;
    uint64_t id = ++core->last_id;
    int rc = pd_frame_pack_whole(&head, &bytes, method, core->flags, id, message, payload);

    if (rc != PD_OK) return rc;
    if ((frame = pd_outgoing_frame_new(head, bytes, NULL, 0, NULL, 0)) == NULL) return PD_NO_MEMORY;
    frame->id = id;
    frame->method = method;
    frame->op = op;
    if (!pd_outgoing_add(&core->out, frame, lane)) {
        pd_outgoing_frame_free(frame);
        return PD_NO_MEMORY;
    }
    if (op != NULL) op->waits++;
    return PD_OK;
}
