/* grow.h - grows an array by reallocating it. */
#ifndef PD_GROW_H
#define PD_GROW_H

#include "paramd/error.h"

#include <stdlib.h>

/* Makes sure that an array has room for `want` elements of `size` bytes, and reallocates it if necessary. *at is the
 * array, *room the number of elements for which it has room. The array never shrinks. PD_NO_MEMORY: the array is
 * unchanged. */
static inline int pd_grow(void **at, size_t *room, size_t want, size_t size)
{
    size_t larger = *room * 2 > want ? *room * 2 : want;
    void *moved;

    if (want <= *room) return PD_OK;
    if ((moved = realloc(*at, larger * size)) == NULL) return PD_NO_MEMORY;
    *at = moved;
    *room = larger;
    return PD_OK;
}

#endif
