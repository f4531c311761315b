/* declared_ranges.h - which elements of ranged parameters each rank has declared, and the memory that they take.
 * Step thread. */
#ifndef PD_DECLARED_RANGES_H
#define PD_DECLARED_RANGES_H

#include "job.h"

/* Checks that the declaration's range lies in the parameter's elements. PD_INVALID_ARGUMENT. */
int  pd_range_check(const pd_param_decl *decl, int64_t elements, pd_error *err);
/* Checks that the range equals what this rank declared before, and that the parameter is ranged on all ranks or on
 * none. PD_FAILED_PRECONDITION. */
int  pd_range_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank, pd_error *err);
/* Takes the range of a rank whose range of this parameter is not known. */
void pd_range_take(pd_param *param, uint32_t rank, int64_t start, int64_t end);
/* Takes the ranges of a rank that declares for the first time. When it is the last rank every element must be in some
 * range: PD_FAILED_PRECONDITION, and nothing has changed. */
int  pd_ranges_take(pd_job *job, const pd_request *request, pd_error *err);
/* Forgets the ranges that were taken with this rank's Declare. */
void pd_ranges_give_back(pd_job *job, uint32_t rank);

/* Returns the bytes of the rank's largest frame: as much as a frame may hold, or every piece that the rank has. A
 * parameter whose range is not known does not count. */
uint64_t pd_ranges_reserve(const pd_job *job, uint32_t rank);
/* Returns the same for a checked Declare, before the job has parameters: for the rank that declares, or for any other
 * one. */
uint64_t pd_ranges_reserve_declared(const pd_job *job, const pd_request *request, bool own);
/* Returns the bytes that collected contributions of ranks with known ranges may take, over all parameters. */
uint64_t pd_ranges_collected_bytes(const pd_job *job);

/* Checks that the ingest budget holds the reserves of a whole world, `own` for one rank and `other` for each of the
 * others, were there no other job. PD_RESOURCE_EXHAUSTED. */
int  pd_reserve_check_world(const pd_job *job, uint64_t own, uint64_t other, pd_error *err);
/* Checks that there is room for the rank's reserve beside those of all others. PD_RESOURCE_EXHAUSTED. */
int  pd_reserve_check(const pd_job *job, uint32_t rank, uint64_t bytes, pd_error *err);
/* Checks that there is room for the ranges that the rank has declared: ingest budget, and bytes.
 * PD_RESOURCE_EXHAUSTED. */
int  pd_ranges_check_memory(const pd_job *job, uint32_t rank, pd_error *err);

#endif
