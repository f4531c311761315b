#include "root_basis.h"

#include <float.h>
#include <lapacke.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch.h"
#include "root_parts.h"

enum { LANES = 8 };

int pd_basis_judge(pd_root_report *report, double *ridge, double least, double largest, double eps, int64_t n, double epsilon)
{
    if (!isfinite(least) || !isfinite(largest)) return PD_OUT_OF_RANGE;
    report->largest = fmax(largest, 0);
    *ridge = pd_root_ridge(epsilon, report->largest);
    if (!(*ridge > 0) && least <= eps * sqrt((double)n) * largest) return PD_OUT_OF_RANGE;
    report->condition = (report->largest + *ridge) / (fmax(least, 0) + *ridge);
    return PD_OK;
}

PD_CLONES void pd_basis_apply(double *y, pd_mat M, const double *x)
{
    int64_t n = M.rows, whole = n / LANES * LANES;

    for (int64_t i = 0; i < n; i++) {
        const float *row = M.at + i * M.stride;
        double sum[LANES] = { 0 };
        for (int64_t j = 0; j < whole; j += LANES)
            for (int l = 0; l < LANES; l++) sum[l] += (double)row[j + l] * x[j + l];
        for (int64_t j = whole; j < n; j++) sum[j - whole] += (double)row[j] * x[j];
        y[i] = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
    }
}

void pd_basis_signs(double *v, int64_t n)
{
    uint64_t state = 0;

    for (int64_t i = 0; i < n; i++) {                               /* splitmix64 */
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        v[i] = (z >> 63) != 0 ? 1.0 : -1.0;
    }
}

/* ---- the measure ---- */

/* One product after the other; x and y change places. */
static void multiply(double **y, double **x, pd_mat M, int times)
{
    for (int i = 0; i < times; i++) {
        double *held = *x;
        pd_basis_apply(*y, M, *x);
        *x = *y, *y = held;
    }
}

int pd_basis_check(double *error, pd_mat X, pd_mat A, double ridge, int p)
{
    int64_t n = A.rows;
    double *room, *v, *x, *y, sum = 0;

    *error = INFINITY;
    if (!pd_root_is_finite(X)) return PD_OUT_OF_RANGE;
    if ((room = pd_root_room(1, 3 * n, sizeof *room, 0)) == NULL) return PD_NO_MEMORY;
    v = room, x = room + n, y = room + 2 * n;
    pd_basis_signs(v, n);
    memcpy(x, v, (size_t)n * sizeof *x);
    multiply(&y, &x, X, p - p / 2);
    pd_basis_apply(y, A, x);
    for (int64_t i = 0; i < n; i++) x[i] = y[i] + ridge * x[i];
    multiply(&y, &x, X, p / 2);
    for (int64_t i = 0; i < n; i++) sum += (x[i] - v[i]) * (x[i] - v[i]);
    free(room);
    *error = n > 0 ? sqrt(sum / (double)n) : 0;
    return isfinite(*error) ? PD_OK : PD_OUT_OF_RANGE;
}

/* ---- decomposition ---- */

/* Which half of a matrix LAPACK should read. The reduction to a tridiagonal matrix begins at one end of the diagonal (the first element where it
 * reads the lower half) and keeps small eigenvalues better when it begins at the large end: up to 6 times, n = 64 and 128. */
static const char *half_to_read(pd_mat A)
{
    double first = 0, second = 0;

    for (int64_t i = 0; i < A.rows / 2; i++) {
        first += (double)A.at[i * A.stride + i];
        second += (double)A.at[(A.rows - 1 - i) * A.stride + A.rows - 1 - i];
    }
    return first >= second ? "L" : "U";
}

/* LAPACK's own sizes: 1 + 6n + 2n^2 numbers and 3 + 5n integers. What is column-major there is row-major here: eigenvectors come in rows. */
static int eigenvectors(pd_mat Q, float *values, float *work, int64_t n_work)
{
    lapack_int n = (lapack_int)Q.rows, stride = (lapack_int)Q.stride, room = (lapack_int)n_work, n_whole = 3 + 5 * n, info = 0;
    lapack_int *whole = malloc((size_t)n_whole * sizeof *whole);

    if (whole == NULL) return PD_NO_MEMORY;
    LAPACK_ssyevd("V", half_to_read(Q), &n, Q.at, &stride, values, work, &room, whole, &n_whole, &info);
    free(whole);
    return info == 0 ? PD_OK : PD_OUT_OF_RANGE;
}

/* X <- (Q f^(1/2))' (Q f^(1/2)), f the roots of the eigenvalues. S: as large as Q. */
static void assemble(pd_mat X, pd_mat S, pd_mat Q, const float *values, double ridge, int p)
{
    for (int64_t i = 0; i < Q.rows; i++) {
        float half = (float)pow(fmax((double)values[i], 0) + ridge, -0.5 / p);
        for (int64_t j = 0; j < Q.cols; j++) S.at[i * S.stride + j] = half * Q.at[i * Q.stride + j];
    }
    pd_syrk(X, 0, 1, S, PD_RIGHT);
    pd_mirror(X);
}

int pd_basis_decompose(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    int64_t n = A.rows, n_work = 1 + 6 * n + 2 * n * n;
    double ridge;
    float *work, *values;
    int rc;

    if (n_work > INT_MAX || !pd_root_is_finite(A)) return PD_OUT_OF_RANGE;
    if ((work = pd_root_room(n, 2, sizeof *work, (size_t)(1 + 7 * n) * sizeof *work)) == NULL) return PD_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) memcpy(Q.at + i * Q.stride, A.at + i * A.stride, (size_t)n * sizeof *Q.at);
    values = work + n_work;
    rc = eigenvectors(Q, values, work, n_work);
    if (rc == PD_OK) rc = pd_basis_judge(report, &ridge, (double)values[0], (double)values[n - 1], FLT_EPSILON, n, want->epsilon);
    if (rc == PD_OK) assemble(X, pd_mat_dense(work, n, n), Q, values, ridge, want->p);
    free(work);
    report->tries = 1;
    report->decomposed = true;
    return rc;
}
