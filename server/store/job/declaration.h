/* declaration.h - checks what a rank declares about one parameter, by itself and against the job's parameter of that
 * name; and the ranges of elements that ranks declare of ranged parameters, with the memory that these take. Step
 * thread. */
#ifndef PD_DECLARATION_H
#define PD_DECLARATION_H

#include "job.h"

/* Checks what is declared about one parameter by itself, and stores the parameter's number of elements. `i` is its
 * index in the Declare, for error texts. Adds to *cost_ns as pd_declaration_rule does. PD_INVALID_ARGUMENT.
 * PD_FAILED_PRECONDITION: the parameter's optimizer cannot give updates in the element type that is asked for. */
int pd_declaration_check(const pd_job *job, pd_param_decl *decl, size_t i, int64_t *elements, double *cost_ns,
                         pd_error *err);
/* Checks that a rank declares the same about a parameter as the job has. Sets the parameter's bit in `seen`, so that
 * declaring it twice is found.
 *
 * - PD_FAILED_PRECONDITION: the declaration differs, or `param` is NULL: the job has no such parameter.
 * - PD_INVALID_ARGUMENT: the Declare names the parameter twice, or its range or element type is not valid. */
int pd_declaration_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank,
                         uint64_t *seen, pd_error *err);
/* Logs the note that the optimizer has about a parameter, if it has one and *n, the number of such notes so far, is
 * small. Counts it. */
void pd_declaration_say(pd_job *job, const pd_param *param, uint32_t *n);
/* Logs how many notes were left out. */
void pd_declarations_said(pd_job *job, uint32_t n);

/* Stores the range that a rank declares of a parameter. The rank must not have declared one of this parameter
 * before. */
void pd_range_take(pd_param *param, uint32_t rank, int64_t start, int64_t end);
/* Stores the ranges of a rank that declares for the first time. If it is the last rank to declare, the ranges of all
 * ranks are checked. PD_FAILED_PRECONDITION: no rank has some element, or the ranges do not suit the way in which the
 * job aggregates; then nothing has changed. */
int pd_ranges_take(pd_job *job, const pd_request *request, pd_error *err);
/* Forgets the ranges that a Declare of the rank has stored, because the Declare is refused. If an earlier Declare of
 * the rank was accepted, its ranges stay. */
void pd_ranges_give_back(pd_job *job, uint32_t rank);

/* Returns how many bytes of the ingest budget to reserve for a rank, from a checked Declare, before the job has
 * parameters. `own` true: for the rank that declares. false: for any other rank, whose ranges are not known yet. */
uint64_t pd_ranges_reserve_declared(const pd_job *job, const pd_request *request, bool own);
/* Returns the bytes that contributions to ranged parameters may take while an aggregate collects them (median, trimmed
 * mean and Adasum do), as far as the ranges are known. */
uint64_t pd_ranges_collected_bytes(const pd_job *job);

/* Counts the bytes of these contributions for the job again, after ranges were added or removed. */
void pd_ranges_count(pd_job *job);
/* Checks that max_total_bytes has room for the collected contributions of the ranges that are declared.
 * PD_RESOURCE_EXHAUSTED. */
int pd_ranges_check_memory(const pd_job *job, pd_error *err);

#endif
