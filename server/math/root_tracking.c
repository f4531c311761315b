/* root_tracking.c - estimates the error of a root that is computed in an earlier eigenbasis. */
#include "root_tracking.h"

#include <math.h>

#include "clones.h"
#include "lanes.h"
#include "root_basis.h"

enum { VECTORS = PD_TRACKING_VECTORS, LANES = 16 };
#define LEAST 3e-7 /* relative error of a root that is as exact as float32 allows */
#define MOST 2e-2  /* relative error of a root that is useless, even where ssyevd's root would be worse */

/* Computes y <- M x for VECTORS vectors at once; they lie `apart` numbers one behind the other. If M is triangular the
 * zeros below its diagonal are skipped. Sums are split into lanes in a fixed way, so the bits are the same on every
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

/* Computes y <- diag(by) x in the rows that are diagonal, and y <- 0 in the others, for VECTORS vectors at once. */
static void apply_diagonal(const pd_tracking *t, float *y, const float *by, const float *x)
{
    for (int64_t v = 0; v < VECTORS; v++)
        for (int64_t i = 0; i < t->n; i++) y[v * t->n + i] = i < t->rows ? 0 : by[i] * x[v * t->n + i];
}

/* Computes y <- U' U x for VECTORS vectors at once. */
static void apply_root(const pd_tracking *t, float *y, const float *x)
{
    float *between = t->probe + 3 * t->n * VECTORS;

    apply_diagonal(t, y, t->y, x);
    apply(between, t->U, true, x, t->n);
    add_turned(y, t->U, true, between, t->n);
}

/* Computes y <- B x for VECTORS vectors at once. */
static void apply_matrix(const pd_tracking *t, float *y, const float *x)
{
    apply_diagonal(t, y, t->d, x);
    add_turned(y + t->rows, pd_mat_cols(t->B, t->rows, t->n), false, x, t->n);
    apply(y, t->B, false, x, t->n);
}

/* Estimates the relative error of the root Y = U' U of B in the Frobenius norm, from E = Y^a B Y^b - I:
 *
 *     |Z^(1/2) E Z^(1/2)| / (p |y|) with Z = diag(y)
 *
 * since the first-order change of Y by E is y_i E_ij / p on the diagonal and below sqrt(y_i y_j) E_ij / p elsewhere.
 * The norm is estimated by a few vectors of signs. */
double pd_tracking_error(const pd_tracking *t)
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

/* Computes y <- M x for VECTORS vectors of float64 at once; they lie `apart` numbers one behind the other. */
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

double pd_tracking_weight(const pd_tracking *t, int64_t i)
{
    double y = (double)t->y[i];

    return y / (double)t->d[i];
}

/* The error is |F o D| / |y|, with those elements of F alone. It is at most |W F W| / (p |y|) with W = diag(w). The
 * norm is estimated as in pd_tracking_error, but in float64: the differences of large numbers in F are small. */
double pd_tracking_left_out(const pd_tracking *t, pd_mat Q, pd_mat A)
{
    int64_t n = t->n, rows = t->rows;
    pd_mat rest = pd_mat_rows(Q, rows, n);
    double *x = t->wide, *u = x + n * VECTORS, *w = u + n * VECTORS, sum = 0, squares = 0;

    pd_basis_signs(x, n * VECTORS);
    for (int64_t i = rows; i < n; i++)
        for (int64_t v = 0; v < VECTORS; v++) x[v * n + i - rows] = x[v * n + i] * sqrt(pd_tracking_weight(t, i));
    apply_wide_turned(u, rest, x, n);
    apply_wide(w, A, u, n);
    apply_wide(u, rest, w, n);
    for (int64_t i = rows; i < n; i++) {
        double own = (double)t->d[i] - t->ridge + t->lift;
        for (int64_t v = 0; v < VECTORS; v++) {
            double f = ldexp(u[v * n + i - rows], -t->exponent) - own * x[v * n + i - rows];
            sum += f * f * pd_tracking_weight(t, i);
        }
    }
    for (int64_t i = 0; i < n; i++) squares += (double)t->y[i] * (double)t->y[i];
    return sqrt(sum / VECTORS / squares) / t->p;
}

/* Returns the relative error that a root computed by ssyevd would have: ssyevd's eigenvalues have errors of 2^-24 of
 * the largest eigenvalue. To first order this gives an estimate. The real error is 3 to 5 times the estimate at n =
 * 512, 0.5 to 5 times at 256, and 0.1 to 2 times at 64. A power of n as a factor corrects for this. */
double pd_tracking_tolerance(const pd_tracking *t)
{
    double wrong = 0, squares = 0;

    for (int64_t i = 0; i < t->n; i++) {
        double y = (double)t->y[i], d = (double)t->d[i];
        wrong += y / d * (y / d), squares += y * y;
    }
    return fmin(MOST, fmax(LEAST, fmin(2, pow((double)t->n / 320, 1.5)) * ldexp(t->largest, -24) *
                                      sqrt(wrong / squares) / t->p));
}
