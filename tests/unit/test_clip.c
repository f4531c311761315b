/* Tests the arithmetic of clipping gradients by their global norm. */
#include "test.h"
#include "clip.h"

enum { N = 3 * PD_CLIP_RANGE + 1001 };

/* Computes the scale by the formula of the original (T5X), one float32 operation after the other. */
static float scale_of(double limit, double squares)
{
    float norm = sqrtf((float)squares), a = (float)(1 / limit), b = 1.0f / norm;

    return (float)limit * (isnan(b) ? b : fminf(a, b));
}

static double exact_squares(const float *x, int64_t n)
{
    long double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (long double)x[i] * x[i];
    return (double)sum;
}

/* Cuts x into ranges of PD_CLIP_RANGE elements and passes `at_once` ranges to each call of pd_clip_sum. Returns the
 * sum of squares of x. */
static double squares_of(const float *x, int64_t n, size_t at_once, int threads)
{
    pd_clip_piece pieces[8];
    pd_exact_sum squares = { 0 };
    size_t k = 0;

    for (int64_t first = 0; first < n; first += PD_CLIP_RANGE) {
        int64_t left = n - first;
        pieces[k++] = (pd_clip_piece){ .from = x + first, .n = left < PD_CLIP_RANGE ? left : PD_CLIP_RANGE };
        if (k < at_once && left > PD_CLIP_RANGE) continue;
        pd_clip_sum(pieces, k, &squares, threads);
        k = 0;
    }
    return pd_exact_sum_round(&squares);
}

static float *noise(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    uint32_t seed = 1;

    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ldexpf((float)(int32_t)seed, -20 - (int)(seed % 30));
    }
    return x;
}

TEST(the_sum_of_squares_is_right_to_fifteen_digits)
{
    float *x = noise(N);
    double exact = exact_squares(x, N);

    assert_true(fabs(squares_of(x, N, 8, 1) - exact) <= 1e-15 * 16 * exact);
    free(x);
}

TEST(its_bits_do_not_depend_on_threads_or_calls)
{
    float *x = noise(N);
    double first = squares_of(x, N, 1, 1);

    for (size_t at_once = 1; at_once <= 4; at_once++)
        for (int threads = 1; threads <= 4; threads++) assert_true(squares_of(x, N, at_once, threads) == first);
    free(x);
}

TEST(every_element_is_scaled_once)
{
    float *x = noise(PD_CLIP_RANGE + 7), *y = malloc((PD_CLIP_RANGE + 7) * sizeof *y);
    pd_clip_piece pieces[] = { { .from = x, .to = y, .n = PD_CLIP_RANGE },
                               { .from = x + PD_CLIP_RANGE, .to = y + PD_CLIP_RANGE, .n = 7 } };

    pd_clip_apply(pieces, 2, 0.3f, 2);
    for (int64_t i = 0; i < PD_CLIP_RANGE + 7; i++) assert_true(y[i] == x[i] * 0.3f);
    pieces[0].from = y, pieces[1].from = y + PD_CLIP_RANGE;
    pd_clip_apply(pieces, 2, 0.3f, 3);
    for (int64_t i = 0; i < PD_CLIP_RANGE + 7; i++) assert_true(y[i] == x[i] * 0.3f * 0.3f);
    free(x);
    free(y);
}

TEST(the_scale_equals_upstreams)
{
    static const double limits[] = { 1e-30, 0.1, 0.5, 1, 1.7, 3, 1e30 },
                        squares[] = { 0, 1e-300, 1e-40, 0.01, 0.25, 1, 2, 9, 1e10, 1e70, 1e80 };

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        for (size_t k = 0; k < sizeof squares / sizeof squares[0]; k++) {
            float scale = pd_clip_scale(limits[i], squares[k]);
            assert_true(scale == scale_of(limits[i], squares[k]));
            assert_true(scale >= 0 && scale <= 1.0001f);
        }
    assert_true(pd_clip_scale(1, 0.5) == 1);
    assert_true(fabsf(pd_clip_scale(2, 16) - 0.5f) < 1e-7f);
}

TEST(within_the_limit_the_scale_is_one_up_to_rounding)
{
    assert_true(pd_clip_scale(0.5, 0.01) == 1);
    assert_true(pd_clip_scale(47, 0.01) != 1); /* In float32, 47 times 1/47 is not 1 */
    assert_true(fabsf(pd_clip_scale(47, 0.01) - 1) < 1.3e-7f);
}

TEST(values_that_are_not_finite_spread_as_in_upstream)
{
    float nan[] = { 1, NAN }, inf[] = { 1, INFINITY };

    assert_true(isnan(pd_clip_scale(1, squares_of(nan, 2, 1, 1))));
    assert_true(pd_clip_scale(1, squares_of(inf, 2, 1, 1)) == 0);
    assert_false(pd_clip_exceeds(1, squares_of(nan, 2, 1, 1)));
    assert_true(pd_clip_exceeds(1, squares_of(inf, 2, 1, 1)));
}

TEST(a_norm_that_is_the_limit_does_not_exceed_it)
{
    assert_false(pd_clip_exceeds(3, 9));
    assert_true(pd_clip_exceeds(3, 9.0000001));
}
