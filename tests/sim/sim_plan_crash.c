/* sim_plan_crash.c - draws a plan in which the server has a disk and is killed: its jobs have checkpoints, its workers
 * keep windows or go back with the server. */
#include "sim_plan.h"

#include <stdio.h>
#include <string.h>

static void draw_windows(sim_job *job, uint64_t *r)
{
    uint64_t kind = sim_below(r, 3);

    for (uint32_t rank = 0; rank < job->world; rank++)
        if (kind == 0 || (kind == 1 && sim_once_in(r, 2)))
            job->window[rank] = sim_once_in(r, 4) ? 1 + (uint32_t)sim_below(r, 4) : 4 + (uint32_t)sim_below(r, 20);
}

/* Returns whether every rank can send again all pushes of a whole run. */
static bool has_long_windows(const sim_job *job)
{
    for (uint32_t rank = 0; rank < job->world; rank++)
        if (job->window[rank] < SIM_MOST_STEPS) return false;
    return true;
}

static void draw_checkpoints(sim_job *job, uint64_t *r)
{
    char text[48];

    job->checkpoint_every = 1 + sim_below(r, 4);
    snprintf(text, sizeof text, "checkpoint_every=%u", (unsigned)job->checkpoint_every);
    sim_plan_add_option(job, text);
    snprintf(text, sizeof text, "checkpoint_keep=%u", 1 + (unsigned)sim_below(r, 3));
    sim_plan_add_option(job, text);
}

/* Lets two jobs of five have a log. That is drawn apart, so that the other jobs are as they would be without logs. */
static void draw_log(const sim_plan *plan, sim_job *job)
{
    uint64_t r = sim_mix(plan->seed, 17, 3, job->number);

    if (sim_below(&r, 5) < 2) sim_plan_add_option(job, "durability=log");
}

/* Lets half of the jobs with roots use these when they are ready. That is drawn apart, too. */
static void draw_ready(const sim_plan *plan, sim_job *job)
{
    uint64_t r = sim_mix(plan->seed, 17, 4, job->number);

    if (job->plain || sim_below(&r, 2) != 0) return;
    job->ready = true;
    snprintf(job->rule, sizeof job->rule, "%s",
             "* scalable_shampoo learning_rate=0.1 block_size=8 preconditioning_compute_steps=1 root_delay=ready "
             "start_preconditioning_step=1");
}

/* Gives one of three jobs barriers, with windows that reach back over the whole run: a program that goes back would
 * meet its barriers again. */
static void draw_barriers(sim_job *job, uint64_t *r)
{
    if (sim_once_in(r, 3)) job->barriers = true;
    for (uint32_t rank = 0; job->barriers && rank < sim_most_world(job); rank++)
        job->window[rank] = SIM_MOST_STEPS + (uint32_t)sim_below(r, 8);
}

/* Lets half of the jobs change their number of workers once or twice. These draws have a random state of their own, so
 * that the other jobs stay the same. */
static void draw_worlds(const sim_plan *plan, sim_job *job)
{
    uint64_t r = sim_mix(plan->seed, 17, 6, job->number);

    if (sim_below(&r, 2) != 0 || (job->later[0] = sim_plan_draw_world(job, job->world, &r)) == 0) return;
    if (sim_once_in(&r, 2)) job->later[1] = sim_plan_draw_world(job, job->later[0], &r);
    sim_plan_equalize(job, &r);
    for (uint32_t rank = job->world; rank < sim_most_world(job); rank++)
        job->window[rank] = sim_once_in(&r, 2) ? 1 + (uint32_t)sim_below(&r, 20) : 0;
    draw_barriers(job, &r);
}

