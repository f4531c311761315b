/* root_tracked.c - computes inverse p-th roots of a matrix A in the eigenbasis of an earlier decomposition of almost
 * the same matrix.
 *
 * A changes little between two computations of its root. So the matrix B, which is A in the last basis, is nearly
 * diagonal. F is B without its diagonal. To first order, F changes B's root by F o D: o multiplies element by element,
 * and D_ij is a divided difference, which is bounded however close two eigenvalues are (Daleckii and Krein). Q has the
 * basis as its rows, Q' is its transpose, and Y is the root of B. The cost stands on the right.
 *
 *     B = Q A Q' + ridge I     d = diag(B)     F = B - diag(d)     y = d^(-1/p)                          1 1/2 products
 *     Y = diag(y) + F o D      D_ij = (y_i - y_j) / (d_i - d_j) = -1 / (d_i d_j s_p(y_i, y_j))
 *                              s_m(x, z) = sum of x^k z^(m-1-k) over k < m
 *     Y = U' U to first order, U upper triangular: U_ii = sqrt(y_i), U_ij = F_ij D_ij / sqrt(y_i)
 *     root = (U Q)' (U Q)                                                                                     1 product
 *
 * Together this takes two and a half products of matrices. A decomposition takes the time of four to eight products,
 * depending on the CPU.
 *
 * Elements of F between large eigenvalues hardly change an inverse root. If leaving them out changes the root by less
 * than the limit (tolerance_of), only the first `rows` rows of F are computed, and only the diagonal of B's other rows.
 * Without any row of F, the root takes one product instead of two and a half.
 *
 * A few matrix-vector products estimate the root's error to a few percent. If the error is not below the limit, A is
 * decomposed. The limit is below the rounding error of ssyevd, so a tracked root is no worse than one from a new
 * decomposition. Where statistics change fast, most attempts would fail and cost extra time. So a few rows of B are
 * computed first (look_at_rows), to see whether an attempt may succeed, and how many rows of F it needs.
 *
 * A Newton step could improve a root whose error is a little too large. But it takes three more products and does not
 * improve the basis, so the next root would need one as well. A decomposition takes little more time, and after it
 * first-order roots are exact enough again.
 *
 * With a relative ridge of 1e-6, rounding errors are harmless, as with ssyevd. Q changes only by a new decomposition,
 * so it never loses orthogonality. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "kernels.h"
#include "lanes.h"
#include "root_basis.h"
#include "root_types.h"

enum { VECTORS = 4 }; /* number of vectors of random signs by which a norm is estimated */

/* The state of the computation of one root in the basis. A is divided by a power of two, so that its largest eigenvalue
 * lies between 1 and 2n. */
typedef struct tracking {
    int64_t n;
    int64_t every;          /* look_at_rows computes every `every`-th row of B */
    int64_t rows;           /* number of rows of F that are computed, the first ones; elements of F with both indices
                             * beyond them count as 0 */
    int p, a, b;            /* the root is the inverse p-th root; p = a + b, where b is a or a + 1 */
    pd_mat B, U;            /* matrices of `rows` rows and n columns. B: A in the basis, with the ridge; U: upper
                             * triangular, U' U is the root of B. Their rows from `rows` on are not stored, because
                             * they are diagonal: d in B, sqrt(y) in U */
    float *memory;          /* n by n numbers; U lies at their beginning */
    float *d, *y, *ya, *yb; /* B's diagonal d; y = d^(-1/p); y^a; y^b */
    float *ladder, *s;      /* ladder: for each level of ladder_rise, a row of n powers; s: n results of ladder_rise */
    int levels;
    int exponent; /* A is divided by 2^exponent */
    double lift, ridge,
        /* lift and ridge as in pd_form, and the largest eigenvalue; all three divided by 2^exponent, as A is. lift is
         * computed from the smallest element on B's diagonal, an estimate of the smallest eigenvalue. */
        largest;
    double *wide; /* memory of 3 * VECTORS vectors of n float64 */
    float *probe; /* memory of 4 * VECTORS vectors of n float32; it is also that of the last 2 * VECTORS vectors of
                   * `wide` */
    void *room;
} tracking;

