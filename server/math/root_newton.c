/* root_newton.c - computes inverse p-th roots of a matrix A by Newton iterations in float64 that improve the root H and
 * a second matrix M together, as the function `matrix_inverse_pth_root` of Google's Distributed Shampoo does (Higham,
 * Functions of Matrices, equation 7.18).
 *
 *     M = z (A + ridge I), H = z^(1/p) I;      T = ((p + 1) I - M) / p,  M <- T^p M,  H <- H T
 *
 * I is the identity, z a number that makes the iteration converge. M converges to I, and H to the root.
 *
 * Google pads A to a larger matrix. Here the padding is never stored. In the padded M, the rows and columns of the
 * padding always have the form x I, so the number x is enough to compute norms of the padded M. The padding of H and T
 * does not affect their corner that becomes the root.
 *
 * All matrices are functions of A. So if A is symmetric, only one half of each product is computed. If quantizing has
 * made A asymmetric, products are computed whole. */
#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "root_types.h"

enum { WORDS = 624, APART = 397, SEED = 1729 };

/* The state of the random number generator MT19937. */
typedef struct twister {
    uint32_t word[WORDS];
    int next;
} twister;

static void seed(twister *t)
{
    t->word[0] = SEED;
    for (uint32_t i = 1; i < WORDS; i++) t->word[i] = 1812433253u * (t->word[i - 1] ^ (t->word[i - 1] >> 30)) + i;
    t->next = WORDS;
}

static void renew(twister *t)
{
    for (int i = 0; i < WORDS; i++) {
        uint32_t joined = (t->word[i] & 0x80000000u) | (t->word[(i + 1) % WORDS] & 0x7fffffffu);
        t->word[i] = t->word[(i + APART) % WORDS] ^ (joined >> 1) ^ (joined & 1 ? 0x9908b0dfu : 0);
    }
    t->next = 0;
}

static uint32_t draw(twister *t)
{
    uint32_t y;

    if (t->next == WORDS) renew(t);
    y = t->word[t->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

void pd_start_vector(double *v, int64_t n)
{
    twister t;

    seed(&t);
    for (int64_t i = 0; i < n; i++) {
        /* Builds a random number of 53 bits from 27 bits of one generator output and 26 bits of the next. */
        double high = draw(&t) >> 5, low = draw(&t) >> 6;
        v[i] = -1.0 + 2.0 * ((high * 67108864.0 + low) / 9007199254740992.0);
    }
}

enum { MOST_STEPS = 100, MOST_SPARE = 3 };
/* Absolute tolerance of both iterations. Power iteration ends when its estimate of the eigenvalue changes by at most
 * this, so it ends after the first step if all eigenvalues are smaller. Newton's iteration has converged when the
 * largest |element| of M - I is at most this. */
static const double tolerance = 1e-6;
/* Newton's iteration ends if the largest |element| of M - I grows by this factor or more in one step. Less growth is
 * normal before it falls. */
static const double most_growth = 1.2;

static double dot(const double *x, const double *y, int64_t n)
{
    return cblas_ddot((int)n, x, 1, y, 1);
}

/* Treats A as padded to a larger matrix, without storing that matrix. The padding is a multiple of the identity, so the
 * elements of the vector from index n on only change by a common factor, `scale`. `rest` is the sum of squares of these
 * elements in the start vector. */
int pd_power_iteration(double *largest, double *v, const double *A, int64_t n, int64_t padded_side, double padding)
{
    int64_t side = padded_side > 0 ? padded_side : n;
    /* `x`: n elements of the current vector, then the elements of the start vector for the padding. */
    double *x, *y;
    /* Without padding `scale` is 0, because it would grow without bounds. */
    double rest, norm, scale = side > n ? 1 : 0, quotient = 0, change = INFINITY;

    assert(n > 0 && n <= INT_MAX && side >= n && side <= INT_MAX);
    if ((x = malloc((size_t)(side + n) * sizeof *x)) == NULL) return PD_NO_MEMORY;
    y = x + side;
    pd_start_vector(x, side);
    rest = dot(x + n, x + n, side - n);
    norm = sqrt(dot(x, x, n) + rest);
    /* If `change` is NaN, the comparison is false, so the loop ends. */
    for (int step = 0; step < MOST_STEPS && change > tolerance; step++) {
        double last = quotient;
        cblas_dscal((int)n, 1 / norm, x, 1);
        scale /= norm;
        cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)n, (int)n, 1, A, (int)n, x, 1, 0, y, 1);
        quotient = dot(x, y, n) + padding * scale * scale * rest;
        scale *= padding;
        cblas_dcopy((int)n, y, 1, x, 1);
        norm = sqrt(dot(x, x, n) + scale * scale * rest);
        change = fabs(quotient - last);
    }
    for (int64_t i = 0; v != NULL && i < side; i++) v[i] = (i < n ? x[i] : scale * x[i]) / norm;
    free(x);
    *largest = quotient;
    return isfinite(quotient) ? PD_OK : PD_OUT_OF_RANGE;
}

