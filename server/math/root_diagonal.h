/* root_diagonal.h - roots of diagonal matrices, element by element. */
#ifndef PD_ROOT_DIAGONAL_H
#define PD_ROOT_DIAGONAL_H

#include "root_types.h"

/* Returns whether a matrix is diagonal: every element off the diagonal is zero. A matrix of one element is diagonal. */
bool pd_root_is_diagonal(pd_factor A);
/* Computes the root X <- (A + epsilon I)^-exponent of a diagonal matrix A, and fills the report. PD_OUT_OF_RANGE: X is
 * not finite. */
int pd_root_of_diagonal(pd_mat X, pd_factor A, const pd_root_want *want, pd_root_report *report);

#endif
