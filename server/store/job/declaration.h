/* declaration.h - checks what a rank declares about one parameter: by itself, and against the job's parameter of that
 * name. Step thread. */
#ifndef PD_DECLARATION_H
#define PD_DECLARATION_H

#include "job.h"

/* Returns the optimizer rule that applies to the declared parameter; NULL: none does. The rule is looked for once, and
 * an estimate of the time that this takes, in ns of one core, is added to *cost_ns. */
pd_rule *pd_declaration_rule(const pd_job *job, pd_param_decl *decl, double *cost_ns);
/* Checks what is declared about one parameter by itself, and stores the parameter's number of elements. `i` is its
 * index in the Declare, for error texts. Adds to *cost_ns as pd_declaration_rule does.
 * PD_INVALID_ARGUMENT. PD_FAILED_PRECONDITION: the parameter's optimizer cannot give updates in the element type that
 * is asked for. */
int pd_declaration_check(const pd_job *job, pd_param_decl *decl, size_t i, int64_t *elements, double *cost_ns,
                         pd_error *err);
/* Checks that a rank declares the same about a parameter as the job has. Sets the parameter's bit in `seen`, so that
 * declaring it twice is found.
 *
 * - PD_FAILED_PRECONDITION: the declaration differs, or `param` is NULL: the job has no such parameter.
 * - PD_INVALID_ARGUMENT: the Declare names the parameter twice, or its range or element type is not valid. */
int pd_declaration_match(const pd_job *job, const pd_param *param, const pd_param_decl *decl, uint32_t rank,
                         uint64_t *seen, pd_error *err);
/* Logs the note (a remark for the user) that the optimizer has about a parameter, if it has one and *n, the number of
 * such notes so far, is small. Counts it. */
void pd_declaration_say(pd_job *job, const pd_param *param, uint32_t *n);
/* Logs how many notes were left out. */
void pd_declarations_said(pd_job *job, uint32_t n);

#endif
