/* zeroed.h - allocates zeroed memory for structs that each step allocates and frees again. */
#ifndef PD_ZEROED_H
#define PD_ZEROED_H

#include <stdlib.h>
#include <string.h>

/* Returns zeroed memory; NULL: out of memory. glibc's calloc never takes what the thread has just freed of this size,
 * as malloc does: each block goes through the heap's lists, when it is allocated and when it is freed. */
static inline void *pd_zeroed(size_t bytes)
{
    void *at = malloc(bytes);

    __asm__("" : "+r"(at)); /* or gcc would turn malloc and memset into calloc */
    return at != NULL ? memset(at, 0, bytes) : NULL;
}

#endif
