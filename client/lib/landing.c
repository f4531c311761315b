/* landing.c - decides where the payload of an answer is received: in the caller's weights, in a buffer, or nowhere. */
#include "landing.h"

#include "pages.h"
#include "core_end.h"
#include "note.h"
#include "parts.h"
#include "pieces.h"
#include "reply.h"
#include "window.h"

#include <stdlib.h>

/* Bytes that are hashed and copied at a time. */
enum { COPY_SLICE = 256 * 1024 };

static bool has_weights(unsigned method)
{
    return method == PD_PULL || method == PD_PUSH_PULL;
}

bool pd_landing_has_outcomes(unsigned method)
{
    return has_weights(method) || method == PD_PUSH;
}

/* Makes the framer read the payload of an answer and throw it away, because no
 * call of the user waits for this answer. */
static int discard(pd_core *core, const pd_prefix *prefix, struct iovec **spans, size_t *n)
{
    core->scratch->landing[0] = (struct iovec){ NULL, prefix->payload_bytes };
    *spans = core->scratch->landing;
    *n = prefix->payload_bytes > 0 && (prefix->flags & PD_FLAG_SHARED) == 0 ? 1 : 0;
    return PD_OK;
}

/* Makes the core's buffer for received bytes large enough. It receives updates, or the payload
 * of an answer to paramctl. */
static int make_room(pd_core *core, uint64_t bytes)
{
    uint8_t *more;

    if (bytes <= core->updates_room) return PD_OK;
    if ((more = realloc(core->updates, bytes)) == NULL) {
        pd_core_drop(core, "out of memory");
        return PD_NO_MEMORY;
    }
    core->updates = more;
    core->updates_room = bytes;
    return PD_OK;
}

/* Checks the updates in an answer. An update is the change of weights, sent instead of the weights. The answer
 * breaks the protocol if the client did not ask for the update. Makes room for what is buffered, and sets *payload to
 * the number of payload bytes that the answer must have. */
static int take_updates(pd_core *core, const pd_prefix *prefix, const pd_outgoing_frame *frame, uint64_t *payload)
{
    uint64_t room = 0;

    *payload = 0;
    for (size_t i = 0; i < frame->n_parts; i++) {
        bool update = core->reply->outcomes[i]->update;
        if (update && (frame->parts[i].bytes == 0 || pd_part_known(core, frame, i)->update == 0))
            return pd_reply_broken(core, prefix, "an update that was not asked for");
        if (pd_part_bytes(core, frame, i) > 0) *payload = pd_piece_end(*payload, 0) + pd_part_bytes(core, frame, i);
        if (pd_part_buffered(core, frame, i)) room += pd_part_bytes(core, frame, i);
    }
    return make_room(core, room);
}

/* Lists the memory that receives the answer's payload. Weights go to the caller's buffers, updates and weights that
 * nobody waits for to the core's buffer. In the payload each tensor or chunk begins at a multiple of 64 bytes; the
 * padding between them is thrown away. Returns the number of list entries. */
static size_t land(pd_core *core, const pd_outgoing_frame *frame, uint64_t payload_bytes)
{
    struct iovec *iov = core->scratch->landing;
    uint64_t offset = 0;
    size_t n = 0, used = 0;

    for (size_t i = 0; i < frame->n_parts; i++) {
        uint64_t start = pd_piece_end(offset, 0);
        size_t bytes = pd_part_bytes(core, frame, i);
        bool buffered = pd_part_buffered(core, frame, i);

        if (bytes == 0) continue;
        if (start > offset) iov[n++] = (struct iovec){ NULL, start - offset };
        iov[n++] = (struct iovec){ buffered ? core->updates + used : frame->parts[i].land, bytes };
        offset = start + bytes;
        if (buffered) used += bytes;
    }
    if (payload_bytes > offset) iov[n++] = (struct iovec){ NULL, payload_bytes - offset };
    return n;
}

/* Lists the weights and updates that the answer has in shared memory, and where they are copied. PD_INTERNAL: one of
 * them does not lie in the server's segment. */
static int land_shared(pd_core *core, const pd_prefix *prefix, const pd_outgoing_frame *frame)
{
    const pd_segment *weights = &core->sharing.weights;
    size_t used = 0;

    for (size_t i = 0; i < frame->n_parts; i++) {
        const Paramd__Outcome *outcome = core->reply->outcomes[i];
        size_t bytes = pd_part_bytes(core, frame, i);

        if (bytes == 0) continue;
        if (outcome->place >= weights->bytes || bytes > weights->bytes - outcome->place)
            return pd_reply_broken(core, prefix, "its weights do not lie in the shared memory");
        core->scratch->copy[core->n_copies++] = (pd_copy){
            .to = pd_part_buffered(core, frame, i) ? core->updates + used : frame->parts[i].land,
            .from = weights->at + outcome->place,
            .bytes = bytes,
        };
        core->stats.shared_in += bytes;
        if (pd_part_buffered(core, frame, i)) used += bytes;
    }
    return PD_OK;
}

