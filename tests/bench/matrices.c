/* matrices.c - makes the statistics whose roots are measured, and computes reference roots with ssyevd. */
#include "matrices.h"

#include <cblas.h>
#include <lapacke.h>

#include "figure.h"

pd_mat matrices_new(int64_t n)
{
    return pd_mat_dense(figure_alloc((size_t)(n * n) * sizeof(float)), n, n);
}

void matrices_copy(pd_mat to, pd_mat from)
{
    memcpy(to.at, from.at, (size_t)(from.rows * from.cols) * sizeof *to.at);
}

static double uniform(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

/* Draws two normal numbers (Box and Muller). */
static void normal(double pair[2], uint64_t *seed)
{
    double radius = sqrt(-2 * log(uniform(seed))), angle = 6.283185307179586 * uniform(seed);

    pair[0] = radius * cos(angle), pair[1] = radius * sin(angle);
}

void matrices_with_condition(pd_mat A, double condition, uint64_t seed)
{
    lapack_int n = (lapack_int)A.rows, room = 64 * n, info;
    size_t square = (size_t)n * (size_t)n;
    double *Q = figure_alloc(square * sizeof *Q), *S = figure_alloc(square * sizeof *S),
           *tau = figure_alloc((size_t)n * 65 * sizeof *tau), pair[2];

    for (size_t i = 0; i + 1 < square; i += 2) normal(pair, &seed), Q[i] = pair[0], Q[i + 1] = pair[1];
    LAPACK_dgeqrf(&n, &n, Q, &n, tau, tau + n, &room, &info);
    LAPACK_dorgqr(&n, &n, &n, Q, &n, tau, tau + n, &room, &info);
    for (lapack_int i = 0; i < n; i++) cblas_dscal(n, pow(condition, -0.5 * i / (n - 1)), Q + (size_t)i * (size_t)n, 1);
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, n, n, 1, Q, n, 0, S, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) A.at[i * n + j] = A.at[j * n + i] = (float)S[i * n + j];
    free(Q);
    free(S);
    free(tau);
}

void matrices_step(pd_mat A, pd_mat G, float beta, double power, uint64_t *seed)
{
    double pair[2];

    for (int64_t i = 0; i < G.rows; i++) {
        double scale = pow((double)(i + 1), -power);
        for (int64_t j = 0; j + 1 < G.cols; j += 2) {
            normal(pair, seed);
            G.at[i * G.stride + j] = (float)(scale * pair[0]), G.at[i * G.stride + j + 1] = (float)(scale * pair[1]);
        }
    }
    pd_syrk(A, beta, (1 - beta) / (float)G.cols, G, PD_LEFT);
    pd_mirror(A);
}

double matrices_plain(pd_mat X, pd_mat A, const matrices_root *root, double *alone)
{
    lapack_int n = (lapack_int)A.rows, n_work = 1 + 6 * n + 2 * n * n, n_whole = 3 + 5 * n, info;
    float *work = figure_alloc((size_t)n_work * sizeof *work), *values = figure_alloc((size_t)n * sizeof *values);
    lapack_int *whole = figure_alloc((size_t)n_whole * sizeof *whole);
    pd_mat Q = matrices_new(n), S = matrices_new(n);
    double begun, middle, end, ridge;

    memset(work, 1, (size_t)n_work * sizeof *work); /* writes to every page, so that no page fault falls into the
                                                     * measured time */
    matrices_copy(Q, A), matrices_copy(S, A), matrices_copy(X, A);
    begun = figure_ms();
    LAPACK_ssyevd("V", "L", &n, Q.at, &n, values, work, &n_work, whole, &n_whole, &info);
    middle = figure_ms();
    ridge = root->epsilon * (double)values[n - 1];
    for (int64_t i = 0; i < n; i++) {
        float half = (float)pow(fmax((double)values[i], 0) + ridge, -0.5 / root->p);
        for (int64_t j = 0; j < n; j++) S.at[i * n + j] = half * Q.at[i * n + j];
    }
    pd_syrk(X, 0, 1, S, PD_RIGHT);
    pd_mirror(X);
    end = figure_ms();
    if (info != 0) figure_stop("ssyevd failed");
    free(work), free(values), free(whole), free(Q.at), free(S.at);
    if (alone != NULL) *alone = middle - begun;
    return end - begun;
}

void matrices_reference(double *R, pd_mat A, const matrices_root *root)
{
    lapack_int n = (lapack_int)A.rows, n_work = 1 + 6 * n + 2 * n * n, n_whole = 3 + 5 * n, info;
    double *work = figure_alloc((size_t)n_work * sizeof *work), *values = figure_alloc((size_t)n * sizeof *values);
    double *Q = figure_alloc((size_t)n * (size_t)n * sizeof *Q);
    lapack_int *whole = figure_alloc((size_t)n_whole * sizeof *whole);

    for (int64_t i = 0; i < (int64_t)n * n; i++) Q[i] = (double)A.at[i];
    LAPACK_dsyevd("V", "L", &n, Q, &n, values, work, &n_work, whole, &n_whole, &info);
    if (info != 0) figure_stop("dsyevd failed");
    for (int64_t i = 0; i < n; i++)
        cblas_dscal(n, pow(fmax(values[i], 0) + root->epsilon * values[n - 1], -0.5 / root->p), Q + i * n, 1);
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, n, n, 1, Q, n, 0, R, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) R[j * n + i] = R[i * n + j];
    free(work), free(values), free(whole), free(Q);
}

double matrices_error(pd_mat X, const double *R)
{
    double difference = 0, norm = 0;

    for (int64_t i = 0; i < X.rows * X.cols; i++)
        difference += ((double)X.at[i] - R[i]) * ((double)X.at[i] - R[i]), norm += R[i] * R[i];
    return sqrt(difference / norm);
}
