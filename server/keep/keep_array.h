/* keep_array.h - makes room in an array for one element more. */
#ifndef PD_KEEP_ARRAY_H
#define PD_KEEP_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Makes room in an array of n elements, *at, which has room for *room. Returns false if out of memory. */
static inline bool pd_keep_grow(void **at, size_t *room, size_t n, size_t size)
{
    size_t larger = n < 8 ? 16 : 2 * n;
    void *moved;

    if (n < *room) return true;
    if ((moved = realloc(*at, larger * size)) == NULL) return false;
    *at = moved;
    *room = larger;
    return true;
}

#endif
