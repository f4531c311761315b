/* lanes.h - sums float64 numbers in eight lanes, in the vector registers of any instruction set.
 *
 * The order of additions does not depend on the width of the registers: element i is added to lane i mod 8, and the
 * lanes are added pairwise at the end. The eight lanes lie in two vectors of 32 bytes: AVX2 has no wider registers, and
 * with AVX2 gcc keeps wider vectors in memory, which is five times slower. */
#ifndef PD_LANES_H
#define PD_LANES_H

#include "cpu.h"

typedef double pd_doubles __attribute__((vector_size(32), aligned(8), may_alias));
typedef float pd_floats __attribute__((vector_size(16), aligned(4), may_alias));

/* The four numbers that begin at the address `at`, as a vector. The address needs only the alignment of one number. */
#define PD_DOUBLES(at) (*(const pd_doubles *)(at))
#define PD_FLOATS(at) (*(const pd_floats *)(at))

/* Eight lanes: `low` contains lanes 0 to 3, `high` lanes 4 to 7. */
typedef struct pd_lanes {
    pd_doubles low, high;
} pd_lanes;

PD_INLINE pd_lanes pd_lanes_widen(pd_floats low, pd_floats high)
{
    return (pd_lanes){ __builtin_convertvector(low, pd_doubles), __builtin_convertvector(high, pd_doubles) };
}

/* Returns eight float32 numbers as float64. */
PD_INLINE pd_lanes pd_lanes_of(const float *x)
{
    return pd_lanes_widen(PD_FLOATS(x), PD_FLOATS(x + 4));
}

PD_INLINE void pd_lanes_add(pd_lanes *sum, pd_lanes x)
{
    sum->low += x.low;
    sum->high += x.high;
}

PD_INLINE void pd_lanes_add_product(pd_lanes *sum, pd_lanes x, pd_lanes y)
{
    sum->low += x.low * y.low;
    sum->high += x.high * y.high;
}

/* Returns the sum of the eight lanes, added pairwise. */
PD_INLINE double pd_lanes_sum(pd_lanes x)
{
    pd_doubles s = x.low + x.high;

    return (s[0] + s[2]) + (s[1] + s[3]);
}

#endif
