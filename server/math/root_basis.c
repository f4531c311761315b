/* root_basis.c - computes eigendecompositions in float32, matrix roots from eigenvectors, and the errors of both. */
#include "root_basis.h"

#include <cblas.h>
#include <float.h>
#include <lapacke.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clones.h"
#include "root_parts.h"

enum { LANES = 8, MOST_ORDER = 64 };

/* ---- the root of an eigenvalue ---- */

pd_form pd_form_of(const pd_root_want *want)
{
    double p;

    if (want->ridge == PD_RIDGE_RELATIVE) return (pd_form){ .half = -0.5 / want->p, .p = want->p };
    p = round(1 / want->exponent);
    if (!(p >= 1 && p <= MOST_ORDER && fabs(p * want->exponent - 1) <= 4 * DBL_EPSILON)) p = 0;
    return (pd_form){ .half = -0.5 * want->exponent, .p = (int)p };
}

double pd_form_ridge(const pd_root_want *want, double largest)
{
    return want->ridge == PD_RIDGE_RELATIVE ? pd_root_ridge(want->epsilon, largest) : want->epsilon;
}

double pd_form_half(const pd_form *form, double eigenvalue)
{
    return pow(fmax(eigenvalue - form->lift, 0) + form->ridge, form->half);
}

int pd_basis_judge(pd_root_report *report, pd_form *form, double least, double largest, double eps, int64_t n,
                   const pd_root_want *want)
{
    *form = pd_form_of(want);
    if (!isfinite(least) || !isfinite(largest)) return PD_OUT_OF_RANGE;
    report->largest = fmax(largest, 0);
    form->ridge = pd_form_ridge(want, report->largest);
    if (want->ridge == PD_RIDGE_SHIFTED)
        form->lift = fmin(least, 0);
    else if (!(form->ridge > 0) && least <= eps * sqrt((double)n) * largest)
        return PD_OUT_OF_RANGE;
    report->condition = (fmax(largest - form->lift, 0) + form->ridge) / (fmax(least - form->lift, 0) + form->ridge);
    return PD_OK;
}

/* ---- products of matrices and vectors ---- */

/* Computes the product y <- M x of a float32 matrix and a float64 vector. */
PD_CLONES(void, apply, (double *y, pd_mat M, const double *x), (y, M, x))
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

void pd_basis_apply(double *y, pd_mat M, const double *x)
{
    apply(y, M, x);
}

void pd_basis_signs(double *v, int64_t n)
{
    uint64_t state = 0;

    for (int64_t i = 0; i < n; i++) { /* the generator splitmix64, whose highest bit is the sign */
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        v[i] = (z >> 63) != 0 ? 1.0 : -1.0;
    }
}

/* Computes the product of the transposed M with x: y <- M' x. */
PD_CLONES(void, apply_turned, (double *restrict y, pd_mat M, const double *restrict x), (y, M, x))
{
    for (int64_t j = 0; j < M.cols; j++) y[j] = 0;
    for (int64_t i = 0; i < M.rows; i++) {
        const float *restrict row = M.at + i * M.stride;
        for (int64_t j = 0; j < M.cols; j++) y[j] += (double)row[j] * x[i];
    }
}

static void apply_factor(double *y, pd_factor A, const double *x)
{
    int n = (int)A.A.rows;

    if (A.wide == NULL)
        pd_basis_apply(y, A.A, x);
    else
        cblas_dgemv(CblasRowMajor, CblasNoTrans, n, n, 1, A.wide, n, x, 1, 0, y, 1);
}

/* ---- measuring errors ---- */

/* Multiplies the vector x by M, `times` times. After each product the pointers x and y are swapped, so x is always
 * the newest vector. */
static void multiply(double **y, double **x, pd_mat M, int times)
{
    for (int i = 0; i < times; i++) {
        double *held = *x;
        pd_basis_apply(*y, M, *x);
        *x = *y, *y = held;
    }
}

int pd_basis_check(double *error, pd_mat X, pd_factor A, double ridge, int p)
{
    int64_t n = X.rows;
    double *room, *v, *x, *y, sum = 0;

    *error = INFINITY;
    if (!pd_root_is_finite(X)) return PD_OUT_OF_RANGE;
    if ((room = pd_root_room(1, 3 * n, sizeof *room, 0)) == NULL) return PD_NO_MEMORY;
    v = room, x = room + n, y = room + 2 * n;
    pd_basis_signs(v, n);
    memcpy(x, v, (size_t)n * sizeof *x);
    multiply(&y, &x, X, p - p / 2);
    apply_factor(y, A, x);
    for (int64_t i = 0; i < n; i++) x[i] = y[i] + ridge * x[i];
    multiply(&y, &x, X, p / 2);
    for (int64_t i = 0; i < n; i++) sum += (x[i] - v[i]) * (x[i] - v[i]);
    free(room);
    *error = n > 0 ? sqrt(sum / (double)n) : 0;
    return isfinite(*error) ? PD_OK : PD_OUT_OF_RANGE;
}

