/* declaration.h - one parameter as a rank declares it: checked by itself, and against the job's parameter of that
 * name. Step thread. */
#ifndef PD_DECLARATION_H
#define PD_DECLARATION_H

#include "job.h"

/* Returns the rule that matches the declared parameter; NULL: no rule does. */
pd_rule *pd_declaration_rule(const pd_job *job, const pd_param_decl *decl);
/* Checks one declaration by itself, and gives the parameter's number of elements. `i` is its index in the set, for
 * error texts. PD_INVALID_ARGUMENT. PD_FAILED_PRECONDITION: its optimizer gives no updates of the wanted type. */
int pd_declaration_check(const pd_job *job, const pd_param_decl *decl, size_t i, int64_t *elements, pd_error *err);
/* Checks that the declaration equals the job's parameter of that name. Notes `frame`, the number of the Declare, in
 * the parameter, so that a second declaration of it is found.
 *
 *   - PD_FAILED_PRECONDITION: the declaration differs, or `param` is NULL: the job has no such parameter.
 *   - PD_INVALID_ARGUMENT: the Declare names the parameter twice, or its range or element type is not valid. */
int pd_declaration_match(const pd_job *job, pd_param *param, const pd_param_decl *decl, uint32_t rank, uint64_t frame,
                         pd_error *err);
/* Logs the notes that the optimizers have about the job's parameters. */
void pd_declarations_say(pd_job *job);

#endif
