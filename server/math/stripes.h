/* stripes.h - shares one large product, or one long copy, among the threads of a parallel region. The product is cut
 * into stripes of rows or columns, and each stripe is a product of its own, on one thread.
 *
 * The number of stripes and their bounds depend on the sizes of the product alone. So its bits do not depend on the
 * number of threads, on which thread computes which stripe, or on whether there is a parallel region at all. */
#ifndef PD_STRIPES_H
#define PD_STRIPES_H

#include <stdint.h>

/* Fewest rows or columns of a stripe, as a rule. BLAS copies the other factor of the product anew for each stripe,
 * which takes as long as some 15 rows. Triangular products, whose stripes differ in width, have half as many. */
#define PD_STRIPE_WIDTH 256

/* How the cost of the first i rows of a product grows with i. Stripes of one product have about equal costs. */
typedef enum pd_stripe_growth {
    PD_STRIPE_EVEN = 1, /* like i: all rows cost the same */
    PD_STRIPE_SQUARE,   /* like i^2: row i of a lower triangle has i elements */
    PD_STRIPE_CUBE,     /* like i^3: column i of a product of upper triangles has i elements, and each sums up to i */
} pd_stripe_growth;

/* Returns the number of stripes of a product of `flops` floating-point operations: 1 to `most`. A product that takes
 * less than some 20 ms is one stripe: then it has the bits of a single call of BLAS. */
int pd_stripes_of(double flops, int64_t most);
/* Returns the first of n rows of a stripe, or n for stripe number `stripes`. */
int64_t pd_stripe_bound(int64_t n, pd_stripe_growth growth, int stripe, int stripes);
/* Calls run(work, stripe) once for each stripe, 0 … stripes - 1, in any order, and returns when all calls have ended.
 * Threads of the parallel region that wait at its barrier run stripes as well. Outside of a parallel region the calling
 * thread runs them all. Two stripes must not write the same element, and none may read what another one writes. OpenMP
 * allocates some hundred bytes for each stripe until it has run. */
void pd_stripes_run(int stripes, void (*run)(const void *work, int stripe), const void *work);

#endif
