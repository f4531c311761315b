/* stripes.h - divides one large product of matrices, or one long copy, among the threads of a parallel region. The
 * product is cut into stripes of rows or columns, and one thread computes each stripe as a separate product.
 *
 * The number of stripes and their bounds depend on the sizes of the product alone. So its bits do not depend on the
 * number of threads, on which thread computes which stripe, or on whether there is a parallel region at all. */
#ifndef PD_STRIPES_H
#define PD_STRIPES_H

#include <stdint.h>

/* Smallest number of rows or columns of a stripe; half of that for triangular products, whose stripes differ in width.
 * BLAS copies the other operand of the product for each stripe, which takes as long as about 15 rows. */
#define PD_STRIPE_WIDTH 256

/* How the cost of the first i rows of a product grows with i. The bounds are chosen so that all stripes of a product
 * have about the same cost. */
typedef enum pd_stripe_growth {
    PD_STRIPE_EVEN = 1, /* like i: all rows cost the same */
    PD_STRIPE_SQUARE,   /* like i^2: row i of a lower triangle has i elements */
    PD_STRIPE_CUBE, /* like i^3: column i of a product of upper triangles has i elements, each a sum of up to i terms */
} pd_stripe_growth;

/* Returns the number of stripes, 1 to `most`, of a product of `flops` floating-point operations. A product that takes
 * less than about 20 ms is one stripe, so it has the same bits as a single call of BLAS. */
int pd_stripes_of(double flops, int64_t most);
/* Returns the index of the first row (or column) of stripe number `stripe`, if a product of n rows is cut into
 * `stripes` stripes. Returns n if `stripe` equals `stripes`. */
int64_t pd_stripe_bound(int64_t n, pd_stripe_growth growth, int stripe, int stripes);
/* Calls run(work, stripe) once for each stripe, 0 … stripes - 1, in any order, and returns when all calls have ended.
 * Threads of the parallel region that wait at its barrier run stripes as well. Outside of a parallel region the calling
 * thread runs them all. Two stripes must not write the same element, and no stripe may read an element that another
 * stripe writes. OpenMP allocates some hundred bytes for each stripe until it has run. */
void pd_stripes_run(int stripes, void (*run)(const void *work, int stripe), const void *work);

#endif
