/* clipped.h - a small job for tests of clipping: one rank on connection 10, four vectors, and gradients that depend
 * only on rank, step, parameter and element. */
#ifndef CLIPPED_H
#define CLIPPED_H

#include "rig.h"
#include "optimizer_ops.h"

enum { CLIPPED = 4 };
extern const int64_t clipped_sizes[CLIPPED];

/* Returns a configuration with these optimizers: sgd, adam, both Shampoos, and those of limited_row.h and
 * counting_row.h. */
pd_store_config clipped_configuration(void);
/* Makes a rig with clipped_configuration(). rig_tear_down frees it. */
int clipped_set_up(void **state);
/* Starts the job "job". Returns its number. */
uint32_t clipped_start(rig *r, const char *options, const char *rules);
/* Returns the status of the rig's first job. */
const pd_job_info *clipped_info(rig *r);

/* Fills `out` with a gradient of numbers in [-1, 1). */
void clipped_gradient(uint32_t rank, uint64_t step, uint32_t param, float *out, int64_t n);
/* Returns the norm of rank 0's gradients of parameters [first, end). Computes it independently of the server's code. */
double clipped_norm(uint64_t step, uint32_t first, uint32_t end);

/* Push for rank 0: a whole gradient; a gradient that is `value` in its first element and 0 elsewhere; no gradient. */
void clipped_push(rig *r, uint32_t job, uint64_t step, uint32_t param);
void clipped_push_one(rig *r, uint32_t job, uint64_t step, uint32_t param, float value);
void clipped_push_absent(rig *r, uint32_t job, uint64_t step, uint32_t param);
/* Pushes a gradient of n elements, multiplied by `scale`, for any rank of any job. */
void clipped_push_scaled(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param, int64_t n,
                         float scale);

/* Two variants of sgd for tests of clipping. They are not in the table: give them to a store as rows of its own. */
/* Returns the optimizer "limited", which clips all gradients of a rule by their common norm. The limit is the
 * hyperparameter `dampening`, which sgd does not use without momentum. */
const pd_optimizer_ops *limited_row(void);
/* Returns the optimizer "values", whose inputs are values instead of gradients. */
const pd_optimizer_ops *values_row(void);

#endif
