/* Tests the loops that sum and divide vectors, and that check them for values that are not finite. */
#include "test.h"
#include "convert.h"
#include "kernels.h"

enum { N = 5003, K = 10 }; /* N: no multiple of a SIMD vector or tile; K: more addends than two loop passes take */

typedef struct fixture {
    float x[K][N], acc[N], other[N];
    uint16_t h[N], b[N];
} fixture;

/* Returns a random number. Magnitudes range over eight decades, so that another order of summation gives other bits. */
static float noise(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return ((float)(*seed >> 8) / 8388608.0f - 1.0f) * powf(10.0f, (float)((*seed >> 4) % 9) - 4.0f);
}

static void set_up(fixture *f)
{
    uint32_t seed = 7;

    for (int k = 0; k < K; k++)
        for (int i = 0; i < N; i++) f->x[k][i] = noise(&seed);
    pd_convert(f->h, PD_F16, f->x[0], PD_F32, N);
    pd_convert(f->b, PD_BF16, f->x[1], PD_F32, N);
}

static void addends(const fixture *f, pd_addend *x)
{
    for (int k = 0; k < K; k++)
        x[k] = (pd_addend){ { .at = f->x[k], .dtype = PD_F32 }, k % 3 == 0 ? 1.0f : 0.3f * (float)k };
}

static float one_element(const pd_addend *x, int k, int i)
{
    const uint16_t *h = x[k].run.at;
    if (x[k].run.dtype == PD_F32) return ((const float *)x[k].run.at)[i];
    return x[k].run.dtype == PD_F16 ? pd_f32_from_f16(h[i]) : pd_f32_from_bf16(h[i]);
}

/* Computes one element as the comment in kernels.h defines it. volatile keeps the compiler from fusing a
 * multiplication and an addition, which must be rounded one by one. */
static float naive(float start, bool resume, const pd_addend *x, int k, float divisor, int i)
{
    volatile float sum = resume ? start : 0, product;

    for (int j = 0; j < k; j++) {
        product = x[j].weight * one_element(x, j, i);
        sum = j == 0 && !resume ? product : sum + product;
    }
    return divisor == 1.0f ? sum : sum / divisor;
}

static void check_against_naive(fixture *f, bool resume, const pd_addend *x, int k, float divisor)
{
    memcpy(f->other, f->x[K - 1], sizeof f->other);
    memcpy(f->acc, f->x[K - 1], sizeof f->acc);
    assert_true(isfinite(pd_accumulate(f->acc, N, resume, x, k, divisor)));
    for (int i = 0; i < N; i++)
        assert_int_equal(pd_f32_bits(f->acc[i]), pd_f32_bits(naive(f->other[i], resume, x, k, divisor, i)));
}

FIXTURE(fixture, set_up, NULL);

TEST(sums_in_the_order_given, fixture *f)
{
    pd_addend x[K];

    addends(f, x);
    for (int k = 0; k <= K; k++) {
        check_against_naive(f, false, x, k, 1.0f);
        check_against_naive(f, true, x, k, 1.0f);
    }
}

TEST(another_order_gives_other_bits, fixture *f)
{
    pd_addend ab[3] = { { { .at = f->x[0], .dtype = PD_F32 }, 1 },
                        { { .at = f->x[1], .dtype = PD_F32 }, 1 },
                        { { .at = f->x[2], .dtype = PD_F32 }, 1 } };
    pd_addend ba[3] = { ab[2], ab[1], ab[0] };

    pd_accumulate(f->acc, N, false, ab, 3, 1.0f);
    pd_accumulate(f->other, N, false, ba, 3, 1.0f);
    assert_memory_not_equal(f->acc, f->other, sizeof f->acc);
}

TEST(divides_at_the_end, fixture *f)
{
    pd_addend x[K];

    addends(f, x);
    check_against_naive(f, false, x, 4, 3.0f);
    check_against_naive(f, true, x, 1, 7.0f);
    check_against_naive(f, true, x, 0, 7.0f);
}

TEST(reads_float16_and_bfloat16, fixture *f)
{
    pd_addend x[5] = { { { .at = f->h, .dtype = PD_F16 }, 0.25f },
                       { { .at = f->b, .dtype = PD_BF16 }, 1.0f },
                       { { .at = f->x[2], .dtype = PD_F32 }, 3.0f },
                       { { .at = f->x[3], .dtype = PD_F32 }, 1.0f },
                       { { .at = f->h, .dtype = PD_F16 }, 2.0f } };

    f->h[0] = 0x3c00; /* element 0 is 1; random bits that are infinity or NaN in float16 are replaced by 0 below */
    for (int i = 0; i < N; i++)
        if ((f->h[i] & 0x7c00) == 0x7c00) f->h[i] = 0;
    for (int k = 1; k <= 5; k++) {
        check_against_naive(f, false, x, k, 1.0f);
        check_against_naive(f, true, x, k, 1.0f);
        check_against_naive(f, false, x + 5 - k, k, 1.0f);
    }
}

