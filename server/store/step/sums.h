/* sums.h - plans the sums of many chunks and runs them under one parallel region.
 *
 * Step thread. Contributions are added strictly in rank order, in one pass where all are there and in several where
 * a rank's memory was wanted earlier; the bits are the same, and do not depend on the number of threads. Each
 * element is divided by the number, or the weights, of the contributions that have it; what one rank alone
 * contributes comes out as it went in. */
#ifndef PD_AGGREGATE_H
#define PD_AGGREGATE_H

#include "job_keys.h"
#include "kernels.h"
#include "snapshot.h"
#include "stretch.h"

/* A run of elements of one chunk: the unit of work. */
typedef struct pd_sum {
    float    *to;
    int64_t   n;
    size_t    first_addend;
    int       n_addends;
    bool      resume;
    float     divisor;
    bool      finite;           /* out */
} pd_sum;

/* One pass over one chunk: its sums, none where nobody gave anything. */
typedef struct pd_pass {
    pd_round *round;
    pd_chunk *chunk;
    uint32_t  upto;             /* ranks before this one are in the sum afterwards */
    size_t    first_sum, n_sums;
} pd_pass;

/* What is to be run; memory is kept from batch to batch. Begins zeroed. */
typedef struct pd_sums {
    pd_pass   *passes;  size_t n_passes, passes_room;
    pd_sum    *sums;    size_t n_sums, sums_room;
    pd_addend *addends; size_t n_addends, addends_room;
    double     cost_ns;         /* estimate, of one core */
} pd_sums;
void pd_sums_free(pd_sums *sums);           /* what it points to */
void pd_sums_clear(pd_sums *sums);

/* Plans to add the held contributions of ranks [chunk->summed, upto) to the chunk's part of *accumulator (the whole
 * parameter's, taken from `pool` when there is a first gradient and it is NULL), and to divide when `upto` is the
 * world. The chunk itself does not change yet. PD_NO_MEMORY: nothing was planned. */
int  pd_sums_plan(pd_sums *sums, pd_round *round, pd_chunk *chunk, uint32_t upto, pd_aggregation how,
                  float **accumulator, pd_buffer_pool *pool);
/* Runs what is planned. */
void pd_sums_run(pd_sums *sums, int threads);
/* After the run, once a pass: the slots become SUMMED, and the round's findings move on. The caller lets go of the
 * frames. */
void pd_sums_note(const pd_sums *sums, const pd_pass *pass, pd_aggregation how);

/* The contribution takes part in the sum: under weighted_mean one of weight 0 does not (its mean over no examples may
 * be NaN). */
bool pd_slot_counts(const pd_slot *slot, pd_aggregation how);

#endif
