/* Roots from a symmetric eigendecomposition: in float32 by root_basis.c, and here in float64. Eigenvalues that rounding made negative count as
 * zero, so that with a ridge every root exists; without one a matrix that is singular up to rounding is refused. */
#include <float.h>
#include <lapacke.h>
#include <limits.h>
#include <math.h>
#include <cblas.h>
#include <stdlib.h>

#include "root_basis.h"
#include "root_parts.h"

int pd_root_eigh(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    int rc;

    *report = (pd_root_report){ .error = INFINITY };
    rc = pd_basis_decompose(X, X, A, want, report);
    if (rc != PD_OK) return rc;
    return pd_basis_check(&report->error, X, A, pd_root_ridge(want->epsilon, report->largest), want->p);
}

/* ---- in float64 ---- */

typedef struct wide {
    int64_t     n;
    double     *Q;              /* A, then the eigenvectors in rows, then those scaled */
    double     *work;           /* of dsyevd, n_work numbers; then the root */
    double     *values;         /* ascending */
    lapack_int *whole;          /* of dsyevd */
    int64_t     n_work;
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

static void wide_assemble(pd_mat X, wide *w, double ridge, int p)
{
    int n = (int)w->n;

    for (int64_t i = 0; i < w->n; i++) {
        double half = pow(fmax(w->values[i], 0) + ridge, -0.5 / p);
        for (int64_t j = 0; j < w->n; j++) w->Q[i * w->n + j] *= half;
    }
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, n, n, 1, w->Q, n, 0, w->work, n);
    pd_root_narrow(X, w->work);
    pd_mirror(X);
}

int pd_root_eigh64(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    double ridge;
    wide w;
    int rc;

    *report = (pd_root_report){ .error = INFINITY, .tries = 1, .decomposed = true };
    if (!pd_root_is_finite(A)) return PD_OUT_OF_RANGE;
    rc = wide_new(&w, A.rows);
    if (rc == PD_OK) {
        pd_root_widen(w.Q, A);
        rc = wide_decompose(&w);
    }
    if (rc == PD_OK) rc = pd_basis_judge(report, &ridge, w.values[0], w.values[w.n - 1], DBL_EPSILON, w.n, want->epsilon);
    if (rc == PD_OK) wide_assemble(X, &w, ridge, want->p);
    wide_free(&w);
    return rc == PD_OK ? pd_basis_check(&report->error, X, A, pd_root_ridge(want->epsilon, report->largest), want->p) : rc;
}
