/* eigenbasis.c - computes eigenvectors by LAPACK's ssyevd, refreshes them by one product and one QR decomposition, and
 * improves them by QR iterations. */
#include "eigenbasis.h"

#include <float.h>
#include <lapacke.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "root_types.h"

/* Number of columns that LAPACK's blocked QR decomposition handles at a time, at most: its work memory is this many
 * vectors. */
enum { QR_BLOCK = 64 };
/* Added to the diagonal before the decomposition, as in nikhilvyas/SOAP. */
#define TINY 1e-30f

double pd_eigenbasis_flops(int64_t n)
{
    return 14.0 / 3 * (double)n * (double)n * (double)n;
}

int64_t pd_eigenbasis_scratch(int64_t n)
{
    return (1 + 7 * n + 2 * n * n) * (int64_t)sizeof(float) + (3 + 5 * n) * (int64_t)sizeof(lapack_int);
}

/* Returns largest / least, two eigenvalues of a matrix of n rows; 0: the matrix is singular up to rounding. */
static double condition_of(double largest, double least, int64_t n)
{
    return least > (double)FLT_EPSILON * (double)n * largest ? largest / least : 0;
}

/* LAPACK is column-major and this code is row-major, so ssyevd writes each eigenvector into a row of Q, by ascending
 * eigenvalue. */
int pd_eigenbasis(pd_mat Q, pd_mat L, double *condition)
{
    int64_t n = Q.rows, n_work = 1 + 6 * n + 2 * n * n;
    lapack_int side = (lapack_int)n, room = (lapack_int)n_work, n_whole = (lapack_int)(3 + 5 * n), info = 0;
    float *work;
    lapack_int *whole;

    if (n_work > INT_MAX) return PD_OUT_OF_RANGE;
    work = malloc((size_t)(n_work + n) * sizeof *work);
    whole = malloc((size_t)n_whole * sizeof *whole);
    if (work != NULL && whole != NULL) {
        for (int64_t i = 0; i < n; i++) L.at[i * n + i] += TINY;
        LAPACK_ssyevd("V", "L", &side, L.at, &side, work + n_work, work, &room, whole, &n_whole, &info);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) Q.at[i * n + j] = L.at[(n - 1 - j) * n + i];
        *condition = condition_of((double)work[n_work + n - 1], (double)work[n_work], n);
    }
    info = work == NULL || whole == NULL ? PD_NO_MEMORY : info != 0 ? PD_OUT_OF_RANGE : PD_OK;
    free(work);
    free(whole);
    return info;
}

/* An estimate of an eigenvalue, and the column of the basis that it belongs to. */
typedef struct ranked {
    double value;
    int64_t column;
} ranked;

static int descending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    return x->value != y->value ? (x->value < y->value ? 1 : -1) : (x->column > y->column) - (x->column < y->column);
}

static int ascending(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    return x->value != y->value ? (x->value > y->value ? 1 : -1) : (x->column > y->column) - (x->column < y->column);
}

/* Computes the diagonal of old' P, where P is L times `old`: estimates of the eigenvalues of L. */
static void estimate(ranked *by, pd_mat old, pd_mat P)
{
    int64_t n = P.rows;

    for (int64_t j = 0; j < n; j++) by[j] = (ranked){ .column = j };
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) by[j].value += (double)old.at[i * n + j] * (double)P.at[i * n + j];
}

/* Puts the columns of P into the order of `by`. `row` has room for a row. */
static void permute(pd_mat P, const ranked *by, float *row)
{
    int64_t n = P.rows;

    for (int64_t i = 0; i < n; i++) {
        memcpy(row, P.at + i * n, (size_t)n * sizeof *row);
        for (int64_t j = 0; j < n; j++) P.at[i * n + j] = row[by[j].column];
    }
}

static void sort_columns(pd_mat P, float *order, ranked *by, float *row)
{
    int64_t n = P.rows;

    qsort(by, (size_t)n, sizeof *by, descending);
    for (int64_t j = 0; j < n; j++) order[j] = (float)by[j].column;
    permute(P, by, row);
}

static double spread_of(const ranked *by, int64_t n)
{
    double least = INFINITY, largest = 0;

    for (int64_t j = 0; j < n; j++) {
        least = fmin(least, by[j].value);
        largest = fmax(largest, by[j].value);
    }
    return condition_of(largest, least, n);
}

/* Overwrites P by the orthogonal factor of its QR decomposition. In LAPACK's column-major view P is P', whose LQ
 * decomposition has the transposed factors: so its orthogonal factor lies in memory as Q does. */
static int orthogonalize(pd_mat P, float *tau, float *work)
{
    lapack_int n = (lapack_int)P.rows, room = (lapack_int)(QR_BLOCK * n), info = 0;

    LAPACK_sgelqf(&n, &n, P.at, &n, tau, work, &room, &info);
    if (info == 0) LAPACK_sorglq(&n, &n, &n, P.at, &n, tau, work, &room, &info);
    return info == 0 ? PD_OK : PD_OUT_OF_RANGE;
}

