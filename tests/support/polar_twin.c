/* polar_twin.c - orthogonalizes a small matrix in double, by the definition. */
#include "polar_twin.h"

#include <assert.h>
#include <math.h>
#include <string.h>

double polar_norm(const double *X, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += X[i] * X[i];
    return sqrt(sum);
}

/* out = X X' Y, for X and Y of rows x cols */
static void fold(double *out, const double *X, const double *Y, int64_t rows, int64_t cols)
{
    static double A[POLAR_MOST];

    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < rows; k++) {
            A[i * rows + k] = 0;
            for (int64_t j = 0; j < cols; j++) A[i * rows + k] += X[i * cols + j] * X[k * cols + j];
        }
    memset(out, 0, (size_t)(rows * cols) * sizeof *out);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < rows; k++)
            for (int64_t j = 0; j < cols; j++) out[i * cols + j] += A[i * rows + k] * Y[k * cols + j];
}

void polar_twin(double *X, int64_t rows, int64_t cols, double divisor, const double (*factors)[3], int triples,
                int steps)
{
    static double third[POLAR_MOST], fifth[POLAR_MOST];
    const int64_t n = rows * cols;

    assert(n <= POLAR_MOST && rows * rows <= POLAR_MOST);
    for (int64_t i = 0; i < n; i++) X[i] /= divisor;
    for (int s = 0; s < steps; s++) {
        const double *f = factors[s < triples ? s : triples - 1];
        fold(third, X, X, rows, cols);
        fold(fifth, X, third, rows, cols);
        for (int64_t i = 0; i < n; i++) X[i] = f[0] * X[i] + f[1] * third[i] + f[2] * fifth[i];
    }
}
