/* survey.h - surveys: computes facts about all parameters of a job, which are needed before one of them is planned.
 * Pure functions. */
#ifndef PD_SURVEY_H
#define PD_SURVEY_H

#include "row.h"

/* Returns the result for one more value: the sum with the values before it, or the largest of all. A NaN stays. */
double pd_folded(pd_fold fold, double sofar, double value);
/* Computes the job's facts for one optimizer in fact[PD_MAX_FACTS], from all its declarations in the order given. */
void pd_optim_survey(const pd_row *row, const pd_declaration *params, size_t n, double *fact);
/* Adds one more declaration to the facts of a job, for callers that spread a survey over several calls: one for each
 * declaration, in order. *any and fact[] are zero before the first call. */
void pd_optim_survey_one(const pd_row *row, const pd_declaration *param, bool *any, double *fact);

#endif
