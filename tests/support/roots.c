/* roots.c - makes matrices with known eigenvalues, and computes their inverse roots slowly in float64. */
#include "roots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "root_basis.h"

pd_mat roots_matrix(int64_t n)
{
    return pd_mat_dense(calloc((size_t)(n * n), sizeof(float)), n, n);
}

pd_mat roots_copy(pd_mat A)
{
    pd_mat C = roots_matrix(A.rows);

    for (int64_t i = 0; i < A.rows; i++)
        memcpy(C.at + i * C.stride, A.at + i * A.stride, (size_t)A.cols * sizeof *C.at);
    return C;
}

double roots_number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (double)(*seed >> 8) / 8388608.0 - 1;
}

/* Reflects the symmetric matrix S: S <- H S H, with the Householder matrix H = I - 2 u u' / (u' u). */
static void reflect(double *S, const double *u, int64_t n)
{
    double square = 0;

    for (int64_t i = 0; i < n; i++) square += u[i] * u[i];
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < n; i++) {
            int64_t row = side == 0 ? n : 1, step = side == 0 ? 1 : n;
            double dot = 0;
            for (int64_t j = 0; j < n; j++) dot += S[i * row + j * step] * u[j];
            for (int64_t j = 0; j < n; j++) S[i * row + j * step] -= 2 * dot / square * u[j];
        }
}

pd_mat roots_with(const double *values, int64_t n, uint32_t seed)
{
    double *S = calloc((size_t)(n * n), sizeof *S), *u = calloc((size_t)n, sizeof *u);
    pd_mat A = roots_matrix(n);

    for (int64_t i = 0; i < n; i++) S[i * n + i] = values[i];
    for (int r = 0; r < 3; r++) {
        for (int64_t i = 0; i < n; i++) u[i] = roots_number(&seed);
        reflect(S, u, n);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) A.at[i * n + j] = A.at[j * n + i] = (float)S[i * n + j];
    free(S);
    free(u);
    return A;
}

/* Makes S[i][j] zero by one Jacobi rotation of the (n, n) matrix S. Applies the rotation to the rows of V, too. */
static void rotate(double *S, double *V, int64_t n, int64_t i, int64_t j)
{
    double theta = (S[j * n + j] - S[i * n + i]) / (2 * S[i * n + j]);
    double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1), s = t * c;

    for (int64_t k = 0; k < n; k++) {
        double a = S[k * n + i], b = S[k * n + j];
        S[k * n + i] = c * a - s * b, S[k * n + j] = s * a + c * b;
    }
    for (int64_t k = 0; k < n; k++) {
        double a = S[i * n + k], b = S[j * n + k], v = V[i * n + k], w = V[j * n + k];
        S[i * n + k] = c * a - s * b, S[j * n + k] = s * a + c * b;
        V[i * n + k] = c * v - s * w, V[j * n + k] = s * v + c * w;
    }
}

static void jacobi(double *S, double *V, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++) V[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < 12; sweep++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++)
                if (S[i * n + j] * S[i * n + j] > 1e-32 * fabs(S[i * n + i] * S[j * n + j])) rotate(S, V, n, i, j);
}

/* Computes the eigenvalues of A into the diagonal of S, and the eigenvectors into the rows of V. The caller frees both.
 * *least and *largest: the extreme eigenvalues. */
static void decompose(pd_mat A, double **S, double **V, double *least, double *largest)
{
    int64_t n = A.rows;

    *S = calloc((size_t)(n * n), sizeof **S), *V = calloc((size_t)(n * n), sizeof **V);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) (*S)[i * n + j] = (double)A.at[i * A.stride + j];
    jacobi(*S, *V, n);
    *least = INFINITY, *largest = -INFINITY;
    for (int64_t i = 0; i < n; i++) *least = fmin(*least, (*S)[i * n + i]), *largest = fmax(*largest, (*S)[i * n + i]);
}

/* Returns |X - V' diag(S) V| / |V' diag(S) V|. Frees S and V. */
static double compare(pd_mat X, double *S, double *V)
{
    int64_t n = X.rows;
    double difference = 0, norm = 0;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += V[k * n + i] * S[k * n + k] * V[k * n + j];
            norm += sum * sum;
            difference += (sum - (double)X.at[i * X.stride + j]) * (sum - (double)X.at[i * X.stride + j]);
        }
    free(S);
    free(V);
    return sqrt(difference / norm);
}

double roots_error(pd_mat X, pd_mat A, int p, double epsilon)
{
    double *S, *V, least, largest;

    decompose(A, &S, &V, &least, &largest);
    for (int64_t i = 0; i < A.rows; i++)
        S[i * A.rows + i] = pow(fmax(S[i * A.rows + i], 0) + epsilon * fmax(largest, 1e-6), -1.0 / p);
    return compare(X, S, V);
}

double roots_shifted_error(pd_mat X, pd_mat A, double exponent, double epsilon)
{
    double *S, *V, least, largest;

    decompose(A, &S, &V, &least, &largest);
    for (int64_t i = 0; i < A.rows; i++)
        S[i * A.rows + i] = pow(S[i * A.rows + i] - fmin(least, 0) + epsilon, -exponent);
    return compare(X, S, V);
}

double roots_residual(pd_mat X, pd_mat A, int p)
{
    int64_t n = A.rows;
    double *P = calloc((size_t)(n * n), sizeof *P), *next = calloc((size_t)(n * n), sizeof *next), sum = 0;

    for (int64_t i = 0; i < n * n; i++) P[i] = (double)A.at[i];
    for (int k = 0; k < p; k++) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                next[i * n + j] = 0;
                for (int64_t l = 0; l < n; l++) next[i * n + j] += (double)X.at[i * n + l] * P[l * n + j];
            }
        memcpy(P, next, (size_t)(n * n) * sizeof *P);
    }
    for (int64_t i = 0; i < n * n; i++) sum += (P[i] - (i % (n + 1) == 0)) * (P[i] - (i % (n + 1) == 0));
    free(P);
    free(next);
    return sqrt(sum / (double)n);
}

double roots_checked(pd_mat X, pd_mat A, double ridge, int p)
{
    double error;

    pd_basis_check(&error, X, (pd_factor){ .A = A }, ridge, p);
    return error;
}
