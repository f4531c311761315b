/* declaration.h - one parameter as a rank declares it: checked by itself, and against the job's. Step thread. */
#ifndef PD_DECLARATION_H
#define PD_DECLARATION_H

#include "job.h"

/* Returns the rule that the declaration falls under; NULL: none. */
pd_rule *pd_declaration_rule(const pd_job *job, const pd_param_decl *decl);
/* Checks declaration i of a set by itself and gives its elements. PD_INVALID_ARGUMENT; PD_FAILED_PRECONDITION: its
 * optimizer gives no such updates. */
int  pd_declaration_check(const pd_job *job, const pd_param_decl *decl, size_t i, int64_t *elements, pd_error *err);
/* Checks that the declaration equals the one the job has (`param`; NULL: none of that name), and that frame number
 * `frame` declares the parameter only once. PD_FAILED_PRECONDITION, PD_INVALID_ARGUMENT. */
int  pd_declaration_match(const pd_job *job, pd_param *param, const pd_param_decl *decl, uint32_t rank, uint64_t frame,
                          pd_error *err);
/* Logs the notes of the optimizers on the job's parameters. */
void pd_declarations_say(pd_job *job);

#endif
