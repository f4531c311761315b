/* outlier.c - decides whether the norm of a step's gradients is an outlier among those of the steps before. */
#include "outlier.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Copies the norms of the steps that a step is compared with. Returns their number. */
static size_t copy_norms(const pd_outlier_norms *norms, uint64_t step, double *out)
{
    size_t n = 0;

    for (int i = 0; i < PD_OUTLIER_STEPS; i++)
        if (norms->step[i] > 0 && norms->step[i] < step && step - norms->step[i] < PD_OUTLIER_STEPS)
            out[n++] = norms->norm[i];
    return n;
}

bool pd_outlier_is(const pd_outlier_norms *norms, uint64_t step, double norm, double factor, double *median, size_t *n)
{
    double sorted[PD_OUTLIER_STEPS];

    *median = 0;
    *n = copy_norms(norms, step, sorted);
    if (*n < PD_OUTLIER_LEAST) return false;
    qsort(sorted, *n, sizeof sorted[0], compare);
    *median = sorted[*n / 2];
    return *median > 0 && norm > factor * *median;
}

void pd_outlier_note(pd_outlier_norms *norms, uint64_t step, double norm)
{
    size_t i = step % PD_OUTLIER_STEPS;

    if (!isfinite(norm)) return;
    norms->step[i] = step;
    norms->norm[i] = norm;
}
