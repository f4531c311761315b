/* declaration.h - checks what a rank declares about one parameter: by itself, and against the job's parameter of that
 * name. Step thread. */
#ifndef PD_DECLARATION_H
#define PD_DECLARATION_H

#include "job.h"

/* Returns the optimizer rule that applies to the declared parameter; NULL: none does. */
pd_rule *pd_declaration_rule(const pd_job *job, const pd_param_decl *decl);
/* Checks what is declared about one parameter by itself, and stores the parameter's number of elements. `i` is its
 * index in the Declare (the rank's list of parameters), for error texts. PD_INVALID_ARGUMENT. PD_FAILED_PRECONDITION:
 * the parameter's optimizer cannot give updates in the element type that is asked for. */
int pd_declaration_check(const pd_job *job, const pd_param_decl *decl, size_t i, int64_t *elements, pd_error *err);
/* Checks that a rank declares the same about a parameter as the job has. Stores `frame`, the number of the Declare (the
 * rank's list of parameters), in the parameter, so that declaring it twice is found.
 *
 * - PD_FAILED_PRECONDITION: the declaration differs, or `param` is NULL: the job has no such parameter.
 * - PD_INVALID_ARGUMENT: the Declare names the parameter twice, or its range or element type is not valid. */
int pd_declaration_match(const pd_job *job, pd_param *param, const pd_param_decl *decl, uint32_t rank, uint64_t frame,
                         pd_error *err);
/* Logs the notes (remarks for the user) that optimizers have about the job's parameters. */
void pd_declarations_say(pd_job *job);

#endif
