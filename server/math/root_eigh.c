/* root_eigh.c - computes roots from symmetric eigendecompositions, in float32 (root_basis.h) and in float64.
 * Eigenvalues that rounding made negative count as zero, so with a ridge every root exists. Without a ridge, a matrix
 * that is singular up to rounding gives PD_OUT_OF_RANGE. */
#include <assert.h>
#include <cblas.h>
#include <float.h>
#include <lapacke.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "kernels.h"
#include "root_basis.h"
#include "root_types.h"

enum { LANES = 8, MOST_ORDER = 64 };

pd_form pd_form_of(const pd_root_want *want)
{
    double p;

    if (want->ridge == PD_RIDGE_RELATIVE) return (pd_form){ .half = -0.5 / want->p, .p = want->p, .cut = -INFINITY };
    p = round(1 / want->exponent);
    if (!(p >= 1 && p <= MOST_ORDER && fabs(p * want->exponent - 1) <= 4 * DBL_EPSILON) || want->pseudo) p = 0;
    return (pd_form){ .half = -0.5 * want->exponent, .p = (int)p, .cut = -INFINITY };
}

double pd_form_ridge(const pd_root_want *want, double largest)
{
    return want->ridge == PD_RIDGE_RELATIVE ? pd_root_ridge(want->epsilon, largest) : want->epsilon;
}

double pd_form_half(const pd_form *form, double eigenvalue)
{
    return eigenvalue <= form->cut ? 0 : pow(fmax(eigenvalue - form->lift, 0) + form->ridge, form->half);
}

int pd_basis_judge(pd_root_report *report, pd_form *form, double least, double largest, double eps, int64_t n,
                   const pd_root_want *want)
{
    *form = pd_form_of(want);
    if (!isfinite(least) || !isfinite(largest)) return PD_OUT_OF_RANGE;
    report->largest = fmax(largest, 0);
    if (want->pseudo) {
        form->cut = fmax(want->rank_rtol * report->largest, want->rank_atol);
        report->condition = least > form->cut ? largest / least : 0;
        return PD_OK;
    }
    form->ridge = pd_form_ridge(want, report->largest);
    if (want->ridge == PD_RIDGE_SHIFTED)
        form->lift = fmin(least, 0);
    else if (!(form->ridge > 0) && least <= eps * sqrt((double)n) * largest)
        return PD_OUT_OF_RANGE;
    report->condition = (fmax(largest - form->lift, 0) + form->ridge) / (fmax(least - form->lift, 0) + form->ridge);
    return PD_OK;
}

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

/* Multiplies the vector x by M, `times` times. After each product the pointers x and y are swapped, so x is always the
 * newest vector. */
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
    double *room = pd_root_room(1, 3 * n, sizeof *room, 0), *v, *x, *y, most = 0, sum = 0;

    if (room == NULL) return PD_NO_MEMORY;
    v = room, x = room + n, y = room + 2 * n;
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

/* Returns which half of a matrix LAPACK should read. LAPACK's reduction to a tridiagonal matrix begins at one end of
 * the diagonal: at the first element if it reads the lower half, otherwise at the last. Small eigenvalues are up to 6
 * times more exact if it begins at the end with the large elements (measured at n = 64 and 128). */
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

/* Assembles a matrix root from eigenvectors, which are the rows of Q: X <- Q' diag(f) Q, where f are the eigenvalues of
 * the root. X is computed as S' S with S = diag(f^(1/2)) Q. The caller provides S, which is as large as Q, as scratch
 * memory. */
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

/* The work memory of one eigendecomposition in float64. */
typedef struct wide {
    int64_t n;
    double *Q;         /* n by n numbers: first A, then the eigenvectors as rows, finally the scaled eigenvectors */
    double *work;      /* first the work memory of dsyevd (n_work numbers), then the root */
    double *values;    /* eigenvalues, ascending */
    lapack_int *whole; /* integer work memory of dsyevd */
    int64_t n_work;
} wide;

static int wide_new(wide *w, int64_t n)
{
    *w = (wide){ .n = n, .n_work = 1 + 6 * n + 2 * n * n };
    if (w->n_work > INT_MAX) return PD_OUT_OF_RANGE;
    w->Q = pd_root_room(n, 3, sizeof *w->Q, (size_t)(1 + 7 * n) * sizeof *w->Q);
    w->whole = malloc((size_t)(3 + 5 * n) * sizeof *w->whole);
    if (w->Q == NULL || w->whole == NULL) return PD_NO_MEMORY;
    w->work = w->Q + n * n;
    w->values = w->work + w->n_work;
    return PD_OK;
}

