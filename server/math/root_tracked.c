/* Roots from the last eigenbasis. Statistics change little between two refreshes, so the basis of the last decomposition nearly diagonalises
 * the new matrix, and a root is a smooth function: what lies beside the diagonal enters it to first order by divided differences, which are
 * bounded however close two eigenvalues are (Daleckii and Krein). All of it is products of matrices, where a decomposition takes the time of
 * five of them (sgemm at 97 GFLOP/s a core, where a first-order refresh took 0.57 of a new decomposition) to eight (at 155).
 *
 *     B = Q A Q' + ridge I     d = diag(B)     F = B - diag(d)     y = d^(-1/p)                                   1 1/2 products
 *     Y = diag(y) + F o D      D_ij = (y_i - y_j) / (d_i - d_j) = -1 / (d_i d_j s_p(y_i, y_j))     s_m(x, z) = sum of x^k z^(m-1-k), k < m
 *     Y = U' U to first order, U upper triangular: U_ii = sqrt(y_i), U_ij = F_ij D_ij / sqrt(y_i)
 *     root = (U Q)' (U Q)                                                                                               1 product
 *
 * Where that is not enough, Newton's step in the same basis, for any p = a + b, a = p / 2 rounded down: two products more for p = 4
 *
 *     E = Y^a B Y^b - I        Y <- Y - E / L (symmetric)          L_ij = s_a(y_i, y_j) / y_j^a + s_b(y_i, y_j) / y_i^b
 *     root = Q' Y Q
 *
 * L is the derivative of E at the diagonal: that of Y^a is s_a element by element, and B is y^(-p) there.
 *
 * What decides is E itself, by a few products of matrix and vector (error_of): it foretells the root's error to a few percent. Enough is less
 * than ssyevd's own rounding leaves (tolerance), so that a tracked root is no worse than one made anew. Measured against float64 on moving
 * averages of G G' with power-law rows (powers 0.5 to 1.5, ridge 1e-6, 20 refreshes 20 steps apart, n 64 to 1024, p 1 to 8, several seeds):
 * no error above that of ssyevd's root. With beta 0.999 the first decomposition lasts 20 refreshes where the condition is 1e5, at n = 512 without
 * a Newton step and with errors of 6e-4 beside ssyevd's 8e-3; it lasts 5 to 10 refreshes, with Newton steps, where the condition is 150 and
 * ssyevd's error 1e-6. With 0.99 it lasts 3 to 20; with 0.95 nearly every refresh decomposes, and looking first costs it a sixth more.
 *
 * A relative ridge of 1e-6 keeps rounding harmless, as with ssyevd; Q is never updated, so it stays as orthogonal as it was made. */
#include "root_tracked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"
#include "kernels.h"
#include "root_basis.h"
#include "root_parts.h"

enum {
    POWER_STEPS = 2,            /* towards the largest eigenvalue, from one that is nearly right already */
    VECTORS     = 4,            /* that estimate a norm */
    LANES       = 16,
};
#define LEAST        3e-7       /* error of a root that is as good as float32 makes it */
#define MOST         2e-2       /* error of one that is good for nothing, whatever ssyevd would make of it */
#define UNORTHOGONAL 1e-5       /* what ssyevd leaves is about 1e-6 */

/* In the basis, and scaled by a power of two so that the largest eigenvalue lies between 1 and 2n. */
typedef struct tracking {
    int64_t n;
    int     p, a, b;            /* p = a + b, a <= b <= a + 1 */
    pd_mat  B, Y;               /* A in the basis, ridge included; its root */
    bool    factored;           /* Y is U' U, and what it holds is U, upper triangular */
    float  *d, *y, *ya, *yb;    /* B's diagonal; d^(-1/p), and powers of it */
    float  *ladder, *s;         /* levels of n numbers each: ladder_rise; a row of numbers */
    int     levels;
    int     exponent;           /* of the scale */
    double  lift, ridge, largest;   /* scaled; lift: as a pd_form has it, the least eigenvalue estimated by the least on the diagonal */
    double *wide;               /* VECTORS vectors, */
    float  *probe;              /* and four times as many */
    void   *room;
} tracking;

static int tracking_new(tracking *t, pd_mat X, int p)
{
    size_t n = (size_t)X.rows, more;

    *t = (tracking){ .n = X.rows, .p = p, .a = p / 2, .b = p - p / 2, .B = X };
    while (t->a >> t->levels != 0) t->levels++;
    more = n * (4 * VECTORS + 5 + (size_t)t->levels) * sizeof(float) + n * VECTORS * sizeof(double);
    if ((t->room = pd_root_room(t->n, 1, sizeof(float), more)) == NULL) return PD_NO_MEMORY;
    t->wide = t->room;
    t->Y = pd_mat_dense((float *)(t->wide + VECTORS * n), t->n, t->n);
    t->probe = t->Y.at + n * n;
    t->d = t->probe + 4 * VECTORS * n;
    t->y = t->d + n, t->ya = t->y + n, t->yb = t->ya + n, t->s = t->yb + n, t->ladder = t->s + n;
    return PD_OK;
}

