/* root_tracking.h - a root under computation in an earlier eigenbasis, and estimates of its error; shared by
 * root_tracked.c and root_tracking.c only. Pure; any thread. */
#ifndef PD_ROOT_TRACKING_H
#define PD_ROOT_TRACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "linalg.h"

enum { PD_TRACKING_VECTORS = 4 }; /* number of random vectors that estimate a norm */

/* The computation of a root in the basis. A is divided by a power of two, so that its largest eigenvalue lies
 * between 1 and 2n. */
typedef struct pd_tracking {
    int64_t n;
    int64_t every;          /* one row of B in so many is looked at first */
    int64_t rows;           /* number of rows of F that are computed; elements among the other rows count as 0 */
    int p, a, b;            /* p = a + b, where b is a or a + 1 */
    pd_mat B, U;            /* (rows, n). B: A in the basis, with its ridge; U: upper triangular. Their other rows are
                             * diagonal: d, and sqrt(y). U' U is the root of B */
    float *memory;          /* n by n numbers, where U lies */
    float *d, *y, *ya, *yb; /* B's diagonal d; y = d^(-1/p); y^a; y^b */
    float *ladder, *s;      /* ladder: work memory of ladder_rise, a row of n powers for each level; s: n results of
                             * it */
    int levels;
    int exponent; /* A is divided by 2^exponent */
    double lift, ridge,
        /* All three are divided by 2^exponent, as A is. lift is as in pd_form, but computed from the smallest
         * element on B's diagonal, an estimate of the smallest eigenvalue. */
        largest;
    double *wide; /* 3 PD_TRACKING_VECTORS vectors */
    float *probe; /* 4 PD_TRACKING_VECTORS vectors, where wide's last 2 PD_TRACKING_VECTORS lie */
    void *room;
} pd_tracking;

/* Returns w_i^2 with w_i = y_i^((p + 1) / 2). D_ij is at most w_i w_j / p, and equal to it where d_i = d_j. */
double pd_tracking_weight(const pd_tracking *t, int64_t i);

/* Both return an estimate of the relative error of the root in the Frobenius norm. pd_tracking_error returns the error
 * of U' U as a root of B. pd_tracking_left_out returns the error that comes from the elements of F that are not
 * computed. They overwrite t->wide and t->probe. */
double pd_tracking_error(const pd_tracking *t);
double pd_tracking_left_out(const pd_tracking *t, pd_mat Q, pd_mat A);
/* Returns the relative error that the root may have: one that is below the error of a root computed by ssyevd. */
double pd_tracking_tolerance(const pd_tracking *t);

#endif
