/* aggregate_fit.h - checks that an aggregate suits the number of workers, and counts the memory that it needs for
 * their contributions. Pure. */
#ifndef PD_AGGREGATE_FIT_H
#define PD_AGGREGATE_FIT_H

#include "param.h"

/* Checks that the number of workers suits the job's aggregate. PD_INVALID_ARGUMENT. */
int  pd_aggregate_fits(const pd_job_values *values, uint32_t world, pd_error *err);
/* Checks the same for a parameter that every rank contributes whole: Adasum's tree wants a power of two of ranks.
 * PD_INVALID_ARGUMENT. */
int  pd_aggregate_fits_whole(const pd_job_values *values, uint32_t world, pd_aggregation how, const char *name,
                             pd_error *err);
/* Checks the ranges that all ranks have declared: Adasum's tree wants a power of two of ranks for every element.
 * PD_FAILED_PRECONDITION. */
int  pd_aggregate_fits_ranges(const pd_job_values *values, const pd_param *param, pd_error *err);

/* How many ranks contribute to a parameter: slots of all its chunks, and ranks that share a chunk, at most. */
typedef struct pd_contributors { uint64_t slots; uint32_t most; } pd_contributors;
/* Returns them where every rank contributes everything. */
pd_contributors pd_contributors_whole(int64_t elements, uint64_t chunk_elements, uint32_t world);
/* Returns the bytes that a parameter may need for collected contributions, beside its accumulator. 0: its aggregate
 * sums. UINT64_MAX: that does not fit. */
uint64_t pd_contributors_bytes(pd_contributors all, pd_aggregation how, int64_t elements, uint64_t chunk_elements);
/* Returns the same for a parameter of a job; of a ranged one with the ranges that are known. */
uint64_t pd_collect_bytes(const pd_param *param);

#endif
