/* spare.h - memory of frames that have left the window, for frames of the same size that enter it.
 *
 * Memory that is fresh from the system costs a page fault for each 4 KiB. The window copies every payload, so without
 * this list every step would pay for it. */
#ifndef PD_SPARE_H
#define PD_SPARE_H

#include <stdint.h>

/* Smaller blocks are freed at once: the C library keeps their memory itself. */
enum { PD_LEAST_SPARE = 16 * 1024 };

/* A list of blocks. Zeroed: empty. */
typedef struct pd_spare {
    struct pd_spare_block *blocks; /* the block that was given last comes first */
    uint64_t bytes;                /* of all blocks */
} pd_spare;

/* Takes the block of exactly this size that was given last. NULL: there is none. */
void *pd_spare_take(pd_spare *spare, uint64_t bytes);
/* Gives a block that malloc has made. Accepts NULL. */
void pd_spare_give(pd_spare *spare, void *block, uint64_t bytes);
/* Frees the blocks that were given first until the list has at most so many bytes. */
void pd_spare_shrink(pd_spare *spare, uint64_t most);

#endif