static void draw_job(const sim_plan *plan, sim_job *job, uint32_t number, uint64_t *r)
{
    bool plain = sim_once_in(r, 3);

    *job = (sim_job){ .number = number,
                      .world = 1 + (uint32_t)sim_below(r, 3),
                      .steps = 4 + sim_below(r, SIM_MOST_STEPS - 3),
                      .start_ns = sim_once_in(r, 2) ? 0 : sim_below(r, 200 * SIM_MS) };
    snprintf(job->name, sizeof job->name, "job%u", number);
    job->missing = job->world;
    sim_plan_draw_params(job, plan->chunk, r);
    if (job->n_params > 6) job->n_params = 6;
    do sim_plan_draw_rule(job, plain, r);
    while (job->plain != plain);
    sim_plan_draw_options(job, plan->chunk, r);
    draw_checkpoints(job, r);
    draw_log(plan, job);
    draw_ready(plan, job);
    draw_windows(job, r);
    job->absent_of_16 = sim_once_in(r, 4) ? 1 + (uint32_t)sim_below(r, 6) : 0;
    job->infinite_of_64 = sim_once_in(r, 4) ? 1 + (uint32_t)sim_below(r, 6) : 0;
    /* Only jobs in which no program goes back have barriers: draw_barriers. */
    job->barriers = sim_once_in(r, 2) && has_long_windows(job);
    draw_worlds(plan, job);
    sim_plan_draw_replaces(plan, job);
    /* Rank 0 goes back with the server behind a change by hand, and would meet its barriers again. */
    job->replaces = job->replaces && !job->barriers && job->later[0] == 0;
}

static void add_fault(sim_plan *plan, sim_fault_kind kind, uint64_t *r)
{
    sim_fault *fault = &plan->faults[plan->n_faults++];

    *fault = (sim_fault){ .kind = kind, .job = (uint32_t)sim_below(r, plan->n_jobs) };
    fault->rank = (uint32_t)sim_below(r, plan->jobs[fault->job].world);
    fault->at_ns = plan->jobs[fault->job].start_ns + sim_below(r, sim_once_in(r, 2) ? 300 * SIM_MS : plan->calm_ns);
    if (fault->at_ns >= plan->calm_ns) fault->at_ns = sim_below(r, plan->calm_ns);
    fault->amount = kind == SIM_KILL ? sim_next(r) : sim_plan_draw_amount(kind, plan->calm_ns - fault->at_ns, r);
}

static void draw_faults(sim_plan *plan, uint64_t *r)
{
    static const sim_fault_kind others[] = { SIM_CRASH,     SIM_CRASH,     SIM_CRASH,      SIM_BREAK,
                                             SIM_DISK_FULL, SIM_DISK_FAIL, SIM_STALL_STEP, SIM_STALL_LOOP };
    uint64_t kills = 1 + sim_below(r, sim_once_in(r, 3) ? 6 : 2), more = sim_below(r, 5);

    plan->calm_ns = 300 * SIM_MS + sim_below(r, 2 * SIM_S);
    while (kills-- > 0) add_fault(plan, SIM_KILL, r);
    while (more-- > 0) add_fault(plan, others[sim_below(r, sizeof others / sizeof others[0])], r);
    sim_plan_draw_strangers(plan);
    sim_plan_mark_missing(plan);
}

/* Adds operators who set values in jobs whose weights depend on timing. */
static void draw_sets(sim_plan *plan)
{
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        uint64_t r = sim_mix(plan->seed, 17, 5, j);
        if (!plan->jobs[j].ready) continue;
        for (uint64_t n = sim_below(&r, 3); n > 0; n--) {
            add_fault(plan, SIM_SET, &r);
            plan->faults[plan->n_faults - 1].job = j;
        }
    }
}

void sim_plan_draw_crashes(sim_plan *plan, uint64_t seed)
{
    uint64_t r = sim_mix(seed, 17, 2, 6);

    memset(plan, 0, sizeof *plan);
    plan->seed = seed;
    plan->crashes = true;
    plan->chunk = sim_once_in(&r, 2) ? 16 : 64;
    plan->n_jobs = 1 + (uint32_t)sim_below(&r, 2);
    for (uint32_t j = 0; j < plan->n_jobs; j++) draw_job(plan, &plan->jobs[j], j, &r);
    sim_plan_draw_limits(plan, &r);
    draw_faults(plan, &r);
    draw_sets(plan);
    plan->latency_ns = sim_once_in(&r, 4) ? 20 * SIM_MS : 2 * SIM_MS;
    plan->window = plan->latency_ns < SIM_MS * 10 && sim_once_in(&r, 4) ? 200 + sim_below(&r, 2000) : 65536;
    plan->shares = plan->server_shares = sim_once_in(&r, 4);
    plan->least_shared = 64;
}