enum { LANES = 16 };
#define LEAST 3e-7 /* smallest tolerated relative error: that of a root as exact as float32 allows */
#define MOST 2e-2  /* largest tolerated relative error, even if the error of ssyevd's root would be larger */

/* Computes y <- M x for VECTORS vectors at once; each begins `apart` numbers after the one before. If M is triangular,
 * the zeros below its diagonal are skipped. Sums are split into lanes in a fixed way, so the bits are the same on every
 * CPU. */
PD_CLONES(void, apply, (float *y, pd_mat M, bool triangular, const float *x, int64_t apart),
          (y, M, triangular, x, apart))
{
    int64_t n = M.cols, whole = n / LANES * LANES;

    for (int64_t i = 0; i < M.rows; i++) {
        const float *row = M.at + i * M.stride;
        float a[LANES] = { 0 }, b[LANES] = { 0 }, c[LANES] = { 0 }, d[LANES] = { 0 }, *sum[VECTORS] = { a, b, c, d };
        for (int64_t j = triangular ? i / LANES * LANES : 0; j < whole; j += LANES)
            for (int l = 0; l < LANES; l++) {
                float m = row[j + l];
                a[l] += m * x[j + l], b[l] += m * x[apart + j + l], c[l] += m * x[2 * apart + j + l],
                    d[l] += m * x[3 * apart + j + l];
            }
        for (int v = 0; v < VECTORS; v++) {
            for (int64_t j = whole; j < n; j++) sum[v][j - whole] += row[j] * x[v * apart + j];
            for (int half = LANES / 2; half > 0; half /= 2)
                for (int l = 0; l < half; l++) sum[v][l] += sum[v][l + half];
            y[v * apart + i] = sum[v][0];
        }
    }
}

/* Computes y <- y + M' x for VECTORS vectors at once. M may be triangular as for apply. */
PD_CLONES(void, add_turned, (float *restrict y, pd_mat M, bool triangular, const float *restrict x, int64_t apart),
          (y, M, triangular, x, apart))
{
    for (int64_t i = 0; i < M.rows; i++) {
        const float *restrict row = M.at + i * M.stride;
        float a = x[i], b = x[apart + i], c = x[2 * apart + i], d = x[3 * apart + i];
        for (int64_t j = triangular ? i : 0; j < M.cols; j++)
            y[j] += a * row[j], y[apart + j] += b * row[j], y[2 * apart + j] += c * row[j],
                y[3 * apart + j] += d * row[j];
    }
}

/* Computes y <- diag(by) x in the rows from t->rows on, which are diagonal, and y <- 0 in the first rows, for VECTORS
 * vectors at once. */
static void apply_diagonal(const tracking *t, float *y, const float *by, const float *x)
{
    for (int64_t v = 0; v < VECTORS; v++)
        for (int64_t i = 0; i < t->n; i++) y[v * t->n + i] = i < t->rows ? 0 : by[i] * x[v * t->n + i];
}

/* Computes y <- U' U x for VECTORS vectors at once. */
static void apply_root(const tracking *t, float *y, const float *x)
{
    float *between = t->probe + 3 * t->n * VECTORS;

    apply_diagonal(t, y, t->y, x);
    apply(between, t->U, true, x, t->n);
    add_turned(y, t->U, true, between, t->n);
}

/* Computes y <- B x for VECTORS vectors at once. */
static void apply_matrix(const tracking *t, float *y, const float *x)
{
    apply_diagonal(t, y, t->d, x);
    add_turned(y + t->rows, pd_mat_cols(t->B, t->rows, t->n), false, x, t->n);
    apply(y, t->B, false, x, t->n);
}

/* Estimates the relative error of the root Y = U' U of B in the Frobenius norm, from E = Y^a B Y^b - I:
 *
 *     |Z^(1/2) E Z^(1/2)| / (p |y|) with Z = diag(y)
 *
 * E changes Y by y_i E_ii / p on the diagonal, to first order, and by less than sqrt(y_i y_j) E_ij / p elsewhere. The
 * norm is estimated by multiplying a few vectors of random signs. */
