/* gather.h - aggregates that need all contributions at once: when are they there, where do they wait until then, and what becomes of them?
 *
 * Step thread. Median and trimmed mean want all contributions to an element, Adasum all to a parameter (merge.h). So they wait, as long as memory
 * allows in the frames they came in. Where a rank is pressed for ingest memory (pd_rank_is_over_quota) what it holds of chunks that still miss somebody is
 * *spilled*: converted to float32 memory of its own, after which the frame goes home. So no order of parameters or arrivals can lock up. Every
 * element type converts to float32 exactly: both ways give the same bits. Spilled memory goes back when the aggregate is made; as much as could be spilled
 * of all ranks was counted at Declare. Weights of pushes do not matter here, nor does whether a gradient is a sum.
 *
 * A robust aggregate is for workers that nobody trusts: whether a round is finite is judged by the result alone. */
#ifndef PD_GATHER_H
#define PD_GATHER_H

#include "adasum_tree.h"
#include "job_keys.h"

struct pd_job;
struct pd_param;

static inline bool pd_is_adasum(pd_aggregation how) { return how == PD_ADASUM || how == PD_VDOT_ADASUM; }
static inline bool pd_is_robust(pd_aggregation how) { return how == PD_MEDIAN || how == PD_TRIMMED_MEAN; }
static inline bool pd_is_collected(pd_aggregation how) { return pd_is_adasum(how) || pd_is_robust(how); }

/* Work for any one thread. */
typedef struct pd_collect_unit {
    pd_adasum *adasum;          /* unit i of this; NULL: */
    int64_t    i;
    float     *to;              /* n elements: the mean without the `trim` smallest and largest of k sources */
    int64_t    n;
    size_t     first_source;
    int        k, trim;
    bool       finite;          /* out, of this */
} pd_collect_unit;

/* What a run of units does to one chunk. */
typedef struct pd_collect_pass {
    pd_chunk *chunk;
    float    *spill;            /* gets what `rank` holds; NULL: */
    uint32_t  rank;
    int64_t   gathered;         /* so many elements from the first have their aggregate then */
    size_t    first_unit, n_units;
} pd_collect_pass;

/* What is to be run; memory is kept from batch to batch. Begins zeroed. */
typedef struct pd_collect_batch {
    pd_collect_pass *passes;  size_t n_passes, passes_room;
    pd_collect_unit *units;   size_t n_units, units_room;
    pd_source      *sources; size_t n_sources, sources_room;
    char           *scratch; size_t scratch_room, scratch_each;       /* each: of one thread */
    double          cost_ns;    /* estimate, of one core */
} pd_collect_batch;
void pd_collect_batch_free(pd_collect_batch *batch);      /* what it points to */

/* The world suits the aggregate: PD_INVALID_ARGUMENT. */
int  pd_aggregate_fits(const pd_job_values *values, uint32_t world, pd_error *err);
/* A parameter that every rank contributes whole does: Adasum's tree wants a power of two of them. PD_INVALID_ARGUMENT. */
int  pd_aggregate_fits_whole(const pd_job_values *values, uint32_t world, pd_aggregation how, const char *name, pd_error *err);
/* So do the ranges that all ranks have declared: a power of two of ranks for every element. PD_FAILED_PRECONDITION. */
int  pd_aggregate_fits_ranges(const struct pd_job *job, const struct pd_param *param, pd_error *err);
/* Who contributes to a parameter: slots of all its chunks, and ranks that share a chunk, at most. */
typedef struct pd_contributors { uint64_t slots; uint32_t most; } pd_contributors;
/* All ranks, everything. */
pd_contributors pd_contributors_whole(int64_t elements, uint64_t chunk_elements, uint32_t world);
/* Bytes that a parameter may need of it beside its accumulator; 0 where it sums, UINT64_MAX where that does not fit. */
uint64_t pd_contributors_bytes(pd_contributors crowd, pd_aggregation how, int64_t elements, uint64_t chunk_elements);
/* The same; of a ranged one with the ranges that are known. */
uint64_t pd_collect_bytes(const struct pd_job *job, const struct pd_param *param);

/* Of a parameter that gathers: a contribution to the chunk was filed. */
void pd_collect_file(struct pd_job *job, pd_chunk *chunk);
/* There is something to spill, or a chunk or parameter is complete. */
bool pd_collect_has_work(const struct pd_job *job);
/* Does some of it, as much as the budget allows but at least something; gives what that has cost. *starved: the parameter for which memory was short, else NULL. */
double pd_collect_work(struct pd_job *job, double budget_ns, struct pd_param **starved);
/* Nothing is gathered any more: spilled memory goes back. Frames are the caller's. */
void pd_collect_release(struct pd_param *param);

#endif
