/* shampoos.h - hyperparameters, models and short runs for the tests of both Shampoos. */
#ifndef PD_TEST_SHAMPOOS_H
#define PD_TEST_SHAMPOOS_H

#include "paramd/optim.h"

/* Seeds the random number generator that these functions use. */
void shampoo_seed(uint64_t seed);
int64_t shampoo_below(int64_t n);                    /* random number from 0 to n - 1 */
void shampoo_fill(float *at, int64_t n, float size); /* fills `at` with random numbers, uniform on [-size, size) */

/* Returns the optimizer's default hyperparameters, changed by "name=value name=value ...". Fails the test if a value
 * is refused. */
pd_hypers shampoo_hypers(const char *row, const char *list);
/* Sets `hypers` to the optimizer's defaults, changed by `list`, without a check of the values. The caller frees
 * schedules and texts with pd_hypers_free. */
void shampoo_take(pd_hypers *hypers, const char *row, const char *list);
/* Checks that a value is refused with an error text that contains the hyperparameter's name and `part`. */
void shampoo_assert_refused(const char *row, const char *name, const char *value, const char *part);
pd_model *shampoo_model(const pd_declaration *params, size_t n, int threads);
/* Makes and frees a model of one parameter; `param` is its pd_declaration. For use as an attempt of oom_each. */
int shampoo_try_model(const void *param);

/* Takes a step of a model of one parameter, in place. Fails the test if the step is refused. */
void shampoo_step_one(pd_model *model, const float *gradient, float *weights);
/* Returns the norm of a - b, divided by the norm of b if that is above 1. */
double shampoo_difference(const float *a, const double *b, int64_t n);

/* A run of a few steps on one parameter, or more if the caller adds them before it begins. */

typedef struct shampoo_run {
    pd_declaration param[3];
    size_t n;
    int threads, steps; /* 0 threads mean 1 */
    uint64_t seed;
    float *weights[3], *gradient[3];
    float *update[3]; /* memory for the changes of the weights in a step, or NULL */
    bool missing[3];  /* missing[i]: parameter i has no gradient in the next step */
    pd_model *model;
} shampoo_run;

shampoo_run shampoo_run_of(const char *row, const pd_shape *shape, const char *hypers, int steps);
/* Makes the model of the run, and draws random initial weights. */
void shampoo_run_begin(shampoo_run *r);
/* Draws new random gradients. */
void shampoo_run_draw(shampoo_run *r);
/* Take a step of the run, with the new weights in place of the old ones. After an error, the first function fails
 * the test and the second one returns the error. */
void shampoo_run_step(shampoo_run *r);
int shampoo_run_try(shampoo_run *r, pd_error *err);
/* Begins the run. Then draws gradients and takes a step, r->steps times. */
void shampoo_run_all(shampoo_run *r);
/* Begins the run, takes steps with random gradients, and ends the run. Checks that the weights have moved and are
 * finite. */
void shampoo_run_moves(shampoo_run *r, int steps);
void shampoo_run_end(shampoo_run *r);

int64_t shampoo_elements(const pd_declaration *param);
/* Returns whether the first parameters of two runs have the same weights, bit for bit. They must have the same
 * shape. */
bool shampoo_same_bits(const shampoo_run *a, const shampoo_run *b);
/* Runs two runs to their end, frees them, and returns whether their weights are equal bit for bit. */
bool shampoo_same_runs(shampoo_run a, shampoo_run b);
/* Checks that a run with two or four threads gives the same bits as with one thread. */
void shampoo_assert_threads_agree(const char *row, const pd_shape *shape, const char *hypers, int steps);
/* Takes the first step of a run with each of its allocations failing in turn. Checks that the step succeeds, or
 * fails at one of its first `most` allocations, and that the weights stay finite. */
void shampoo_assert_steps_without_memory(const char *row, const pd_shape *shape, const char *hypers, int most);
bool shampoo_runs_agree(const char *row, const pd_shape *shape, const char *one, const char *other, int steps);
/* Returns n numbers of a slot of the first parameter: of a block's part, or of the whole slot (block -1). The caller
 * frees them. */
float *shampoo_slot(const shampoo_run *r, const char *slot, int number, int block, int64_t n);
bool shampoo_all_finite(const float *at, int64_t n);

#endif
