/* steps.c - puts parameters into the queue of those whose step can go on, finds the lowest step, and finds out whether
 * a rank is over its quota. */
#include "steps.h"

#include <utlist.h>

bool pd_steps_are_over_quota(const pd_steps *steps)
{
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (pd_rank_is_over_quota(steps, r)) return true;
    return false;
}

uint64_t pd_steps_least(pd_steps *steps)
{
    if (steps->progress.n_least > 0) return steps->progress.least;
    steps->progress.least = steps->n_params > 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < steps->n_params; i++) {
        uint64_t step = steps->params[i].saved.step;
        if (step < steps->progress.least) {
            steps->progress.least = step;
            steps->progress.n_least = 0;
        }
        steps->progress.n_least += step == steps->progress.least;
    }
    return steps->progress.least;
}

void pd_steps_closed(pd_steps *steps, const pd_param *param)
{
    if (steps->progress.n_least > 0 && param->saved.step == steps->progress.least + 1) steps->progress.n_least--;
}

void pd_steps_ready(pd_steps *steps, pd_param *param, pd_stage stage)
{
    param->stage = stage;
    DL_APPEND2(steps->queue.ready, param, links.prev_ready, links.next_ready);
}
