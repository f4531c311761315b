/* landing.c - decides where the payload of an answer lands, before it comes. */
#include "landing.h"

#include "core_end.h"
#include "pieces.h"
#include "reply.h"

#include <stdlib.h>

static bool has_weights(unsigned method)
{
    return method == PD_PULL || method == PD_PUSH_PULL;
}

bool pd_landing_has_outcomes(unsigned method)
{
    return has_weights(method) || method == PD_PUSH;
}

/* Lets the payload be read and thrown away: no operation waits for it. */
static int discard(pd_core *core, const pd_prefix *prefix, struct iovec **spans, size_t *n)
{
    core->scratch->landing[0] = (struct iovec){ NULL, prefix->payload_bytes };
    *spans = core->scratch->landing;
    *n = prefix->payload_bytes > 0 ? 1 : 0;
    return PD_OK;
}

pd_known *pd_landing_known(const pd_core *core, const pd_outgoing_frame *frame, size_t part)
{
    return &core->params[frame->op->items[frame->parts[part].item].param];
}

size_t pd_landing_bytes(const pd_core *core, const pd_outgoing_frame *frame, size_t part)
{
    size_t bytes = frame->parts[part].bytes;

    if (bytes == 0 || !core->reply->outcomes[part]->update) return bytes;
    return bytes / sizeof(float) * pd_dtype_size(pd_landing_known(core, frame, part)->update);
}

/* Checks that the answer's updates were asked for, and makes room for them. *payload: bytes expected. */
static int take_updates(pd_core *core, const pd_prefix *prefix, const pd_outgoing_frame *frame, uint64_t *payload)
{
    uint64_t room = 0;

    *payload = 0;
    for (size_t i = 0; i < frame->n_parts; i++) {
        bool update = core->reply->outcomes[i]->update;
        if (update && (frame->parts[i].bytes == 0 || pd_landing_known(core, frame, i)->update == 0))
            return pd_reply_broken(core, prefix, "an update that was not asked for");
        if (pd_landing_bytes(core, frame, i) > 0)
            *payload = pd_piece_end(*payload, 0) + pd_landing_bytes(core, frame, i);
        if (update) room += pd_landing_bytes(core, frame, i);
    }
    if (room > core->updates_room) {
        uint8_t *more = realloc(core->updates, room);
        if (more == NULL) {
            pd_core_drop(core, "out of memory");
            return PD_NO_MEMORY;
        }
        core->updates = more;
        core->updates_room = room;
    }
    return PD_OK;
}

/* Fills the places of weights and updates, each at the next multiple of 64 in the payload. The padding between them and
 * after the last one is thrown away. Returns the number of places. */
static size_t land(pd_core *core, const pd_outgoing_frame *frame, uint64_t payload_bytes)
{
    struct iovec *iov = core->scratch->landing;
    uint64_t offset = 0;
    size_t n = 0, used = 0;

    for (size_t i = 0; i < frame->n_parts; i++) {
        uint64_t start = pd_piece_end(offset, 0);
        size_t bytes = pd_landing_bytes(core, frame, i);
        bool update = core->reply->outcomes[i]->update;

        if (bytes == 0) continue;
        if (start > offset) iov[n++] = (struct iovec){ NULL, start - offset };
        iov[n++] = (struct iovec){ update ? core->updates + used : frame->parts[i].land, bytes };
        offset = start + bytes;
        if (update) used += bytes;
    }
    if (payload_bytes > offset) iov[n++] = (struct iovec){ NULL, payload_bytes - offset };
    return n;
}

static int has_length(pd_core *core, const pd_prefix *prefix, uint64_t expected)
{
    if (prefix->payload_bytes == expected || prefix->payload_bytes == pd_piece_end(expected, 0)) return PD_OK;
    return pd_reply_broken(core, prefix, "its payload has not the length of what was asked");
}

int pd_core_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    pd_core *core = arg;
    pd_outgoing_frame *frame = pd_outgoing_find(&core->out, prefix->request);
    uint64_t payload;
    void *reply;
    int rc;

    core->reply = NULL;
    if (core->ended.code != PD_OK) return core->ended.code;
    if (core->stage == STAGE_DROP) return PD_CANCELLED;         /* the answer may belong to a job that is gone */
    if ((prefix->flags & PD_FLAG_REPLY) == 0 && (prefix->flags & PD_FLAG_ERROR) == 0)
        return pd_reply_broken(core, prefix, "not marked as an answer");
    if (frame == NULL || frame->answered || (prefix->flags & PD_FLAG_ERROR) != 0)
        return discard(core, prefix, spans, n);
    if (frame->method != prefix->method) return pd_reply_broken(core, prefix, "another method than was asked");
    if (!pd_landing_has_outcomes(frame->method)) return has_length(core, prefix, frame->reply_bytes);
    if (frame->op == NULL) return discard(core, prefix, spans, n);
    if ((rc = pd_reply_take(core, prefix, header, &reply)) != PD_OK) return rc;
    core->reply = reply;
    if (core->reply->n_outcomes != frame->n_parts)
        return pd_reply_broken(core, prefix, "not one outcome for each piece");
    if ((rc = take_updates(core, prefix, frame, &payload)) != PD_OK) return rc;
    if ((rc = has_length(core, prefix, payload)) != PD_OK) return rc;
    *spans = core->scratch->landing;
    *n = land(core, frame, prefix->payload_bytes);
    return PD_OK;
}
