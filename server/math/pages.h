/* pages.h - memory for tensors. Any thread. */
#ifndef PD_PAGES_H
#define PD_PAGES_H

#include <stddef.h>

/* `bytes` (0 too) at a multiple of 64. From 2 MiB on they begin on a huge page and the kernel is asked for such: passes over a large tensor, and
 * its first touch, then take a tenth of the page faults. Gives: free() it. NULL: out of memory, or more bytes than a pointer can span. */
void *pd_pages_new(size_t bytes);

#endif
