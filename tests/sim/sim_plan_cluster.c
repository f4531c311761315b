/* sim_plan_cluster.c - draws a plan whose jobs are on several servers, each with a disk. */
#include "job_keys.h"
#include "sim_plan.h"

#include <stdio.h>
#include <string.h>

enum { RANGE = 65536, LARGE_CHUNK = 16384, LARGE_STEPS = 6 };

/* Makes one parameter so large that it is cut: its rows have as many elements as a range of clip.h. */
static void draw_large(sim_job *job, uint64_t *r)
{
    sim_param *param = &job->params[sim_below(r, job->n_params)];

    param->shape = (pd_shape){ .rank = 2, .dim = { 2 + (int64_t)sim_below(r, 2), RANGE } };
    pd_shape_elements(&param->shape, &param->n);
    param->ranged = sim_once_in(r, 3);
    sim_plan_add_option(job, "split_bytes=262144");
    if (job->steps > LARGE_STEPS) job->steps = LARGE_STEPS;
}

static void draw_params(sim_plan *plan, sim_job *job, uint64_t *r)
{
    do sim_plan_draw_params(job, 16, r);
    while (job->n_params < plan->shards);
    if (job->n_params > 8) job->n_params = 8;
}

static void draw_aggregate(sim_job *job, uint64_t *r)
{
    static const char *const names[] = { "mean", "weighted_mean", "sum", "adasum", "median" };
    static const int kinds[] = { PD_MEAN, PD_WEIGHTED_MEAN, PD_SUM, PD_ADASUM, PD_MEDIAN };
    uint64_t pick = sim_once_in(r, 2) ? 0 : sim_below(r, 5);
    char text[48];

    job->how = kinds[pick];
    snprintf(text, sizeof text, "aggregate=%s", names[pick]);
    sim_plan_add_option(job, text);
    if (job->how == PD_ADASUM) sim_plan_add_option(job, "adasum_fold=yes");
    job->weighted = pd_is_weighted((pd_aggregation)job->how);
}

static void draw_options(sim_job *job, uint64_t *r)
{
    static const double timeouts[] = { 0.5, 2, 5, 60 };
    char text[48];

    draw_aggregate(job, r);
    job->step_timeout = timeouts[sim_below(r, 4)];
    snprintf(text, sizeof text, "step_timeout=%g", job->step_timeout);
    sim_plan_add_option(job, text);
    sim_plan_add_option(job, "job_linger=20"); /* a shard that has lost all workers for a while keeps the job */
    job->clips = sim_once_in(r, 3);
    if (job->clips) sim_plan_add_option(job, "clip_global_norm=3");
    if (job->whole) sim_plan_add_option(job, "nonfinite_scope=job");
    if ((job->mean_init = sim_once_in(r, 8))) sim_plan_add_option(job, "initial_weights=mean");
    job->whole = job->whole || job->clips;
    job->checkpoint_every = 1 + sim_below(r, 4);
    snprintf(text, sizeof text, "checkpoint_every=%u", (unsigned)job->checkpoint_every);
    sim_plan_add_option(job, text);
    snprintf(text, sizeof text, "checkpoint_keep=%u", 1 + (unsigned)sim_below(r, 3));
    sim_plan_add_option(job, text);
    if ((job->logs = sim_once_in(r, 5))) sim_plan_add_option(job, "durability=log");
}

/* Draws for how many steps ranks can send their pushes again: all for all steps, none for any, or each another. */
static void draw_windows(sim_job *job, uint64_t *r)
{
    uint64_t kind = sim_below(r, 4);

    for (uint32_t rank = 0; rank < job->world; rank++) {
        if (kind == 0 || (kind == 1 && sim_once_in(r, 2))) job->window[rank] = SIM_MOST_STEPS + 4;
        if (kind == 2) job->window[rank] = (uint32_t)sim_below(r, 6);
    }
}

