/* exact_sum.c - adds float64 numbers as integers of 2,176 bits. */
#include "exact_sum.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* MANTISSA: bits of a float64 mantissa. MOST: largest biased exponent of a finite number. */
enum { MANTISSA = DBL_MANT_DIG, MOST = 2046, WORD = 64 };

/* Adds a number to the words from `w` on, and the carry to the words after them. */
static void add_words(pd_exact_sum *sum, size_t w, uint64_t low, uint64_t high)
{
    bool carry = __builtin_add_overflow(sum->word[w], low, &sum->word[w]);
    uint64_t next = high + carry; /* `high` has fewer than 53 bits */

    for (w++; next != 0; w++) {
        assert(w < PD_EXACT_WORDS);
        next = __builtin_add_overflow(sum->word[w], next, &sum->word[w]);
    }
}

void pd_exact_sum_add(pd_exact_sum *sum, double x)
{
    uint64_t bits, mantissa;
    unsigned exponent, shift;

    if (!isfinite(x)) {
        sum->nan = sum->nan || isnan(x);
        sum->infinite = sum->infinite || isinf(x);
        return;
    }
    assert(x >= 0);
    memcpy(&bits, &x, sizeof bits);
    exponent = (unsigned)(bits >> (MANTISSA - 1)) & 0x7ff;
    mantissa = bits & (((uint64_t)1 << (MANTISSA - 1)) - 1);
    if (exponent > 0) mantissa |= (uint64_t)1 << (MANTISSA - 1);
    shift = exponent > 0 ? exponent - 1 : 0;
    add_words(sum, shift / WORD, mantissa << shift % WORD, shift % WORD > 0 ? mantissa >> (WORD - shift % WORD) : 0);
}

void pd_exact_sum_join(pd_exact_sum *sum, const pd_exact_sum *other)
{
    bool carry = false;

    for (size_t w = 0; w < PD_EXACT_WORDS; w++) {
        bool first = __builtin_add_overflow(sum->word[w], carry, &sum->word[w]);
        bool second = __builtin_add_overflow(sum->word[w], other->word[w], &sum->word[w]);
        carry = first || second;
    }
    assert(!carry);
    sum->nan = sum->nan || other->nan;
    sum->infinite = sum->infinite || other->infinite;
}

/* Returns the 64 bits of the sum from bit `first` on. Bits beyond the last word are 0. */
static uint64_t bits_from(const pd_exact_sum *sum, size_t first)
{
    size_t w = first / WORD, shift = first % WORD;
    uint64_t high = w + 1 < PD_EXACT_WORDS ? sum->word[w + 1] : 0;

    return shift > 0 ? sum->word[w] >> shift | high << (WORD - shift) : sum->word[w];
}

/* Returns whether one of the bits below bit `end` is set. */
static bool has_bits_below(const pd_exact_sum *sum, size_t end)
{
    size_t w = 0;

    while (w < end / WORD && sum->word[w] == 0) w++;
    return w < end / WORD || (end % WORD > 0 && sum->word[w] << (WORD - end % WORD) != 0);
}

double pd_exact_sum_round(const pd_exact_sum *sum)
{
    size_t top = PD_EXACT_WORDS, shift;
    uint64_t mantissa;
    double x;

    if (sum->nan) return NAN;
    if (sum->infinite) return INFINITY;
    while (top > 0 && sum->word[top - 1] == 0) top--;
    if (top == 0) return 0;
    top = top * WORD - (size_t)__builtin_clzll(sum->word[top - 1]); /* number of bits of the sum */
    shift = top > MANTISSA ? top - MANTISSA : 0;                    /* number of bits that are rounded away */
    mantissa = bits_from(sum, shift) & (((uint64_t)1 << MANTISSA) - 1);
    if (shift > 0 && (bits_from(sum, shift - 1) & 1) != 0 && ((mantissa & 1) != 0 || has_bits_below(sum, shift - 1)))
        mantissa++;
    if (shift >= MOST) return INFINITY;
    /* The mantissa's highest bit, which is not stored, adds 1 to the biased exponent. A subnormal number does not have
     * this bit. A mantissa that was rounded up to 2^53 adds 2. */
    mantissa += (uint64_t)shift << (MANTISSA - 1);
    memcpy(&x, &mantissa, sizeof x);
    return x;
}
