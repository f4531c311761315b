/* declared_ranges.h - which elements of ranged parameters each rank has declared, and the memory that these ranges
 * take. Step thread. */
#ifndef PD_DECLARED_RANGES_H
#define PD_DECLARED_RANGES_H

#include "job.h"

/* Checks that the declaration's range lies in the parameter's elements. PD_INVALID_ARGUMENT. */
int pd_range_check(const pd_param_decl *decl, int64_t elements, pd_error *err);
/* Checks that the range equals the one this rank declared before, and that the parameter is ranged on all ranks or
 * on none. PD_FAILED_PRECONDITION. */
int pd_range_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank, pd_error *err);
/* Stores the range that a rank declares of a parameter. There must be no range of that rank and parameter yet. */
void pd_range_take(pd_param *param, uint32_t rank, int64_t start, int64_t end);
/* Stores the ranges of a rank that declares for the first time. If it is the last rank to declare, the ranges of all
 * ranks are checked. PD_FAILED_PRECONDITION: they miss an element, or do not suit the aggregate; then nothing has
 * changed. */
int pd_ranges_take(pd_job *job, const pd_request *request, pd_error *err);
/* Forgets the ranges that this Declare of the rank has stored. Ranges from an accepted Declare of the rank stay. */
void pd_ranges_give_back(pd_job *job, uint32_t rank);

/* Returns how many bytes of the ingest budget to reserve for a rank: the size of its largest frame. That is all its
 * elements in one frame, but at most the largest frame the server takes. A ranged parameter counts 0 while the
 * rank's range of it is not known. */
uint64_t pd_ranges_reserve(const pd_job *job, uint32_t rank);
/* Returns the same number for a checked Declare, before the job has parameters. `own`: for the rank that declares.
 * Not `own`: for any other rank, whose ranges are not known yet. */
uint64_t pd_ranges_reserve_declared(const pd_job *job, const pd_request *request, bool own);
/* Returns the bytes that collected contributions to ranged parameters may take, counting the ranges that are known. */
uint64_t pd_ranges_collected_bytes(const pd_job *job);

/* Checks that the ingest budget is large enough for the reserves of all ranks of this job alone, without other jobs.
 * `own` is the reserve of one rank, `other` that of each other rank. PD_RESOURCE_EXHAUSTED. */
int pd_reserve_check_world(const pd_job *job, uint64_t own, uint64_t other, pd_error *err);
/* Checks that the ingest budget has room for the rank's reserve beside the reserves of all other ranks of all jobs.
 * PD_RESOURCE_EXHAUSTED. */
int pd_reserve_check(const pd_job *job, uint32_t rank, uint64_t bytes, pd_error *err);
/* Checks that the ranges which the rank has declared fit into the ingest budget and into max_total_bytes.
 * PD_RESOURCE_EXHAUSTED. */
int pd_ranges_check_memory(const pd_job *job, uint32_t rank, pd_error *err);

#endif
