/* aggregate_fit.h - checks that a job's aggregate suits its ranks, and computes the memory that contributions take
 * while they are collected. Pure. */
#ifndef PD_AGGREGATE_FIT_H
#define PD_AGGREGATE_FIT_H

#include "param.h"

/* Checks that the number of workers suits the job's aggregate: a trimmed mean must leave some values.
 * PD_INVALID_ARGUMENT. */
int pd_aggregate_fits(const pd_job_values *values, uint32_t world, pd_error *err);
/* Checks the number of workers for a parameter that every rank contributes whole: Adasum's tree needs a power of two
 * of ranks. PD_INVALID_ARGUMENT. */
int pd_aggregate_fits_whole(const pd_job_values *values, uint32_t world, pd_aggregation how, const char *name,
                            pd_error *err);
/* Checks a ranged parameter when all ranks have declared their ranges: Adasum's tree needs a power of two of ranks
 * for each element. PD_FAILED_PRECONDITION. */
int pd_aggregate_fits_ranges(const pd_job_values *values, const pd_param *param, pd_error *err);

/* How many contributions a parameter gets in a round: `slots` in all its chunks together, at most `most` in one
 * chunk. */
typedef struct pd_contributors {
    uint64_t slots;
    uint32_t most;
} pd_contributors;
/* Returns the number of contributions for a parameter to which every rank contributes all elements. */
pd_contributors pd_contributors_whole(int64_t elements, uint64_t chunk_elements, uint32_t world);
/* Returns the bytes that these contributions may take while they are collected, beside the parameter's accumulator.
 * 0: the aggregate sums, and collects nothing. UINT64_MAX: too many. */
uint64_t pd_contributors_bytes(pd_contributors all, pd_aggregation how, int64_t elements, uint64_t chunk_elements);
/* Returns the bytes that the contributions to a job's parameter may take while they are collected. For a ranged
 * parameter only ranks with known ranges count. */
uint64_t pd_collect_bytes(const pd_param *param);

#endif