TEST(cutting_into_calls_changes_no_bit, fixture *f)
{
    pd_addend x[K], part[K];

    addends(f, x);
    pd_accumulate(f->acc, N, false, x, K, 5.0f);
    for (int i = 0; i < N; i += 997) { /* sums ranges of 997 elements, each in several calls with a part of the
                                        * addends */
        int n = N - i < 997 ? N - i : 997;
        for (int k = 0; k < K; k++)
            part[k] = (pd_addend){ { .at = (const float *)x[k].run.at + i, .dtype = PD_F32 }, x[k].weight };
        pd_accumulate(f->other + i, n, false, part, 2, 1.0f);
        pd_accumulate(f->other + i, n, true, part + 2, 1, 1.0f);
        pd_accumulate(f->other + i, n, true, part + 3, K - 3, 5.0f);
    }
    assert_memory_equal(f->acc, f->other, sizeof f->acc);
}

TEST(reports_a_result_that_is_not_finite_at_any_place, fixture *f)
{
    pd_addend x[1] = { { { .at = f->x[0], .dtype = PD_F32 }, 1 } };
    const int places[] = { 0, 1, 2047, 2048, N - 1 };
    const float values[] = { INFINITY, -INFINITY, NAN };

    for (size_t p = 0; p < 5; p++)
        for (size_t v = 0; v < 3; v++) {
            float kept = f->x[0][places[p]];
            f->x[0][places[p]] = values[v];
            assert_false(isfinite(pd_accumulate(f->acc, N, false, x, 1, 1.0f)));
            assert_false(pd_all_finite(f->x[0], PD_F32, N));
            f->x[0][places[p]] = kept;
        }
    assert_true(isfinite(pd_accumulate(f->acc, N, false, x, 1, 1.0f)));
}

TEST(reports_a_sum_that_overflows)
{
    float big[2] = { 3e38f, 1 }, acc[2];
    pd_addend x[2] = { { { .at = big, .dtype = PD_F32 }, 1 }, { { .at = big, .dtype = PD_F32 }, 1 } };

    assert_false(isfinite(pd_accumulate(acc, 2, false, x, 2, 2.0f)));
    assert_true(isfinite(pd_accumulate(acc, 2, false, x, 1, 2.0f)));
}

TEST(finds_the_one_short_element_that_is_not_finite, fixture *f)
{
    memset(f->h, 0, sizeof f->h);
    memset(f->b, 0, sizeof f->b);
    assert_true(pd_all_finite(f->h, PD_F16, N));
    assert_true(pd_all_finite(f->b, PD_BF16, N));
    f->h[N - 1] = 0xfc00;
    f->b[N - 1] = 0x7f81;
    assert_false(pd_all_finite(f->h, PD_F16, N));
    assert_false(pd_all_finite(f->b, PD_BF16, N));
    assert_true(pd_all_finite(f->h, PD_F16, N - 1));
    f->b[N - 1] = 0x7f7f; /* the largest finite bfloat16 */
    assert_true(pd_all_finite(f->b, PD_BF16, N));
}

TEST(finds_the_one_double_that_is_not_finite)
{
    static double x[N];
    static const int places[] = { 0, 1, 2047, 2048, N - 1 };
    static const double values[] = { INFINITY, -INFINITY, NAN };

    for (int i = 0; i < N; i++) x[i] = i % 2 == 0 ? 1.7e308 : -5e-324;
    assert_true(pd_all_finite_f64(x, N));
    assert_true(pd_all_finite_f64(x, 0));
    for (size_t p = 0; p < 5; p++)
        for (size_t v = 0; v < 3; v++) {
            double kept = x[places[p]];
            x[places[p]] = values[v];
            assert_false(pd_all_finite_f64(x, N));
            assert_true(pd_all_finite_f64(x, places[p]));
            x[places[p]] = kept;
        }
}

TEST(sums_products_in_sixteen_lanes, fixture *f)
{
    const int lengths[] = { 0, 1, 15, 16, 17, 100, N };

    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        double lane[16] = { 0 }, expected;
        for (int i = 0; i < lengths[l]; i++) {
            volatile double product = (double)f->x[0][i] * (double)f->x[1][i];
            lane[i % 16] += product;
        }
        for (int i = 0; i < 8; i++) lane[i] += lane[i + 8];
        expected = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
        assert_true(pd_dot(f->x[0], f->x[1], lengths[l]) == expected);
    }
    assert_true(pd_sum_squares(f->x[0], N) == pd_dot(f->x[0], f->x[0], N));
}
