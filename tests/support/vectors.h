/* vectors.h - steps vectors of pseudo-random numbers with optimizers of the table, for the tests of element-wise
 * optimizers. */
#ifndef VECTORS_H
#define VECTORS_H

#include "paramd/optim.h"

enum { VECTORS_ROWS = 17 };
extern const char *const vectors_rows[VECTORS_ROWS]; /* every element-wise optimizer of the table but sgd */

#define OPTIONS(...)                                                                                                   \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

/* Returns a row's hyperparameters, changed by the list name, value ... NULL. Fails the test if a value is refused. */
pd_hypers vectors_hypers(const char *row, const char *const *options);
bool vectors_has(const char *row, const char *hyper);
double vectors_value(const pd_hypers *hypers, const char *name); /* 0 if the optimizer has no such hyperparameter */

/* Makes a model of `count` (at most 4) vectors of n[i] elements. */
pd_model *vectors_model(const pd_hypers *hypers, const int64_t *n, size_t count, int threads);
/* Makes a model of one tensor. */
pd_model *vectors_model_of(const pd_hypers *hypers, pd_shape shape, int threads);
/* Checks that two steps of a tensor have the same bits with one, two and three threads, and with weights that change
 * their place. */
void vectors_check_threads(const pd_hypers *hypers, pd_shape shape);
/* Takes one step of a model of one vector. `now`: hyperparameters used instead of the declared ones, or NULL. */
void vectors_step(pd_model *model, const float *gradient, const float *before, float *after, const pd_hypers *now);
void vectors_slot(const pd_model *model, const char *slot, float *out, int64_t n);
/* Fills `at` with pseudorandom numbers between -1 and 1 that depend on t. */
void vectors_fill(float *at, int64_t n, int t);

#endif
