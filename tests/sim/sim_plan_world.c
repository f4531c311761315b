/* sim_plan_world.c - draws jobs that go on with another number of workers: all their ranks contribute the same, so the
 * weights do not depend on that number. */
#include "job_keys.h"
#include "sim_plan.h"

void sim_plan_equalize(sim_job *job, uint64_t *r)
{
    bool median = sim_once_in(r, 3);

    sim_plan_forget_option(job, "aggregate=");
    sim_plan_forget_option(job, "adasum_fold=");
    sim_plan_forget_option(job, "initial_weights=");
    sim_plan_add_option(job, median ? "aggregate=median" : "aggregate=mean");
    job->how = median ? PD_MEDIAN : PD_MEAN;
    job->weighted = job->mean_init = false;
}

/* Returns whether each of so many ranks has at least one element of each ranged parameter. */
static bool suits_ranges(const sim_job *job, uint32_t world)
{
    for (uint32_t p = 0; p < job->n_params; p++)
        if (job->params[p].ranged && job->params[p].n < world) return false;
    return true;
}

uint32_t sim_plan_draw_world(const sim_job *job, uint32_t before, uint64_t *r)
{
    uint32_t world = 1 + (uint32_t)sim_below(r, 3);

    if (world >= before) world++;
    return suits_ranges(job, world) ? world : 0;
}

/* Returns whether the plan has a fault of this kind for the job. */
static bool has_fault(const sim_plan *plan, uint32_t job, sim_fault_kind kind)
{
    for (uint32_t f = 0; f < plan->n_faults; f++)
        if (plan->faults[f].kind == kind && plan->faults[f].job == job) return true;
    return false;
}

/* Returns whether the job may be launched again in another number: it waits for all its ranks, and each comes back. */
static bool may_reform(const sim_plan *plan, const sim_job *job)
{
    return !plan->crowded && !job->open.on && job->fragments <= 1 && !has_fault(plan, job->number, SIM_GONE) &&
           plan->n_faults < SIM_FAULTS;
}

/* Makes room for the frames of as many ranks as the job has after the change. */
static void add_ingest(sim_plan *plan, const sim_job *job)
{
    uint64_t more = sim_most_world(job) - job->world;

    plan->ingest += more * (plan->payload + 4096);
}

static void draw_reform(sim_plan *plan, sim_job *job, uint64_t *r)
{
    sim_fault fault = { .kind = SIM_REFORM, .job = job->number, .at_ns = job->start_ns + sim_below(r, 500 * SIM_MS) };

    if ((job->later[0] = sim_plan_draw_world(job, job->world, r)) == 0) return;
    sim_plan_equalize(job, r);
    job->open.reforms = true;
    job->barriers = job->replaces = false;
    if (fault.at_ns >= plan->calm_ns) fault.at_ns = sim_below(r, plan->calm_ns);
    plan->faults[plan->n_faults++] = fault;
    add_ingest(plan, job);
}

void sim_plan_draw_reforms(sim_plan *plan)
{
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        uint64_t r = sim_mix(plan->seed, 44, 3, j);
        if (sim_once_in(&r, 5) && may_reform(plan, &plan->jobs[j])) draw_reform(plan, &plan->jobs[j], &r);
    }
}
