/* ones.h - a job of one worker whose gradients are all ones. Plain sgd subtracts lr from every weight in a step, so the
 * weights show which lr was in force. */
#ifndef ONES_H
#define ONES_H

#include "rig.h"

enum { ONES_CONN = 10 };
extern const int64_t ones_sizes[3]; /* one element each */

typedef struct ones {
    rig r;
    uint32_t job;     /* number of the job, whose name is "job" */
    uint64_t step[3]; /* number of steps that each parameter has taken */
} ones;

/* Starts the job with the first `params` of the parameters p0, p1 and p2. `rules` NULL: "* sgd lr=1".
 * rig_free(&f->r) ends the job. */
void ones_begin(ones *f, const char *rules, size_t params);
/* Takes the next step of a parameter. The push also sends the hyperparameter `name`; NULL: none. Returns the amount
 * by which the step lowered the weight. */
double ones_step_with(ones *f, uint32_t param, const char *name, const char *value);
double ones_step(ones *f, uint32_t param);
/* Sets hyperparameters as an operator. The command must be accepted. */
void ones_set(ones *f, const char *pattern, const char *options, uint64_t from);

/* Checks that two numbers are nearly equal. Weights are noise of any size, so differences of weights are not exact. */
void assert_near(double got, double expected, int line);
#define ASSERT_NEAR(got, expected) assert_near(got, expected, __LINE__)

#endif