/* Copies one tensor or chunk in slices, each of which is hashed while it is in the cache: the copy bypasses the cache,
 * so a hash of the copy would read it from memory. */
static void copy_and_hash(pd_core *core, const pd_copy *copy)
{
    for (size_t at = 0, n; at < copy->bytes; at += n) {
        const uint8_t *from = (const uint8_t *)copy->from + at;

        n = copy->bytes - at < COPY_SLICE ? copy->bytes - at : COPY_SLICE;
        pd_core_digest(core, from, n);
        pd_copy_bytes((uint8_t *)copy->to + at, from, n);
    }
}

void pd_core_copy(pd_core *core)
{
    for (size_t i = 0; i < core->n_copies; i++) copy_and_hash(core, &core->scratch->copy[i]);
}

static int has_length(pd_core *core, const pd_prefix *prefix, uint64_t expected)
{
    if (prefix->payload_bytes == expected || prefix->payload_bytes == pd_piece_end(expected, 0)) return PD_OK;
    return pd_reply_broken(core, prefix, "its payload has not the length of what was asked");
}

/* Receives the payload of the answer to an operator's request in the core's buffer. Answers to other
 * methods must have no payload. */
static int land_whole(pd_core *core, const pd_prefix *prefix, const pd_outgoing_frame *frame, struct iovec **spans,
                      size_t *n)
{
    int rc = has_length(core, prefix, frame->op != NULL ? frame->op->payload_bytes : 0);

    if (rc == PD_OK && prefix->payload_bytes > 0 && (prefix->flags & PD_FLAG_SHARED) != 0)
        rc = pd_reply_broken(core, prefix, "a payload in shared memory that holds no weights");
    if (rc == PD_OK) rc = make_room(core, prefix->payload_bytes);
    if (rc != PD_OK || prefix->payload_bytes == 0) return rc;
    core->scratch->landing[0] = (struct iovec){ core->updates, prefix->payload_bytes };
    *spans = core->scratch->landing;
    *n = 1;
    return PD_OK;
}

/* Checks that an answer with this prefix may come now. */
static int check_prefix(pd_core *core, const pd_prefix *prefix)
{

    if (core->ended.code != PD_OK) return core->ended.code;
    /* The core is dropping this connection. Its answers are not used: they may
     * belong to a job that is lost. */
    if (core->stage == STAGE_DROP) return PD_CANCELLED;
    if ((prefix->flags & PD_FLAG_REPLY) == 0 && (prefix->flags & PD_FLAG_ERROR) == 0)
        return pd_reply_broken(core, prefix, "not marked as an answer");
    if ((prefix->flags & PD_FLAG_SHARED) != 0 && core->sharing.weights.at == NULL)
        return pd_reply_broken(core, prefix, "in shared memory, but none is shared on this connection");
    return PD_OK;
}

/* Receives an answer with the outcomes of rounds. */
static int land_outcomes(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_outgoing_frame *frame,
                         struct iovec **spans, size_t *n)
{
    uint64_t payload;
    void *reply;
    int rc;

    if ((rc = pd_reply_take(core, prefix, header, &reply)) != PD_OK) return rc;
    core->reply = reply;
    if (core->reply->n_outcomes != frame->n_parts)
        return pd_reply_broken(core, prefix, "not one outcome for each piece");
    if ((rc = take_updates(core, prefix, frame, &payload)) != PD_OK) return rc;
    if ((rc = has_length(core, prefix, payload)) != PD_OK) return rc;
    if ((prefix->flags & PD_FLAG_SHARED) != 0) return land_shared(core, prefix, frame);
    *spans = core->scratch->landing;
    *n = land(core, frame, prefix->payload_bytes);
    return PD_OK;
}

int pd_core_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    pd_core *core = arg;
    pd_outgoing_frame *frame = pd_outgoing_find(&core->out, prefix->request);
    int rc;

    core->reply = NULL;
    core->n_copies = 0;
    pd_window_forget(core);
    if ((rc = check_prefix(core, prefix)) != PD_OK) return rc;
    if (frame == NULL || frame->answered || (prefix->flags & PD_FLAG_ERROR) != 0)
        return discard(core, prefix, spans, n);
    if (frame->method != prefix->method) return pd_reply_broken(core, prefix, "another method than was asked");
    if (frame->method == PD_RECALL && (rc = pd_note_expect(core, frame, prefix, header)) != PD_OK) return rc;
    if (!pd_landing_has_outcomes(frame->method))
        rc = land_whole(core, prefix, frame, spans, n);
    else if (frame->op == NULL && frame->past == NULL)
        return discard(core, prefix, spans, n);
    else
        rc = land_outcomes(core, prefix, header, frame, spans, n);
    if (rc == PD_OK) pd_window_expect(core, frame);
    return rc;
}
