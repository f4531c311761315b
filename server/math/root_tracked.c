/* root_tracked.c - computes roots in the eigenbasis of an earlier decomposition of almost the same matrix.
 *
 * Statistics change little between two refreshes (computations of a root), so the last basis nearly diagonalises the
 * new matrix. Its elements off the diagonal are small. They enter the root to first order by divided differences,
 * which are bounded however close two eigenvalues are (Daleckii and Krein).
 *
 *     B = Q A Q' + ridge I     d = diag(B)     F = B - diag(d)     y = d^(-1/p)                          1 1/2 products
 *     Y = diag(y) + F o D      D_ij = (y_i - y_j) / (d_i - d_j) = -1 / (d_i d_j s_p(y_i, y_j))
 *                              s_m(x, z) = sum of x^k z^(m-1-k) over k < m
 *     Y = U' U to first order, U upper triangular: U_ii = sqrt(y_i), U_ij = F_ij D_ij / sqrt(y_i)
 *     root = (U Q)' (U Q)                                                                                     1 product
 *
 * The whole computation consists of products of matrices, and a decomposition takes the time of five to eight
 * products, depending on the CPU.
 *
 * A few matrix-vector products estimate the root's error to a few percent (error_of). If the error is not below the
 * limit (tolerance), A is decomposed. The limit is below the rounding error of ssyevd, so a tracked root is no worse
 * than one from a new decomposition. Where statistics change fast that would be an attempt and a decomposition: so a
 * few rows of B, a sixteenth of the first product, are looked at before (is_hopeless).
 *
 * A Newton step could make a root exact whose error is a little too large. It takes three more products and leaves the
 * old basis, so the next refresh needs it as well. A decomposition takes little more time, and the next refreshes are
 * of first order again.
 *
 * A relative ridge of 1e-6 keeps rounding harmless, as with ssyevd. Q changes only by a new decomposition, so it
 * never loses orthogonality. */
#include "root_tracked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"
#include "kernels.h"
#include "root_basis.h"
#include "root_parts.h"

enum {
    /* steps of power iteration towards the largest eigenvalue; few, because its start vector is nearly right */
    POWER_STEPS = 2,
    SAMPLED = 16,   /* is_hopeless computes one row of B in so many */
    LEAST_ROWS = 4, /* with fewer such rows it computes none: the whole attempt takes hardly longer */
    VECTORS = 4,    /* number of random vectors that estimate a norm */
    LANES = 16,
};
#define LEAST 3e-7        /* relative error of a root that is as exact as float32 allows */
#define MOST 2e-2         /* relative error of a root that is useless, even where ssyevd's root would be worse */
#define UNORTHOGONAL 1e-5 /* largest error of a basis that counts as orthogonal; ssyevd leaves about 1e-6 */

/* The computation of a root in the basis. A is divided by a power of two, so that its largest eigenvalue lies
 * between 1 and 2n. */
typedef struct tracking {
    int64_t n;
    int p, a, b;            /* p = a + b, where b is a or a + 1 */
    pd_mat B, U;            /* B: A in the basis, with its ridge; U: upper triangular, with the root U' U of B */
    float *d, *y, *ya, *yb; /* B's diagonal d; y = d^(-1/p); y^a; y^b */
    float *ladder, *s;      /* ladder: work memory of ladder_rise, a row of n powers for each level; s: n results of
                             * it */
    int levels;
    int exponent; /* A is divided by 2^exponent */
    double lift, ridge,
        /* All three are divided by 2^exponent, as A is. lift is as in pd_form, but computed from the smallest
         * element on B's diagonal, an estimate of the smallest eigenvalue. */
        largest;
    double *wide; /* VECTORS vectors */
    float *probe; /* 4 VECTORS vectors */
    void *room;
} tracking;

