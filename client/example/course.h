/* course.h - how the quickstart's classifier is trained, wherever its optimizer runs: shared by the worker (fashion.c) and by programs
 * that train in their own process. */
#ifndef COURSE_H
#define COURSE_H

#include "dataset.h"
#include "mlp.h"

enum { COURSE_PROBE = 10000, COURSE_CHUNK = 500 };

/* 784-256-128-10. */
extern const int course_widths[MLP_LAYERS + 1];

/* Half a cosine, from the first learning rate to almost nothing. step: from 0, of `steps`. */
double course_rate(double first, uint64_t step, uint64_t steps);

/* Mean loss over all of `set` (of one worker), COURSE_CHUNK images at a time, which net, x (COURSE_CHUNK, 784) and label have room for.
 * accuracy: in [0, 1]. */
double course_evaluate(mlp *net, const dataset *set, float *x, uint8_t *label, double *accuracy);

#endif