/* The state of one Newton iteration. */
typedef struct newton {
    int64_t n;
    int p;
    bool symmetric; /* whether A is symmetric, so that only half of each product is computed */
    /* dense matrices of n rows and n columns; `spare` has n_spare matrices whose contents are not needed */
    double *M, *H, *T, *spare[MOST_SPARE];
    int n_spare;
    double *memory;
    double *v, *u; /* work memory for two vectors of n numbers */
    int64_t pads;  /* number of rows by which the matrix A is padded */
    double x;      /* the padding of M is x times the identity */
} newton;

/* Allocates the matrices of the iteration. Computing T^p needs two or three spare matrices: the last square of T, the
 * matrix that is being computed, and the product so far if p has more than one bit set. */
static int newton_new(newton *w, int64_t n, int p)
{
    int count = __builtin_popcount((unsigned)p) == 1 ? 2 : MOST_SPARE;
    double *at = pd_root_room(n, 3 + count, sizeof(double), 2 * (size_t)n * sizeof(double));
    size_t each = (size_t)n * (size_t)n; /* cannot overflow: the caller has a matrix of as many elements in memory */

    if (at == NULL) return PD_NO_MEMORY;
    *w = (newton){ .n = n, .p = p, .memory = at, .M = at, .H = at + each, .T = at + 2 * each, .n_spare = count };
    for (int i = 0; i < count; i++) w->spare[i] = at + (size_t)(3 + i) * each;
    w->v = at + (size_t)(3 + count) * each;
    w->u = w->v + n;
    return PD_OK;
}

static void newton_free(newton *w)
{
    free(w->memory);
}

static double *take(newton *w)
{
    assert(w->n_spare > 0);
    return w->spare[--w->n_spare];
}

static void put_back(newton *w, double *one)
{
    w->spare[w->n_spare++] = one;
}

/* Computes one rectangle of the product C = A B: `rows` by `cols` elements from (row, col) on. */
static void rectangle(double *C, const double *A, const double *B, int n, int row, int col, int rows, int cols)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, cols, n, 1, A + (int64_t)row * n, n, B + col, n, 0,
                C + (int64_t)row * n + col, n);
}

/* Computes the lower half of a square of the product C = A B: `count` rows and columns from (first, first) on. Works by
 * recursion: the lower left quarter of the square is one product; the upper left and the lower right quarter are lower
 * halves of squares again. Small squares are computed whole. */
static void lower_half(double *C, const double *A, const double *B, int n, int first, int count)
{
    enum { SMALL = 64 };
    int top = count / 2, rest = count - top;

    if (count <= SMALL) {
        rectangle(C, A, B, n, first, first, count, count);
        return;
    }
    rectangle(C, A, B, n, first + top, first, rest, top);
    lower_half(C, A, B, n, first, top);
    lower_half(C, A, B, n, first + top, rest);
}

/* Copies the lower half of a square float64 matrix over its upper half, in small squares, as pd_mirror does in
 * float32. */