static int tracking_new(tracking *t, pd_mat X, int p)
{
    size_t n = (size_t)X.rows, more;

    *t = (tracking){ .n = X.rows, .p = p, .a = p / 2, .b = p - p / 2, .B = X };
    while (t->a >> t->levels != 0) t->levels++;
    more = n * (4 * VECTORS + 5 + (size_t)t->levels) * sizeof(float) + n * VECTORS * sizeof(double);
    if ((t->room = pd_root_room(t->n, 1, sizeof(float), more)) == NULL) return PD_NO_MEMORY;
    t->wide = t->room;
    t->U = pd_mat_dense((float *)(t->wide + VECTORS * n), t->n, t->n);
    t->probe = t->U.at + n * n;
    t->d = t->probe + 4 * VECTORS * n;
    t->y = t->d + n, t->ya = t->y + n, t->yb = t->ya + n, t->s = t->yb + n, t->ladder = t->s + n;
    return PD_OK;
}

/* ---- transforming A into the basis ---- */

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

/* Returns the exponent of the power of two to divide A by, from the largest element of the diagonal. The largest
 * eigenvalue lies between that element and n times it. */
static int scale_of(pd_mat A)
{
    float largest = 0;
    int exponent;

    for (int64_t i = 0; i < A.rows; i++) largest = fmaxf(largest, A.at[i * A.stride + i]);
    if (!(largest > 0)) return 0;
    frexpf(largest, &exponent);
    return exponent < -125 ? -125 : exponent - 1;
}

/* Computes B <- Q A Q' / 2^exponent. */
static void turn(tracking *t, pd_mat Q, pd_mat A)
{
    t->exponent = scale_of(A);
    pd_gemm(t->U, 0, ldexpf(1, -t->exponent), Q, PD_AS_IS, A, PD_AS_IS);
    pd_gemm_half(t->B, 1, t->U, PD_AS_IS, Q, PD_TRANSPOSED);
    pd_mirror(t->B);
}

/* Returns B's largest eigenvalue by power iteration. The start vector is the row of B with the largest element on
 * the diagonal: this row is already B times a vector of the basis. */
static double largest_of(const tracking *t)
{
    double *v = t->wide, *u = v + t->n, value = 0;
    int64_t top = 0;

    for (int64_t i = 1; i < t->n; i++)
        if (t->B.at[i * t->B.stride + i] > t->B.at[top * t->B.stride + top]) top = i;
    for (int64_t i = 0; i < t->n; i++) v[i] = (double)t->B.at[top * t->B.stride + i];
    for (int k = 0; k < POWER_STEPS; k++) {
        double vv = 0, uv = 0;
        pd_basis_apply(u, t->B, v);
        for (int64_t i = 0; i < t->n; i++) vv += v[i] * v[i], uv += u[i] * v[i];
        if (!(vv > 0)) return 0;
        value = uv / vv;
        for (int64_t i = 0; i < t->n; i++) v[i] = u[i];
    }
    return value;
}

/* Computes the ridge, adds it to B's diagonal, and computes the powers of the diagonal. Returns false if no root can
 * be computed in this basis. */
static bool diagonal(tracking *t, const pd_root_want *want)
{
    t->largest = fmax(largest_of(t), 0);
    t->ridge = ldexp(pd_form_ridge(want, ldexp(t->largest, t->exponent)), -t->exponent);
    if (!isfinite(t->largest) || !isfinite(t->ridge)) return false;
    for (int64_t i = 0; want->ridge == PD_RIDGE_SHIFTED && i < t->n; i++) {
        double b = (double)t->B.at[i * t->B.stride + i];
        if (b < t->lift) t->lift = b; /* gcc 12 for ARM64 crashes over fmin here */
    }
    for (int64_t i = 0; i < t->n; i++) {
        float *b = &t->B.at[i * t->B.stride + i];
        double d = fmax((double)*b - t->lift, 0) + t->ridge, y = pow(d, -1.0 / t->p);
        *b = t->d[i] = (float)d;
        t->y[i] = (float)y, t->ya[i] = (float)pow(y, t->a), t->yb[i] = (float)pow(y, t->b);
        if (!(d > 0) || !isfinite(t->yb[i])) return false;
        for (int k = 0; k < t->levels; k++) t->ladder[k * t->n + i] = (float)pow(y, t->a >> (t->levels - 1 - k));
    }
    return true;
}

