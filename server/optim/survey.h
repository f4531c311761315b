/* survey.h - computes facts (numbers about all parameters of a job, such as their largest block), which some optimizers
 * need before one of the parameters is planned. Pure functions. */
#ifndef PD_SURVEY_H
#define PD_SURVEY_H

#include "optimizer_ops.h"

/* Combines one more value with the result so far: adds it, or takes the larger of the two. A result that is NaN stays
 * NaN. */
double pd_folded(pd_fold fold, double sofar, double value);
/* Computes the numbers about all parameters of a job that one optimizer needs, in fact[PD_MAX_FACTS], from all the
 * declarations in the order given. Declarations with other optimizers are ignored. */
void pd_optim_survey(const pd_optimizer_ops *row, const pd_declaration *params, size_t n, double *fact);
/* Adds one more declaration to the numbers about all parameters of a job. For callers that cannot do this for all
 * declarations in one go: call it once for each declaration, in order. *any and fact[] are zero before the first
 * call. */
void pd_optim_survey_one(const pd_optimizer_ops *row, const pd_declaration *param, bool *any, double *fact);

#endif
