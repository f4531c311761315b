/* verdict.h - measures how far the results of a replay are from the recorded ones, and describes the result of a file.
 * The functions are pure. */
#ifndef PD_VERDICT_H
#define PD_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

/* A verdict: the worst error of the comparisons so far. All fields are 0 before the first comparison. */
typedef struct pd_verdict {
    double error; /* largest relative error; INFINITY if a number differs and is not finite on one side */
    size_t param; /* index of the parameter, and step, in which the largest error was found */
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

/* Adds one comparison to the verdict. If its error is the largest so far, the verdict stores the error, `param` and
 * `step`. */
void pd_verdict_add(pd_verdict *verdict, size_t param, int64_t step, double error);
/* Merges the other verdict into this one: adds up the numbers of comparisons and keeps the larger error. */
void pd_verdict_fold(pd_verdict *verdict, const pd_verdict *other);
/* Returns true if at least one tensor was compared, and all errors are within the tolerance. */
bool pd_verdict_holds(const pd_verdict *verdict, double tolerance);

/* The worst error of recorded optimizer state. */
typedef struct pd_state_verdict {
    int64_t compared; /* number of recorded tensors that were compared */
    /* Error and tolerance of the worst tensor: the one whose error is largest relative to its tolerance. */
    double error, tolerance;
    char worst[256]; /* name of the worst tensor; "": no tensor was compared yet */
} pd_state_verdict;

typedef enum pd_replay_outcome { PD_REPLAY_OK, PD_REPLAY_FAILED, PD_REPLAY_SKIPPED } pd_replay_outcome;

/* The result of playing one file. */
typedef struct pd_replay_result {
    pd_replay_outcome outcome;
    char system[64], name[128];
    int64_t steps;
    /* true: the file was skipped, but paramd lacks nothing. The file shows a defect of the reference optimizer, has no
     * run, or has random numbers that a daemon draws itself. */
    bool excused;
    bool cases;              /* true: the file has cases of a routine, and each counts as a parameter */
    double tolerance;        /* largest error that weights may have; 1 if each case has its own tolerance: errors are
                              * then multiples of it */
    pd_verdict verdict;      /* worst error of all parameters and steps; compared == 0: the replay did not reach its
                              * end */
    pd_verdict update;       /* worst error of updates, the changes of weights in a step; compared == 0: not compared */
    double update_tolerance; /* largest error that updates may have */
    pd_state_verdict state;  /* worst error of optimizer state; compared == 0: none was recorded, or the user did not
                              * ask for it */
    pd_error why;            /* why the file was skipped or failed; code PD_OK: no error, or only that results differ
                              * from the recorded ones */
    size_t n;                /* number of parameters or cases of the file */
    char **params;           /* names of the parameters or cases */
    pd_verdict *verdicts;    /* the worst error of each parameter or case */
} pd_replay_result;

/* Return true if recorded updates, or recorded optimizer state, were compared and an error exceeds its tolerance. */
bool pd_replay_updates_fail(const pd_replay_result *r);
bool pd_replay_state_fails(const pd_replay_result *r);
void pd_replay_result_free(pd_replay_result *result);

#endif