static double error_of(const tracking *t)
{
    int64_t n = t->n, all = n * VECTORS;
    float *u = t->probe, *w = u + all, *next = w + all;
    double sum = 0, squares = 0;

    pd_basis_signs(t->wide, all);
    for (int64_t i = 0; i < all; i++) w[i] = u[i] = (float)t->wide[i] * sqrtf(t->y[i % n]);
    for (int k = 0; k <= t->p; k++) {
        float *held = w;
        if (k == t->b)
            apply_matrix(t, next, w);
        else
            apply_root(t, next, w);
        w = next, next = held;
    }
    for (int64_t i = 0; i < all; i++) sum += (double)(w[i] - u[i]) * (double)(w[i] - u[i]) * (double)t->y[i % n];
    for (int64_t i = 0; i < n; i++) squares += (double)t->y[i] * (double)t->y[i];
    return sqrt(sum / VECTORS / squares) / t->p;
}

/* Computes y <- M x for VECTORS vectors of float64 at once; each begins `apart` numbers after the one before. */
PD_CLONES(void, apply_wide, (double *y, pd_mat M, const double *x, int64_t apart), (y, M, x, apart))
{
    enum { STEP = 8 };
    int64_t n = M.cols, whole = n / STEP * STEP;

    for (int64_t i = 0; i < M.rows; i++) {
        const float *row = M.at + i * M.stride;
        pd_lanes sum[VECTORS] = { 0 };
        for (int64_t j = 0; j < whole; j += STEP) {
            pd_lanes m = pd_lanes_of(row + j);
            for (int v = 0; v < VECTORS; v++) {
                const double *at = x + v * apart + j;
                pd_lanes_add_product(&sum[v], m, (pd_lanes){ PD_DOUBLES(at), PD_DOUBLES(at + 4) });
            }
        }
        for (int v = 0; v < VECTORS; v++) {
            double rest = 0;
            for (int64_t j = whole; j < n; j++) rest += (double)row[j] * x[v * apart + j];
            y[v * apart + i] = pd_lanes_sum(sum[v]) + rest;
        }
    }
}

/* Computes y <- M' x for VECTORS vectors of float64 at once. */
PD_CLONES(void, apply_wide_turned, (double *restrict y, pd_mat M, const double *restrict x, int64_t apart),
          (y, M, x, apart))
{
    for (int64_t j = 0; j < apart * VECTORS; j++) y[j] = 0;
    for (int64_t i = 0; i < M.rows; i++) {
        const float *restrict row = M.at + i * M.stride;
        double a = x[i], b = x[apart + i], c = x[2 * apart + i], d = x[3 * apart + i];
        for (int64_t j = 0; j < M.cols; j++) {
            double m = (double)row[j];
            y[j] += a * m, y[apart + j] += b * m, y[2 * apart + j] += c * m, y[3 * apart + j] += d * m;
        }
    }
}

/* Returns w_i^2, where w_i = y_i^((p + 1) / 2) bounds the effect of row i of F: |D_ij| is at most w_i w_j / p, and
 * equal to it where d_i = d_j. */
static double weight_of(const tracking *t, int64_t i)
{
    double y = (double)t->y[i];

    return y / (double)t->d[i];
}

/* Estimates the relative error that comes from the elements of F that are not computed: |F o D| / |y| with these
 * elements alone. It is at most |W F W| / (p |y|) with W = diag(w). The norm is estimated as in error_of, but in
 * float64: the differences of large numbers in F are small. */
static double error_left_out(const tracking *t, pd_mat Q, pd_mat A)
{
    int64_t n = t->n, rows = t->rows;
    pd_mat rest = pd_mat_rows(Q, rows, n);
    double *x = t->wide, *u = x + n * VECTORS, *w = u + n * VECTORS, sum = 0, squares = 0;

    pd_basis_signs(x, n * VECTORS);
    for (int64_t i = rows; i < n; i++)
        for (int64_t v = 0; v < VECTORS; v++) x[v * n + i - rows] = x[v * n + i] * sqrt(weight_of(t, i));
    apply_wide_turned(u, rest, x, n);
    apply_wide(w, A, u, n);
    apply_wide(u, rest, w, n);
    for (int64_t i = rows; i < n; i++) {
        double own = (double)t->d[i] - t->ridge + t->lift;
        for (int64_t v = 0; v < VECTORS; v++) {
            double f = ldexp(u[v * n + i - rows], -t->exponent) - own * x[v * n + i - rows];
            sum += f * f * weight_of(t, i);
        }
    }
    for (int64_t i = 0; i < n; i++) squares += (double)t->y[i] * (double)t->y[i];
    return sqrt(sum / VECTORS / squares) / t->p;
}

