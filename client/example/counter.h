/* counter.h - random numbers without state: the same (seed, stream, count) gives the same number in every process. */
#ifndef COUNTER_H
#define COUNTER_H

#include <stdint.h>

static inline uint64_t counter_mix(uint64_t x)          /* splitmix64's finaliser */
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t counter_bits(uint64_t seed, uint64_t stream, uint64_t count)
{
    const uint64_t golden = 0x9e3779b97f4a7c15u;
    return counter_mix(counter_mix(counter_mix(seed + golden) + stream * golden) + count * golden);
}

/* In [0, bound); bound >= 1 and far below 2^32, so that what the multiplication is unfair by cannot be seen. */
static inline uint32_t counter_below(uint32_t bound, uint64_t seed, uint64_t stream, uint64_t count)
{
    return (uint32_t)(((counter_bits(seed, stream, count) >> 32) * bound) >> 32);
}

/* In [-1, 1). */
static inline float counter_symmetric(uint64_t seed, uint64_t stream, uint64_t count)
{
    return (float)(counter_bits(seed, stream, count) >> 40) * 0x1p-23f - 1.0f;
}

#endif
