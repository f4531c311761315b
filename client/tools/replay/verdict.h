/* verdict.h - is what a replay computed the same as what was recorded? Pure. */
#ifndef PD_VERDICT_H
#define PD_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The worst seen so far; all zero before the first comparison. */
typedef struct pd_verdict {
    double  error;          /* largest relative error; INFINITY where an entry that is not finite does not coincide */
    size_t  param;          /* where that was */
    int64_t step;
    int64_t compared;       /* tensors compared: a replay that compared nothing has proven nothing */
} pd_verdict;

/* |ours - recorded| / max(|recorded|, scale), Euclidean norms over the n entries that are finite on both sides; where
 * both |recorded| and scale are 0 the absolute error counts. NaN must meet NaN and an infinity the same infinity, else
 * the result is INFINITY. */
double pd_relative_error(const float *ours, const double *recorded, int64_t n, double scale);
/* The same of what is float64 here, too, with a scale of 0. */
double pd_relative_error_f64(const double *ours, const double *recorded, int64_t n);
/* Euclidean norm of the finite entries. */
double pd_finite_norm(const float *at, int64_t n);
/* Does the text of our error name what the recorded message does: NaN, or infinities? Other words may differ. */
bool   pd_says_alike(const char *ours, const char *recorded);

/* Notes one comparison, and where the worst was. */
void pd_verdict_add(pd_verdict *verdict, size_t param, int64_t step, double error);
/* Folds another verdict in: the worse of both. */
void pd_verdict_fold(pd_verdict *verdict, const pd_verdict *other);
/* Something was compared, and all of it lies within the tolerance. */
bool pd_verdict_holds(const pd_verdict *verdict, double tolerance);

#endif