static void draw_job(sim_plan *plan, sim_job *job, uint32_t number, uint64_t *r)
{
    bool large = plan->chunk == LARGE_CHUNK;

    *job = (sim_job){ .number = number,
                      .world = 1 + (uint32_t)sim_below(r, large ? 2 : 4),
                      .steps = 3 + sim_below(r, SIM_MOST_STEPS - 2),
                      .start_ns = sim_once_in(r, 2) ? 0 : sim_below(r, 200 * SIM_MS) };
    snprintf(job->name, sizeof job->name, "job%u", number);
    job->missing = job->world;
    draw_params(plan, job, r);
    do sim_plan_draw_rule(job, false, r);
    while (large && !job->plain && strstr(job->rule, "adam") == NULL);
    job->whole = large || !job->plain || !sim_once_in(r, 4);
    draw_options(job, r);
    if (large) draw_large(job, r);
    draw_windows(job, r);
    job->absent_of_16 = sim_once_in(r, 3) ? 1 + (uint32_t)sim_below(r, 6) : 0;
    job->infinite_of_64 = sim_once_in(r, 3) ? 1 + (uint32_t)sim_below(r, 6) : 0;
    /* Where parameters take their steps one by one, the gradients of a new process may be of weights of two steps. */
    job->mixes = job->whole;
    job->slice = sim_once_in(r, 3) ? 0.2 : 20;
    job->barriers = sim_once_in(r, 3);
}

static void add_fault(sim_plan *plan, sim_fault_kind kind, uint64_t *r)
{
    sim_fault *fault = &plan->faults[plan->n_faults++];

    *fault = (sim_fault){ .kind = kind, .job = (uint32_t)sim_below(r, plan->n_jobs) };
    fault->rank = (uint32_t)sim_below(r, plan->jobs[fault->job].world);
    fault->shard = (uint32_t)sim_below(r, plan->shards);
    fault->at_ns = plan->jobs[fault->job].start_ns + sim_below(r, sim_once_in(r, 2) ? 300 * SIM_MS : plan->calm_ns);
    if (fault->at_ns >= plan->calm_ns) fault->at_ns = sim_below(r, plan->calm_ns);
    fault->amount = kind == SIM_KILL ? sim_next(r) : sim_plan_draw_amount(kind, plan->calm_ns - fault->at_ns, r);
}

/* Lets some kills hit several servers at about the same time. */
static void add_kills(sim_plan *plan, uint64_t *r)
{
    uint64_t first_ns = plan->faults[plan->n_faults - 1].at_ns;

    for (uint64_t n = sim_below(r, plan->shards); n > 0 && plan->n_faults < SIM_FAULTS; n--) {
        add_fault(plan, SIM_KILL, r);
        plan->faults[plan->n_faults - 1].at_ns = first_ns + sim_below(r, 5 * SIM_MS);
    }
}

static void draw_faults(sim_plan *plan, uint64_t *r)
{
    static const sim_fault_kind others[] = { SIM_CRASH, SIM_CRASH,     SIM_BREAK,      SIM_BREAK,     SIM_HOLE,
                                             SIM_BREAK, SIM_DISK_FULL, SIM_STALL_STEP, SIM_STALL_LOOP };
    uint64_t kills = sim_below(r, sim_once_in(r, 3) ? 6 : 3), more = sim_below(r, 5);

    plan->calm_ns = 300 * SIM_MS + sim_below(r, 2 * SIM_S);
    while (kills-- > 0 && plan->n_faults < SIM_FAULTS) {
        add_fault(plan, SIM_KILL, r);
        if (sim_once_in(r, 4)) add_kills(plan, r);
    }
    while (more-- > 0 && plan->n_faults < SIM_FAULTS)
        add_fault(plan, others[sim_below(r, sizeof others / sizeof others[0])], r);
}

/* Adds a fault of the disk of one shard, or of all shards at about the same time, and maybe a kill of it meanwhile, or
 * soon after. */
