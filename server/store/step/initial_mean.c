/* initial_mean.c - makes the mean of all ranks' initial weights the first weights. */
#include "initial_mean.h"

void pd_initial_warn_not_finite(const pd_steps *steps, const pd_param *param, const char *why)
{
    pd_say(steps->outbox, PD_SAY_WARNING, "job %.60s: the initial weights of %.160s are not finite: %s", steps->name,
           param->name, why);
}

int pd_initial_mean_take(const pd_steps *steps, pd_param *param)
{
    void *mean = param->accumulator;

    if ((param->next = pd_snapshot_new(param->pool, param->elements)) == NULL) return PD_NO_MEMORY;
    param->next->job = steps->number;
    param->next->param = param->index;
    param->next->version = param->saved.step;
    param->accumulator = param->next->at[PD_F32];           /* from the same pool */
    param->next->at[PD_F32] = mean;
    if (!param->round.finite) pd_initial_warn_not_finite(steps, param, "those of a rank are not, or their sum is not");
    return PD_OK;
}
