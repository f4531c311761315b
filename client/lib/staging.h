/* staging.h - the worker's segment of shared memory: places for gradients that the server reads there.
 *
 * The segment has room for one gradient of each parameter. It is taken in blocks. A home is a block where the caller
 * computes a gradient (pd_client_buffer): then nothing is copied, and the block stays taken. Each frame whose gradient
 * lies elsewhere gets a block for a copy, until the server has answered it.
 *
 * A frame that the client gives up may still be read by the server, which counts the first contribution that it has
 * got. So its block stays taken until the step has closed. */
#ifndef PD_STAGING_H
#define PD_STAGING_H

#include "outgoing_frame.h"
#include "paramd/error.h"
#include "segment.h"

typedef struct pd_block {
    struct pd_block *prev, *next; /* neighbours, in the order of their places */
    uint64_t at, bytes;           /* offset in the segment */
    uint64_t step;                /* the step of the push; for blocks of frames that were given up */
    bool given_up;
} pd_block;

typedef struct pd_staging {
    pd_segment segment;
    uint64_t used;                   /* bytes behind this offset were never in a block */
    pd_block *first, *last, *recent; /* blocks; recent: the one that was taken last, behind which the search begins */
    size_t given_up;                 /* number of blocks whose frames were given up */
} pd_staging;

/* Makes the segment, with at least `bytes` bytes. PD_UNAVAILABLE. */
int pd_staging_make(pd_staging *staging, uint64_t bytes, pd_error *err);
/* Frees the segment and all blocks. Does nothing if there is no segment. */
void pd_staging_free(pd_staging *staging);

/* Takes a block for a home of `bytes` bytes, zeroed: at the offset `wanted` if there is room, else elsewhere. NULL:
 * there is no room now, or no memory. */
void *pd_staging_home(pd_staging *staging, uint64_t wanted, uint64_t bytes);

/* Finds the place of a frame's payload in the segment: where it lies, if all its spans lie there in the layout of the
 * payload, or a new block. Sets frame->place, and frame->block if the payload must be copied. Returns false if no block
 * is free: the payload then travels through the socket. */
bool pd_staging_place(pd_staging *staging, pd_outgoing_frame *frame);
/* Copies a frame's payload to its block, unless that is done. Only the frame and the payload's memory are used. */
void pd_staging_fill(const pd_staging *staging, pd_outgoing_frame *frame);
/* Ends the frame's use of its block, if it has one. `read`: the server reads the block no more, and it is free. Else it
 * stays taken until pd_staging_reclaim. */
void pd_staging_end(pd_staging *staging, pd_outgoing_frame *frame, bool read);
/* Frees the blocks of frames that were given up, of steps up to this one. */
void pd_staging_reclaim(pd_staging *staging, uint64_t step);

#endif
