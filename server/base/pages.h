/* pages.h - allocates memory for tensors, and copies tensors. Any thread. */
#ifndef PD_PAGES_H
#define PD_PAGES_H

#include <stddef.h>
#include <stdint.h>

/* Allocates `bytes` bytes (0 is allowed), aligned to 64 bytes. The caller frees them with free(). Memory of 2 MiB or
 * more is aligned to 2 MiB, and the kernel is asked for huge pages, which cause a tenth of the page faults. Returns
 * NULL if out of memory, or if `bytes` is more than PTRDIFF_MAX. */
void *pd_pages_new(size_t bytes);
/* Allocates n floats like pd_pages_new does. */
float *pd_floats_new(int64_t n);
/* Rounds a number of floats up to a multiple of 16 (64 bytes), so that data placed after them is aligned to 64
 * bytes. */
int64_t pd_floats_padded(int64_t n);

/* Copies n bytes, like memcpy; the two ranges must not overlap.
 *
 * The C library copies 2 KiB and more with one string instruction (rep movsb). If another core has just written `from`,
 * as with pulled weights in shared memory, this takes up to three times as long as plain moves (measured on AMD's Zen
 * 3, copies of 4 KiB, glibc 2.36). So this function uses plain moves. Copies of 256 KiB and more bypass the cache: that
 * takes two thirds of the time of copies through the cache. */
void pd_copy_bytes(void *to, const void *from, size_t n);

/* Data of this many bytes and more do not stay in the last-level cache until somebody reads them. They are written past
 * the cache, so that the CPU need not read a cache line before it writes the line. Smaller data are better kept in the
 * cache. Only on x86-64 are there stores past the cache. Changes no bit of a result. */
#ifdef __SSE2__
#define PD_BEYOND_CACHE ((int64_t)64 << 20)
#else
#define PD_BEYOND_CACHE INT64_MAX
#endif

/* Writes n bytes to memory like memcpy, but past the cache. To be called for one tile after the other, which was
 * computed in the first-level cache. Tiles of 2 KiB let the CPU read the next tile's inputs while it writes: with
 * 16 KiB, Zen 4 is slower than through the cache. Other threads may see the bytes only after pd_past_cache_end, which
 * the thread calls after its last tile. */
void pd_past_cache(void *to, const void *from, size_t n);
void pd_past_cache_end(void);

#endif
