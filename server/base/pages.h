/* pages.h - allocates memory for tensors, and copies them. Functions for any thread. */
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
/* Rounds a number of floats up to a multiple of 16 (64 bytes), so that data placed after them is aligned to 64
 * bytes. */
int64_t pd_floats_padded(int64_t n);

/* Copies n bytes, as memcpy does: the two places do not overlap.
 *
 * The C library copies 2 KiB and more with one string instruction (rep movsb). On AMD's Zen 3 this takes up to three
 * times as long as plain moves if `from` was just written by another core, as pulled weights in shared memory were
 * (pieces of 4 KiB, glibc 2.36). So this function makes plain moves. Copies of 256 KiB and more bypass the cache, which
 * takes two thirds of the time. */
void pd_copy_bytes(void *to, const void *from, size_t n);

#endif
