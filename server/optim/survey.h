/* survey.h - facts: what the parameters of a job must know of each other before they are planned. Pure. */
#ifndef PD_SURVEY_H
#define PD_SURVEY_H

#include "row.h"

/* Folds one more value in. */
double pd_folded(pd_fold fold, double sofar, double value);
/* Folds the surveys of the declarations that have this row into fact[PD_MAX_FACTS], in the order given. */
void pd_optim_survey(const pd_row *row, const pd_declaration *params, size_t n, double *fact);
/* Surveys one more declaration, for callers that spread a survey over several turns: one call for each declaration, in
 * order. `fact` and `any` begin zeroed. */
void pd_optim_survey_one(const pd_row *row, const pd_declaration *param, bool *any, double *fact);

#endif
