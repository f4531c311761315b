/* outgoing.c - keeps the queue of frames that the client sends, and places their payloads in shared memory. */
#include "outgoing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "pages.h"
#include "frame.h"
#include "mutant.h"
#include "zeroed.h"

static void free_sent(pd_sent_frame *sent)
{
    free(sent->head);
    free(sent->payload);
    free(sent);
}

pd_sent_frame *pd_sent_frame_new(size_t n, const uint8_t *head, size_t head_bytes)
{
    pd_sent_frame *sent = calloc(1, sizeof *sent + n * sizeof *sent->pieces);

    if (sent == NULL) return NULL;
    sent->n = n;
    sent->head_bytes = head_bytes;
    sent->head = malloc(head_bytes);
    if (sent->head == NULL) {
        free_sent(sent);
        return NULL;
    }
    memcpy(sent->head, head, head_bytes);
    return sent;
}

void pd_sent_frame_drop(pd_sent_frame *sent)
{
    if (sent == NULL) return;
    if (sent->again != NULL)
        sent->dropped = true;
    else
        free_sent(sent);
}

#define UNIT ((uint64_t)PD_PAYLOAD_ALIGN)

int pd_staging_make(pd_staging *staging, uint64_t bytes, pd_error *err)
{
    pd_segment segment;
    int rc = pd_segment_make_full(&segment, bytes, err);

    if (rc == PD_OK) *staging = (pd_staging){ .segment = segment };
    return rc;
}

static void remove_block(pd_staging *staging, pd_block *block)
{
    if (staging->recent == block) staging->recent = block->prev;
    if (block->prev != NULL)
        block->prev->next = block->next;
    else
        staging->first = block->next;
    if (block->next != NULL) block->next->prev = block->prev;
    staging->given_up -= block->given_up;
    free(block);
}

void pd_staging_free(pd_staging *staging)
{
    while (staging->first != NULL) remove_block(staging, staging->first);
    if (staging->segment.at != NULL) pd_segment_drop(&staging->segment);
}

/* Returns whether the gradients of the frame already lie in the segment in the layout of the payload. If so, sets *at
 * to the offset of the first gradient. The server does not read the padding between gradients, so it may have any
 * content. */
static bool lies_in_place(const pd_staging *staging, const pd_outgoing_frame *frame, uint64_t *at)
{
    uint64_t offset = 0;

    for (size_t i = 0; i < frame->n_iov; i++) {
        const struct iovec *span = &frame->iov[i];
        uint64_t here;
        if (span->iov_base != pd_outgoing_padding) {
            if (!pd_segment_has(&staging->segment, span->iov_base, span->iov_len)) return false;
            here = (uint64_t)((const uint8_t *)span->iov_base - staging->segment.at) - offset;
            if (i == 0) *at = here;
            if (here != *at) return false;
        }
        offset += span->iov_len;
    }
    return frame->n_iov > 0 && *at % UNIT == 0;
}

/* A gap of the segment, in no block: the bytes from offset `at` to before `end`. `before` is the block before the gap;
 * NULL: the gap is at the segment's beginning. */
typedef struct gap {
    pd_block *before;
    uint64_t at, end;
} gap;

static gap gap_behind(const pd_staging *staging, pd_block *before)
{
    const pd_block *next = before != NULL ? before->next : staging->first;

    return (gap){ .before = before,
                  .at = before != NULL ? (before->at + before->bytes + UNIT - 1) / UNIT * UNIT : 0,
                  .end = next != NULL ? next->at : staging->segment.bytes };
}

static bool fits(const gap *free_part, uint64_t at, uint64_t bytes)
{
    return at >= free_part->at && at <= free_part->end && bytes <= free_part->end - at;
}

/* Finds a gap of at least `bytes` bytes. Searches from the most recent block to the end, then from the beginning on.
 * Returns false if there is none. */
static bool find_gap(const pd_staging *staging, uint64_t bytes, gap *found)
{
    pd_block *begin = staging->recent, *before = begin;

    do {
        *found = gap_behind(staging, before);
        if (fits(found, found->at, bytes)) return true;
        before = before != NULL ? before->next
                                : staging->first; /* the search continues with the gap before the first block */
    } while (before != begin);
    return false;
}

/* Finds the gap that has the `bytes` bytes from offset `at` on. Searches from the most recent block on, since buffers
 * are mostly taken in order. Returns false if blocks lie there. */