/* Returns the relative error that a root computed by ssyevd would have: ssyevd's eigenvalues have errors of 2^-24 of
 * the largest eigenvalue. To first order this gives an estimate. The real error is 3 to 5 times the estimate at n =
 * 512, 0.5 to 5 times at 256, and 0.1 to 2 times at 64. A power of n as a factor corrects for this. */
static double tolerance_of(const tracking *t)
{
    double wrong = 0, squares = 0;

    for (int64_t i = 0; i < t->n; i++) {
        double y = (double)t->y[i], d = (double)t->d[i];
        wrong += y / d * (y / d), squares += y * y;
    }
    return fmin(MOST, fmax(LEAST, fmin(2, pow((double)t->n / 320, 1.5)) * ldexp(t->largest, -24) *
                                      sqrt(wrong / squares) / t->p));
}

enum {
    /* steps of power iteration towards the largest eigenvalue; few, because the start vector is nearly an
     * eigenvector */
    POWER_STEPS = 2,
    SAMPLED = 16,   /* look_at_rows computes one in this many rows of B, */
    MOST_ROWS = 64, /* but not many more than this number of rows, */
    LEAST_ROWS = 4, /* and none if they would be fewer than this: a whole attempt hardly takes longer then */
};
#define LEFT_OUT 0.6      /* share of the tolerated error that leaving out elements of F may cause */
#define UNORTHOGONAL 1e-5 /* largest error of a basis that counts as orthogonal; ssyevd leaves about 1e-6 */

/* Allocates the work memory for one root, and divides it among the members of *t. X will be the memory of B. */
static int tracking_new(tracking *t, pd_mat X, int p)
{
    size_t n = (size_t)X.rows, more;

    *t = (tracking){ .n = X.rows, .every = SAMPLED, .rows = X.rows, .p = p, .a = p / 2, .b = p - p / 2 };
    if (t->n / MOST_ROWS > t->every) t->every = t->n / MOST_ROWS;
    while (t->a >> t->levels != 0) t->levels++;
    more = n * (4 * VECTORS + 5 + (size_t)t->levels) * sizeof(float) + n * VECTORS * sizeof(double);
    if ((t->room = pd_root_room(t->n, 1, sizeof(float), more)) == NULL) return PD_NO_MEMORY;
    t->wide = t->room;
    t->probe = (float *)(t->wide + VECTORS * n);
    t->memory = t->probe + 4 * VECTORS * n;
    t->d = t->memory + n * n;
    t->y = t->d + n, t->ya = t->y + n, t->yb = t->ya + n, t->s = t->yb + n, t->ladder = t->s + n;
    return PD_OK;
}

/* Returns whether Q is orthogonal: its rows have length 1, and Q' Q v is v for one vector v. */
static bool is_basis(const tracking *t, pd_mat Q)
{
    int64_t n = t->n;
    float *v = t->probe, *u = v + n, *w = u + n;
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        if (!(fabs(pd_sum_squares(Q.at + i * Q.stride, n) - 1) < 1e-3)) return false;
    pd_basis_signs(t->wide, n);
    for (int64_t i = 0; i < n; i++) v[i] = (float)t->wide[i];
    pd_gemv(u, 0, 1, Q, PD_AS_IS, v);
    pd_gemv(w, 0, 1, Q, PD_TRANSPOSED, u);
    for (int64_t i = 0; i < n; i++) sum += (double)(w[i] - v[i]) * (double)(w[i] - v[i]);
    return sqrt(sum / (double)n) < UNORTHOGONAL;
}

/* Returns the exponent of the power of two by which A is divided, from the largest element of A's diagonal. A's largest
 * eigenvalue lies between that element and n times that element. */
static int scale_of(pd_mat A)
{
    float largest = 0;
    int exponent;

    for (int64_t i = 0; i < A.rows; i++) largest = fmaxf(largest, A.at[i * A.stride + i]);
    if (!(largest > 0)) return 0;
    frexpf(largest, &exponent);
    return exponent < -125 ? -125 : exponent - 1;
}