/* ---- the root in the basis ---- */

/* Computes the row s_j <- s_a(y_i, y_j) for one i, where s_m(x, y) = sum of x^k y^(m - 1 - k) over k < m. This sum
 * equals (x^m - y^m) / (x - y), but without cancellation. It is built up along the binary digits of a: s_2m = (x^m +
 * y^m) s_m and s_(m+1) = x s_m + y^m. */
PD_INLINE void ladder_rise(const tracking *t, float *s, int64_t i)
{
    int64_t n = t->n;
    float first = t->a > 0 ? 1 : 0, x = t->y[i];

    for (int64_t j = 0; j < n; j++) s[j] = first;
    for (int k = 0; k + 1 < t->levels; k++) {
        const float *power = t->ladder + k * n;
        float own = power[i];
        for (int64_t j = 0; j < n; j++) s[j] *= own + power[j];
        if ((t->a >> (t->levels - 2 - k) & 1) != 0)
            for (int64_t j = 0; j < n; j++) s[j] = x * s[j] + power[j] * power[j];
    }
}

/* Computes y_j <- F_ij D_ij for row i of B, with D_ij = (f(d_i) - f(d_j)) / (d_i - d_j) = -1 / (d_i d_j s_p(y_i, y_j))
 * and f(x) = x^(-1/p). */
PD_INLINE void divided_row(const tracking *t, float *restrict y, int64_t i)
{
    int64_t n = t->n;
    const float *restrict b = t->B.at + i * t->B.stride, *restrict d = t->d, *restrict ya = t->ya;
    float *restrict s = t->s, x = t->y[i], xb = t->yb[i], own = -d[i];

    ladder_rise(t, s, i);
    if (t->a == t->b)
        for (int64_t j = 0; j < n; j++) y[j] = b[j] / (own * d[j] * ((xb + ya[j]) * s[j]));
    else
        for (int64_t j = 0; j < n; j++) y[j] = b[j] / (own * d[j] * (xb * s[j] + ya[j] * (x * s[j] + ya[j])));
}

/* Computes the triangular factor of the first-order root: an upper triangular U with U' U = f(d) + F o D + terms of
 * second order. */
PD_CLONES(void, first_order_factor, (const tracking *t), (t))
{
    for (int64_t i = 0; i < t->n; i++) {
        float *u = t->U.at + i * t->n, root = sqrtf(t->y[i]), inverse = 1 / root;
        divided_row(t, u, i);
        for (int64_t j = 0; j < i; j++) u[j] = 0;
        for (int64_t j = i + 1; j < t->n; j++) u[j] *= inverse;
        u[i] = root;
    }
}

/* ---- estimating the root's error ---- */

/* Computes y <- M x for VECTORS vectors at once; they lie one behind the other. If M is triangular the zeros below
 * its diagonal are skipped. Sums are split into lanes in a fixed way, so the bits are the same on every CPU. */
PD_CLONES(void, apply, (float *y, pd_mat M, bool triangular, const float *x), (y, M, triangular, x))
{
    int64_t n = M.rows, whole = n / LANES * LANES;

    for (int64_t i = 0; i < n; i++) {
        const float *row = M.at + i * M.stride;
        float a[LANES] = { 0 }, b[LANES] = { 0 }, c[LANES] = { 0 }, d[LANES] = { 0 }, *sum[VECTORS] = { a, b, c, d };
        for (int64_t j = triangular ? i / LANES * LANES : 0; j < whole; j += LANES)
            for (int l = 0; l < LANES; l++) {
                float m = row[j + l];
                a[l] += m * x[j + l], b[l] += m * x[n + j + l], c[l] += m * x[2 * n + j + l],
                    d[l] += m * x[3 * n + j + l];
            }
        for (int v = 0; v < VECTORS; v++) {
            for (int64_t j = whole; j < n; j++) sum[v][j - whole] += row[j] * x[v * n + j];
            for (int half = LANES / 2; half > 0; half /= 2)
                for (int l = 0; l < half; l++) sum[v][l] += sum[v][l + half];
            y[v * n + i] = sum[v][0];
        }
    }
}

