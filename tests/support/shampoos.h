/* shampoos.h - what the tests of both Shampoos share. */
#ifndef PD_TEST_SHAMPOOS_H
#define PD_TEST_SHAMPOOS_H

#include "paramd/optim.h"

/* Random numbers that begin anew with a seed. */
void     shampoo_seed(uint64_t seed);
int64_t  shampoo_below(int64_t n);                      /* 0 ... n - 1 */
void     shampoo_fill(float *at, int64_t n, float size);/* uniform on [-size, size) */

/* The row's defaults but for "name=value name=value ..."; refusals end the test. */
pd_hypers shampoo_hypers(const char *row, const char *list);
/* The same at that address, unchecked: schedules and texts belong to it, so pd_hypers_free is wanted. */
void      shampoo_take(pd_hypers *hypers, const char *row, const char *list);
/* Setting it is refused, by a sentence with the name and this part. */
void      shampoo_assert_refused(const char *row, const char *name, const char *value, const char *part);
pd_model *shampoo_model(const pd_declaration *params, size_t n, int threads);
/* An attempt of oom_each: a model of one parameter, a pd_declaration. */
int       shampoo_try_model(const void *param);

/* ---- a run of a few steps on one parameter, or more if the caller adds them before it begins ---- */

typedef struct shampoo_run {
    pd_declaration param[3];
    size_t         n;
    int            threads, steps;      /* 0 threads: 1 */
    uint64_t       seed;
    float         *weights[3], *gradient[3];
    float         *update[3];           /* NULL, or memory for what is added to the weights */
    bool           missing[3];          /* no gradient in the next step */
    pd_model      *model;
} shampoo_run;

shampoo_run shampoo_run_of(const char *row, const pd_shape *shape, const char *hypers, int steps);
/* Makes the model, and random weights. */
void shampoo_run_begin(shampoo_run *r);
/* New random gradients. */
void shampoo_run_draw(shampoo_run *r);
/* Weights are stepped in place. An error ends the test; `try` gives it. */
void shampoo_run_step(shampoo_run *r);
int  shampoo_run_try(shampoo_run *r, pd_error *err);
/* All of that, r->steps times. */
void shampoo_run_all(shampoo_run *r);
void shampoo_run_end(shampoo_run *r);

int64_t shampoo_elements(const pd_declaration *param);
/* First parameters' weights, which are of the same shape. */
bool   shampoo_same_bits(const shampoo_run *a, const shampoo_run *b);
/* Both are run to their end and ended. */
bool   shampoo_same_runs(shampoo_run a, shampoo_run b);
/* Two and four threads give the bits of one. */
void   shampoo_assert_threads_agree(const char *row, const pd_shape *shape, const char *hypers, int steps);
/* A step of such a run with each of its allocations failing in turn: it is taken, or fails at one of the first `most`; weights stay finite. */
void   shampoo_assert_steps_without_memory(const char *row, const pd_shape *shape, const char *hypers, int most);
bool   shampoo_runs_agree(const char *row, const pd_shape *shape, const char *one, const char *other, int steps);
/* A slot of the first parameter, or a block's part (block -1: whole). Gives. */
float *shampoo_slot(const shampoo_run *r, const char *slot, int number, int block, int64_t n);
bool   shampoo_all_finite(const float *at, int64_t n);

#endif
