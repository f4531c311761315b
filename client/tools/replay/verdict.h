/* verdict.h - compares results of a replay with the record. Pure. */
#ifndef PD_VERDICT_H
#define PD_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The worst seen so far; all zero before the first comparison. */
typedef struct pd_verdict {
    double  error;          /* largest relative error; INFINITY if an entry that is not finite differs */
    size_t  param;          /* its place */
    int64_t step;
    int64_t compared;       /* tensors compared: a replay that compared nothing has proven nothing */
} pd_verdict;

/* Returns |ours - recorded| / max(|recorded|, scale), Euclidean norms over the n entries that are finite on both sides.
 * If both |recorded| and scale are 0, returns the absolute error. INFINITY: a NaN does not meet NaN, or an infinity the
 * same infinity. */
double pd_relative_error(const float *ours, const double *recorded, int64_t n, double scale);
/* The same for our float64, with a scale of 0. */
double pd_relative_error_f64(const double *ours, const double *recorded, int64_t n);
/* Returns the Euclidean norm of the finite entries. */
double pd_finite_norm(const float *at, int64_t n);
/* Returns true if our error names the cause in the recorded message: NaN, or infinities. Other words may differ. */
bool   pd_says_alike(const char *ours, const char *recorded);

/* Notes one comparison, and the place of the worst. */
void pd_verdict_add(pd_verdict *verdict, size_t param, int64_t step, double error);
/* Merges another verdict: keeps the worse. */
void pd_verdict_fold(pd_verdict *verdict, const pd_verdict *other);
/* Returns true if something was compared, and all errors are within the tolerance. */
bool pd_verdict_holds(const pd_verdict *verdict, double tolerance);

#endif
