/* post.c - packs a message as a frame and queues it. */
#include "post.h"

#include <stdlib.h>
#include <string.h>

/* Packs a frame with its payload into one piece of memory. */
static int pack(const pd_core *core, uint8_t **out, size_t *bytes, unsigned method, uint64_t id,
                const ProtobufCMessage *message, const struct iovec *payload)
{
    size_t more = payload->iov_len;
    uint8_t *whole;
    int rc = pd_frame_pack(out, bytes, method, core->flags, id, message, payload, more > 0, more);

    if (rc != PD_OK || more == 0) return rc;
    if ((whole = realloc(*out, *bytes + more)) == NULL) {
        free(*out);
        return PD_NO_MEMORY;
    }
    memcpy(whole + *bytes, payload->iov_base, more);
    *out = whole;
    *bytes += more;
    return PD_OK;
}

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
    int rc = pack(core, &head, &bytes, method, id, message, payload);

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
