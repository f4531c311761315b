/* aggregate_fit.h - checks that the way in which a job aggregates suits the number of its ranks, and computes how
 * much memory contributions take while they are collected. Pure. */
#ifndef PD_AGGREGATE_FIT_H
#define PD_AGGREGATE_FIT_H

#include "adasum.h"
#include "param.h"
#include "set_rule.h"

/* Returns in which form pd_adasum computes the aggregate `how`. */
static inline pd_adasum_form pd_adasum_form_of(pd_aggregation how)
{
    if (how == PD_RADIAL_MEAN) return PD_RADIAL_MEAN_FORM;
    return how == PD_ADASUM ? PD_ADASUM_TREE : PD_ADASUM_VDOT;
}

/* Checks that the number of ranks that count in a step suits the way in which the job aggregates: a trimmed mean must
 * not leave out all values, and the tree form of Adasum needs adasum_fold if the number varies. PD_INVALID_ARGUMENT. */
int pd_aggregate_fits(const pd_job_values *values, const pd_set_rule *sets, pd_error *err);
/* Checks that the number of workers suits the aggregate `how` of a parameter that every rank contributes whole: the
 * tree form of Adasum needs a power of two, unless adasum_fold is set. PD_INVALID_ARGUMENT. */
int pd_aggregate_fits_whole(const pd_job_values *values, uint32_t world, pd_aggregation how, const char *name,
                            pd_error *err);
/* Checks a ranged parameter when all ranks have declared which range of elements they contribute: the tree form of
 * Adasum needs, for each element, a power of two of ranks, unless adasum_fold is set; the radial mean needs ranges of
 * which any two are equal or have no element in common. PD_FAILED_PRECONDITION. */
int pd_aggregate_fits_ranges(const pd_job_values *values, const pd_param *param, pd_error *err);

/* How many contributions a parameter gets in a round. */
typedef struct pd_contributors {
    uint64_t slots; /* number of contributions to all chunks together: each rank counts once for each chunk */
    uint32_t most;  /* largest number of contributions to one chunk */
} pd_contributors;
/* Returns how many contributions a parameter gets in a round if every one of the `world` ranks contributes all
 * elements. */
pd_contributors pd_contributors_whole(int64_t elements, uint64_t chunk_elements, uint32_t world);
/* Returns the bytes of a contribution of n elements in the element type `pushed`; 0: any, which is at most float32. */
static inline uint64_t pd_pushed_bytes(pd_dtype pushed, uint64_t n)
{
    return pd_dtype_bytes(pushed != 0 ? pushed : PD_F32, n);
}
/* Returns the bytes that the contributions `all` to a parameter, in the element type `pushed`, may take until they are
 * aggregated, if each must be there until all are, besides the buffer for the result. UINT64_MAX: too many bytes to
 * count. */
uint64_t pd_contributors_bytes(pd_contributors all, pd_aggregation how, int64_t elements, pd_dtype pushed,
                               uint64_t chunk_elements);
/* Returns the bytes that the contributions to a parameter of a job may take until they are aggregated. 0: they are
 * summed as they come. Of a ranged parameter only the contributions of ranks that have declared their ranges count. */
uint64_t pd_collect_bytes(const pd_param *param);

#endif