/* ---- into the basis ---- */

/* Rows of length 1, at right angles as far as one vector can tell. */
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

/* The largest eigenvalue is not below the largest element of the diagonal, and not above n times that. */
static int scale_of(pd_mat A)
{
    float largest = 0;
    int exponent;

    for (int64_t i = 0; i < A.rows; i++) largest = fmaxf(largest, A.at[i * A.stride + i]);
    if (!(largest > 0)) return 0;
    frexpf(largest, &exponent);
    return exponent < -125 ? -125 : exponent - 1;
}

/* B <- Q A Q' / scale */
static void turn(tracking *t, pd_mat Q, pd_mat A)
{
    t->exponent = scale_of(A);
    pd_gemm(t->Y, 0, ldexpf(1, -t->exponent), Q, PD_AS_IS, A, PD_AS_IS);
    pd_gemm_half(t->B, 1, t->Y, PD_AS_IS, Q, PD_TRANSPOSED);
    pd_mirror(t->B);
}

/* B's largest eigenvalue: power iteration from the row of the largest on the diagonal, which is B times the basis's own eigenvector. */
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

/* Ridge, diagonal and its powers. False: there is no root to be had from here. */
static bool diagonal(tracking *t, const pd_root_want *want)
{
    t->largest = fmax(largest_of(t), 0);
    t->ridge = ldexp(pd_form_ridge(want, ldexp(t->largest, t->exponent)), -t->exponent);
    if (!isfinite(t->largest) || !isfinite(t->ridge)) return false;
    for (int64_t i = 0; want->ridge == PD_RIDGE_SHIFTED && i < t->n; i++) t->lift = fmin(t->lift, (double)t->B.at[i * t->B.stride + i]);
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

/* s_j <- s_a(y_i, y_j), s_m(x, y) = sum of x^k y^(m - 1 - k) over k < m, which is (x^m - y^m) / (x - y) without cancellation. By the binary
 * digits of a: s_2m = (x^m + y^m) s_m and s_(m+1) = x s_m + y^m. */
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

/* y_j <- F_ij D_ij for row i of B, D_ij = (f(d_i) - f(d_j)) / (d_i - d_j) = -1 / (d_i d_j s_p(y_i, y_j)), f(x) = x^(-1/p). */
PD_INLINE void divided_row(const tracking *t, float *restrict y, int64_t i)
{
    int64_t n = t->n;
    const float *restrict b = t->B.at + i * t->B.stride, *restrict d = t->d, *restrict ya = t->ya;
    float *restrict s = t->s, x = t->y[i], xb = t->yb[i], own = -d[i];

    ladder_rise(t, s, i);
    if (t->a == t->b) for (int64_t j = 0; j < n; j++) y[j] = b[j] / (own * d[j] * ((xb + ya[j]) * s[j]));
    else for (int64_t j = 0; j < n; j++) y[j] = b[j] / (own * d[j] * (xb * s[j] + ya[j] * (x * s[j] + ya[j])));
}

/* Y <- f(d) + F o D */
PD_CLONES static void first_order(const tracking *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        float *y = t->Y.at + i * t->n;
        divided_row(t, y, i);
        y[i] = t->y[i];
    }
}

/* U with U' U = f(d) + F o D + terms of second order; zeros below its diagonal. */
PD_CLONES static void first_order_factor(const tracking *t)
{
    for (int64_t i = 0; i < t->n; i++) {
        float *u = t->Y.at + i * t->n, root = sqrtf(t->y[i]), inverse = 1 / root;
        divided_row(t, u, i);
        for (int64_t j = 0; j < i; j++) u[j] = 0;
        for (int64_t j = i + 1; j < t->n; j++) u[j] *= inverse;
        u[i] = root;
    }
}

/* Y <- Y - E / L, E = Y^a B Y^b - I of which the lower half is given, L_ij = s_a(y_i, y_j) / y_j^a + s_b(y_i, y_j) / y_i^b: the derivative of
 * E at the diagonal. Lower half. */
