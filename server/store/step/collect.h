/* collect.h - aggregates that need all contributions at once: collects the contributions, computes the aggregate, and
 * frees their memory.
 *
 * Step thread. Median and trimmed mean need all contributions to an element; Adasum and the radial mean all to a
 * parameter, whose dot products or norms they take. Until they have come, contributions wait in their frames.
 *
 * If a rank is over its ingest quota, its contributions to chunks that still wait are *spilled*: their bytes are copied
 * to separate memory, and their frame is released. This is done for these aggregates, and for all whose ranks are not
 * fixed yet (chunk_queues.h). It prevents deadlocks, whatever the order of parameters or of arrival. The bytes that all
 * ranks together may spill are counted when the parameters are declared.
 *
 * All but the radial mean ignore the weight of a push, and whether a gradient is a sum or a mean over examples. In the
 * radial mean a contribution has the weight of the first of its chunks, and takes no part if this is 0.
 *
 * Median and trimmed mean are meant for workers that may send wrong values. So a round in which some contribution is
 * not finite is skipped only if the aggregate itself is not finite. */
#ifndef PD_COLLECT_H
#define PD_COLLECT_H

#include "adasum.h"
#include "steps.h"

/* A unit: what one thread computes at a time of an Adasum or radial mean, of a median or trimmed mean, or of a
 * spill. */
typedef struct pd_collect_unit {
    /* the Adasum or radial mean of which this is unit number `i`; NULL: the unit is a mean of k contributions, or a
     * spill */
    pd_adasum *adasum;
    int64_t i;
    const void *copied; /* the unit is a spill: copies n bytes from here to `to`; NULL: it is none */
    /* result: n elements, each the mean of k contributions without the `trim` smallest and the `trim` largest ones */
    float *to;
    int64_t n;
    size_t first_run; /* index in pd_collect_batch.runs of the first of the k contributions */
    int k, trim;
    float largest; /* result: the largest magnitude that the unit has written (pd_largest) */
} pd_collect_unit;

/* A change to one chunk, which becomes valid when its units have run: a contribution is spilled, or the median or
 * trimmed mean of elements is computed. */
typedef struct pd_collect_pass {
    pd_chunk *chunk;
    void *spill; /* memory into which the contribution of `rank` is copied; NULL: elements are aggregated */
    uint32_t rank;
    /* number of elements of the chunk, from its first one on, that are aggregated after this change */
    int64_t collected;
    size_t first_unit, n_units; /* index in pd_collect_batch.units of the first unit; number of units */
} pd_collect_pass;

/* The work of one batch: changes to chunks, and the units that compute them. The next batch uses the same arrays.
 * Begins zeroed. */
typedef struct pd_collect_batch {
    pd_collect_pass *passes;
    size_t n_passes, passes_room;
    pd_collect_unit *units;
    size_t n_units, units_room;
    pd_vector_run *runs;
    size_t n_runs, runs_room;
    char *scratch;
    size_t scratch_room, scratch_each; /* bytes of `scratch`; bytes that each thread gets */
    double cost_ns;                    /* estimated time of the batch in ns of one core */
} pd_collect_batch;
void pd_collect_batch_free(pd_collect_batch *batch); /* frees the arrays, not the struct */

/* Computes aggregates of ready chunks for about budget_ns nanoseconds of one core, at least one unit; before that, if
 * *relieve is true, spills contributions of ranks over quota to waiting chunks. *relieve stays true if some of these
 * are left. Returns the estimated time that it took. *starved becomes the parameter for which memory was short; NULL:
 * none. */
double pd_collect_work(pd_steps *steps, double budget_ns, bool *relieve, pd_param **starved);
/* Frees the parameter's spilled contributions and its unfinished Adasum or radial mean, because the job ends.
 * Contributions in frames are released by the caller. */
void pd_collect_release(pd_param *param);

#endif
