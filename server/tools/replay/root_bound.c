/* root_bound.c - computes how far rounding can move an inverse root of a matrix. */
#include "root_bound.h"

#include <math.h>
#include <stdbool.h>

static double off_diagonal(const double *A, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) sum += A[i * n + j] * A[i * n + j];
    return sum;
}

static void rotate_pair(double *a, double *b, double c, double s)
{
    double x = *a, y = *b;

    *a = c * x - s * y;
    *b = s * x + c * y;
}

/* Makes the element (p, q) of the symmetric matrix A zero by a rotation of rows and columns p and q (Jacobi's
 * method for eigenvalues). */
static void rotate(double *A, int64_t n, int64_t p, int64_t q)
{
    double apart, t, c, s;

    if (A[p * n + q] == 0) return;
    apart = (A[q * n + q] - A[p * n + p]) / (2 * A[p * n + q]);
    t = copysign(1, apart) / (fabs(apart) + sqrt(1 + apart * apart));
    c = 1 / sqrt(1 + t * t);
    s = t * c;
    for (int64_t k = 0; k < n; k++) rotate_pair(&A[k * n + p], &A[k * n + q], c, s);
    for (int64_t k = 0; k < n; k++) rotate_pair(&A[p * n + k], &A[q * n + k], c, s);
    A[p * n + q] = A[q * n + p] = 0;
}

void pd_eigenvalues(double *A, int64_t n)
{
    /* A sweep rotates each element above the diagonal to zero once. 6 to 10 sweeps suffice, since the iteration
     * converges quadratically. */
    enum { MOST_SWEEPS = 60 };
    double total = 2 * off_diagonal(A, n);

    for (int64_t i = 0; i < n; i++) total += A[i * n + i] * A[i * n + i];
    for (int sweep = 0; sweep < MOST_SWEEPS && off_diagonal(A, n) > 1e-32 * total; sweep++)
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) rotate(A, n, p, q);
}

/* Returns the divided difference (xi - xj) / (bi - bj) of f(b) = b^-e, where xi = f(bi), xj = f(bj), and e is
 * `exponent`. If bi and bj are too close for a division, returns the derivative of f between them. */
static double divided_difference(double bi, double bj, double xi, double xj, double exponent)
{
    if (fabs(bi - bj) > 1e-6 * fmax(bi, bj)) return (xi - xj) / (bi - bj);
    return -exponent * sqrt(xi / bi) * sqrt(xj / bj);
}

/* Replaces A by its symmetric part (A + A') / 2. Returns false if A is not finite. */
static bool make_symmetric(double *A, int64_t n)
{
    bool finite = true;

    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j <= i; j++) {
            A[i * n + j] = A[j * n + i] = (A[i * n + j] + A[j * n + i]) / 2;
            finite = finite && isfinite(A[i * n + j]);
        }
    }
    return finite;
}

/* Returns the eigenvalue b of a matrix B from the eigenvalue x = b^-e of its inverse root; e is `exponent`. */
static double inverse(double x, double exponent)
{
    return pow(x, -1 / exponent);
}

/* Returns the factor by which a relative error of a matrix B is magnified in its inverse root X = B^-e. x: the n
 * eigenvalues of X, `stride` elements apart; all are above 0, and the largest is 1. exponent: e. */
static double magnify(const double *x, int64_t n, int64_t stride, double exponent)
{
    double squares = 0, root = 0, largest = 0;

    for (int64_t i = 0; i < n; i++) {
        double xi = x[i * stride], bi = inverse(xi, exponent);
        largest = fmax(largest, bi);
        root += xi * xi;
        for (int64_t j = 0; j < n; j++) {
            double f = divided_difference(bi, inverse(x[j * stride], exponent), xi, x[j * stride], exponent);
            squares += f * f;
        }
    }
    return largest * sqrt(squares / root);
}

double pd_root_magnification(double *root, int64_t n, double exponent)
{
    double largest = 0, least = INFINITY, bound;

    if (!make_symmetric(root, n)) return 0;
    pd_eigenvalues(root, n);
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, root[i * (n + 1)]);
        least = fmin(least, root[i * (n + 1)]);
    }
    if (exponent == 0 || (largest == 0 && least == 0)) return 0;
    if (!(least > 0)) return (double)INFINITY;
    for (int64_t i = 0; i < n; i++) root[i * (n + 1)] /= largest;
    bound = magnify(root, n, n + 1, exponent);
    return isfinite(bound) ? bound : (double)INFINITY;
}