PD_CLONES static void newton_update(const tracking *t, pd_mat E)
{
    int64_t n = t->n;
    const float *ya = t->ya;
    float *restrict s = t->s;

    for (int64_t i = 0; i < n; i++) {
        const float *restrict e = E.at + i * E.stride;
        float *restrict y = t->Y.at + i * n, x = t->y[i], xb = 1 / t->yb[i], held = y[i];
        ladder_rise(t, s, i);
        if (t->a == t->b) for (int64_t j = 0; j <= i; j++) y[j] -= e[j] / (s[j] / ya[j] + s[j] * xb);
        else for (int64_t j = 0; j <= i; j++) y[j] -= e[j] / (s[j] / ya[j] + (x * s[j] + ya[j]) * xb);
        y[i] = held - (e[i] - 1) / (s[i] / ya[i] + (t->a == t->b ? s[i] : x * s[i] + ya[i]) * xb);
    }
}

/* Y^m, symmetric, m >= 1, by m's binary digits: in P or in T, which are as large, or Y itself. */
static pd_mat power_of(pd_mat Y, int m, pd_mat P, pd_mat T)
{
    pd_mat held = Y;
    int digit = 0;

    while (m >> (digit + 1) != 0) digit++;
    while (digit-- > 0)
        for (int more = 0; more <= (m >> digit & 1); more++) {
            pd_gemm_half(P, 1, held, PD_AS_IS, more == 0 ? held : Y, PD_AS_IS);
            pd_mirror(P);
            held = P, P = T, T = held;
        }
    return held;
}

/* E <- Y^a B Y^b, lower half. P, T, and R where b > a: as large. */
static void residual(const tracking *t, pd_mat E, pd_mat P, pd_mat T, pd_mat R)
{
    pd_mat left, right;

    if (t->a == 0) {
        pd_gemm_half(E, 1, t->B, PD_AS_IS, t->Y, PD_AS_IS);
        return;
    }
    left = right = power_of(t->Y, t->a, P, T);
    if (t->b > t->a) {
        right = R;
        pd_gemm_half(right, 1, left, PD_AS_IS, t->Y, PD_AS_IS);
        pd_mirror(right);
    }
    if (left.at == P.at) P = T;
    pd_gemm(P, 0, 1, left, PD_AS_IS, t->B, PD_AS_IS);
    pd_gemm_half(E, 1, P, PD_AS_IS, right, PD_AS_IS);
}

static int newton_step(const tracking *t)
{
    int64_t n = t->n, square = n * n;
    float *room = pd_root_room(n, t->b > t->a ? 4 : 3, sizeof *room, 0);
    pd_mat E = pd_mat_dense(room, n, n), P, T, R;

    if (room == NULL) return PD_NO_MEMORY;
    P = pd_mat_dense(room + square, n, n), T = pd_mat_dense(room + 2 * square, n, n);
    R = t->b > t->a ? pd_mat_dense(room + 3 * square, n, n) : T;
    residual(t, E, P, T, R);
    newton_update(t, E);
    pd_mirror(t->Y);
    free(room);
    return PD_OK;
}

/* ---- how good it is ---- */

/* y <- M x for VECTORS vectors, one behind the other; of a triangular M the zeros are left out. Sums have lanes of their own. */
PD_CLONES static void apply(float *y, pd_mat M, bool triangular, const float *x)
{
    int64_t n = M.rows, whole = n / LANES * LANES;

    for (int64_t i = 0; i < n; i++) {
        const float *row = M.at + i * M.stride;
        float a[LANES] = { 0 }, b[LANES] = { 0 }, c[LANES] = { 0 }, d[LANES] = { 0 }, *sum[VECTORS] = { a, b, c, d };
        for (int64_t j = triangular ? i / LANES * LANES : 0; j < whole; j += LANES)
            for (int l = 0; l < LANES; l++) {
                float m = row[j + l];
                a[l] += m * x[j + l], b[l] += m * x[n + j + l], c[l] += m * x[2 * n + j + l], d[l] += m * x[3 * n + j + l];
            }
        for (int v = 0; v < VECTORS; v++) {
            for (int64_t j = whole; j < n; j++) sum[v][j - whole] += row[j] * x[v * n + j];
            for (int half = LANES / 2; half > 0; half /= 2)
                for (int l = 0; l < half; l++) sum[v][l] += sum[v][l + half];
            y[v * n + i] = sum[v][0];
        }
    }
}

/* y <- U' x, as many vectors. */
PD_CLONES static void apply_turned(float *restrict y, pd_mat U, const float *restrict x)
{
    int64_t n = U.rows;

    for (int64_t i = 0; i < n * VECTORS; i++) y[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *restrict row = U.at + i * U.stride;
        float a = x[i], b = x[n + i], c = x[2 * n + i], d = x[3 * n + i];
        for (int64_t j = i; j < n; j++) y[j] += a * row[j], y[n + j] += b * row[j], y[2 * n + j] += c * row[j], y[3 * n + j] += d * row[j];
    }
}

static void apply_root(const tracking *t, float *y, const float *x)
{
    float *between = t->probe + 3 * t->n * VECTORS;

    if (!t->factored) {
        apply(y, t->Y, false, x);
        return;
    }
    apply(between, t->Y, true, x);
    apply_turned(y, t->Y, between);
}

