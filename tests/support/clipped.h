/* clipped.h - a small job for tests of clipping: one rank on connection 10, four vectors, gradients that are made from their place alone. */
#ifndef CLIPPED_H
#define CLIPPED_H

#include "rig.h"

enum { CLIPPED = 4 };
extern const int64_t clipped_sizes[CLIPPED];

/* With the rows of limited_row.h and counting_row.h, sgd, adam and both Shampoos. */
pd_store_config clipped_configuration(void);
/* Ended by rig_tear_down. */
int clipped_set_up(void **state);
/* The job "job". */
uint32_t clipped_start(rig *r, const char *options, const char *rules);
/* Of the rig's first job. */
const pd_job_info *clipped_info(rig *r);

/* Numbers in [-1, 1). */
void clipped_gradient(uint32_t rank, uint64_t step, uint32_t param, float *out, int64_t n);
/* The norm of rank 0's, of parameters [first, end), by another way than the server's. */
double clipped_norm(uint64_t step, uint32_t first, uint32_t end);

/* Pushed by rank 0: a whole gradient; one whose first element is `value` and the others 0; none. */
void clipped_push(rig *r, uint32_t job, uint64_t step, uint32_t param);
void clipped_push_one(rig *r, uint32_t job, uint64_t step, uint32_t param, float value);
void clipped_push_absent(rig *r, uint32_t job, uint64_t step, uint32_t param);
/* Of any job: a gradient of n elements, times `scale`. */
void clipped_push_scaled(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param, int64_t n, float scale);

#endif
