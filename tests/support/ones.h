/* ones.h - a job of one worker whose gradients are all ones: plain sgd takes lr off every weight in a step, so that the weights tell which values held. */
#ifndef ONES_H
#define ONES_H

#include "rig.h"

enum { ONES_CONN = 10 };
extern const int64_t ones_sizes[3];     /* one element each */

typedef struct ones {
    rig      r;
    uint32_t job;                       /* "job" */
    uint64_t step[3];                   /* taken, by parameter */
} ones;

/* `params` parameters p0, p1, p2; rules NULL: "* sgd lr=1". Ended by rig_free(&f->r). */
void ones_begin(ones *f, const char *rules, size_t params);
/* The parameter's next step, with that hyperparameter sent along (name NULL: none); gives what it has taken off the weight. */
double ones_step_with(ones *f, uint32_t param, const char *name, const char *value);
double ones_step(ones *f, uint32_t param);
/* An operator's command, which must be taken. */
void ones_set(ones *f, const char *pattern, const char *options, uint64_t from);

/* Weights are noise of any size: exact numbers are not to be had. */
void assert_near(double got, double expected, int line);
#define ASSERT_NEAR(got, expected) assert_near(got, expected, __LINE__)

#endif
