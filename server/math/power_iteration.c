/* power_iteration.c - estimates the largest eigenvalue of a symmetric matrix as Google's Distributed Shampoo
 * does. */
#include "power_iteration.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* ---- the start vector, from the generator MT19937 (Matsumoto and Nishimura 1998) ---- */

enum { WORDS = 624, APART = 397, SEED = 1729 };

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

/* ---- the iteration ---- */

enum { MOST_STEPS = 100 };
/* The iteration ends when its estimate of the eigenvalue changes by at most this. The limit is absolute: if all
 * eigenvalues are below it, the iteration ends after its first step. */
static const double tolerance = 1e-6;

static double dot(const double *x, const double *y, int64_t n)
{
    return cblas_ddot((int)n, x, 1, y, 1);
}

/* The function treats A as padded to a larger matrix without building that matrix. The padding block is a multiple of
 * the identity, so the entries of the vector from number n on only change by a common factor, `scale`. `rest` is the
 * sum of squares that these entries have in the start vector. */
int pd_power_iteration(double *largest, double *v, const double *A, int64_t n, int64_t padded_side, double padding)
{
    int64_t side = padded_side > 0 ? padded_side : n;
    /* `x` holds n entries of the current vector, and behind them those entries of the start vector that belong to the
     * padding. */
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
