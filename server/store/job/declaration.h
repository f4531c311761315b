/* declaration.h - checks what a rank declares about one parameter, by itself and against the job's parameter of that
 * name. Also stores the ranges that ranks declare, and counts the memory that they need. Step thread. */
#ifndef PD_DECLARATION_H
#define PD_DECLARATION_H

#include "job.h"

/* Checks what is declared about one parameter by itself, and stores its number of elements in *elements. `i` is its
 * index in the Declare, for error texts. Adds to *cost_ns an estimate of the time that the search for its optimizer
 * rule takes (ns of one core). PD_INVALID_ARGUMENT. PD_FAILED_PRECONDITION: the optimizer cannot give updates in the
 * element type that is asked for. */
int pd_declaration_check(const pd_job *job, pd_param_decl *decl, size_t i, int64_t *elements, double *cost_ns,
                         pd_error *err);
/* Returns whether the job steps as a whole: it clips or skips by the norm of all gradients, or skips all parameters
 * together. */
bool pd_declaration_ties(const pd_job *job);
/* Checks the fragments of a Declare whose parameters are all checked, and stores their number in *n.
 * PD_INVALID_ARGUMENT: a number is left out, or there are several fragments and the job ties the steps of all
 * parameters, or may count old contributions in a way that lets workers wait for each other. */
int pd_declaration_count_fragments(const pd_job *job, const pd_request *request, uint32_t *n, pd_error *err);
/* Checks that ranks cannot wait for each other in different ones of n fragments. A rank whose push is kept for the next
 * step of its fragment waits for that step, and contributes to no other fragment meanwhile. So this step must be
 * possible with its push alone: without those of other ranks, and of its group. PD_INVALID_ARGUMENT. */
int pd_declaration_check_ages(const pd_job *job, uint32_t rank, uint32_t n, pd_error *err);
/* Checks that a rank declares the same about a parameter as the job has. Sets the parameter's bit in `seen`, so that
 * declaring it twice is found.
 *
 * - PD_FAILED_PRECONDITION: the declaration differs, or `param` is NULL: the job has no such parameter.
 * - PD_INVALID_ARGUMENT: the Declare names the parameter twice, or its range or element type is not valid. */
int pd_declaration_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank,
                         uint64_t *seen, pd_error *err);
/* Does what pd_declaration_match does, for a job on several shards: checks that parameter `i` of a Declare is parameter
 * i of the job's whole declaration (whole.h), and that the rank's ranges of this shard's portions are as before. */
int pd_declaration_match_whole(const pd_job *job, const pd_request *request, size_t i, pd_error *err);
/* Logs the optimizer's note about a parameter, if there is one, and adds 1 to *n, the number of notes so far. If *n is
 * large already, only counts the note. */
void pd_declaration_say(pd_job *job, const pd_param *param, uint32_t *n);
/* Logs how many of the `n` notes pd_declaration_say has not logged. */
void pd_declarations_said(pd_job *job, uint32_t n);

/* Stores the range that a rank declares of a parameter. The rank must not have declared one of this parameter
 * before. */
void pd_range_take(pd_param *param, uint32_t rank, int64_t start, int64_t end);
/* Stores the ranges of a rank that declares for the first time. If it is the last rank to declare, the ranges of all
 * ranks are checked. PD_FAILED_PRECONDITION: no rank has some element, or the ranges do not suit the way in which the
 * job aggregates; then nothing has changed. */
int pd_ranges_take(pd_job *job, const pd_request *request, pd_error *err);
/* Removes the ranges that a Declare of the rank has stored, because the Declare is refused. Ranges of an earlier
 * Declare that was accepted stay. */
void pd_ranges_give_back(pd_job *job, uint32_t rank);

/* Returns how many bytes of the ingest budget to reserve for a rank, from a checked Declare, before the job has
 * parameters. `own` true: for the rank that declares. false: for any other rank, whose ranges are not known yet. */
uint64_t pd_ranges_reserve_declared(const pd_job *job, const pd_request *request, bool own);
/* Returns the bytes that contributions to ranged parameters may take while an aggregate collects them (median, trimmed
 * mean, Adasum and radial mean do), as far as the ranges are known. */
uint64_t pd_ranges_collected_bytes(const pd_job *job);

/* Charges to the job what pd_ranges_collected_bytes returns, instead of what was charged before. Call it after ranges
 * were added or removed. */
void pd_ranges_count(pd_job *job);
/* Checks that max_total_bytes has room for what pd_ranges_collected_bytes returns. PD_RESOURCE_EXHAUSTED: it has
 * not. */
int pd_ranges_check_memory(const pd_job *job, pd_error *err);

#endif
