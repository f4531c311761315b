/* Tests norms, and the first-order directions from which Shampoo's direction takes its length (grafting). */
#include "test.h"
#include "graft.h"

enum { N = 2500 }; /* N: more than one tile of 1024 elements, and no multiple of a SIMD vector */

static float number(int i)
{
    return (float)((i * 7919 + 13) % 1009 - 504) / 300;
}

TEST(a_norm_is_that_of_the_elements)
{
    float x[N];

    for (int n = 0; n <= 40; n++) {
        double sum = 0;
        for (int i = 0; i < n; i++) x[i] = number(i), sum += (double)x[i] * (double)x[i];
        assert_true(fabs((double)pd_norm(pd_squares(x, n)) - sqrt(sum)) <= 1e-6 * sqrt(sum));
    }
}

TEST(squares_overflow_and_underflow_as_those_of_float32)
{
    float large[20] = { [17] = 2e19f }, small[20] = { [3] = 1e-23f }, many[N];

    assert_true(isinf(pd_norm(pd_squares(large, 20))));
    assert_true(pd_norm(pd_squares(small, 20)) == 0);
    for (int i = 0; i < N; i++) many[i] = 1e18f; /* no square overflows, but the sum of all N squares does */
    assert_true(isfinite(pd_norm(pd_squares(many, 300))));
    assert_true(isinf(pd_norm(pd_squares(many, N))));
}

TEST(a_nan_stays_in_every_sum)
{
    float x[20] = { [19] = NAN };

    assert_true(isnan(pd_norm(pd_squares(x, 20))));
    assert_true(isnan(pd_norm(pd_sign_squares(x, 20))));
}

TEST(signs_count_elements_that_are_not_0)
{
    float x[5] = { -3, 0, 1e-30f, -0.0f, INFINITY };

    assert_true(pd_sign_squares(x, 5) == 3);
}

TEST(the_diagonal_direction_is_its_formula)
{
    const pd_graft f = { .kind = PD_GRAFT_DIAGONAL, .w1 = 0.9f, .w2 = 0.1f, .epsilon = 1e-3f, .divisor = 2, .clip = 4 };
    float G[N], V[N];
    double sum = 0;

    for (int i = 0; i < N; i++) G[i] = number(i), V[i] = fabsf(number(i + 5));
    pd_graft_accumulate(V, G, N, &f);
    for (int i = 0; i < N; i++) {
        double g = (double)G[i] / 2, v = 0.9 * fabs((double)number(i + 5)) + 0.1 * g * g, d = g / (sqrt(v) + 1e-3) / 4;
        assert_true(fabs((double)V[i] - v) <= 1e-6 * v);
        assert_true(fabs((double)pd_graft_direction(PD_GRAFT_DIAGONAL, &f, G[i], V[i]) - d) <= 1e-5 * fabs(d));
        sum += d * d;
    }
    assert_true(fabs(pd_graft_squares(G, V, N, &f) - sum) <= 1e-5 * sum);
}

TEST(others_leave_the_diagonal_alone)
{
    float G[3] = { 1, -2, 0 }, V[3] = { 5, 5, 5 };

    pd_graft_accumulate(V, G, 3, &(pd_graft){ .kind = PD_GRAFT_SIGN, .w2 = 1 });
    assert_true(V[0] == 5 && V[1] == 5 && V[2] == 5);
    assert_true(pd_graft_squares(G, NULL, 3, &(pd_graft){ .kind = PD_GRAFT_PLAIN }) == 5);
    assert_true(pd_graft_squares(G, NULL, 3, &(pd_graft){ .kind = PD_GRAFT_SIGN }) == 2);
}