/* Computes the first t->rows rows of Q A Q' / 2^exponent, which is B without its ridge, and their elements of the
 * diagonal d. */
static void turn_rows(tracking *t, pd_mat Q, pd_mat A)
{
    int64_t n = t->n, rows = t->rows;
    pd_mat low = pd_mat_rows(Q, 0, rows);

    pd_gemm(t->U, 0, ldexpf(1, -t->exponent), low, PD_AS_IS, A, PD_AS_IS);
    pd_gemm_half(pd_mat_cols(t->B, 0, rows), 1, t->U, PD_AS_IS, low, PD_TRANSPOSED);
    pd_mirror(pd_mat_cols(t->B, 0, rows));
    pd_gemm(pd_mat_cols(t->B, rows, n), 0, 1, t->U, PD_AS_IS, pd_mat_rows(Q, rows, n), PD_TRANSPOSED);
    for (int64_t i = 0; i < rows; i++) t->d[i] = t->B.at[i * t->B.stride + i];
}

/* Computes the elements of the diagonal d from t->rows on: q A q' = 2 q T q' for row q of Q. T is the upper triangle of
 * A with half its diagonal, so q T takes half a product. */
static void turn_diagonal(tracking *t, pd_mat Q, pd_mat A)
{
    int64_t n = t->n, rows = t->rows;
    pd_mat T = pd_mat_dense(t->memory + rows * n, n - rows, n);
    float scale = ldexpf(1, -t->exponent);

    for (int64_t i = rows; i < n; i++) pd_scale(t->memory + i * n, Q.at + i * Q.stride, scale, n);
    pd_trmm(T, A, PD_AS_IS, PD_RIGHT);
    for (int64_t j = 0; j < n; j++) t->s[j] = 0.5f * scale * A.at[j * A.stride + j];
    for (int64_t i = rows; i < n; i++) {
        float *own = t->memory + i * n, *q = Q.at + i * Q.stride;
        for (int64_t j = 0; j < n; j++) own[j] -= t->s[j] * q[j];
        t->d[i] = (float)(2 * pd_dot(own, q, n));
    }
}

/* Computes A in the basis Q: its first t->rows rows, and its whole diagonal. */
static void turn(tracking *t, pd_mat X, pd_mat Q, pd_mat A)
{
    t->exponent = scale_of(A);
    t->B = pd_mat_rows(X, 0, t->rows);
    t->U = pd_mat_dense(t->memory, t->rows, t->n);
    turn_rows(t, Q, A);
    if (t->rows < t->n) turn_diagonal(t, Q, A);
}

/* Returns A's largest eigenvalue, divided by 2^exponent, by power iteration. The start vector is A q, where q is the
 * vector of the basis that has the largest element on B's diagonal. */
static double largest_of(const tracking *t, pd_mat Q, pd_mat A)
{
    double *v = t->wide, *u = v + t->n, value = 0;
    int64_t top = 0;

    for (int64_t i = 1; i < t->n; i++)
        if (t->d[i] > t->d[top]) top = i;
    for (int64_t i = 0; i < t->n; i++) u[i] = (double)Q.at[top * Q.stride + i];
    pd_basis_apply(v, A, u);
    for (int k = 0; k < POWER_STEPS; k++) {
        double vv = 0, uv = 0;
        pd_basis_apply(u, A, v);
        for (int64_t i = 0; i < t->n; i++) vv += v[i] * v[i], uv += u[i] * v[i];
        if (!(vv > 0)) return 0;
        value = uv / vv;
        for (int64_t i = 0; i < t->n; i++) v[i] = u[i];
    }
    return ldexp(value, -t->exponent);
}

/* Computes d_i from b, element i of the diagonal without lift and ridge, and the powers of d_i. Returns false if a
 * power is not finite. */
static bool set_power(tracking *t, int64_t i, double b)
{
    double d = fmax(b - t->lift, 0) + t->ridge, y = pow(d, -1.0 / t->p);

    t->d[i] = (float)d;
    t->y[i] = (float)y, t->ya[i] = (float)pow(y, t->a), t->yb[i] = (float)pow(y, t->b);
    for (int k = 0; k < t->levels; k++) t->ladder[k * t->n + i] = (float)pow(y, t->a >> (t->levels - 1 - k));
    return d > 0 && isfinite(t->yb[i]);
}

