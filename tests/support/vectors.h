/* vectors.h - rows of the table that step vectors of numbers that look random: for the tests of element-wise optimizers. */
#ifndef VECTORS_H
#define VECTORS_H

#include "paramd/optim.h"

enum { VECTORS_ROWS = 12 };
extern const char *const vectors_rows[VECTORS_ROWS];        /* every element-wise row but sgd */

#define OPTIONS(...) (const char *const[]){ __VA_ARGS__, NULL }

/* A row's hyperparameters with some set from text: name, value ... NULL. Fails the test where one is refused. */
pd_hypers vectors_hypers(const char *row, const char *const *options);
bool   vectors_has(const char *row, const char *hyper);
double vectors_value(const pd_hypers *hypers, const char *name);      /* 0 where the row has no such hyperparameter */

/* A model of `count` (at most 4) vectors of n[i] elements. */
pd_model *vectors_model(const pd_hypers *hypers, const int64_t *n, size_t count, int threads);
/* One step of a model of one vector; `now`: in place of what was declared, or NULL. */
void vectors_step(pd_model *model, const float *gradient, const float *before, float *after, const pd_hypers *now);
void vectors_slot(const pd_model *model, const char *slot, float *out, int64_t n);
/* Numbers between -1 and 1, others for each t. */
void vectors_fill(float *at, int64_t n, int t);

#endif
