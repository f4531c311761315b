/* trsm.h - solves systems of equations whose matrix is triangular. Pure functions; any thread.
 *
 * Both functions undo pd_trmm (linalg.h): they compute B <- op(U)^-1 B (PD_LEFT) or B <- B op(U)^-1 (PD_RIGHT), where
 * op(U) is U or its transpose. U is upper triangular: elements below its diagonal are not read. */
#ifndef PD_TRSM_H
#define PD_TRSM_H

#include "mat.h"

/* Solves by products of matrices where BLAS substitutes slowly, otherwise by BLAS. */
void pd_trsm(pd_mat B, pd_mat U, pd_turn u, pd_side side);
/* Solves by products of matrices, and inverses of small triangles on the diagonal. */
void pd_trsm_by_blocks(pd_mat B, pd_mat U, pd_turn u, pd_side side);

#endif