/* Computes the ridge, adds it to B's diagonal, and computes the powers of the diagonal. Returns false if no root can be
 * computed in this basis. */
static bool diagonal(tracking *t, pd_mat Q, pd_mat A, const pd_root_want *want)
{
    t->largest = fmax(largest_of(t, Q, A), 0);
    t->ridge = ldexp(pd_form_ridge(want, ldexp(t->largest, t->exponent)), -t->exponent);
    t->lift = 0;
    if (!isfinite(t->largest) || !isfinite(t->ridge)) return false;
    for (int64_t i = 0; want->ridge == PD_RIDGE_SHIFTED && i < t->n; i++) {
        double b = (double)t->d[i];
        if (b < t->lift) t->lift = b; /* not fmin, because gcc 12 for ARM64 crashes on it */
    }
    for (int64_t i = 0; i < t->n; i++) {
        if (!set_power(t, i, (double)t->d[i])) return false;
        if (i < t->rows) t->B.at[i * t->B.stride + i] = t->d[i];
    }
    return true;
}

/* Computes the row s_j <- s_a(y_i, y_j) for one i and j >= from, where s_m(x, y) = sum of x^k y^(m - 1 - k) over k < m.
 * This sum equals (x^m - y^m) / (x - y), but without cancellation. It is built up along the binary digits of a: s_2m =
 * (x^m + y^m) s_m and s_(m+1) = x s_m + y^m. */
PD_INLINE void ladder_rise(const tracking *t, float *restrict s, int64_t i, int64_t from)
{
    int64_t n = t->n;
    float first = t->a > 0 ? 1 : 0, x = t->y[i];

    for (int64_t j = from; j < n; j++) s[j] = first;
    for (int k = 0; k + 1 < t->levels; k++) {
        const float *restrict power = t->ladder + k * n;
        float own = power[i];
        for (int64_t j = from; j < n; j++) s[j] *= own + power[j];
        if ((t->a >> (t->levels - 2 - k) & 1) != 0)
            for (int64_t j = from; j < n; j++) s[j] = x * s[j] + power[j] * power[j];
    }
}

/* Writes the elements j >= from of row i of F o D (see the top of the file) to y[j]. `b` is row i of B, which equals F
 * off the diagonal. D_ij = -1 / (d_i d_j s_p(t->y[i], t->y[j])). */
PD_INLINE void divided_row(const tracking *t, float *restrict y, const float *restrict b, int64_t i, int64_t from)
{
    int64_t n = t->n;
    const float *restrict d = t->d, *restrict ya = t->ya;
    float *restrict s = t->s, x = t->y[i], xb = t->yb[i], own = -d[i];

    ladder_rise(t, s, i, from);
    if (t->a == t->b)
        for (int64_t j = from; j < n; j++) y[j] = b[j] / (own * d[j] * ((xb + ya[j]) * s[j]));
    else
        for (int64_t j = from; j < n; j++) y[j] = b[j] / (own * d[j] * (xb * s[j] + ya[j] * (x * s[j] + ya[j])));
}

/* Computes the triangular factor of the first-order root: an upper triangular U with U' U = diag(y) + F o D + terms of
 * second order. */
PD_CLONES(void, first_order_factor, (const tracking *t), (t))
{
    for (int64_t i = 0; i < t->rows; i++) {
        float *u = t->U.at + i * t->n, root = sqrtf(t->y[i]), inverse = 1 / root;
        for (int64_t j = 0; j < i; j++) u[j] = 0;
        divided_row(t, u, t->B.at + i * t->B.stride, i, i + 1);
        for (int64_t j = i + 1; j < t->n; j++) u[j] *= inverse;
        u[i] = root;
    }
}

static void copy(pd_mat to, pd_mat from)
{
    for (int64_t i = 0; i < from.rows; i++)
        memcpy(to.at + i * to.stride, from.at + i * from.stride, (size_t)from.cols * sizeof *to.at);
}