static void wide_free(wide *w)
{
    free(w->Q);
    free(w->whole);
}

static int wide_decompose(wide *w)
{
    lapack_int n = (lapack_int)w->n, n_work = (lapack_int)w->n_work, n_whole = 3 + 5 * n, info = 0;

    LAPACK_dsyevd("V", "U", &n, w->Q, &n, w->values, w->work, &n_work, w->whole, &n_whole, &info);
    return info == 0 ? PD_OK : PD_OUT_OF_RANGE;
}

static void wide_assemble(pd_mat X, wide *w, const pd_form *form)
{
    int n = (int)w->n;

    for (int64_t i = 0; i < w->n; i++) {
        double half = pd_form_half(form, w->values[i]);
        for (int64_t j = 0; j < w->n; j++) w->Q[i * w->n + j] *= half;
    }
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, n, n, 1, w->Q, n, 0, w->work, n);
    pd_root_narrow(X, w->work);
    pd_mirror(X);
}

/* Computes the residual of the decomposition. Overwrites X with the eigenvectors, rounded to float32. */
static int wide_residual(double *error, pd_mat X, const wide *w, pd_factor A)
{
    pd_root_narrow(X, w->Q);
    return pd_basis_residual(error, X, w->values, A);
}

/* Computes the root of a finite matrix A by an eigendecomposition in float64. */
static int wide_root(pd_mat X, pd_factor A, const pd_root_want *want, pd_root_report *report)
{
    pd_form form;
    wide w;
    int rc = wide_new(&w, X.rows);

    if (rc == PD_OK) {
        if (A.wide == NULL)
            pd_root_widen(w.Q, A.A);
        else
            memcpy(w.Q, A.wide, (size_t)(w.n * w.n) * sizeof *w.Q);
        rc = wide_decompose(&w);
    }
    if (rc == PD_OK) rc = pd_basis_judge(report, &form, w.values[0], w.values[w.n - 1], DBL_EPSILON, w.n, want);
    if (rc == PD_OK && form.p == 0) rc = wide_residual(&report->error, X, &w, A);
    if (rc == PD_OK) wide_assemble(X, &w, &form);
    wide_free(&w);
    return rc == PD_OK ? pd_basis_finish(&report->error, X, A, &form) : rc;
}

int pd_root_eigh64(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    *report = (pd_root_report){ .error = INFINITY, .tries = 1, .decomposed = true };
    return pd_root_is_finite(A) ? wide_root(X, (pd_factor){ .A = A }, want, report) : PD_OUT_OF_RANGE;
}

int pd_root_wide(pd_mat X, const double *A, const pd_root_want *want, pd_root_report *report)
{
    pd_factor factor = { .A = { NULL, X.rows, X.rows, X.rows }, .wide = A };

    assert(want->ridge == PD_RIDGE_SHIFTED);
    *report = (pd_root_report){ .error = INFINITY, .tries = 1 };
    if (!pd_all_finite_f64(A, X.rows * X.rows)) return PD_OUT_OF_RANGE;
    if (!want->pseudo && pd_root_is_diagonal(factor)) return pd_root_of_diagonal(X, factor, want, report);
    report->decomposed = true;
    return wide_root(X, factor, want, report);
}

/* ssyevd's eigenvalues have errors of 2^-24 of the largest eigenvalue. If an absolute ridge is not larger than these
 * errors, they dominate the error of the root. So with an absolute ridge, roots of matrices with up to PD_ROOT_SMALL
 * rows are computed in float64, which takes only 0.1 ms longer at 64 rows and 0.5 ms at 128. */
int pd_root_eigh(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    pd_form form;
    int rc;

    if (want->ridge == PD_RIDGE_SHIFTED && A.rows <= PD_ROOT_SMALL) return pd_root_eigh64(X, A, want, report);
    *report = (pd_root_report){ .error = INFINITY };
    rc = pd_basis_decompose(X, X, A, want, &form, report);
    return rc == PD_OK ? pd_basis_finish(&report->error, X, (pd_factor){ .A = A }, &form) : rc;
}