static bool find_gap_at(const pd_staging *staging, uint64_t at, uint64_t bytes, gap *found)
{
    pd_block *before = staging->recent;

    while (before != NULL && before->at > at) before = before->prev;
    for (pd_block *next = before != NULL ? before->next : staging->first; next != NULL && next->at <= at;
         next = next->next)
        before = next;
    *found = gap_behind(staging, before);
    return fits(found, at, bytes);
}

/* Makes a block of the `bytes` bytes from offset `at` on, in a gap that has them. NULL: out of memory. */
static pd_block *take_block(pd_staging *staging, const gap *from, uint64_t at, uint64_t bytes)
{
    pd_block *before = from->before, *block = calloc(1, sizeof *block);
    pd_block **next = before != NULL ? &before->next : &staging->first;

    if (block == NULL) return NULL;
    *block = (pd_block){ .prev = before, .next = *next, .at = at, .bytes = bytes };
    if (block->next != NULL) block->next->prev = block;
    *next = block;
    if (staging->used < at + bytes) staging->used = at + bytes;
    return staging->recent = block;
}

static pd_block *take_any_block(pd_staging *staging, uint64_t bytes)
{
    gap found;

    return find_gap(staging, bytes, &found) ? take_block(staging, &found, found.at, bytes) : NULL;
}

void *pd_staging_take_buffer(pd_staging *staging, uint64_t wanted, uint64_t bytes)
{
    uint64_t used = staging->used;
    gap found;
    pd_block *block = find_gap_at(staging, wanted, bytes, &found) ? take_block(staging, &found, wanted, bytes)
                                                                  : take_any_block(staging, bytes);

    if (block == NULL) return NULL;
    block->buffer = true;
    if (block->at < used) memset(staging->segment.at + block->at, 0, block->bytes);
    return staging->segment.at + block->at;
}

bool pd_staging_is_read(const pd_staging *staging, const void *buffer)
{
    const pd_block *block = staging->first;

    if (staging->given_up == 0) return false;
    while (block != NULL && staging->segment.at + block->at != buffer) block = block->next;
    return block != NULL && block->given_up;
}

bool pd_staging_place(pd_staging *staging, pd_outgoing_frame *frame)
{
    uint64_t at = 0;

    if (frame->block == NULL && !lies_in_place(staging, frame, &at)) {
        if ((frame->block = take_any_block(staging, frame->payload_bytes)) == NULL) return false;
        frame->filled = false;
    }
    if (frame->block != NULL) at = frame->block->at;
    frame->place = (uint32_t)(at / UNIT);
    return at / UNIT <= UINT32_MAX;
}

void pd_staging_fill(const pd_staging *staging, pd_outgoing_frame *frame)
{
    uint8_t *to;

    if (frame->block == NULL || frame->filled) return;
    to = staging->segment.at + frame->block->at;
    for (size_t i = 0; i < frame->n_iov; to += frame->iov[i++].iov_len)
        pd_copy_bytes(to, frame->iov[i].iov_base, frame->iov[i].iov_len);
    frame->filled = true;
}

static void give_up(pd_staging *staging, pd_block *block, uint64_t step)
{
    staging->given_up += !block->given_up;
    block->given_up = true;
    if (step > block->step) block->step = step;
}

/* Gives the buffers of the user up in which the payload of the frame lies. */
static void give_up_buffers(pd_staging *staging, const pd_outgoing_frame *frame)
{
    uint64_t at = frame->place * UNIT, end = at + frame->payload_bytes;

    for (pd_block *block = staging->first; block != NULL && block->at < end; block = block->next)
        if (block->buffer && block->at + block->bytes > at) give_up(staging, block, frame->step);
}

void pd_staging_end(pd_staging *staging, pd_outgoing_frame *frame, bool read)
{
    pd_block *block = frame->block;

    frame->block = NULL;
    if (block != NULL && read)
        remove_block(staging, block);
    else if (block != NULL)
        give_up(staging, block, frame->step);
    else if (!read)
        give_up_buffers(staging, frame);
}

void pd_staging_reclaim(pd_staging *staging, uint64_t step)
{
    for (pd_block *block = staging->first, *next; block != NULL && staging->given_up > 0; block = next) {
        next = block->next;
        if (!block->given_up || block->step > step) continue;
        if (!block->buffer) {
            remove_block(staging, block);
            continue;
        }
        block->given_up = false;
        block->step = 0;
        staging->given_up--;
    }
}

