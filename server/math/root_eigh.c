/* root_eigh.c - computes roots from symmetric eigendecompositions, in float32 (with root_basis.c) and in float64.
 * Eigenvalues that rounding made negative count as zero, so with a ridge every root exists. Without a ridge a matrix
 * that is singular up to rounding is refused. */
#include "root_eigh.h"

#include <assert.h>
#include <cblas.h>
#include <float.h>
#include <lapacke.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "root_basis.h"
#include "root_diagonal.h"
#include "root_parts.h"

/* ---- in float64 ---- */

typedef struct wide {
    int64_t n;
    double *Q;         /* first A, then the eigenvectors in rows, at last the scaled eigenvectors */
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

/* Computes the residual of the decomposition. X holds the eigenvectors, rounded to float32, during this check. */
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
    if (pd_root_is_diagonal(factor)) return pd_root_of_diagonal(X, factor, want, report);
    report->decomposed = true;
    return wide_root(X, factor, want, report);
}

/* ---- in float32 ---- */

/* If the ridge is absolute, roots of matrices with up to PD_ROOT_SMALL rows are computed in float64: this costs only
 * 0.1 ms more at 64 rows and 0.5 ms at 128. The reason: ssyevd's eigenvalues have errors of 2^-24 of the largest
 * eigenvalue. If the ridge is not larger than these errors, they dominate the error of the root. */
int pd_root_eigh(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    pd_form form;
    int rc;

    if (want->ridge == PD_RIDGE_SHIFTED && A.rows <= PD_ROOT_SMALL) return pd_root_eigh64(X, A, want, report);
    *report = (pd_root_report){ .error = INFINITY };
    rc = pd_basis_decompose(X, X, A, want, &form, report);
    return rc == PD_OK ? pd_basis_finish(&report->error, X, (pd_factor){ .A = A }, &form) : rc;
}