static void mirror(double *C, int64_t n)
{
    enum { SIDE = 4 };

    for (int64_t top = 0; top < n; top += SIDE) {
        int64_t bottom = top + SIDE < n ? top + SIDE : n;
        for (int64_t left = 0; left <= top; left += SIDE)
            for (int64_t j = left; j < left + SIDE && j < bottom; j++)
                for (int64_t i = j < top ? top : j + 1; i < bottom; i++) C[j * n + i] = C[i * n + j];
    }
}

/* Returns the matrix product A B in one of the spare matrices. */
static double *product(newton *w, const double *A, const double *B)
{
    int n = (int)w->n;
    double *C = take(w);

    if (w->symmetric) {
        lower_half(C, A, B, n, 0, n);
        mirror(C, n);
    } else
        rectangle(C, A, B, n, 0, 0, n, n);
    return C;
}

static void add_to_diagonal(double *S, int64_t n, double a)
{
    for (int64_t i = 0; i < n; i++) S[i * n + i] += a;
}

PD_CLONES(void, scale, (double *to, const double *from, double a, int64_t n), (to, from, a, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = a * from[i];
}

/* Returns the bits of the largest |x[i]|. Read as integers, the bits of absolute values have the order of the numbers,
 * with every NaN above infinity. */
PD_CLONES(int64_t, largest_bits, (const double *x, int64_t n), (x, n))
{
    int64_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= INT64_MAX;
        most = bits > most ? bits : most;
    }
    return most;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns how far the padded M is from the identity I: the largest |element| of M - I. Returns NaN if M has a NaN. */
static double distance_from_identity(const newton *w)
{
    double most, off = w->x - 1;
    int64_t bits = w->pads > 0 ? largest_bits(&off, 1) : 0;

    for (int64_t i = 0; i < w->n; i++) {
        const double *row = w->M + i * w->n;
        off = row[i] - 1;
        bits = larger(bits, largest_bits(&off, 1));
        bits = larger(bits, larger(largest_bits(row, i), largest_bits(row + i + 1, w->n - i - 1)));
    }
    memcpy(&most, &bits, sizeof most);
    return most;
}

static double sum_of_squares(const double *S, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += cblas_ddot((int)n, S + i * n, 1, S + i * n, 1);
    return sum;
}

/* Computes the power T^p by repeated squaring, from the lowest bit of p. T is not changed. Returns T itself if p is 1,
 * otherwise a spare matrix that the caller must return with put_back. */
static double *power(newton *w)
{
    double *square = w->T, *so_far = NULL;

    for (int p = w->p;;) {
        double *next;
        if (p & 1) {
            next = so_far == NULL ? square : product(w, so_far, square);
            if (so_far != NULL && so_far != w->T) put_back(w, so_far);
            so_far = next;
        }
        if ((p >>= 1) == 0) break;
        next = product(w, square, square);
        if (square != w->T && square != so_far) put_back(w, square);
        square = next;
    }
    if (square != so_far) put_back(w, square);
    return so_far;
}

/* Does the first half of a step of the Newton iteration: computes T and the next M. advance_root does the second
 * half. */
static void step(newton *w)
{
    double part = -1.0 / w->p, *last = w->M, *raised;

    scale(w->T, w->M, part, w->n * w->n);
    add_to_diagonal(w->T, w->n, 1 - part);
    raised = power(w);
    w->M = product(w, raised, last);
    put_back(w, last);
    if (raised != w->T) put_back(w, raised);
    w->x *= pow(1 - part + part * w->x, w->p);
}

static void advance_root(newton *w)
{
    double *last = w->H;

    w->H = product(w, last, w->T);
    put_back(w, last);
}

/* Runs the iteration. Before the call, M must be A + ridge I, and x the number on the diagonal of its padding. Returns
 * the largest |element| of the last M - I, which is 0 for an exact root. If this number grew too much in the last step,
 * H is not updated in that step, as in Google's program. */
static double iterate(newton *w, int *steps)
{
    double norm = sqrt(sum_of_squares(w->M, w->n) + (double)w->pads * w->x * w->x);
    double z = (1.0 + w->p) / (2 * norm), error;

    scale(w->M, w->M, z, w->n * w->n);
    w->x *= z;
    memset(w->H, 0, (size_t)w->n * (size_t)w->n * sizeof *w->H);
    add_to_diagonal(w->H, w->n, pow(z, 1.0 / w->p));
    error = distance_from_identity(w);
    /* If the error is NaN, the comparison is false, so the loop ends. */
    for (*steps = 0; *steps < MOST_STEPS && error > tolerance;) {
        double last = error;
        step(w);
        ++*steps;
        error = distance_from_identity(w);
        if (!(error < most_growth * last)) break;
        advance_root(w);
    }
    return error;
}

/* Returns a lower bound of the norm of S^p: applies S^p `rounds` times to a vector, and returns the factor by which the
 * last round lengthens the vector. */
static double norm_of_power(newton *w, const double *S, int p, int rounds)
{
    int n = (int)w->n;
    double grown = 1;

    pd_start_vector(w->v, n);
    for (int i = 0; i < p * rounds; i++) {
        double norm = cblas_dnrm2(n, w->v, 1);
        if (i % p == 0) grown = 1;
        cblas_dgemv(CblasRowMajor, CblasNoTrans, n, n, 1 / norm, S, n, w->v, 1, 0, w->u, 1);
        cblas_dcopy(n, w->u, 1, w->v, 1);
        grown *= cblas_dnrm2(n, w->v, 1);
    }
    return grown;
}

/* Returns an estimate of the condition number of A + ridge I: its norm times the norm of its inverse. The inverse is
 * H^p, where H is the inverse p-th root. */
static double condition(newton *w, pd_mat A, double ridge)
{
    pd_root_widen(w->T, A);
    add_to_diagonal(w->T, w->n, ridge);
    return norm_of_power(w, w->T, 1, 8) * norm_of_power(w, w->H, w->p, 4);
}

/* Computes the root of a matrix of one element without padding, which needs no iteration. */
static void root_of_number(newton *w, pd_root_report *report)
{
    w->H[0] = pow(w->M[0], -1.0 / w->p);
    report->error = 0;
    report->condition = 1;
}

static int root_of(newton *w, pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    int rc = pd_power_iteration(&report->largest, NULL, w->M, w->n, want->padded_side, want->padding);
    double ridge = pd_root_ridge(want->epsilon, report->largest);

    if (rc != PD_OK) return rc;
    add_to_diagonal(w->M, w->n, ridge);
    w->x = want->padding + ridge;
    if (w->n + w->pads == 1)
        root_of_number(w, report);
    else
        report->error = (double)(float)iterate(w, &report->iterations);
    pd_root_narrow(X, w->H);
    if (!isfinite(report->error) || !pd_root_is_finite(X)) return PD_OUT_OF_RANGE;
    if (w->n + w->pads > 1) report->condition = condition(w, A, ridge);
    return PD_OK;
}

static bool is_symmetric(pd_mat A)
{
    for (int64_t i = 0; i < A.rows; i++)
        for (int64_t j = 0; j < i; j++)
            if (A.at[i * A.stride + j] != A.at[j * A.stride + i]) return false;
    return true;
}

int pd_root_newton(pd_mat X, pd_mat A, const pd_root_want *want, pd_root_report *report)
{
    int64_t n = A.rows, side = want->padded_side > 0 ? want->padded_side : n;
    newton w;
    int rc;

    assert(n > 0 && n <= INT_MAX && A.cols == n && X.rows == n && X.cols == n && side >= n && want->p >= 1);
    *report = (pd_root_report){ .error = NAN, .largest = NAN, .condition = NAN, .tries = 1 };
    if ((rc = newton_new(&w, n, want->p)) != PD_OK) return rc;
    w.pads = side - n;
    w.symmetric = is_symmetric(A);
    pd_root_widen(w.M, A);
    rc = root_of(&w, X, A, want, report);
    newton_free(&w);
    return rc;
}
