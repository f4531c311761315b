/* initial_mean.c - makes a parameter's first weights from the mean of all ranks' initial weights. */
#include "initial_mean.h"

void pd_initial_warn_not_finite(const pd_steps *steps, const pd_param *param, const char *why)
{
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name },
           "the initial weights of %.160s are not finite: %s", param->name, why);
}

int pd_initial_mean_take(const pd_steps *steps, pd_param *param)
{
    void *mean = param->buffers.accumulator;

    if ((param->next = pd_published_new(param->buffers.pool, param->elements)) == NULL) return PD_NO_MEMORY;
    param->next->job = steps->number;
    param->next->param = param->index;
    param->next->version = param->saved.step;
    /* The two buffers are from the same pool, so they can be swapped: the buffer of the mean becomes that of the
     * weights. */
    param->buffers.accumulator = param->next->at[PD_F32];
    param->next->at[PD_F32] = mean;
    if (!param->round.finite) pd_initial_warn_not_finite(steps, param, "those of a rank are not, or their sum is not");
    return PD_OK;
}
