/* stern_steps.h - steps three parameters of stern_row, "a", "b" and "c", one phase at a time, for tests. Any error
 * fails the test. */
#ifndef STERN_STEPS_H
#define STERN_STEPS_H

#include "optimizer.h"
#include "stern_row.h"

enum { STERN_PARAMS = 3, STERN_N = 12, STERN_BLOCKS = STERN_N / STERN_BLOCK, STERN_MOST = 64 };

typedef struct stern_steps {
    pd_optim *optim[STERN_PARAMS];
    pd_atomic_group bond;
    float before[STERN_PARAMS][STERN_N], after[STERN_PARAMS][STERN_N], gradient[STERN_PARAMS][STERN_N];
    pd_task *out[STERN_MOST]; /* tasks that were captured and are not delivered yet */
    int owner[STERN_MOST], n_out;
} stern_steps;

/* Lists names and values of hyperparameters in turn, with NULL at the end. */
#define STERN_OPTIONS(...)                                                                                             \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

/* Set up and tear down a test whose state is a stern_steps. */
int stern_set_up(void **state);
int stern_tear_down(void **state);

pd_declaration stern_declare(int p, const char *const *options);
void stern_make(stern_steps *f, const char *const *options);
void stern_finish(stern_steps *f);

/* Fills the gradients of each parameter p in step s with s + p + i / 16, so that sums of blocks are positive. Fills
 * `after` with a number that no step writes. */
void stern_fill(stern_steps *f, int s);
void stern_begin(stern_steps *f, int p);
/* Begins a step of all parameters as one atomic group. */
void stern_begin_bound(stern_steps *f);
void stern_run_all(stern_steps *f, int threads);
void stern_take_tasks(stern_steps *f);
/* Runs and delivers the tasks of parameter p, or of all parameters if p is -1. The last task comes first. */
void stern_give_back(stern_steps *f, int p);
bool stern_all_done(const stern_steps *f);
/* Copies the new weights of all parameters whose step was not refused to their current weights. */
void stern_keep_weights(stern_steps *f);
/* Takes a whole step of all parameters as one atomic group. */
void stern_step(stern_steps *f);

/* Read slots of parameter p. */
float stern_root_of(const stern_steps *f, int p, int block);
float stern_noted(const stern_steps *f, int p, int block);
float stern_seen(const stern_steps *f, int p);
/* Returns the root that the task must compute from this step's gradient. */
float stern_sum_of_block(const stern_steps *f, int p, int block);
/* Checks that the parameter's step was refused for this reason, and that the refused step wrote no weights: `after`
 * still has the values of stern_fill. */
void stern_assert_refused(const stern_steps *f, int p, int code, const char *text);

#endif
