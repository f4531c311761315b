/* Tests the bound on how far rounding can move an inverse root. */
#include "test.h"
#include "root_bound.h"

TEST(eigenvalues_are_those_of_the_matrix)
{
    double A[9] = { 2, 1, 0, 1, 2, 0, 0, 0, -5 }, least = INFINITY, most = -INFINITY; /* 1, 3, -5 */

    pd_eigenvalues(A, 3);
    for (int i = 0; i < 3; i++) least = fmin(least, A[i * 4]), most = fmax(most, A[i * 4]);
    assert_true(fabs(least + 5) < 1e-14 && fabs(most - 3) < 1e-14 && fabs(A[0] + A[4] + A[8] + 1) < 1e-14);
}

/* For B = I the root is I. The derivative of the function b^-e is -e at every eigenvalue, so a change E of B changes
 * the root by |dX| = e |E|. */
TEST(of_the_identity_it_is_the_exponent_times_the_side)
{
    double X[4] = { 1, 0, 0, 1 };

    assert_true(fabs(pd_root_magnification(X, 2, 0.25) - 0.25 * 2 / sqrt(2)) < 1e-12);
}

/* The bound for B = diag(1, b) and e = 1/2, computed by hand from divided differences of f(x) = x^-1/2:
 *
 *   on the diagonal:         |f'(1)| = 1/2 and |f'(b)| = b^-3/2 / 2
 *   off the diagonal, twice: (f(b) - f(1)) / (b - 1) */
TEST(it_is_made_of_the_divided_differences)
{
    const double b = 1e-4, x = 1 / sqrt(b), apart = (x - 1) / (b - 1);
    double X[4] = { 1, 0, 0, x }, expected = sqrt(0.25 + 0.25 * pow(b, -3) + 2 * apart * apart) / hypot(1, x);

    assert_true(fabs(pd_root_magnification(X, 2, 0.5) / expected - 1) < 1e-9);
}

TEST(turning_or_scaling_the_root_changes_nothing)
{
    const double c = 0.6, s = 0.8, x = 100;
    double X[4] = { 1, 0, 0, x },
           Y[4] = { 7 * (c * c + s * s * x), 7 * c * s * (x - 1), 7 * c * s * (x - 1), 7 * (s * s + c * c * x) };

    assert_true(fabs(pd_root_magnification(X, 2, 0.5) / pd_root_magnification(Y, 2, 0.5) - 1) < 1e-9);
}

/* Adds to B every symmetric 2 by 2 matrix with entries of -h, 0 and h. The change of the root nearly reaches the
 * bound. It exceeds the bound by no more than terms of second order. */
TEST(no_small_change_moves_a_root_farther)
{
    const double b[2] = { 1, 1e-3 }, h = 1e-8, e = 0.5;
    double X[4] = { 1, 0, 0, pow(b[1], -e) }, bound = pd_root_magnification(X, 2, e), worst = 0;

    for (int k = 0; k < 27; k++) {
        double p = b[0] + h * (k % 3 - 1), q = b[1] + h * (k / 3 % 3 - 1), r = h * (k / 9 - 1);
        double mean = (p + q) / 2, half = hypot((p - q) / 2, r), f0 = pow(mean + half, -e), f1 = pow(mean - half, -e);
        double c = (p - q) / 2 / half, s = r / half; /* cosine and sine of twice the eigenvectors' angle */
        double dp = (f0 + f1) / 2 + (f0 - f1) / 2 * c - 1, dq = (f0 + f1) / 2 - (f0 - f1) / 2 * c - pow(b[1], -e),
               dr = (f0 - f1) / 2 * s;
        worst = fmax(worst, sqrt(dp * dp + dq * dq + 2 * dr * dr) / hypot(1, pow(b[1], -e)));
    }
    assert_true(worst <= bound * h * 1.0001 && worst > bound * h * 0.9);
}

TEST(where_there_is_no_root_it_says_so)
{
    double none[4] = { 0 }, nan[4] = { NAN, 0, 0, 1 }, singular[4] = { 1, 0, 0, 0 }, negative[4] = { 1, 0, 0, -1 },
           one[1] = { 3 };

    assert_true(pd_root_magnification(none, 2, 0.5) == 0 && pd_root_magnification(nan, 2, 0.5) == 0);
    assert_true(isinf(pd_root_magnification(singular, 2, 0.5)) && isinf(pd_root_magnification(negative, 2, 0.5)));
    assert_true(fabs(pd_root_magnification(one, 1, 0.5) - 0.5) < 1e-12);
}
