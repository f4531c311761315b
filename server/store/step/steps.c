/* steps.c - puts parameters into the queue of those whose step can go on, and finds out whether a rank is over its
 * quota (its frames use too much memory). */
#include "steps.h"

#include <utlist.h>

bool pd_steps_are_over_quota(const pd_steps *steps)
{
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (pd_rank_is_over_quota(steps, r)) return true;
    return false;
}

void pd_steps_ready(pd_steps *steps, pd_param *param, pd_stage stage)
{
    param->stage = stage;
    DL_APPEND2(steps->ready, param, prev_ready, next_ready);
}
