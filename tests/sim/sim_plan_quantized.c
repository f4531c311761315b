/* sim_plan_quantized.c - draws jobs whose workers quantize their gradients. */
#include "sim_plan.h"

/* Returns whether each rank has one process to the end of the job. What another process would push for the same step
 * has other bits, since its error feedback begins at 0. */
static bool keeps_processes(const sim_plan *plan, const sim_job *job)
{
    bool keeps = !job->open.any_rank && !job->open.reforms;

    for (uint32_t f = 0; f < plan->n_faults; f++) {
        sim_fault_kind kind = plan->faults[f].kind;
        bool ends = kind == SIM_CRASH || kind == SIM_GONE || kind == SIM_LEAVE || kind == SIM_DROP || kind == SIM_KICK;
        keeps = keeps && kind != SIM_NO_MEMORY && !(ends && plan->faults[f].job == job->number);
    }
    return keeps;
}

void sim_plan_draw_quantized(sim_plan *plan)
{
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        uint64_t r = sim_mix(plan->seed, 44, 5, j);
        sim_job *job = &plan->jobs[j];
        if (!sim_once_in(&r, 2) || !keeps_processes(plan, job)) continue;
        job->push_dtype = sim_once_in(&r, 2) ? PD_INT8 : PD_INT4;
        job->infinite_of_64 = 0;
        job->open.masks = false;
        if (job->open.on && job->open.shares == 0) job->open.carries = sim_once_in(&r, 2);
    }
}
