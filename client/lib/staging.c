/* staging.c - finds places in the worker's segment, and copies gradients there. */
#include "staging.h"

#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "frame.h"

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
    if (block->next != NULL)
        block->next->prev = block->prev;
    else
        staging->last = block->prev;
    staging->given_up -= block->given_up;
    free(block);
}

void pd_staging_free(pd_staging *staging)
{
    while (staging->first != NULL) remove_block(staging, staging->first);
    if (staging->segment.at != NULL) pd_segment_drop(&staging->segment);
}

/* ---- gradients that lie in the segment themselves ---- */

/* Returns whether the payload's spans lie in the segment as in one piece. Sets *at to the offset of its beginning. The
 * server does not look at padding, so only the tensors must be there. */
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

/* ---- blocks ---- */

/* A part of the segment that is in no block: behind `before` (NULL: behind its beginning), from `at` to `end`. */
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

/* Finds a gap with room, in a round from the most recent block on. Returns false if there is none. */
static bool find_gap(const pd_staging *staging, uint64_t bytes, gap *found)
{
    pd_block *begin = staging->recent, *before = begin;

    do {
        *found = gap_behind(staging, before);
        if (fits(found, found->at, bytes)) return true;
        before = before != NULL ? before->next : staging->first; /* behind the last block: before the first one */
    } while (before != begin);
    return false;
}

/* Finds the gap with room at the offset `at`, from the most recent block on: homes are mostly taken in order. Returns
 * false if blocks are there. */
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

/* Takes `bytes` bytes from the offset `at` on, in a gap that has them. NULL: out of memory. */
static pd_block *take_block(pd_staging *staging, const gap *from, uint64_t at, uint64_t bytes)
{
    pd_block *before = from->before, *block = calloc(1, sizeof *block);
    pd_block **next = before != NULL ? &before->next : &staging->first;

    if (block == NULL) return NULL;
    *block = (pd_block){ .prev = before, .next = *next, .at = at, .bytes = bytes };
    if (block->next != NULL)
        block->next->prev = block;
    else
        staging->last = block;
    *next = block;
    if (staging->used < at + bytes) staging->used = at + bytes;
    return staging->recent = block;
}

static pd_block *take_any_block(pd_staging *staging, uint64_t bytes)
{
    gap found;

    return find_gap(staging, bytes, &found) ? take_block(staging, &found, found.at, bytes) : NULL;
}

void *pd_staging_home(pd_staging *staging, uint64_t wanted, uint64_t bytes)
{
    uint64_t used = staging->used;
    gap found;
    pd_block *block = find_gap_at(staging, wanted, bytes, &found) ? take_block(staging, &found, wanted, bytes)
                                                                  : take_any_block(staging, bytes);

    if (block == NULL) return NULL;
    if (block->at < used) memset(staging->segment.at + block->at, 0, block->bytes);
    return staging->segment.at + block->at;
}

/* ---- frames ---- */

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

void pd_staging_end(pd_staging *staging, pd_outgoing_frame *frame, bool read)
{
    pd_block *block = frame->block;

    frame->block = NULL;
    if (block == NULL) return;
    if (read) {
        remove_block(staging, block);
        return;
    }
    block->given_up = true;
    block->step = frame->step;
    staging->given_up++;
}

void pd_staging_reclaim(pd_staging *staging, uint64_t step)
{
    for (pd_block *block = staging->first, *next; block != NULL && staging->given_up > 0; block = next) {
        next = block->next;
        if (block->given_up && block->step <= step) remove_block(staging, block);
    }
}
