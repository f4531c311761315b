/* pages.h - memory for tensors. Any thread. */
#ifndef PD_PAGES_H
#define PD_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Allocates `bytes` (0 too) at a multiple of 64; free() them. From 2 MiB on they begin on a huge page, and the
 * kernel is asked for huge pages: passes over a large tensor, and its first touch, then take a tenth of the page
 * faults. NULL: out of memory, or more bytes than a pointer can span. */
void *pd_pages_new(size_t bytes);
/* The same for n floats. */
float *pd_floats_new(int64_t n);
/* Returns a size in floats, rounded up so that what follows begins at a multiple of 64 bytes. */
int64_t pd_floats_padded(int64_t n);

#endif
