/* Tests sums without rounding errors against a slow model: an array of bits. */
#include "test.h"
#include "exact_sum.h"

#include <float.h>

enum { BITS = 2200, MANTISSA = 53 };

/* A sum as bits of 2^-1074, added one by one. */
typedef struct model {
    uint8_t bit[BITS];
} model;

static void model_add_bit(model *m, size_t at)
{
    for (; m->bit[at] != 0; at++) m->bit[at] = 0;
    m->bit[at] = 1;
}

static void model_add(model *m, double x)
{
    int exponent;
    uint64_t mantissa = (uint64_t)ldexp(frexp(x, &exponent), MANTISSA);
    int at = exponent - MANTISSA + 1074;

    for (int b = 0; b < MANTISSA; b++)
        if ((mantissa >> b & 1) != 0) model_add_bit(m, (size_t)(at + b));
}

/* Rounds by the book: to 53 bits, or to a multiple of 2^-1074, and half to even. */
static double model_round(const model *m)
{
    int top = BITS - 1, low;
    bool half, more = false;
    uint64_t mantissa = 0;

    while (top >= 0 && m->bit[top] == 0) top--;
    low = top >= MANTISSA ? top - MANTISSA + 1 : 0;
    for (int b = top; b >= low; b--) mantissa = mantissa << 1 | m->bit[b];
    half = low > 0 && m->bit[low - 1] != 0;
    for (int b = 0; b < low - 1; b++) more = more || m->bit[b] != 0;
    if (half && (more || mantissa % 2 != 0)) mantissa++;
    return ldexp((double)mantissa, low - 1074);
}

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static double number_of(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns a finite number, of a kind that the case chooses: of any exponent, subnormal, of nearly the same exponents,
 * with few bits, which makes ties, or one huge number among small ones. */
static double draw(uint64_t *seed, unsigned kind, size_t i)
{
    uint64_t mantissa = next(seed) >> 12;

    switch (kind) {
    case 0: return number_of(next(seed) % 2047 << 52 | mantissa);
    case 1: return number_of(mantissa >> next(seed) % 52);
    case 2: return number_of((1000 + next(seed) % 8) << 52 | mantissa);
    case 3: return ldexp((double)(1 + next(seed) % 3), (int)(next(seed) % 110) - 55);
    case 4: return i == 0 ? DBL_MAX / 2 : number_of(next(seed) % 900 << 52 | mantissa);
    default: return number_of((2040 + next(seed) % 7) << 52 | mantissa); /* often too large together */
    }
}

TEST(the_sum_is_the_nearest_number_to_the_exact_one)
{
    uint64_t seed = 7;

    for (unsigned c = 0; c < 120000; c++) {
        static model m;
        pd_exact_sum sum = { 0 };
        size_t n = 1 + next(&seed) % 8;
        memset(&m, 0, sizeof m);
        for (size_t i = 0; i < n; i++) {
            double x = draw(&seed, c % 6, i);
            pd_exact_sum_add(&sum, x);
            model_add(&m, x);
        }
        assert_true(bits_of(pd_exact_sum_round(&sum)) == bits_of(model_round(&m)));
    }
}

TEST(neither_order_nor_grouping_changes_a_bit)
{
    uint64_t seed = 11;

    for (unsigned c = 0; c < 2000; c++) {
        double x[64];
        pd_exact_sum forward = { 0 }, shard[5] = { 0 }, all = { 0 };
        for (size_t i = 0; i < 64; i++) pd_exact_sum_add(&forward, x[i] = draw(&seed, c % 6, i));
        for (size_t i = 64; i-- > 0;) pd_exact_sum_add(&shard[next(&seed) % 5], x[i]);
        for (size_t s = 0; s < 5; s++) pd_exact_sum_join(&all, &shard[s]);
        assert_memory_equal(&all, &forward, sizeof all);
    }
}

TEST(one_number_stays_itself)
{
    static const double x[] = { 0, 4.9e-324, DBL_MIN - 4.9e-324, DBL_MIN, 1, 1 + DBL_EPSILON, DBL_MAX };

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        pd_exact_sum sum = { 0 };
        pd_exact_sum_add(&sum, x[i]);
        assert_true(pd_exact_sum_round(&sum) == x[i]);
    }
}

TEST(small_numbers_beside_a_huge_one_are_not_lost)
{
    pd_exact_sum sum = { 0 };

    pd_exact_sum_add(&sum, ldexp(1, 53));
    for (int i = 0; i < 1024; i++) pd_exact_sum_add(&sum, ldexp(1, -9)); /* 2 together; each alone would be lost */
    assert_true(pd_exact_sum_round(&sum) == ldexp(1, 53) + 2);
}

TEST(a_sum_beyond_the_largest_number_is_infinite)
{
    pd_exact_sum sum = { 0 };

    pd_exact_sum_add(&sum, DBL_MAX);
    pd_exact_sum_add(&sum, ldexp(1, 969)); /* a quarter of the last bit */
    assert_true(pd_exact_sum_round(&sum) == DBL_MAX);
    pd_exact_sum_add(&sum, ldexp(1, 969)); /* half of it: the tie goes to the even neighbour */
    assert_true(isinf(pd_exact_sum_round(&sum)));
    for (int i = 0; i < 100000; i++) pd_exact_sum_add(&sum, DBL_MAX);
    assert_true(isinf(pd_exact_sum_round(&sum)));
}

TEST(infinity_and_nan_spread_as_in_a_plain_sum)
{
    static const double x[] = { 1, INFINITY, NAN };

    for (size_t a = 0; a < 3; a++)
        for (size_t b = 0; b < 3; b++) {
            pd_exact_sum sum = { 0 }, other = { 0 };
            double plain = x[a] + x[b], exact;
            pd_exact_sum_add(&sum, x[a]);
            pd_exact_sum_add(&other, x[b]);
            pd_exact_sum_join(&sum, &other);
            exact = pd_exact_sum_round(&sum);
            assert_true(isnan(plain) ? isnan(exact) : exact == plain);
        }
}
