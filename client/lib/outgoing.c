/* outgoing.c - the queue of frames that the client sends. */
#include "outgoing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "sent_frame.h"
#include "mutant.h"

const uint8_t pd_outgoing_padding[PD_PAYLOAD_ALIGN];

pd_outgoing_frame *pd_outgoing_frame_new(uint8_t *head, size_t head_bytes, const pd_part *parts, size_t n_parts,
                                         const struct iovec *iov, size_t n_iov)
{
    pd_outgoing_frame *frame = calloc(1, sizeof *frame + n_parts * sizeof *parts + n_iov * sizeof *iov);

    if (frame == NULL) {
        free(head);
        return NULL;
    }
    frame->head = head;
    frame->head_bytes = head_bytes;
    frame->parts = (pd_part *)(frame + 1);
    frame->n_parts = n_parts;
    frame->iov = (struct iovec *)(frame->parts + n_parts);
    frame->n_iov = n_iov;
    if (n_parts > 0) memcpy(frame->parts, parts, n_parts * sizeof *parts);
    if (n_iov > 0) memcpy(frame->iov, iov, n_iov * sizeof *iov);
    for (size_t i = 0; i < n_iov; i++) frame->payload_bytes += iov[i].iov_len;
    return frame;
}

void pd_outgoing_frame_free(pd_outgoing_frame *frame)
{
    if (frame == NULL) return;
    free(frame->head);
    free(frame);
}

/* Tells uthash what to do if it has no memory for a new entry: mark the frame as being in
 * no hash table. */
#undef uthash_nonfatal_oom
#define uthash_nonfatal_oom(frame) ((frame)->hh.tbl = NULL)

/* Links a frame into a lane: behind all others, or, among held frames, behind those with smaller ids. */
static void link_in(pd_outgoing *out, pd_outgoing_frame *frame, pd_lane lane)
{
    pd_outgoing_frame *before = out->lane[lane].last;

    while (lane == PD_LANE_HELD && before != NULL && before->id > frame->id) before = before->prev;
    frame->lane = lane;
    frame->prev = before;
    frame->next = before != NULL ? before->next : out->lane[lane].first;
    if (frame->next != NULL)
        frame->next->prev = frame;
    else
        out->lane[lane].last = frame;
    if (before != NULL)
        before->next = frame;
    else
        out->lane[lane].first = frame;
    if (out->lane[lane].next == NULL && lane != PD_LANE_HELD) out->lane[lane].next = frame;
}

static void link_out(pd_outgoing *out, pd_outgoing_frame *frame)
{
    pd_lane lane = frame->lane;

    if (out->lane[lane].next == frame) out->lane[lane].next = frame->next;
    if (frame->prev != NULL)
        frame->prev->next = frame->next;
    else
        out->lane[lane].first = frame->next;
    if (frame->next != NULL)
        frame->next->prev = frame->prev;
    else
        out->lane[lane].last = frame->prev;
}

bool pd_outgoing_add(pd_outgoing *out, pd_outgoing_frame *frame, pd_lane lane)
{
    HASH_ADD(hh, out->by_id, id, sizeof frame->id, frame);
    if (frame->hh.tbl == NULL) return false;
    link_in(out, frame, lane);
    return true;
}

pd_outgoing_frame *pd_outgoing_first(const pd_outgoing *out)
{
    pd_outgoing_frame *first = out->lane[PD_LANE_LASTING].first;

    return first != NULL ? first : out->lane[PD_LANE_HELD].first;
}

pd_outgoing_frame *pd_outgoing_after(const pd_outgoing *out, const pd_outgoing_frame *frame)
{
    if (frame->next != NULL || frame->lane == PD_LANE_HELD) return frame->next;
    return out->lane[PD_LANE_HELD].first;
}

pd_outgoing_frame *pd_outgoing_find(const pd_outgoing *out, uint64_t id)
{
    pd_outgoing_frame *frame;
    HASH_FIND(hh, out->by_id, &id, sizeof id, frame);
    return frame;
}

