/* root_qr.c - computes roots from the eigenvectors that QR iterations reach, beginning with those of the last root. */
#include <math.h>
#include <stdlib.h>

#include "eigenbasis.h"
#include "root_basis.h"
#include "root_types.h"

/* Computes X <- Q diag(f) Q', where f are the eigenvalues of the root. X is computed as S S' with S = Q diag(f^(1/2)),
 * which is as large as Q. */
static void assemble(pd_mat X, pd_mat S, pd_mat Q, const float *values, const pd_form *form)
{
    for (int64_t j = 0; j < Q.cols; j++) {
        float half = (float)pd_form_half(form, (double)values[j]);
        for (int64_t i = 0; i < Q.rows; i++) S.at[i * S.stride + j] = half * Q.at[i * Q.stride + j];
    }
    pd_syrk(X, 0, 1, S, PD_LEFT);
    pd_mirror(X);
}

int pd_root_qr(pd_mat X, pd_mat Q, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    int64_t n = A.rows;
    float *room = malloc((size_t)(n * n + n) * sizeof *room), *values;
    pd_form form;
    int rc;

    *report = (pd_root_report){ .error = INFINITY, .tries = 1 };
    if (room == NULL) return PD_NO_MEMORY;
    values = room + n * n;
    rc = pd_eigenbasis_iterate(Q, values, A, want->tolerance, want->iterations, &report->error);
    if (rc == PD_OK) rc = pd_basis_judge(report, &form, (double)values[0], (double)values[n - 1], 0x1p-23, n, want);
    if (rc == PD_OK) assemble(X, pd_mat_dense(room, n, n), Q, values, &form);
    free(room);
    return rc != PD_OK || pd_root_is_finite(X) ? rc : PD_OUT_OF_RANGE;
}
