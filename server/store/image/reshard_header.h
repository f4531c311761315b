/* reshard_header.h - fills in what belongs to no single parameter, for a job that moves to another number of shards:
 * numbers, counters, ranks, step groups, the clip and overrides. Offline only (reshard.h). */
#ifndef PD_RESHARD_HEADER_H
#define PD_RESHARD_HEADER_H

#include "job.h"

/* The overrides of all shards that the job had. Equal ones of several shards are one. Begins zeroed. */
typedef struct pd_reshard_overrides {
    struct pd_reshard_override *at;
    size_t n, room;
} pd_reshard_overrides;

/* Fills in the header of a shard, whose parameters are at step `step`, from all n shards that the job had, in their
 * order. PD_DATA_LOSS: these do not fit together. PD_NO_MEMORY. */
int pd_reshard_header(pd_job *to, pd_job *const *from, uint32_t n, uint64_t step, pd_error *err);

/* Gives a parameter, which has none, the overrides of a parameter of the job `from`. With `again` compares them
 * instead: several portions that become one parameter must have the same. PD_FAILED_PRECONDITION: they differ.
 * PD_NO_MEMORY. */
int pd_reshard_overrides_copy(pd_reshard_overrides *all, pd_job *to, pd_param *param, const pd_job *from,
                              const pd_param *own, bool again, pd_error *err);
/* Forgets the overrides of the shard that was made last. */
void pd_reshard_overrides_next(pd_reshard_overrides *all);
void pd_reshard_overrides_free(pd_reshard_overrides *all);

#endif