/* Computes y <- U' x for VECTORS vectors at once, with an upper triangular U. */
PD_CLONES(void, apply_turned, (float *restrict y, pd_mat U, const float *restrict x), (y, U, x))
{
    int64_t n = U.rows;

    for (int64_t i = 0; i < n * VECTORS; i++) y[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *restrict row = U.at + i * U.stride;
        float a = x[i], b = x[n + i], c = x[2 * n + i], d = x[3 * n + i];
        for (int64_t j = i; j < n; j++)
            y[j] += a * row[j], y[n + j] += b * row[j], y[2 * n + j] += c * row[j], y[3 * n + j] += d * row[j];
    }
}

/* Computes y <- U' U x for VECTORS vectors at once. */
static void apply_root(const tracking *t, float *y, const float *x)
{
    float *between = t->probe + 3 * t->n * VECTORS;

    apply(between, t->U, true, x);
    apply_turned(y, t->U, between);
}

/* Estimates the relative error of the root Y = U' U in the Frobenius norm, from E = Y^a B Y^b - I:
 *
 *     |Z^(1/2) E Z^(1/2)| / (p |y|) with Z = diag(y)
 *
 * since the first-order change of Y by E is y_i E_ij / p on the diagonal and below sqrt(y_i y_j) E_ij / p elsewhere.
 * The norm is estimated by a few vectors of signs. */
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
            apply(next, t->B, false, w);
        else
            apply_root(t, next, w);
        w = next, next = held;
    }
    for (int64_t i = 0; i < all; i++) sum += (double)(w[i] - u[i]) * (double)(w[i] - u[i]) * (double)t->y[i % n];
    for (int64_t i = 0; i < n; i++) squares += (double)t->y[i] * (double)t->y[i];
    return sqrt(sum / VECTORS / squares) / t->p;
}

/* Returns the relative error that a root computed by ssyevd would have: ssyevd's eigenvalues have errors of 2^-24 of
 * the largest eigenvalue. To first order this gives an estimate. The real error is 3 to 5 times the estimate at n =
 * 512, 0.5 to 5 times at 256, and 0.1 to 2 times at 64. A power of n as a factor corrects for this. */
static double tolerance(const tracking *t)
{
    double wrong = 0, squares = 0;

    for (int64_t i = 0; i < t->n; i++) {
        double y = (double)t->y[i], d = (double)t->d[i];
        wrong += y / d * (y / d), squares += y * y;
    }
    return fmin(MOST, fmax(LEAST, fmin(2, pow((double)t->n / 320, 1.5)) * ldexp(t->largest, -24) *
                                      sqrt(wrong / squares) / t->p));
}

/* ---- transforming the root back ---- */

static void copy(pd_mat to, pd_mat from)
{
    for (int64_t i = 0; i < from.rows; i++)
        memcpy(to.at + i * to.stride, from.at + i * from.stride, (size_t)from.cols * sizeof *to.at);
}

/* Computes X <- (U Q)' (U Q) and undoes the scaling of A. X is the memory of B, and U is overwritten. */
static void turn_back(const tracking *t, pd_mat X, pd_mat Q)
{
    float scale = (float)pow(2, -(double)t->exponent / t->p);

    copy(X, Q);
    pd_trmm(X, t->U, PD_AS_IS, PD_LEFT);
    pd_syrk(t->U, 0, scale, X, PD_RIGHT);
    copy(X, t->U);
    pd_mirror(X);
}

/* Estimates the diagonal of B from every SAMPLED-th row of B, whose elements F (rows, n) holds. Neighbours of a sampled
 * row have about its element, since ssyevd sorts eigenvalues. Also fills y, largest and ridge. Returns false if the
 * rows allow no estimate. */
