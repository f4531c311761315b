/* stripes.c - cuts a large product into stripes, and lets the threads of a parallel region compute them. */
#include "stripes.h"

#include <math.h>

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_num_threads() 1
#endif

/* A product of more than LARGE operations, those of two matrices of 1024 rows and columns, is cut into stripes of at
 * least STRIPE operations. */
#define LARGE 0x1p31
#define STRIPE 0x1p29
enum { MOST = 32 };
/* Bounds of wide stripes are multiples of ALIGNED, since BLAS computes several rows at a time. */
enum { ALIGNED = 16, WIDE = 4 * ALIGNED };

int pd_stripes_of(double flops, int64_t most)
{
    double stripes = fmin(floor(flops / STRIPE), MOST);

    if (!(flops > LARGE) || most <= 1) return 1;
    return stripes < (double)most ? (int)stripes : (int)most;
}

int64_t pd_stripe_bound(int64_t n, pd_stripe_growth growth, int stripe, int stripes)
{
    double part = (double)stripe / stripes;
    int64_t aligned = n / stripes < WIDE ? 1 : ALIGNED;

    if (growth == PD_STRIPE_SQUARE) part = sqrt(part);
    if (growth == PD_STRIPE_CUBE) part = cbrt(part);
    return stripe == stripes ? n : (int64_t)(part * (double)n) / aligned * aligned;
}

void pd_stripes_run(int stripes, void (*run)(const void *work, int stripe), const void *work)
{
    if (stripes == 1 || omp_get_num_threads() == 1) {
        for (int i = 0; i < stripes; i++) run(work, i);
        return;
    }
#pragma omp taskloop grainsize(1)
    for (int i = 0; i < stripes; i++) run(work, i);
}