const uint8_t pd_outgoing_padding[PD_PAYLOAD_ALIGN];

pd_outgoing_frame *pd_outgoing_frame_new(uint8_t *head, size_t head_bytes, const pd_frame_piece *pieces,
                                         size_t n_pieces, const struct iovec *iov, size_t n_iov)
{
    pd_outgoing_frame *frame = pd_zeroed(sizeof *frame + n_pieces * sizeof *pieces + n_iov * sizeof *iov);

    if (frame == NULL) {
        free(head);
        return NULL;
    }
    frame->head = head;
    frame->head_bytes = head_bytes;
    frame->pieces = (pd_frame_piece *)(frame + 1);
    frame->n_pieces = n_pieces;
    frame->iov = (struct iovec *)(frame->pieces + n_pieces);
    frame->n_iov = n_iov;
    if (n_pieces > 0) memcpy(frame->pieces, pieces, n_pieces * sizeof *pieces);
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

/* What uthash does if it has no memory for a new entry: it marks the frame as being in no hash table. */
#undef uthash_nonfatal_oom
#define uthash_nonfatal_oom(frame) ((frame)->hh.tbl = NULL)

/* Links a frame into a list: at its end, or among the held frames in the order of ids. */
static void link_in(pd_outgoing *out, pd_outgoing_frame *frame, pd_queue queue)
{
    pd_outgoing_frame **first = &out->queue[queue].first, *before = *first != NULL ? (*first)->prev : NULL;

    while (queue == PD_QUEUE_HELD && before != NULL && before->id > frame->id)
        before = before != *first ? before->prev : NULL;
    frame->queue = queue;
    if (before != NULL)
        DL_APPEND_ELEM(*first, before, frame);
    else
        DL_PREPEND(*first, frame);
    if (out->queue[queue].next == NULL && queue != PD_QUEUE_HELD) out->queue[queue].next = frame;
}

static void link_out(pd_outgoing *out, pd_outgoing_frame *frame)
{
    pd_queue queue = frame->queue;

    if (out->queue[queue].next == frame) out->queue[queue].next = frame->next;
    DL_DELETE(out->queue[queue].first, frame);
}

bool pd_outgoing_add(pd_outgoing *out, pd_outgoing_frame *frame, pd_queue queue)
{
    HASH_ADD(hh, out->by_id, id, sizeof frame->id, frame);
    if (frame->hh.tbl == NULL) return false;
    link_in(out, frame, queue);
    return true;
}

pd_outgoing_frame *pd_outgoing_first(const pd_outgoing *out)
{
    pd_outgoing_frame *first = out->queue[PD_QUEUE_LASTING].first;

    return first != NULL ? first : out->queue[PD_QUEUE_HELD].first;
}

pd_outgoing_frame *pd_outgoing_after(const pd_outgoing *out, const pd_outgoing_frame *frame)
{
    if (frame->next != NULL || frame->queue == PD_QUEUE_HELD) return frame->next;
    return out->queue[PD_QUEUE_HELD].first;
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
    return out->gone > 0 && out->queue[out->current].next == frame;
}

bool pd_outgoing_move(pd_outgoing *out, pd_outgoing_frame *frame, pd_queue queue)
{
    if (frame->lent || half_sent(out, frame)) return false;
    link_out(out, frame);
    frame->sent = false;
    link_in(out, frame, queue);
    return true;
}

static void take_out(pd_outgoing *out, pd_outgoing_frame *frame)
{
    assert(!frame->lent);
    link_out(out, frame);
    HASH_DELETE(hh, out->by_id, frame);
    pd_staging_end(&out->staging, frame, !frame->exposed || PD_MUTANT(given_up_block_free));
    if (frame->source != NULL) {
        frame->source->again = NULL;
        if (frame->source->dropped) free_sent(frame->source);
    }
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
    for (pd_queue queue = 0; queue < PD_QUEUES; queue++) {
        for (pd_outgoing_frame *frame = out->queue[queue].first, *next; frame != NULL; frame = next) {
            next = frame->next;
            if (!frame->lent && half_sent(out, frame)) out->gone = 0; /* the rest of the frame will not be sent */
            pd_outgoing_retire(out, frame);
        }
    }
}

/* Chooses the frame to send next: first a frame that is half sent, then frames of the connection, then frames of the
 * user's calls. */
static pd_outgoing_frame *choose(pd_outgoing *out, pd_queue *queue)
{
    if (out->gone > 0)
        *queue = out->current;
    else if (out->queue[PD_QUEUE_CONNECTION].next != NULL)
        *queue = PD_QUEUE_CONNECTION;
    else
        *queue = PD_QUEUE_LASTING;
    return *queue == PD_QUEUE_CONNECTION || out->open ? out->queue[*queue].next : NULL;
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
        struct iovec piece = i == 0 ? (struct iovec){ frame->head, frame->head_bytes } : frame->iov[i - 1];
        size_t cut = skip < piece.iov_len ? skip : piece.iov_len;

        skip -= cut;
        if (cut == piece.iov_len) continue;
        iov[n++] = (struct iovec){ (uint8_t *)piece.iov_base + cut, piece.iov_len - cut };
        *bytes += piece.iov_len - cut;
    }
    return n;
}

int pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes)
{
    pd_queue queue;
    pd_outgoing_frame *frame = choose(out, &queue);
    bool yields = queue == PD_QUEUE_LASTING && out->queue[PD_QUEUE_CONNECTION].next != NULL;
    size_t skip = out->gone, gathered = 0;
    int n = 0;

    assert(out->lent == 0);
    out->current = queue;
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
    pd_outgoing_frame *frame = out->queue[out->current].next;

    for (size_t i = 0; i < out->lent; i++) { /* the last frame's `next` is not read: another thread may set it */
        if (i > 0) frame = frame->next;
        if (frame->shared) pd_staging_fill(&out->staging, frame);
    }
}

/* Frees a frame that was retired while its bytes were being sent. Now they are sent, so `done` is called if the frame
 * still belongs to an operation. */
static void leave(pd_outgoing *out, pd_outgoing_frame *frame, pd_outgoing_done *done, void *arg)
{
    if (frame->op != NULL) done(arg, frame);
    take_out(out, frame);
}

/* Notes that the first n of the bytes that were lent to the sender are sent. */
static void advance(pd_outgoing *out, size_t n, pd_outgoing_done *done, void *arg)
{
    while (n > 0) {
        pd_outgoing_frame *frame = out->queue[out->current].next;
        size_t left;

        assert(out->lent > 0 && frame->lent);
        left = bytes_to_send(frame) - out->gone;
        if (n < left) {
            out->gone += n;
            return;
        }
        n -= left;
        out->gone = 0;
        out->queue[out->current].next = frame->next;
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
    frame = out->queue[out->current].next;
    for (; out->lent > 0; out->lent--, frame = next) {
        next = frame->next;
        frame->lent = false;
        if (frame->answered && !half_sent(out, frame)) leave(out, frame, done, arg);
    }
}

bool pd_outgoing_pending(const pd_outgoing *out)
{
    return out->gone > 0 || out->queue[PD_QUEUE_CONNECTION].next != NULL ||
           (out->open && out->queue[PD_QUEUE_LASTING].next != NULL);
}

static void take_back(pd_outgoing *out)
{
    for (pd_outgoing_frame *frame = out->queue[out->current].next; out->lent > 0; out->lent--, frame = frame->next)
        frame->lent = false;
    out->gone = 0;
}

size_t pd_outgoing_rewind(pd_outgoing *out, pd_outgoing_done *done, void *arg)
{
    size_t again = 0;

    take_back(out);
    out->open = false;
    out->shares = out->shares && PD_MUTANT(sharing_outlives_connection);
    while (out->queue[PD_QUEUE_CONNECTION].first != NULL) take_out(out, out->queue[PD_QUEUE_CONNECTION].first);
    for (pd_outgoing_frame *frame = out->queue[PD_QUEUE_LASTING].first, *next; frame != NULL; frame = next) {
        next = frame->next;
        if (frame->sent) again++;
        frame->sent = false;
        if (frame->answered) leave(out, frame, done, arg);
    }
    out->queue[PD_QUEUE_LASTING].next = out->queue[PD_QUEUE_LASTING].first;
    return again;
}

void pd_outgoing_clear(pd_outgoing *out)
{
    take_back(out);
    for (pd_queue queue = 0; queue < PD_QUEUES; queue++)
        while (out->queue[queue].first != NULL) take_out(out, out->queue[queue].first);
}
