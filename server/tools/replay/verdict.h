/* verdict.h - compares the results of a replay with the record. All functions are pure: they use no files. */
#ifndef PD_VERDICT_H
#define PD_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A verdict: the worst error of the comparisons so far. All fields are 0 before the first comparison. */
typedef struct pd_verdict {
    double error; /* largest relative error; INFINITY if a number differs and is not finite on one side */
    size_t param; /* parameter and step in which the largest error was found */
    int64_t step;
    int64_t compared; /* number of compared tensors; a replay that compared nothing does not pass */
} pd_verdict;

/* Returns the relative error |ours - recorded| / max(|recorded|, scale) of paramd's numbers `ours`. The norms are
 * Euclidean, over those of the n elements that are finite in both arrays. If |recorded| and `scale` are both 0,
 * returns the absolute error. Returns INFINITY if an element is NaN on one side only, or infinite and not equal to
 * the other. */
double pd_relative_error(const float *ours, const double *recorded, int64_t n, double scale);
/* Returns the relative error as pd_relative_error does, for float64 results and with a scale of 0. */
double pd_relative_error_f64(const double *ours, const double *recorded, int64_t n);
/* Returns the Euclidean norm of those elements of an array that are finite. */
double pd_finite_norm(const float *at, int64_t n);
/* Returns true if paramd's error text names the same cause as the recorded message: NaN values, or infinite values.
 * The words may differ. */
bool pd_says_alike(const char *ours, const char *recorded);

/* Adds one comparison to the verdict (worst error so far). If its error is the largest, also notes its parameter
 * and step. */
void pd_verdict_add(pd_verdict *verdict, size_t param, int64_t step, double error);
/* Merges the other verdict into this one: adds up the numbers of comparisons and keeps the larger error. */
void pd_verdict_fold(pd_verdict *verdict, const pd_verdict *other);
/* Returns true if at least one tensor was compared, and all errors are within the tolerance. */
bool pd_verdict_holds(const pd_verdict *verdict, double tolerance);

#endif
