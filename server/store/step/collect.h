/* collect.h - aggregates that need all contributions at once: collects the contributions, computes the aggregate,
 * and frees their memory.
 *
 * Step thread. Median and trimmed mean need all contributions to an element, Adasum all to a parameter
 * (adasum_tree.h). Until they have come, contributions wait in their frames.
 *
 * If a rank is over its ingest quota (ingest.h), its contributions to chunks that still wait for another rank are
 * *spilled*: they are converted to float32 in separate memory, and their frame is released. This prevents deadlocks,
 * whatever the order of parameters or of arrival. Every element type converts to float32 exactly, so spilled
 * contributions give the same bits. Spilled memory is freed when the aggregate is computed. The bytes that all ranks
 * together may spill are counted when the parameters are declared.
 *
 * These aggregates ignore the weight of a push, and whether a gradient is a sum or a mean over examples.
 *
 * Median and trimmed mean are meant for workers that may send wrong values. So a round with values that are not
 * finite is skipped only if the aggregate itself is not finite. */
#ifndef PD_COLLECT_H
#define PD_COLLECT_H

#include "adasum_tree.h"
#include "steps.h"

/* A unit of work for one thread: a part of an Adasum, of a median or trimmed mean, or of a spill. */
typedef struct pd_collect_unit {
    pd_adasum *adasum; /* the unit is unit `i` of this Adasum; NULL: it is a mean of k contributions, or a copy if k
                        * is 1 */
    int64_t i;
    float *to; /* gets n elements: the mean of k contributions without the `trim` smallest and largest values */
    int64_t n;
    size_t first_run;
    int k, trim;
    bool finite; /* result: all values written are finite */
} pd_collect_unit;

/* A change of one chunk that becomes valid when its units have run: a contribution is spilled, or elements are
 * aggregated. */
typedef struct pd_collect_pass {
    pd_chunk *chunk;
    float *spill; /* memory that gets the contribution of `rank`; NULL: the pass aggregates instead */
    uint32_t rank;
    int64_t collected; /* number of the chunk's elements, from the first, that are aggregated after the pass */
    size_t first_unit, n_units;
} pd_collect_pass;

/* The work of one batch. Its arrays are reused by the next batch. Begins zeroed. */
typedef struct pd_collect_batch {
    pd_collect_pass *passes;
    size_t n_passes, passes_room;
    pd_collect_unit *units;
    size_t n_units, units_room;
    pd_vector_run *runs;
    size_t n_runs, runs_room;
    char *scratch;
    size_t scratch_room, scratch_each; /* bytes of scratch that are allocated; bytes of it for each thread */
    double cost_ns;                    /* estimated time of the batch on one core */
} pd_collect_batch;
void pd_collect_batch_free(pd_collect_batch *batch); /* frees the arrays, not the struct */

/* Notes that a contribution to the chunk was filed. Only for chunks whose aggregate needs all contributions. */
void pd_collect_file(pd_steps *steps, pd_chunk *chunk);
/* Returns whether there is work: contributions to spill, complete chunks, or complete parameters. */
bool pd_collect_has_work(const pd_steps *steps);
/* Spills contributions and computes aggregates for about budget_ns, at least one unit. Returns the estimated cost in
 * nanoseconds. *starved: the parameter for which memory was short, else NULL. */
double pd_collect_work(pd_steps *steps, double budget_ns, pd_param **starved);
/* Frees the parameter's spilled contributions and its Adasum, because the job ends. The caller releases the frames. */
void pd_collect_release(pd_param *param);

#endif
