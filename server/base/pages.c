/* pages.c - allocates memory for tensors, and asks for huge pages if the memory is large. */
#include "pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGN ((size_t)64)
#define HUGE_PAGE ((size_t)2 << 20)

void *pd_pages_new(size_t bytes)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;
    void *at = NULL;

    if (bytes > PTRDIFF_MAX - ALIGN || posix_memalign(&at, align, bytes / ALIGN * ALIGN + ALIGN) != 0) return NULL;
    if (align == HUGE_PAGE) /* huge pages only save time, so an error is ignored */
        (void)madvise(at, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return at;
}

float *pd_floats_new(int64_t n)
{
    return n > (int64_t)(PTRDIFF_MAX / sizeof(float)) ? NULL : pd_pages_new((size_t)n * sizeof(float));
}

int64_t pd_floats_padded(int64_t n)
{
    return (n + 15) / 16 * 16;
}
