/* root_coupled.c - computes inverse p-th roots X of a matrix A by iterations in float32 that improve X and a second
 * matrix M together (matrix_functions.py of Meta's Distributed Shampoo; Higham, Functions of Matrices, chapter 7; Lakic
 * 1998).
 *
 *     X = z^(1/p) I, M = z A';    X <- X T, M <- T^p M        A' = A + ridge I
 *
 * I is the identity, and z a number that makes the iteration converge. M converges to I, and X to the inverse p-th root
 * of A'. Newton's T is (1 + 1/p) I - M/p, the first two terms of the power series of M^(-1/p) at I. In an iteration of
 * order m, T is the sum of the first m terms.
 *
 * All matrices are functions of A', and so symmetric. Still both halves of their products are computed: A' X^p then
 * stays 10 to 100 times nearer to I than with products that are made symmetric (measured at n 7 to 32, condition
 * numbers 1e4 to 1e10). The distance of A' X^p from I is the error of the root. */
#include "root_types.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "root_basis.h"

enum { SPARE = 3, MATRICES = 4 + SPARE, SMALL = 32 };
/* The iteration of higher order ends if the largest |element| of M - I grows by more than this factor in one step. */
static const double most_growth = 1.2;
/* A root of the iteration of higher order counts as failed if the largest |element| of A' X^p - I is above this. */
static const double most_error = 0.1;
/* smallest safety factor by which the bound of the largest eigenvalue is multiplied */
static const float bound_slack = 1.001f;

/* The state of one iteration. */
typedef struct coupled {
    int64_t n;
    int p;
    /* The matrices of the iteration, named as at the top of this file; A is A', with the ridge added. */
    pd_mat A, M, X, T;
    pd_mat spare[SPARE]; /* spare matrices for results of products; their contents are not needed any more */
    double *vectors;     /* work memory for two vectors of n numbers */
    void *room;
} coupled;

/* Allocates all matrices of an iteration. Copies the lower half of A, and mirrors it to get the upper half. */
static int coupled_new(coupled *c, pd_mat A, int p)
{
    int64_t n = A.rows;
    float *at;
    pd_mat *all[MATRICES] = { &c->A, &c->M, &c->X, &c->T, &c->spare[0], &c->spare[1], &c->spare[2] };

    *c = (coupled){ .n = n, .p = p, .room = pd_root_room(n, MATRICES, sizeof(float), 2 * (size_t)n * sizeof(double)) };
    if (c->room == NULL) return PD_NO_MEMORY;
    c->vectors = c->room;
    at = (float *)(c->vectors + 2 * n);
    for (int i = 0; i < MATRICES; i++) *all[i] = pd_mat_dense(at + i * n * n, n, n);
    for (int64_t i = 0; i < n; i++) memcpy(c->A.at + i * n, A.at + i * A.stride, (size_t)(i + 1) * sizeof *A.at);
    pd_mirror(c->A);
    return PD_OK;
}

static void add_to_diagonal(pd_mat S, float a)
{
    for (int64_t i = 0; i < S.rows; i++) S.at[i * S.stride + i] += a;
}

/* Returns a spare matrix that is neither a nor b. */
static pd_mat unused(const coupled *c, pd_mat a, pd_mat b)
{
    int i = 0;

    while (c->spare[i].at == a.at || c->spare[i].at == b.at) i++;
    return c->spare[i];
}

/* Replaces the matrix *one by `next`, which was a spare matrix. The old *one becomes a spare matrix. */
static void replace(coupled *c, pd_mat *one, pd_mat next)
{
    int i = 0;

    while (c->spare[i].at != next.at) i++;
    c->spare[i] = *one;
    *one = next;
}

/* Computes the matrix product P <- A B. Products of small matrices are summed in float64, so that each element is
 * rounded only once and has the same bits on every CPU. */
static void multiply(pd_mat P, pd_mat A, pd_mat B)
{
    int64_t n = P.rows;

    if (n > SMALL) {
        pd_gemm(P, 0, 1, A, PD_AS_IS, B, PD_AS_IS);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double sum[SMALL] = { 0 };
        for (int64_t k = 0; k < n; k++)
            for (int64_t j = 0; j < n; j++) sum[j] += (double)A.at[i * n + k] * (double)B.at[k * n + j];
        for (int64_t j = 0; j < n; j++) P.at[i * n + j] = (float)sum[j];
    }
}

/* Returns the power S^m of a matrix, m >= 1, by repeated squaring from the lowest bit of m. The result is a spare
 * matrix of the iteration, or S itself for m = 1. */
static pd_mat power(const coupled *c, pd_mat S, int m)
{
    pd_mat square = S, so_far = { 0 };

    for (;; m >>= 1) {
        pd_mat next = unused(c, square, so_far);
        if ((m & 1) != 0 && so_far.at != NULL) {
            multiply(next, so_far, square);
            so_far = next;
        } else if ((m & 1) != 0) {
            so_far = square;
        }
        if (m == 1) return so_far;
        next = unused(c, square, so_far);
        multiply(next, square, square);
        square = next;
    }
}

