/* exact_sum.h - a sum of non-negative float64 numbers without rounding errors: an integer of 2,176 bits in units of
 * 2^-1074, the least subnormal number. Only pd_exact_sum_round rounds, once. So the sum is the same whatever the order
 * of the numbers is, and in whatever groups they were added before the groups were joined.
 *
 * Pure functions. */
#ifndef PD_EXACT_SUM_H
#define PD_EXACT_SUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest float64 number has 2,098 bits in these units, so 2^78 numbers cannot overflow the integer. */
enum { PD_EXACT_WORDS = 34 };

/* A sum. Initialize with zeros, which is the sum of no numbers. */
typedef struct pd_exact_sum {
    uint64_t word[PD_EXACT_WORDS]; /* the sum of the finite numbers, least significant word first */
    bool infinite, nan;            /* some number was infinite; some number was NaN */
} pd_exact_sum;

/* Adds a number that is not negative. It may be infinite or NaN. */
void pd_exact_sum_add(pd_exact_sum *sum, double x);
/* Adds all numbers of another sum. */
void pd_exact_sum_join(pd_exact_sum *sum, const pd_exact_sum *other);
/* Returns the float64 number that is nearest to the sum; of two that are equally near, the one with an even mantissa.
 * Returns infinity if the sum exceeds float64, or if a number was infinite. Returns NaN if a number was NaN. */
double pd_exact_sum_round(const pd_exact_sum *sum);

#endif
