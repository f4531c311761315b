/* stern_steps.h - three parameters of stern_row, "a", "b" and "c", stepped piece by piece: for tests. Whatever goes wrong here fails the test. */
#ifndef STERN_STEPS_H
#define STERN_STEPS_H

#include "optimizer.h"
#include "stern_row.h"

enum { STERN_PARAMS = 3, STERN_N = 12, STERN_BLOCKS = STERN_N / STERN_BLOCK, STERN_MOST = 64 };

typedef struct stern_steps {
    pd_optim *optim[STERN_PARAMS];
    pd_atomic_group bond;
    float     before[STERN_PARAMS][STERN_N], after[STERN_PARAMS][STERN_N], gradient[STERN_PARAMS][STERN_N];
    pd_task  *out[STERN_MOST];              /* captured and not given back */
    int       owner[STERN_MOST], n_out;
} stern_steps;

/* Names and values of hyperparameters, in turn. */
#define STERN_OPTIONS(...) (const char *const[]){ __VA_ARGS__, NULL }

pd_declaration stern_declare(int p, const char *const *options);
void  stern_make(stern_steps *f, const char *const *options);
void  stern_finish(stern_steps *f);

/* Gradients of step s: s + p + i / 16, so that sums of blocks are positive. `after` gets a mark. */
void  stern_fill(stern_steps *f, int s);
void  stern_begin(stern_steps *f, int p);
/* All, bound. */
void  stern_begin_bound(stern_steps *f);
void  stern_run_all(stern_steps *f, int threads);
void  stern_take_tasks(stern_steps *f);
/* Runs and delivers the tasks of parameter p, or of all (-1), the last one first. */
void  stern_give_back(stern_steps *f, int p);
bool  stern_all_done(const stern_steps *f);
/* What was not refused goes on from its new weights. */
void  stern_keep_weights(stern_steps *f);
/* A whole step of all, bound. */
void  stern_step(stern_steps *f);

/* Slots of parameter p. */
float stern_root_of(const stern_steps *f, int p, int block);
float stern_noted(const stern_steps *f, int p, int block);
float stern_seen(const stern_steps *f, int p);
/* The root that this step's gradient makes. */
float stern_sum_of_block(const stern_steps *f, int p, int block);
/* Its step was given up for this reason, and the mark is still there. */
void  stern_assert_refused(const stern_steps *f, int p, int code, const char *text);

#endif