/* Returns the largest |element| of S - I: how far S is from the identity matrix. Returns NaN if S has a NaN. */
static double off_identity(pd_mat S)
{
    float most = 0;

    for (int64_t i = 0; i < S.rows; i++)
        for (int64_t j = 0; j < S.cols; j++) {
            float off = fabsf(S.at[i * S.stride + j] - (i == j ? 1.0f : 0.0f));
            if (!(off <= most)) most = off;
            if (isnan(most)) return NAN;
        }
    return (double)most;
}

/* Sets X and M to their values at the start of the iteration: X = z^(1/p) I and M = z A'. */
static void begin(coupled *c, float z)
{
    int64_t square = c->n * c->n;

    memset(c->X.at, 0, (size_t)square * sizeof *c->X.at);
    add_to_diagonal(c->X, powf(z, 1.0f / (float)c->p));
    for (int64_t i = 0; i < square; i++) c->M.at[i] = z * c->A.at[i];
}

/* Computes the matrix T of the next step of Newton's iteration: T <- (1 + 1/p) I - M/p. */
static void newton_term(coupled *c)
{
    float part = (float)(-1.0 / c->p);

    for (int64_t i = 0; i < c->n * c->n; i++) c->T.at[i] = part * c->M.at[i];
    add_to_diagonal(c->T, (float)(1 + 1.0 / c->p));
}

/* Computes the matrix T of the next step of an iteration of order m: T <- b0 I + b1 B + ... + b(m-1) B^(m-1) with B = I
 * - M, by Horner's rule. b0 is 1, and b_i is b_(i-1) (1 + (i-1) p) / (i p). */
static void series_term(coupled *c, int order)
{
    double b = 1, next;

    for (int i = 1; i < order; i++) b *= (1 + (i - 1.0) * c->p) / ((double)i * c->p);
    for (int64_t i = 0; i < c->n * c->n; i++) c->spare[0].at[i] = -c->M.at[i];
    add_to_diagonal(c->spare[0], 1);
    memset(c->T.at, 0, (size_t)(c->n * c->n) * sizeof *c->T.at);
    add_to_diagonal(c->T, (float)b);
    for (int i = order - 1; i > 0; i--, b = next) {
        next = b * ((double)i * c->p) / (1 + (i - 1.0) * c->p);
        if (i == order - 1) /* T is still b times the identity, so its product with B is B times that number */
            for (int64_t k = 0; k < c->n * c->n; k++) c->T.at[k] = (float)b * c->spare[0].at[k];
        else {
            multiply(c->spare[1], c->T, c->spare[0]);
            replace(c, &c->T, c->spare[1]);
        }
        add_to_diagonal(c->T, (float)next);
    }
}

/* Does one step of the iteration: computes X <- X T and M <- T^p M. Returns the largest |element| of M - I, which falls
 * to 0 if the iteration converges. */
static double advance(coupled *c)
{
    pd_mat raised, next = c->spare[0];

    multiply(next, c->X, c->T);
    replace(c, &c->X, next);
    raised = power(c, c->T, c->p);
    next = unused(c, raised, raised);
    multiply(next, raised, c->M);
    replace(c, &c->M, next);
    return off_identity(c->M);
}

/* Returns a lower bound of the norm of S^p: applies S^p `rounds` times to a vector of signs, and returns the factor by
 * which the last round lengthens the vector. */
static double norm_of_power(const coupled *c, pd_mat S, int p, int rounds)
{
    int64_t n = c->n;
    double *v = c->vectors, *u = v + n, grown = 0;

    pd_basis_signs(v, n);
    for (int i = 0; i < p * rounds; i++) {
        double norm = 0, more = 0, *next = u;
        for (int64_t k = 0; k < n; k++) norm += v[k] * v[k];
        pd_basis_apply(u, S, v);
        for (int64_t k = 0; k < n; k++) more += u[k] * u[k];
        grown = (i % p == 0 ? 1 : grown) * sqrt(more / norm);
        for (int64_t k = 0; k < n; k++) u[k] /= sqrt(more);
        u = v, v = next;
    }
    return grown;
}

/* Copies the result `root` to X, and computes report->condition from c->X, which must contain the inverse p-th root
 * (`root` may be a power of it). PD_OUT_OF_RANGE: the root is not finite. */
static int give(pd_mat X, const coupled *c, pd_mat root, pd_root_report *report)
{
    for (int64_t i = 0; i < c->n; i++) memcpy(X.at + i * X.stride, root.at + i * c->n, (size_t)c->n * sizeof *X.at);
    if (!pd_root_is_finite(X)) {
        report->error = NAN;
        return PD_OUT_OF_RANGE;
    }
    report->condition = norm_of_power(c, c->A, 1, 8) * norm_of_power(c, c->X, c->p, 4);
    return PD_OK;
}

