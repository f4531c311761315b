/* polar_twin.h - orthogonalizes a small matrix in double, by the definition, for comparison with polar.h. */
#ifndef POLAR_TWIN_H
#define POLAR_TWIN_H

#include <stdint.h>

enum { POLAR_MOST = 4096 }; /* most elements of a matrix */

/* Divides X (rows x cols, row-major) by `divisor`, then does iterations X <- a X + b X X' X + c X X' X X' X, with
 * a, b and c from factors[step]; where `factors` has fewer than `steps` triples, the last one counts on. */
void polar_twin(double *X, int64_t rows, int64_t cols, double divisor, const double (*factors)[3], int triples,
                int steps);
double polar_norm(const double *X, int64_t n); /* returns the Frobenius norm */

#endif
