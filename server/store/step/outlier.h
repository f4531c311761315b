/* outlier.h - decides whether the norm of a step's gradients is an outlier among those of the steps before. Pure.
 *
 * A step is compared with the steps up to PD_OUTLIER_STEPS - 1 before it. Steps without a norm (none of their
 * parameters had a finite gradient) are left out. The norms of outliers count like all others: after a lasting change
 * of scale at most half of these steps are skipped. The record of a step is replaced if the step is taken again, so a
 * step that is repeated after a restart is judged by the same norms. */
#ifndef PD_OUTLIER_H
#define PD_OUTLIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PD_OUTLIER_STEPS = 64, /* number of steps whose norms are kept */
    PD_OUTLIER_LEAST = 8   /* number of norms without which no step is an outlier */
};

/* The norms of the last steps. Zeros at first. The norm of step s is at index s % PD_OUTLIER_STEPS. */
typedef struct pd_outlier_norms {
    uint64_t step[PD_OUTLIER_STEPS]; /* step of each norm; 0: none */
    double norm[PD_OUTLIER_STEPS];
} pd_outlier_norms;

/* Returns whether the norm of a step is more than `factor` times the median of the norms before it, and stores the
 * median and their number. Of an even number of norms the median is the larger one in the middle. A median of 0, and
 * fewer than PD_OUTLIER_LEAST norms, make no step an outlier. */
bool pd_outlier_is(const pd_outlier_norms *norms, uint64_t step, double norm, double factor, double *median, size_t *n);
/* Records the norm of a step, unless it is not finite. */
void pd_outlier_note(pd_outlier_norms *norms, uint64_t step, double norm);

#endif