static double frobenius(pd_mat S)
{
    double sum = 0;

    for (int64_t i = 0; i < S.rows * S.cols; i++) sum += (double)S.at[i] * (double)S.at[i];
    return sqrt(sum);
}

static void newton(coupled *c, const pd_root_want *want, pd_root_report *report)
{
    report->error = off_identity(c->M);
    /* If the error is NaN, the comparison is false, so the loop ends. */
    while (report->iterations < want->iterations && report->error > want->tolerance) {
        newton_term(c);
        report->error = advance(c);
        report->iterations++;
    }
    report->ended = report->error <= want->tolerance ? PD_ENDED_CONVERGED : PD_ENDED_LIMIT;
}

int pd_root_coupled(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    coupled c;
    int rc;

    assert(want->p >= 1 && A.rows == A.cols && X.rows == A.rows && X.cols == A.rows);
    *report = (pd_root_report){ .error = NAN, .largest = NAN, .condition = NAN, .tries = 1 };
    if (!pd_root_is_finite(A)) return PD_OUT_OF_RANGE;
    if ((rc = coupled_new(&c, A, want->p)) != PD_OK) return rc;
    add_to_diagonal(c.A, (float)want->epsilon);
    report->largest = frobenius(c.A);
    begin(&c, (1.0f + (float)want->p) / (2 * (float)report->largest));
    newton(&c, want, report);
    rc = give(X, &c, c.X, report);
    free(c.room);
    return rc;
}

static float largest_row_sum(pd_mat S)
{
    float most = 0;

    for (int64_t i = 0; i < S.rows; i++) {
        float sum = 0;
        for (int64_t j = 0; j < S.cols; j++) sum += fabsf(S.at[i * S.stride + j]);
        most = fmaxf(most, sum);
    }
    return most;
}

/* Returns an upper bound of the largest eigenvalue of the matrix A: min(|A|, |A^4|^(1/4)), where |.| is the largest sum
 * of absolute values in a row. A is divided by a power of two first, so that A^4 neither overflows nor vanishes. */
static float bound_of(coupled *c)
{
    float norm = largest_row_sum(c->A);
    int exponent;

    if (!(norm > 0)) return 0;
    frexpf(norm, &exponent);
    for (int64_t i = 0; i < c->n * c->n; i++) c->T.at[i] = ldexpf(c->A.at[i], -exponent);
    return fminf(norm, ldexpf(powf(largest_row_sum(power(c, c->T, 4)), 0.25f), exponent));
}

/* Returns z, the factor of the start M = z A'. `bound` is an upper bound of the largest eigenvalue of A'. It is
 * multiplied by a safety factor, which keeps M's eigenvalues in the range where the iteration converges. */
static float start_of(float bound, float ridge, int p)
{
    float kappa = powf(bound / ridge, 1.0f / (float)p), slack = (kappa * bound - ridge) / (kappa * bound - bound);

    return ((float)p + 1) / ((slack > bound_slack ? slack : bound_slack) * bound);
}

static void iterate(coupled *c, const pd_root_want *want, pd_root_report *report)
{
    double error;

    newton_term(c);
    error = advance(c);
    report->iterations = 1;
    report->ended = PD_ENDED_LIMIT;
    while (error > want->tolerance && report->iterations < want->iterations) {
        double last = error;
        series_term(c, want->order);
        error = advance(c);
        report->iterations++;
        if (error > most_growth * last || error == last) {
            report->ended = PD_ENDED_EARLY;
            return;
        }
    }
    if (error <= want->tolerance) report->ended = PD_ENDED_CONVERGED;
}

/* Returns the error of the inverse p-th root X: the largest |element| of A' X^p - I. Overwrites M. */
static double error_of(coupled *c)
{
    multiply(c->M, c->A, power(c, c->X, c->p));
    return off_identity(c->M);
}

static int higher_order(coupled *c, pd_mat X, const pd_root_want *want, pd_root_report *report)
{
    float bound = bound_of(c), ridge = (float)pd_root_bounded_ridge(want->epsilon, (double)bound);

    report->largest = (double)bound;
    add_to_diagonal(c->A, ridge);
    begin(c, start_of(bound + ridge, ridge, c->p));
    iterate(c, want, report);
    report->error = error_of(c);
    if (!(report->error <= most_error)) return PD_OUT_OF_RANGE;
    return give(X, c, want->q > 1 ? power(c, c->X, want->q) : c->X, report);
}

int pd_root_higher_order(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    coupled c;
    int rc;

    assert(want->p >= 1 && want->order >= 2 && A.rows == A.cols && X.rows == A.rows && X.cols == A.rows);
    *report = (pd_root_report){ .error = NAN, .largest = NAN, .condition = NAN, .tries = 1 };
    if (!pd_root_is_finite(A)) return PD_OUT_OF_RANGE;
    if ((rc = coupled_new(&c, A, want->p)) != PD_OK) return rc;
    rc = higher_order(&c, X, want, report);
    free(c.room);
    return rc;
}