/* Returns whether some bytes of the frame are sent, but not all. */
static bool half_sent(const pd_outgoing *out, const pd_outgoing_frame *frame)
{
    return out->gone > 0 && out->lane[out->current].next == frame;
}

bool pd_outgoing_move(pd_outgoing *out, pd_outgoing_frame *frame, pd_lane lane)
{
    if (frame->lent || half_sent(out, frame)) return false;
    link_out(out, frame);
    frame->sent = false;
    link_in(out, frame, lane);
    return true;
}

static void take_out(pd_outgoing *out, pd_outgoing_frame *frame)
{
    assert(!frame->lent);
    link_out(out, frame);
    HASH_DELETE(hh, out->by_id, frame);
    pd_staging_end(&out->staging, frame, !frame->exposed || PD_MUTANT(given_up_block_free));
    if (frame->past != NULL) pd_sent_frame_release(frame->past);
    pd_outgoing_frame_free(frame);
}

bool pd_outgoing_retire(pd_outgoing *out, pd_outgoing_frame *frame)
{
    frame->answered = frame->lent || half_sent(out, frame);
    if (frame->answered) return false;
    take_out(out, frame);
    return true;
}

void pd_outgoing_remove(pd_outgoing *out, pd_outgoing_frame *frame)
{
    frame->op = NULL;
    pd_outgoing_retire(out, frame);
}

void pd_outgoing_retire_all(pd_outgoing *out)
{
    for (pd_lane lane = 0; lane < PD_LANES; lane++) {
        for (pd_outgoing_frame *frame = out->lane[lane].first, *next; frame != NULL; frame = next) {
            next = frame->next;
            if (!frame->lent && half_sent(out, frame)) out->gone = 0; /* the rest of the frame will not be sent */
            pd_outgoing_retire(out, frame);
        }
    }
}

/* ---- sending ---- */

/* Chooses the frame to send next: first a frame that is half sent, then frames of the connection (such as
 * heartbeats), then frames of the user's calls. */
static pd_outgoing_frame *choose(pd_outgoing *out, pd_lane *lane)
{
    if (out->gone > 0)
        *lane = out->current;
    else if (out->lane[PD_LANE_CONNECTION].next != NULL)
        *lane = PD_LANE_CONNECTION;
    else
        *lane = PD_LANE_LASTING;
    return *lane == PD_LANE_CONNECTION || out->open ? out->lane[*lane].next : NULL;
}

/* Decides, before the first byte of a frame is sent, whether its payload goes through the socket, and writes the
 * decision into the frame's prefix. */
static void decide(pd_outgoing *out, pd_outgoing_frame *frame)
{
    if (frame->step == 0) return;
    frame->shared = out->shares && frame->payload_bytes >= pd_least_shared(out->least_shared) &&
                    pd_staging_place(&out->staging, frame);
    pd_prefix_share(frame->head, frame->shared, frame->shared ? frame->place : 0);
    if (!frame->shared) return;
    frame->exposed = true;
}

static size_t bytes_to_send(const pd_outgoing_frame *frame)
{
    return frame->head_bytes + (frame->shared ? 0 : frame->payload_bytes);
}

/* Lists the bytes of a frame as iovec entries, without its first `skip` bytes, which are sent already. */
static int gather_one(const pd_outgoing_frame *frame, size_t skip, struct iovec *iov, int max, size_t *bytes)
{
    int n = 0;

    for (size_t i = 0; i <= (frame->shared ? 0 : frame->n_iov) && n < max; i++) {
        struct iovec part = i == 0 ? (struct iovec){ frame->head, frame->head_bytes } : frame->iov[i - 1];
        size_t cut = skip < part.iov_len ? skip : part.iov_len;

        skip -= cut;
        if (cut == part.iov_len) continue;
        iov[n++] = (struct iovec){ (uint8_t *)part.iov_base + cut, part.iov_len - cut };
        *bytes += part.iov_len - cut;
    }
    return n;
}

int pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes)
{
    pd_lane lane;
    pd_outgoing_frame *frame = choose(out, &lane);
    bool yields = lane == PD_LANE_LASTING && out->lane[PD_LANE_CONNECTION].next != NULL;
    size_t skip = out->gone, gathered = 0;
    int n = 0;

    assert(out->lent == 0);
    out->current = lane;
    for (; frame != NULL && n < max && gathered < bytes; frame = frame->next, skip = 0) {
        if (skip == 0) decide(out, frame);
        n += gather_one(frame, skip, iov + n, max - n, &gathered);
        if (frame->shared && frame->block != NULL && !frame->filled) gathered += frame->payload_bytes;
        frame->lent = true;
        out->lent++;
        if (yields) break;
    }
    return n;
}

void pd_outgoing_fill(const pd_outgoing *out)
{
    pd_outgoing_frame *frame = out->lane[out->current].next;

    for (size_t i = 0; i < out->lent; i++) { /* the last frame's `next` is not read: another thread may set it */
        if (i > 0) frame = frame->next;
        if (frame->shared) pd_staging_fill(&out->staging, frame);
    }
}

/* Frees a frame that was retired while its bytes were being sent. Now they are sent, so
 * `done` is called if the frame still belongs to an operation. */
static void leave(pd_outgoing *out, pd_outgoing_frame *frame, pd_outgoing_done *done, void *arg)
{
    if (frame->op != NULL) done(arg, frame);
    take_out(out, frame);
}

/* Notes which of the bytes that were lent to the sender (given to it to send) are sent: the first n. */
static void advance(pd_outgoing *out, size_t n, pd_outgoing_done *done, void *arg)
{
    while (n > 0) {
        pd_outgoing_frame *frame = out->lane[out->current].next;
        size_t left;

        assert(out->lent > 0 && frame->lent);
        left = bytes_to_send(frame) - out->gone;
        if (n < left) {
            out->gone += n;
            return;
        }
        n -= left;
        out->gone = 0;
        out->lane[out->current].next = frame->next;
        frame->sent = true;
        frame->lent = false;
        if (frame->shared) out->shared_bytes += frame->payload_bytes;
        if (PD_MUTANT(block_free_when_sent)) pd_staging_end(&out->staging, frame, true);
        out->lent--;
        if (frame->answered) leave(out, frame, done, arg);
    }
}

void pd_outgoing_sent(pd_outgoing *out, size_t n, pd_outgoing_done *done, void *arg)
{
    pd_outgoing_frame *frame, *next;

    advance(out, n, done, arg);
    frame = out->lane[out->current].next;
    for (; out->lent > 0; out->lent--, frame = next) {
        next = frame->next;
        frame->lent = false;
        if (frame->answered && !half_sent(out, frame)) leave(out, frame, done, arg);
    }
}

bool pd_outgoing_pending(const pd_outgoing *out)
{
    return out->gone > 0 || out->lane[PD_LANE_CONNECTION].next != NULL ||
           (out->open && out->lane[PD_LANE_LASTING].next != NULL);
}

/* ---- the connection's end ---- */

static void take_back(pd_outgoing *out)
{
    for (pd_outgoing_frame *frame = out->lane[out->current].next; out->lent > 0; out->lent--, frame = frame->next)
        frame->lent = false;
    out->gone = 0;
}

size_t pd_outgoing_rewind(pd_outgoing *out, pd_outgoing_done *done, void *arg)
{
    size_t again = 0;

    take_back(out);
    out->open = false;
    out->shares = out->shares && PD_MUTANT(sharing_outlives_connection);
    while (out->lane[PD_LANE_CONNECTION].first != NULL) take_out(out, out->lane[PD_LANE_CONNECTION].first);
    for (pd_outgoing_frame *frame = out->lane[PD_LANE_LASTING].first, *next; frame != NULL; frame = next) {
        next = frame->next;
        if (frame->sent) again++;
        frame->sent = false;
        if (frame->answered) leave(out, frame, done, arg);
    }
    out->lane[PD_LANE_LASTING].next = out->lane[PD_LANE_LASTING].first;
    return again;
}

void pd_outgoing_clear(pd_outgoing *out)
{
    take_back(out);
    for (pd_lane lane = 0; lane < PD_LANES; lane++)
        while (out->lane[lane].first != NULL) take_out(out, out->lane[lane].first);
}