/* Computes X <- (U Q)' (U Q) and undoes the scaling of A. X is the memory of B, and U is overwritten by U Q. */
static void turn_back(const tracking *t, pd_mat X, pd_mat Q)
{
    int64_t n = t->n, rows = t->rows;
    float scale = (float)pow(2, -(double)t->exponent / t->p);
    pd_mat low = pd_mat_rows(X, 0, rows);

    copy(low, pd_mat_rows(Q, 0, rows));
    pd_trmm(low, pd_mat_cols(t->U, 0, rows), PD_AS_IS, PD_LEFT);
    pd_gemm(low, 1, 1, pd_mat_cols(t->U, rows, n), PD_AS_IS, pd_mat_rows(Q, rows, n), PD_AS_IS);
    copy(t->U, low);
    for (int64_t i = rows; i < n; i++) pd_scale(t->memory + i * n, Q.at + i * Q.stride, sqrtf(t->y[i]), n);
    pd_syrk(X, 0, scale, pd_mat_dense(t->memory, n, n), PD_RIGHT);
    pd_mirror(X);
}

/* Returns how many rows of B look_at_rows computes. */
static int64_t sampled_rows(const tracking *t)
{
    int64_t rows = t->n / t->every;

    return rows < LEAST_ROWS ? 0 : rows;
}

/* Estimates the diagonal of B from sampled rows of B, which F (rows, n) contains. ssyevd sorts eigenvalues, so rows
 * near a sampled row have about the same element on the diagonal. Also computes the powers, the largest eigenvalue, and
 * the ridge. Returns false if an estimate is not possible. */
static bool guess_diagonal(tracking *t, pd_mat F, int64_t first, const pd_root_want *want)
{
    t->largest = (double)F.at[(F.rows - 1) * F.stride + t->n - 1];
    t->ridge = ldexp(pd_form_ridge(want, ldexp(t->largest, t->exponent)), -t->exponent);
    for (int64_t s = 0; want->ridge == PD_RIDGE_SHIFTED && s < F.rows; s++) {
        double b = (double)F.at[s * F.stride + first + s * t->every];
        if (b < t->lift) t->lift = b;
    }
    for (int64_t i = 0; i < t->n; i++) {
        int64_t s = (i - first + t->every / 2) / t->every;
        if (!set_power(t, i, (double)F.at[s * F.stride + first + s * t->every])) return false;
    }
    return isfinite(t->largest);
}

/* Estimates the relative error of a first-order root in the basis Q from sampled rows F.
 *
 * The first-order root leaves out terms of second order. For row i their relative size is about (1/p)(1 + 1/p)/2, the
 * second coefficient of the series of (1 + x)^(-1/p), times sum over j of F_ij^2 / (d_i d_j). The error that error_of
 * found later was 1.2 to 1.5 times this estimate, so a good basis is never rejected. Measured on moving averages of G
 * G' (n 64 to 1024, p 2 to 8, beta 0.95 to 0.999, powers 0 to 1.5). */
static double second_order(const tracking *t, pd_mat F, int64_t first)
{
    double wrong = 0, squares = 0;

    for (int64_t s = 0; s < F.rows; s++) {
        const float *f = F.at + s * F.stride;
        int64_t i = first + s * t->every;
        double off = 0, y = (double)t->y[i] * (double)t->y[i];
        for (int64_t j = 0; j < t->n; j++) off += j == i ? 0 : (double)f[j] * (double)f[j] / (double)t->d[j];
        off /= (double)t->d[i];
        wrong += y * off * off, squares += y;
    }
    return (t->p + 1) / (2.0 * t->p * t->p) * sqrt(wrong / squares);
}

/* Chooses t->rows, the number of rows of F to compute. Leaves out as many rows as error_left_out will allow, beginning
 * with the largest eigenvalue, whose row is the last. A sampled row in F stands for the rows around it. */
static void choose_rows(tracking *t, pd_mat F, int64_t first)
{
    double most = LEFT_OUT * t->p * tolerance_of(t), sum = 0, squares = 0;
    int64_t end = t->n;

    for (int64_t i = 0; i < t->n; i++) squares += (double)t->y[i] * (double)t->y[i];
    for (int64_t s = F.rows - 1; s >= 0; s--) {
        int64_t i = first + s * t->every, begin = s > 0 ? i - t->every / 2 : 0;
        const float *f = F.at + s * F.stride;
        double row = 0;
        for (int64_t j = begin; j < t->n; j++)
            row += j == i ? 0 : (j < end ? 1 : 2) * (double)f[j] * (double)f[j] * weight_of(t, j);
        sum += (double)(end - begin) * row * weight_of(t, i);
        if (!(sqrt(sum / squares) <= most)) return;
        t->rows = end = begin;
    }
}

