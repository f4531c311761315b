/* pages.h - allocates memory for tensors. Functions for any thread. */
#ifndef PD_PAGES_H
#define PD_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Allocates `bytes` bytes (0 is allowed), aligned to 64. Free them with free(). Memory of 2 MiB or more begins at a
 * multiple of 2 MiB, and the kernel is asked for huge pages: first use of a large tensor, and passes over it, then take
 * a tenth of the page faults. NULL: out of memory, or more bytes than a pointer can span. */
void *pd_pages_new(size_t bytes);
/* Allocates n floats like pd_pages_new does. */
float *pd_floats_new(int64_t n);
/* Rounds a number of floats up to a multiple of 16 (64 bytes), so that data placed behind them is aligned to 64
 * bytes. */
int64_t pd_floats_padded(int64_t n);

#endif