static bool guess_diagonal(tracking *t, pd_mat F, int64_t first, const pd_root_want *want)
{
    float lift = 0;

    t->largest = (double)F.at[(F.rows - 1) * F.stride + t->n - 1];
    t->ridge = ldexp(pd_form_ridge(want, ldexp(t->largest, t->exponent)), -t->exponent);
    for (int64_t s = 0; want->ridge == PD_RIDGE_SHIFTED && s < F.rows; s++)
        lift = fminf(lift, F.at[s * F.stride + first + s * SAMPLED]);
    for (int64_t i = 0; i < t->n; i++) {
        int64_t s = (i - first + SAMPLED / 2) / SAMPLED;
        double b = (double)F.at[s * F.stride + first + s * SAMPLED];
        t->d[i] = (float)(fmax(b - (double)lift, 0) + t->ridge);
        t->y[i] = (float)pow((double)t->d[i], -1.0 / t->p);
        if (!(t->d[i] > 0) || !isfinite(t->y[i])) return false;
    }
    return isfinite(t->largest);
}

/* Returns whether a few rows of B already show that a root in the basis Q cannot be exact enough.
 *
 * The first-order root leaves out terms of second order. For row i their relative size is about (1/p)(1 + 1/p)/2, the
 * second coefficient of the series of (1 + x)^(-1/p), times sum over j of F_ij^2 / (d_i d_j). The error that error_of
 * then finds was 1.2 to 1.5 times this estimate, so no good basis is given up. Measured on moving averages of G G'
 * (n 64 to 1024, p 2 to 8, beta 0.95 to 0.999, powers 0 to 1.5). */
static bool is_hopeless(tracking *t, pd_mat Q, pd_mat A, const pd_root_want *want)
{
    int64_t n = t->n, rows = n / SAMPLED, first = n - 1 - (rows - 1) * SAMPLED;
    pd_mat S = { Q.at + first * Q.stride, rows, n, Q.stride * SAMPLED }, T = pd_mat_dense(t->U.at, rows, n),
           F = pd_mat_dense(t->U.at + rows * n, rows, n);
    double wrong = 0, squares = 0;

    if (rows < LEAST_ROWS) return false;
    t->exponent = scale_of(A);
    pd_gemm(T, 0, ldexpf(1, -t->exponent), S, PD_AS_IS, A, PD_AS_IS);
    pd_gemm(F, 0, 1, T, PD_AS_IS, Q, PD_TRANSPOSED);
    if (!guess_diagonal(t, F, first, want)) return false;
    for (int64_t s = 0; s < rows; s++) {
        const float *f = F.at + s * n;
        int64_t i = first + s * SAMPLED;
        double off = 0, y = (double)t->y[i] * (double)t->y[i];
        for (int64_t j = 0; j < n; j++) off += j == i ? 0 : (double)f[j] * (double)f[j] / (double)t->d[j];
        off /= (double)t->d[i];
        wrong += y * off * off, squares += y;
    }
    return (t->p + 1) / (2.0 * t->p * t->p) * sqrt(wrong / squares) > tolerance(t);
}

/* Computes the root in the last basis Q. *good: the result is exact enough; otherwise A must be decomposed. */
static int track(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report,
                 bool *good)
{
    tracking t;
    int rc;

    *good = false;
    *form = pd_form_of(want);
    if (form->p == 0) return PD_OK;
    if ((rc = tracking_new(&t, X, form->p)) != PD_OK) return rc;
    if (is_basis(&t, Q) && !is_hopeless(&t, Q, A, want)) {
        turn(&t, Q, A);
        if (diagonal(&t, want)) {
            first_order_factor(&t);
            *good = error_of(&t) <= tolerance(&t);
        }
    }
    if (*good) {
        double least = (double)t.d[0];
        for (int64_t i = 1; i < t.n; i++) { /* not fmin, for the same reason as above */
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