static void add_bad_disk(sim_plan *plan, uint64_t *r)
{
    static const sim_fault_kind kinds[] = { SIM_DISK_FULL, SIM_DISK_FAIL, SIM_DISK_DIES, SIM_DISK_DIES };
    sim_fault_kind kind = kinds[sim_below(r, 4)];
    bool all = sim_once_in(r, 4);
    sim_fault first;

    add_fault(plan, kind, r);
    first = plan->faults[plan->n_faults - 1];
    for (uint32_t shard = 0; all && shard < plan->shards && plan->n_faults < SIM_FAULTS; shard++) {
        if (shard == first.shard) continue;
        plan->faults[plan->n_faults] = first;
        plan->faults[plan->n_faults++].shard = shard;
    }
    if (sim_once_in(r, 3) || plan->n_faults == SIM_FAULTS) return;
    add_fault(plan, SIM_KILL, r);
    plan->faults[plan->n_faults - 1].shard = first.shard;
    plan->faults[plan->n_faults - 1].at_ns = first.at_ns + sim_below(r, first.amount + first.amount / 2);
    if (plan->faults[plan->n_faults - 1].at_ns >= plan->calm_ns) plan->n_faults--;
}

/* Lets the disks of half of the plans be full or fail, mostly under jobs with a WAL. That is drawn apart, so that the
 * other plans stay as they are. */
static void draw_bad_disks(sim_plan *plan)
{
    uint64_t r = sim_mix(plan->seed, 17, 11, 48);

    if (sim_below(&r, 2) != 0) return;
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        sim_job *job = &plan->jobs[j];
        bool logs = !sim_once_in(&r, 8);
        if (logs && !job->logs) sim_plan_add_option(job, "durability=log");
        job->logs = job->logs || logs;
        if (sim_once_in(&r, 4)) sim_plan_add_option(job, "on_disk_error=pause");
    }
    for (uint64_t n = 1 + sim_below(&r, 4); n > 0 && plan->n_faults < SIM_FAULTS; n--) add_bad_disk(plan, &r);
}

/* Each shard takes and loses steps of model state alone. */
static void separate_model_state(sim_job *job)
{
    bool coupled = false;

    for (uint32_t p = 0; p < job->n_params; p++) coupled = coupled || !job->params[p].model_state;
    if (!coupled) job->whole = job->mixes = false;
}

/* Lets only those jobs have barriers in which no process goes back: it would meet its barriers again. */
static void mark_jobs(sim_plan *plan)
{
    /* A process that died between its pushes leaves model state behind, of which the next one does not know. */
    for (uint32_t f = 0; f < plan->n_faults; f++)
        for (uint32_t p = 0; plan->faults[f].kind == SIM_CRASH && p < SIM_PARAMS; p++)
            plan->jobs[plan->faults[f].job].params[p].model_state = false;
    for (uint32_t j = 0; j < plan->n_jobs; j++) separate_model_state(&plan->jobs[j]);
    for (uint32_t j = 0; j < plan->n_jobs; j++)
        for (uint32_t rank = 0; rank < plan->jobs[j].world; rank++)
            if (plan->jobs[j].window[rank] < plan->jobs[j].steps) plan->jobs[j].barriers = false;
    sim_plan_mark_missing(plan);
}

void sim_plan_draw_cluster(sim_plan *plan, uint64_t seed, uint32_t shards)
{
    uint64_t r = sim_mix(seed, 17, 2, 33);

    memset(plan, 0, sizeof *plan);
    plan->seed = seed;
    plan->crashes = true;
    plan->shards = 1 + (uint32_t)sim_below(&r, SIM_SHARDS);
    if (shards > 0) plan->shards = shards;
    plan->chunk = sim_once_in(&r, 8) ? LARGE_CHUNK : sim_once_in(&r, 2) ? 16 : 64;
    plan->n_jobs = plan->chunk == LARGE_CHUNK ? 1 : 1 + (uint32_t)sim_once_in(&r, 4);
    for (uint32_t j = 0; j < plan->n_jobs; j++) draw_job(plan, &plan->jobs[j], j, &r);
    sim_plan_draw_limits(plan, &r);
    draw_faults(plan, &r);
    draw_bad_disks(plan);
    mark_jobs(plan);
    plan->latency_ns = sim_once_in(&r, 4) ? 20 * SIM_MS : 2 * SIM_MS;
    plan->window = plan->latency_ns < SIM_MS * 10 && sim_once_in(&r, 4) ? 200 + sim_below(&r, 2000) : 65536;
    if (plan->chunk == LARGE_CHUNK) plan->window = 1 << 20;
}