int pd_basis_residual(double *error, pd_mat Q, const double *values, pd_factor A)
{
    int64_t n = Q.rows;
    double *room = pd_root_room(1, 3 * n, sizeof *room, 0), *v = room, *x = room + n, *y = room + 2 * n, most = 0,
           sum = 0;

    if (room == NULL) return PD_NO_MEMORY;
    pd_basis_signs(v, n);
    pd_basis_apply(y, Q, v);
    for (int64_t i = 0; i < n; i++) {
        y[i] *= values[i];
        most = fmax(most, fabs(values[i]));
    }
    apply_turned(x, Q, y);
    apply_factor(y, A, v);
    for (int64_t i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    free(room);
    *error = most > 0 ? sqrt(sum / (double)n) / most : 0;
    return isfinite(*error) ? PD_OK : PD_OUT_OF_RANGE;
}

int pd_basis_finish(double *error, pd_mat X, pd_factor A, const pd_form *form)
{
    if (form->p > 0) return pd_basis_check(error, X, A, form->ridge - form->lift, form->p);
    if (pd_root_is_finite(X)) return PD_OK;
    *error = INFINITY;
    return PD_OUT_OF_RANGE;
}

/* ---- decomposition ---- */

/* Returns which half of a matrix LAPACK should read. LAPACK's reduction to a tridiagonal matrix begins at one end of
 * the diagonal: at the first element if it reads the lower half, otherwise at the last. Small eigenvalues come out
 * up to 6 times more exact if it begins at the end with the large elements (measured at n = 64 and 128). */
static const char *half_to_read(pd_mat A)
{
    double first = 0, second = 0;

    for (int64_t i = 0; i < A.rows / 2; i++) {
        first += (double)A.at[i * A.stride + i];
        second += (double)A.at[(A.rows - 1 - i) * A.stride + A.rows - 1 - i];
    }
    return first >= second ? "L" : "U";
}

/* Decomposes the matrix in Q by LAPACK's ssyevd, and writes the eigenvectors over it. The sizes of the work arrays are
 * those of ssyevd's manual page: 1 + 6n + 2n^2 numbers and 3 + 5n integers. LAPACK is column-major and this code is
 * row-major, so each eigenvector is a row of Q. */
static int eigenvectors(pd_mat Q, float *values, float *work, int64_t n_work)
{
    lapack_int n = (lapack_int)Q.rows, stride = (lapack_int)Q.stride, room = (lapack_int)n_work, n_whole = 3 + 5 * n,
               info = 0;
    lapack_int *whole = malloc((size_t)n_whole * sizeof *whole);

    if (whole == NULL) return PD_NO_MEMORY;
    LAPACK_ssyevd("V", half_to_read(Q), &n, Q.at, &stride, values, work, &room, whole, &n_whole, &info);
    free(whole);
    return info == 0 ? PD_OK : PD_OUT_OF_RANGE;
}

/* Assembles a matrix root from eigenvectors, which are the rows of Q: X <- Q' diag(f) Q, where f are the roots of the
 * eigenvalues. It is computed as the product S' S with S = diag(f^(1/2)) Q. S is scratch memory as large as Q. */
static void assemble(pd_mat X, pd_mat S, pd_mat Q, const float *values, const pd_form *form)
{
    for (int64_t i = 0; i < Q.rows; i++) {
        float half = (float)pd_form_half(form, (double)values[i]);
        for (int64_t j = 0; j < Q.cols; j++) S.at[i * S.stride + j] = half * Q.at[i * Q.stride + j];
    }
    pd_syrk(X, 0, 1, S, PD_RIGHT);
    pd_mirror(X);
}

/* Computes the error of an eigendecomposition whose eigenvalues are in float32 (pd_basis_residual). `room` is scratch
 * memory for n numbers of float64. */
static int residual(double *error, pd_mat Q, const float *values, pd_mat A, double *room)
{
    for (int64_t i = 0; i < Q.rows; i++) room[i] = (double)values[i];
    return pd_basis_residual(error, Q, room, (pd_factor){ .A = A });
}

int pd_basis_decompose(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_form *form, pd_root_report *report)
{
    int64_t n = A.rows, n_work = 1 + 6 * n + 2 * n * n;
    float *work, *values;
    int rc;

    if (n_work > INT_MAX || !pd_root_is_finite(A)) return PD_OUT_OF_RANGE;
    if ((work = pd_root_room(n, 2, sizeof *work, (size_t)(1 + 7 * n) * sizeof *work)) == NULL) return PD_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) memcpy(Q.at + i * Q.stride, A.at + i * A.stride, (size_t)n * sizeof *Q.at);
    values = work + n_work;
    rc = eigenvectors(Q, values, work, n_work);
    if (rc == PD_OK) rc = pd_basis_judge(report, form, (double)values[0], (double)values[n - 1], FLT_EPSILON, n, want);
    if (rc == PD_OK && form->p == 0)
        rc = residual(&report->error, Q, values, A, (double *)(work + (n * n + 1) / 2 * 2));
    if (rc == PD_OK) assemble(X, pd_mat_dense(work, n, n), Q, values, form);
    free(work);
    report->tries = 1;
    report->decomposed = true;
    return rc;
}