/* Computes a few rows of B. Returns false if they show that a root in the basis Q cannot be exact enough. Otherwise
 * chooses the number of rows of F to compute. */
static bool look_at_rows(tracking *t, pd_mat Q, pd_mat A, const pd_root_want *want)
{
    int64_t n = t->n, rows = sampled_rows(t), first = n - 1 - (rows - 1) * t->every;
    pd_mat S = { Q.at + first * Q.stride, rows, n, Q.stride * t->every }, T = pd_mat_dense(t->memory, rows, n),
           F = pd_mat_dense(t->memory + rows * n, rows, n);

    if (rows == 0) return true;
    t->exponent = scale_of(A);
    pd_gemm(T, 0, ldexpf(1, -t->exponent), S, PD_AS_IS, A, PD_AS_IS);
    pd_gemm(F, 0, 1, T, PD_AS_IS, Q, PD_TRANSPOSED);
    if (!guess_diagonal(t, F, first, want)) return true;
    if (second_order(t, F, first) > tolerance_of(t)) return false;
    choose_rows(t, F, first);
    return true;
}

/* Returns whether the root that the basis gives is exact enough. It is not if the square of an error is infinite or
 * NaN. Squares that underflow do not matter, because such errors are far below the tolerance. */
static bool is_exact(const tracking *t, pd_mat Q, pd_mat A)
{
    double rest = t->rows < t->n ? error_left_out(t, Q, A) : 0, error = error_of(t);

    return sqrt(error * error + rest * rest) <= tolerance_of(t);
}

/* Computes the factor U of the root from t->rows rows of F. Returns whether the root is exact enough. */
static bool correct(tracking *t, pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want)
{
    turn(t, X, Q, A);
    if (!diagonal(t, Q, A, want)) return false;
    first_order_factor(t);
    return is_exact(t, Q, A);
}

/* Computes the root in the last basis Q. Sets *good to whether the result is exact enough; if not, A must be
 * decomposed. */
static int track(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report,
                 bool *good)
{
    tracking t;
    int rc;

    *good = false;
    *form = pd_form_of(want);
    if (form->p == 0) return PD_OK;
    if ((rc = tracking_new(&t, X, form->p)) != PD_OK) return rc;
    if (is_basis(&t, Q) && look_at_rows(&t, Q, A, want)) {
        *good = correct(&t, X, Q, A, want);
        if (!*good && t.rows < t.n) {
            t.rows = t.n;
            *good = correct(&t, X, Q, A, want);
        }
    }
    if (*good) {
        double least = (double)t.d[0];
        for (int64_t i = 1; i < t.n; i++) { /* not fmin, because gcc 12 for ARM64 crashes on it */
            if ((double)t.d[i] < least) least = (double)t.d[i];
        }
        report->largest = ldexp(t.largest, t.exponent);
        report->condition = (t.largest - t.lift + t.ridge) / least;
        report->iterations = 1;
        form->lift = ldexp(t.lift, t.exponent);
        form->ridge = pd_form_ridge(want, report->largest);
        turn_back(&t, X, Q);
    }
    free(t.room);
    return rc;
}

/* Decomposes A and computes the root. Q gets the new basis, or zeros after an error. */
static int decompose(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report)
{
    int rc = pd_basis_decompose(X, Q, A, want, form, report);

    report->iterations = 0;
    for (int64_t i = 0; rc != PD_OK && i < Q.rows; i++) memset(Q.at + i * Q.stride, 0, (size_t)Q.cols * sizeof *Q.at);
    return rc;
}

int pd_root_tracked(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    pd_form form;
    bool good;
    int rc;

    *report = (pd_root_report){ .error = INFINITY, .tries = 1 };
    if (!pd_root_is_finite(A)) return PD_OUT_OF_RANGE;
    if ((rc = track(X, Q, A, want, &form, report, &good)) != PD_OK) return rc;
    if (!good) rc = decompose(X, Q, A, want, &form, report);
    return rc == PD_OK ? pd_basis_finish(&report->error, X, (pd_factor){ .A = A }, &form) : rc;
}
