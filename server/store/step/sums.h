/* sums.h - plans the sums of many chunks, and computes them under one parallel region.
 *
 * Step thread. Contributions are added strictly in rank order: in one pass if all have come, and in several if a
 * rank's memory had to be freed earlier. The bits of the result are the same, and do not depend on the number of
 * threads. Each element is divided by the number, or by the total weight, of the contributions that have it. If only
 * one rank contributes an element, as a mean over its examples, the element keeps its bits. */
#ifndef PD_AGGREGATE_H
#define PD_AGGREGATE_H

#include "job_keys.h"
#include "kernels.h"
#include "snapshot.h"
#include "stretch.h"

/* The sum of consecutive elements of one chunk: a unit of work for one thread. */
typedef struct pd_sum {
    float *to;
    int64_t n;
    size_t first_addend;
    int n_addends;
    bool resume;
    float divisor;
    bool finite; /* result: all elements are finite */
} pd_sum;

/* One pass over one chunk, with its sums. It has no sums if no rank gave a gradient. */
typedef struct pd_pass {
    pd_round *round;
    pd_chunk *chunk;
    uint32_t upto; /* after the pass the ranks 0 to upto - 1 are in the sum */
    size_t first_sum, n_sums;
} pd_pass;

/* The sums of one batch. Its arrays are reused by the next batch. Begins zeroed. */
typedef struct pd_sums {
    pd_pass *passes;
    size_t n_passes, passes_room;
    pd_sum *sums;
    size_t n_sums, sums_room;
    pd_addend *addends;
    size_t n_addends, addends_room;
    double cost_ns; /* estimated time of the batch on one core */
} pd_sums;
void pd_sums_free(pd_sums *sums); /* frees the arrays, not the struct */
void pd_sums_clear(pd_sums *sums);

/* Plans a pass that adds the HELD contributions of ranks [chunk->summed, upto) to the chunk's elements of
 * *accumulator. If `upto` is the number of ranks, the sum is also divided. The chunk itself does not change yet.
 *
 * *accumulator is a buffer of the whole parameter's size. If it is NULL and there is a gradient, a buffer is taken
 * from `pool`. PD_NO_MEMORY: nothing was planned. */
int pd_sums_plan(pd_sums *sums, pd_round *round, pd_chunk *chunk, uint32_t upto, pd_aggregation how,
                 float **accumulator, pd_buffer_pool *pool);
/* Computes the sums that are planned. */
void pd_sums_run(pd_sums *sums, int threads);
/* Notes the result of a pass after pd_sums_run: the slots become SUMMED, and the round's members `finite`,
 * `weightless` and `unsummed` are updated. The caller releases the frames. */
void pd_sums_note(const pd_sums *sums, const pd_pass *pass, pd_aggregation how);

/* Returns whether the HELD contribution takes part in the sum. Under weighted_mean a contribution of weight 0 does
 * not: its mean over no examples may be NaN. */
bool pd_slot_counts(const pd_slot *slot, pd_aggregation how);

#endif