/* Relative error (Frobenius) of Y that E = Y^a B Y^b - I tells: |Z^(1/2) E Z^(1/2)| / (p |y|), Z = diag(y), because 1 / L_ij is y_i / p on the
 * diagonal and below sqrt(y_i y_j) / p elsewhere. The norm from a few vectors of signs. */
static double error_of(const tracking *t)
{
    int64_t n = t->n, all = n * VECTORS;
    float *u = t->probe, *w = u + all, *next = w + all;
    double sum = 0, squares = 0;

    pd_basis_signs(t->wide, all);
    for (int64_t i = 0; i < all; i++) w[i] = u[i] = (float)t->wide[i] * sqrtf(t->y[i % n]);
    for (int k = 0; k <= t->p; k++) {
        float *held = w;
        if (k == t->b) apply(next, t->B, false, w);
        else apply_root(t, next, w);
        w = next, next = held;
    }
    for (int64_t i = 0; i < all; i++) sum += (double)(w[i] - u[i]) * (double)(w[i] - u[i]) * (double)t->y[i % n];
    for (int64_t i = 0; i < n; i++) squares += (double)t->y[i] * (double)t->y[i];
    return sqrt(sum / VECTORS / squares) / t->p;
}

/* Relative error that rounding leaves in a root assembled from ssyevd, to first order: eigenvalues wrong by 2^-24 of the largest. Its real error
 * is 3 to 5 times that at n = 512, 0.5 to 5 times at 256, 0.1 to 2 times at 64: hence the power of n. */
static double tolerance(const tracking *t)
{
    double wrong = 0, squares = 0;

    for (int64_t i = 0; i < t->n; i++) {
        double y = (double)t->y[i], d = (double)t->d[i];
        wrong += y / d * (y / d), squares += y * y;
    }
    return fmin(MOST, fmax(LEAST, fmin(2, pow((double)t->n / 320, 1.5)) * ldexp(t->largest, -24) * sqrt(wrong / squares) / t->p));
}

/* *good: Y is good enough, after so many steps. A Newton step takes an error e to about e^(3/2); where that is not enough a decomposition costs no
 * more than further steps, and makes the next refreshes cheap. */
static int correct(tracking *t, int *steps, bool *good)
{
    double enough = tolerance(t), error;
    int rc = PD_OK;

    *steps = 1;
    t->factored = true;
    first_order_factor(t);
    error = error_of(t);
    if (error > enough && pow(error, 1.5) <= enough) {
        *steps = 2;
        t->factored = false;
        first_order(t);
        rc = newton_step(t);
        error = error_of(t);
    }
    *good = error <= enough;
    return rc;
}

/* ---- out of the basis ---- */

static void copy(pd_mat to, pd_mat from)
{
    for (int64_t i = 0; i < from.rows; i++) memcpy(to.at + i * to.stride, from.at + i * from.stride, (size_t)from.cols * sizeof *to.at);
}

/* X <- Q' Y Q, where B has been */
static void turn_back(const tracking *t, pd_mat X, pd_mat Q)
{
    float scale = (float)pow(2, -(double)t->exponent / t->p);

    if (t->factored) {
        copy(X, Q);
        pd_trmm(X, t->Y, PD_AS_IS, PD_LEFT);
        pd_syrk(t->Y, 0, scale, X, PD_RIGHT);
    } else {
        pd_gemm(X, 0, 1, t->Y, PD_AS_IS, Q, PD_AS_IS);
        pd_gemm_half(t->Y, scale, Q, PD_TRANSPOSED, X, PD_AS_IS);
    }
    copy(X, t->Y);
    pd_mirror(X);
}

/* From the last basis. *good: false where that does not do. */
static int track(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report, bool *good)
{
    tracking t;
    int rc;

    *good = false;
    *form = pd_form_of(want);
    if (form->p == 0) return PD_OK;
    if ((rc = tracking_new(&t, X, form->p)) != PD_OK) return rc;
    if (is_basis(&t, Q)) {
        turn(&t, Q, A);
        if (diagonal(&t, want)) rc = correct(&t, &report->iterations, good);
    }
    if (*good) {
        double least = (double)t.d[0];
        for (int64_t i = 1; i < t.n; i++) least = fmin(least, (double)t.d[i]);
        report->largest = ldexp(t.largest, t.exponent);
        report->condition = (t.largest - t.lift + t.ridge) / least;
        form->lift = ldexp(t.lift, t.exponent);
        form->ridge = pd_form_ridge(want, report->largest);
        turn_back(&t, X, Q);
    }
    free(t.room);
    return rc;
}

/* Q keeps a basis or none. */
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
