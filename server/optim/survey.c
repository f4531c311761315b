/* survey.c - computes numbers about all parameters of a job (facts), such as the largest block, as a sum or a maximum
 * over their declarations. */
#include "survey.h"

#include <math.h>
#include <string.h>

double pd_folded(pd_fold fold, double sofar, double value)
{
    if (fold == PD_FOLD_SUM) return sofar + value;
    return isnan(sofar) || value <= sofar ? sofar : value;
}

void pd_optim_survey_one(const pd_optimizer_ops *row, const pd_declaration *param, bool *any, double *fact)
{
    double value[PD_MAX_FACTS] = { 0 };

    if (row->facts == NULL || param->hypers.row != row) return;
    row->survey(param, value);
    for (int k = 0; row->facts[k].name != NULL; k++)
        fact[k] = *any ? pd_folded(row->facts[k].fold, fact[k], value[k]) : value[k];
    *any = true;
}

void pd_optim_survey(const pd_optimizer_ops *row, const pd_declaration *params, size_t n, double *fact)
{
    bool any = false;

    memset(fact, 0, PD_MAX_FACTS * sizeof *fact);
    for (size_t i = 0; row->facts != NULL && i < n; i++) pd_optim_survey_one(row, &params[i], &any, fact);
}
