/* sums.h - plans the sums of contributions to many chunks, and computes them in one parallel region.
 *
 * Step thread. Contributions are added strictly in rank order: in one pass if all have come, and in several if a rank's
 * memory had to be freed earlier. The bits of the result are the same in both cases, and do not depend on the number of
 * threads. Each element is divided by the number, or by the total weight, of the contributions that have it, unless the
 * job wants the plain sum. If only one rank contributes an element, as a mean over its examples, the element keeps its
 * bits.
 *
 * In a job that damps old contributions, each weight (1 in a plain mean) is multiplied by pd_round.damped before. An
 * element that only one rank contributes is itself multiplied by it, since a division would undo that. */
#ifndef PD_SUMS_H
#define PD_SUMS_H

#include "job_keys.h"
#include "kernels.h"
#include "published.h"
#include "round_ranges.h"
#include "steps.h"

/* A unit: the sum of consecutive elements of one chunk. */
typedef struct pd_sum {
    float *to; /* result: n elements */
    int64_t n;
    size_t first_addend; /* index in pd_sums.addends of the first addend */
    int n_addends;
    bool resume;   /* the addends are added to what `to` has; false: `to` is overwritten */
    float divisor; /* number by which the sum is divided */
    float largest; /* result: the largest magnitude of the sum (pd_largest) */
} pd_sum;

/* A pass adds contributions to the sum of one chunk. It has no units if no contribution is to be added. */
typedef struct pd_pass {
    pd_round *round;
    pd_chunk *chunk;
    uint32_t upto;            /* after the pass the sum has the contributions of the ranks 0 to upto - 1 */
    size_t first_sum, n_sums; /* index in pd_sums.sums of the pass's first unit; number of its units */
} pd_pass;

/* The work of one batch: passes over chunks, with their sums. The next batch uses the same arrays. Begins zeroed. */
typedef struct pd_sums {
    pd_pass *passes;
    size_t n_passes, passes_room;
    pd_sum *sums;
    size_t n_sums, sums_room;
    pd_addend *addends;
    size_t n_addends, addends_room;
    double cost_ns; /* estimated time of the batch, in ns of one core */
} pd_sums;
/* Return the weight that the rank's push has given to a contribution whose gradient is there, or was summed; whether
 * the gradient is a sum over its examples, not a mean; and what the rank's weight is multiplied by because its
 * contribution is old. */
double pd_contribution_weight(const pd_contribution *given);
bool pd_contribution_is_presummed(const pd_contribution *given);
double pd_round_damping(const pd_round *round, uint32_t rank);

void pd_sums_free(pd_sums *sums); /* frees the arrays, not the struct */
void pd_sums_clear(pd_sums *sums);

/* Plans a pass over one chunk, which adds those contributions of the ranks chunk->summed to upto - 1 whose gradient is
 * there to the chunk's sum, in *accumulator. If `upto` is the number of all ranks, the sum is also divided. The chunk
 * itself does not change yet.
 *
 * *accumulator is a buffer of the whole parameter's size. If it is NULL and a contribution is to be added, a buffer is
 * taken from `pool` and stored there. PD_NO_MEMORY: nothing was planned. */
int pd_sums_plan(pd_sums *sums, pd_round *round, pd_chunk *chunk, uint32_t upto, pd_aggregation how,
                 float **accumulator, pd_buffer_pool *pool);
/* Computes all planned sums with this number of threads. */
void pd_sums_run(pd_sums *sums, int threads);
/* Notes what a pass has summed, after pd_sums_run: sets contributions to SUMMED, and updates the round's members
 * `finite`, `largest`, `weightless` and `unsummed`. The caller releases spilled contributions before, and frames after
 * it. */
void pd_sums_note(const pd_sums *sums, const pd_pass *pass, pd_aggregation how);

/* Sums ready chunks for about the time of one batch; and, if *relieve is true, early those of ranks over quota in
 * waiting chunks. Returns the estimated time that it took, in nanoseconds of one core. *relieve stays true if waiting
 * chunks are left. *starved becomes the parameter for which memory was short; NULL: none. Calls pd_param_collected for
 * each parameter whose sums are complete. */
double pd_chunks_sum(pd_steps *steps, bool *relieve, pd_param **starved);

#endif