int pd_eigenbasis_refresh(pd_mat Q, float *order, pd_mat old, pd_mat L, double *condition)
{
    int64_t n = Q.rows;
    ranked *by = malloc((size_t)n * sizeof *by);
    float *work = malloc((size_t)(n + QR_BLOCK * n) * sizeof *work);
    int rc = PD_NO_MEMORY;

    if (by != NULL && work != NULL) {
        pd_gemm(Q, 0, 1, L, PD_AS_IS, old, PD_AS_IS);
        estimate(by, old, Q);
        *condition = spread_of(by, n);
        if (order != NULL) sort_columns(Q, order, by, work);
        rc = orthogonalize(Q, work, work + n);
    }
    free(by);
    free(work);
    return rc;
}

/* Returns what of the symmetric matrix B lies off its diagonal: its norm over that of B; 0 for a matrix of zeros. */
static double off_diagonal(pd_mat B)
{
    double off = 0, on = 0;

    for (int64_t i = 0; i < B.rows; i++)
        for (int64_t j = 0; j < B.rows; j++)
            *(i == j ? &on : &off) += (double)B.at[i * B.rows + j] * (double)B.at[i * B.rows + j];
    return off > 0 ? sqrt(off / (off + on)) : 0;
}

/* Computes C <- A' B A; C may be B. T is as large, and is overwritten. */
static void conjugate(pd_mat C, pd_mat A, pd_mat B, pd_mat T)
{
    pd_gemm(T, 0, 1, B, PD_AS_IS, A, PD_AS_IS);
    pd_gemm(C, 0, 1, A, PD_TRANSPOSED, T, PD_AS_IS);
}

/* The work memory of pd_eigenbasis_iterate: matrices, numbers for the QR decomposition, and the columns' order. */
typedef struct iteration {
    pd_mat B, P, T;
    float *tau, *work;
    ranked *by;
} iteration;

/* Replaces B by P' B P and Q by Q P, where P is the orthogonal factor of B. */
static int iterate(pd_mat Q, const iteration *w)
{
    size_t bytes = (size_t)(Q.rows * Q.rows) * sizeof(float);
    int rc;

    memcpy(w->P.at, w->B.at, bytes);
    if ((rc = orthogonalize(w->P, w->tau, w->work)) != PD_OK) return rc;
    conjugate(w->B, w->P, w->B, w->T);
    memcpy(w->T.at, Q.at, bytes);
    pd_gemm(Q, 0, 1, w->T, PD_AS_IS, w->P, PD_AS_IS);
    return PD_OK;
}

/* Makes Q orthogonal again up to rounding: Q <- Q (3/2 I - 1/2 Q' Q). Products lose a little with each iteration, and a
 * basis lives through all steps of a job. */
static void polish(pd_mat Q, const iteration *w)
{
    int64_t n = Q.rows;

    pd_gemm(w->P, 0, 1, Q, PD_TRANSPOSED, Q, PD_AS_IS);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) w->P.at[i * n + j] = (i == j ? 1.5f : 0) - 0.5f * w->P.at[i * n + j];
    memcpy(w->T.at, Q.at, (size_t)(n * n) * sizeof(float));
    pd_gemm(Q, 0, 1, w->T, PD_AS_IS, w->P, PD_AS_IS);
}

static int converge(pd_mat Q, float *values, pd_mat A, double tolerance, int iterations, double *rest,
                    const iteration *w)
{
    int64_t n = Q.rows;
    int rc = PD_OK, i = 0;

    conjugate(w->B, Q, A, w->T);
    while (rc == PD_OK && i++ < iterations && off_diagonal(w->B) > tolerance) rc = iterate(Q, w);
    if (rc != PD_OK) return rc;
    if (i > 1) polish(Q, w);
    for (int64_t j = 0; j < n; j++) w->by[j] = (ranked){ .value = (double)w->B.at[j * n + j], .column = j };
    qsort(w->by, (size_t)n, sizeof *w->by, ascending);
    permute(Q, w->by, w->work);
    for (int64_t j = 0; j < n; j++) values[j] = (float)w->by[j].value;
    *rest = off_diagonal(w->B);
    return PD_OK;
}

int pd_eigenbasis_iterate(pd_mat Q, float *values, pd_mat A, double tolerance, int iterations, double *rest)
{
    int64_t n = Q.rows, square = n * n;
    float *room = malloc((size_t)(3 * square + n + QR_BLOCK * n) * sizeof *room);
    ranked *by = malloc((size_t)n * sizeof *by);
    int rc = PD_NO_MEMORY;

    if (room != NULL && by != NULL) {
        iteration w = { .B = pd_mat_dense(room, n, n),
                        .P = pd_mat_dense(room + square, n, n),
                        .T = pd_mat_dense(room + 2 * square, n, n),
                        .tau = room + 3 * square,
                        .work = room + 3 * square + n,
                        .by = by };
        rc = converge(Q, values, A, tolerance, iterations, rest, &w);
    }
    free(room);
    free(by);
    return rc;
}
