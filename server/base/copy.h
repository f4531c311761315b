/* copy.h - copies tensors between a worker's memory and shared memory. Pure; any thread. */
#ifndef PD_COPY_H
#define PD_COPY_H

#include <stddef.h>

/* Copies n bytes, as memcpy does: the two places do not overlap.
 *
 * The C library copies 2 KiB and more with one string instruction (rep movsb). On AMD's Zen 3 this takes up to three
 * times as long as plain moves if `from` was just written by another core, as pulled weights in shared memory were
 * (pieces of 4 KiB, glibc 2.36). So this function makes plain moves. Copies of 256 KiB and more bypass the cache, which
 * takes two thirds of the time. */
void pd_copy_bytes(void *to, const void *from, size_t n);

#endif
