/* hyper_range.c - the ranges of hyperparameters. */
#include "hyper_range.h"

#include <float.h>
#include <stdio.h>

double pd_hyper_least(const pd_hyper *hyper)
{
    return hyper->type == PD_REAL && hyper->least < -FLT_MAX ? -(double)FLT_MAX : hyper->least;
}

double pd_hyper_most(const pd_hyper *hyper)
{
    return hyper->type == PD_REAL && hyper->most > FLT_MAX ? (double)FLT_MAX : hyper->most;
}

bool pd_hyper_is_outside(const pd_hyper *hyper, double value)
{
    if (hyper->type == PD_CHOICE || (hyper->choices != NULL && value == hyper->least)) return false;
    return value < pd_hyper_least(hyper) || value > pd_hyper_most(hyper);
}

const char *pd_hyper_range_text(const pd_hyper *hyper, char *text, size_t size)
{
    double least = pd_hyper_least(hyper), most = pd_hyper_most(hyper);

    if (hyper->choices == NULL)
        snprintf(text, size, "%.17g to %.17g", least, most);
    else
        snprintf(text, size, "%.17g to %.17g, or %.40s", least + (hyper->type == PD_INT), most, hyper->choices);
    return text;
}
