/* spare.c - keeps blocks of memory for later use. */
#include "spare.h"

#include <stdlib.h>

#include <utlist.h>

/* Stands at the beginning of the block itself. */
typedef struct pd_spare_block {
    struct pd_spare_block *prev, *next; /* prev of the first block: the last block */
    uint64_t bytes;
} pd_spare_block;

_Static_assert(sizeof(pd_spare_block) <= PD_LEAST_SPARE, "every block has room for its entry in the list");

static void take_out(pd_spare *spare, pd_spare_block *block)
{
    DL_DELETE(spare->blocks, block);
    spare->bytes -= block->bytes;
}

void *pd_spare_take(pd_spare *spare, uint64_t bytes)
{
    pd_spare_block *block = spare->blocks;

    while (block != NULL && block->bytes != bytes) block = block->next;
    if (block != NULL) take_out(spare, block);
    return block;
}

void pd_spare_give(pd_spare *spare, void *block, uint64_t bytes)
{
    pd_spare_block *entry = block;

    if (entry == NULL || bytes < PD_LEAST_SPARE) {
        free(block);
        return;
    }
    entry->bytes = bytes;
    DL_PREPEND(spare->blocks, entry);
    spare->bytes += bytes;
}

void pd_spare_shrink(pd_spare *spare, uint64_t most)
{
    while (spare->bytes > most) {
        pd_spare_block *oldest = spare->blocks->prev;

        take_out(spare, oldest);
        free(oldest);
    }
}
