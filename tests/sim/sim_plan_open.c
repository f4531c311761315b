/* sim_plan_open.c - draws jobs in which it is decided for each step which ranks count: quorum, grace, staleness. Their
 * workers are slow, stop and come back, or die. */
#include "job_keys.h"
#include "sim_plan.h"

#include <stdio.h>
#include <string.h>

enum { MOST_STEPS = 8 }; /* steps of a job, besides those of contributions that come too late for its last one */

/* What these jobs do not have, or draw anew. */
static const char *const forgotten[] = { "aggregate=", "adasum_fold=", "initial_weights=", "step_timeout=" };

static void draw_aggregate(sim_job *job, uint64_t *r)
{
    uint64_t pick = sim_below(r, 8);

    job->how = pick < 4 ? PD_MEAN : pick < 6 ? PD_WEIGHTED_MEAN : pick < 7 ? PD_MEDIAN : PD_VDOT_ADASUM;
    if (job->how == PD_VDOT_ADASUM && job->world % 2 == 1) job->how = PD_RADIAL_MEAN;
    job->weighted = pd_is_weighted((pd_aggregation)job->how);
    job->mean_init = false;
    sim_plan_add_option(job, job->how == PD_MEAN            ? "aggregate=mean"
                             : job->how == PD_WEIGHTED_MEAN ? "aggregate=weighted_mean"
                             : job->how == PD_MEDIAN        ? "aggregate=median"
                             : job->how == PD_RADIAL_MEAN   ? "aggregate=radial_mean"
                                                            : "aggregate=adasum_vdot");
    if (job->how == PD_VDOT_ADASUM) sim_plan_add_option(job, "adasum_fold=yes");
}

static void add_number(sim_job *job, const char *key, uint64_t number)
{
    char text[48];

    snprintf(text, sizeof text, "%s=%llu", key, (unsigned long long)number);
    sim_plan_add_option(job, text);
}

static void draw_damping(sim_job *job, bool async, uint64_t *r)
{
    static const char *const names[] = { "damping=none", "damping=inverse", "damping=root" };
    bool sums = job->how == PD_MEAN || job->how == PD_WEIGHTED_MEAN;

    job->open.damping = sums && sim_once_in(r, 2) ? 1 + (int)sim_below(r, 2) : SIM_UNDAMPED;
    if (async || job->open.damping != SIM_UNDAMPED) sim_plan_add_option(job, names[job->open.damping]);
}

/* Draws quorum and staleness: of asynchronous rounds, of rounds that wait for all, or of a quorum. */
static void draw_rounds(sim_job *job, uint64_t *r)
{
    sim_open *open = &job->open;
    uint64_t pick = sim_below(r, 6);

    open->quorum = pick == 0 ? 1 : pick == 1 ? job->world : 1 + (uint32_t)sim_below(r, job->world);
    open->staleness = pick == 0 && sim_once_in(r, 2) ? UINT64_MAX : pick == 1 ? 1 + sim_below(r, 2) : sim_below(r, 3);
    sim_plan_add_option(job, pick == 0 ? "rounds=async" : pick == 1 ? "rounds=sync" : "rounds=quorum");
    if (pick > 1) add_number(job, "quorum", open->quorum);
    if (open->staleness != UINT64_MAX) add_number(job, "staleness", open->staleness);
    open->waits = open->staleness != UINT64_MAX && open->staleness > 0 && sim_once_in(r, 4);
    if (open->waits) sim_plan_add_option(job, "on_stale=wait");
    draw_damping(job, pick == 0, r);
}

static void draw_grace(sim_job *job, uint64_t *r)
{
    char text[48];

    if (sim_once_in(r, 2)) return;
    job->open.grace_ns = (1 + sim_below(r, 300)) * SIM_MS;
    snprintf(text, sizeof text, "grace=%.3f", (double)job->open.grace_ns / 1e9);
    sim_plan_add_option(job, text);
}

/* Lets members come and go. */
static void draw_shrinking(sim_job *job, uint64_t *r)
{
    char text[48];

    job->open.shrinks = true;
    sim_plan_add_option(job, "on_lost_worker=shrink");
    snprintf(text, sizeof text, "reconnect_grace=%.3f", 0.05 + (double)sim_below(r, 600) / 1e3);
    sim_plan_add_option(job, text);
    job->open.least = 1 + (uint32_t)sim_below(r, job->world);
    if (job->open.least > 1) add_number(job, "min_workers", job->open.least);
}

/* Lets members come and go in a third of the jobs. In plans with crashes these draws have a random state of their
 * own. */
static void draw_members(const sim_plan *plan, sim_job *job, uint64_t *r)
{
    uint64_t own = sim_mix(plan->seed, 44, 2, job->number);

    if (plan->crashes) r = &own;
    if (job->world > 1 && sim_once_in(r, 3)) draw_shrinking(job, r);
}

/* Returns whether pushes of the job may bring a learning rate: its rule has one, some parameter uses it, and no
 * operator sets one, which would come before it. */
static bool may_send_lr(const sim_plan *plan, const sim_job *job)
{
    bool used = false, any;

    for (uint32_t p = 0; p < job->n_params; p++) used = used || !job->params[p].model_state;
    any = !used || strstr(job->rule, " lr=") == NULL;
    for (uint32_t f = 0; f < plan->n_faults; f++)
        any = any || (plan->faults[f].kind == SIM_SET && plan->faults[f].job == job->number);
    return !any;
}

static void draw_job(const sim_plan *plan, sim_job *job, uint64_t *r)
{
    static const double timeouts[] = { 0.5, 2, 5 };
    char text[48];

    job->open.on = true;
    job->steps = 2 + sim_below(r, MOST_STEPS - 1);
    for (uint32_t p = 0; p < job->n_params; p++) job->params[p].ranged = false;
    if (job->n_params > 6) job->n_params = 6;
    job->barriers = job->replaces = false;
    for (size_t i = 0; i < sizeof forgotten / sizeof forgotten[0]; i++) sim_plan_forget_option(job, forgotten[i]);
    draw_aggregate(job, r);
    draw_rounds(job, r);
    draw_grace(job, r);
    draw_members(plan, job, r);
    job->step_timeout = timeouts[sim_below(r, 3)];
    snprintf(text, sizeof text, "step_timeout=%g", job->step_timeout);
    sim_plan_add_option(job, text);
    job->open.work_ns = 1 + sim_below(r, 60 * SIM_MS);
    job->open.slow = (uint32_t)sim_below(r, job->world + 1);
    job->open.sends_lr = may_send_lr(plan, job) && sim_once_in(r, 2);
    job->open.masks = job->plain && job->how == PD_MEAN && !job->clips && job->open.damping == SIM_UNDAMPED &&
                      !job->open.sends_lr && sim_once_in(r, 2);
    if (job->open.masks) job->absent_of_16 = job->infinite_of_64 = 0;
}

static void add_fault(sim_plan *plan, uint32_t job, sim_fault_kind kind, uint64_t *r)
{
    sim_fault fault = { .kind = kind, .job = job, .rank = (uint32_t)sim_below(r, plan->jobs[job].world) };

    if (plan->n_faults == SIM_FAULTS) return;
    fault.at_ns = plan->jobs[job].start_ns + sim_below(r, 500 * SIM_MS);
    if (fault.at_ns >= plan->calm_ns) fault.at_ns = sim_below(r, plan->calm_ns);
    fault.amount = sim_plan_draw_amount(kind, plan->calm_ns - fault.at_ns, r);
    plan->faults[plan->n_faults++] = fault;
}

/* Lets the server lease shares of the data in half of the jobs. In plans with crashes these are jobs with a WAL of
 * their steps: without one, leases that change after the last checkpoint are lost (server/store/step/leases.h). The
 * draws have a random state of their own. */
static void draw_shares(const sim_plan *plan, sim_job *job)
{
    uint64_t r = sim_mix(plan->seed, 31, 8, job->number);
    bool kept = !plan->crashes;

    for (uint32_t o = 0; o < job->n_options; o++) kept = kept || strcmp(job->options[o], "durability=log") == 0;
    if (!kept || !sim_once_in(&r, 2)) return;
    job->open.shares = 1 + (uint32_t)sim_below(&r, 3);
    job->open.carries = sim_once_in(&r, 3);
}

/* Lets the server choose ranks in one job of four, and two processes be a group in another fourth. An operator removes
 * a process in a third of the jobs. The draws have a random state of their own. */
static void draw_units(sim_plan *plan, sim_job *job)
{
    uint64_t r = sim_mix(plan->seed, 31, 9, job->number);
    char text[48];

    job->open.group = 1;
    if (job->world == 1) return;
    job->open.any_rank = sim_once_in(&r, 4);
    if (sim_once_in(&r, 4)) {
        job->open.group = 2;
        job->open.least = job->open.least > 1 ? 1 + (uint32_t)sim_below(&r, (job->world + 1) / 2) : job->open.least;
        sim_plan_forget_option(job, "min_workers=");
        if (job->open.shrinks) add_number(job, "min_workers", job->open.least);
    }
    if (job->open.any_rank && !job->open.shrinks) {
        job->open.least = job->world; /* of groups, too: min_workers is not given */
        snprintf(text, sizeof text, "reconnect_grace=%.3f", 0.05 + (double)sim_below(&r, 600) / 1e3);
        sim_plan_add_option(job, text);
    }
    if (sim_once_in(&r, 3)) add_fault(plan, job->number, SIM_KICK, &r);
    if (plan->crashes) return;
    job->open.reforms = sim_once_in(&r, 4);
    if (job->open.reforms) add_fault(plan, job->number, SIM_REFORM, &r);
    /* Where members that have left stay members, a barrier would wait for them. */
    job->open.meets = job->open.shrinks && sim_once_in(&r, 2);
}

uint32_t sim_wanted(const sim_job *job, uint32_t rank, uint64_t step)
{
    return job->open.shares > 0 ? 1 + (uint32_t)(sim_mix(job->number + 41, rank, step, 8) % job->open.shares) : 0;
}

/* Lets steps of one job of four wait as long as the patience of the ranks allows. The draws have a random state of
 * their own. */
static void draw_patience(const sim_plan *plan, sim_job *job)
{
    uint64_t r = sim_mix(plan->seed, 44, 1, job->number);

    if (!sim_once_in(&r, 4)) return;
    job->open.grace_ns = 0;
    job->open.patience_ns = (1 + sim_below(&r, 400)) * SIM_MS;
    sim_plan_forget_option(job, "grace=");
    sim_plan_add_option(job, "grace=auto");
}

uint32_t sim_patience_ms(const sim_job *job, uint32_t rank, uint64_t step)
{
    uint64_t most = job->open.patience_ns / SIM_MS, drawn = sim_mix(job->number + 44, rank, step, 3);

    return most == 0 || drawn % 8 == 0 ? 0 : (uint32_t)(drawn / 8 % (most + 1));
}

/* Returns whether the job has an option, or an optimizer, that ties the steps of all parameters, or a staleness with
 * which the server refuses fragments. */
static bool is_tied(const sim_job *job)
{
    const sim_open *open = &job->open;
    bool tied = job->clips || strstr(job->rule, "clip") != NULL ||
                (open->on && open->staleness > 0 && (open->quorum > 1 || open->waits || open->group > 1));

    for (uint32_t i = 0; i < job->n_options; i++)
        tied = tied || strncmp(job->options[i], "clip_global_norm", 16) == 0 ||
               strncmp(job->options[i], "skip_outlier", 12) == 0 || strcmp(job->options[i], "nonfinite_scope=job") == 0;
    return tied;
}

void sim_plan_draw_fragments(sim_plan *plan)
{
    uint64_t r = sim_mix(plan->seed, 32, 8, 41);

    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        sim_job *job = &plan->jobs[j];
        uint64_t most = job->n_params < SIM_FRAGMENTS ? job->n_params : SIM_FRAGMENTS;
        bool draws = sim_once_in(&r, job->open.on ? 3 : 6);
        /* The model knows launches and barriers of jobs with one fragment only. */
        bool alone = job->open.reforms || job->open.meets;
        if (!draws || most < 2 || alone || is_tied(job) || job->replaces || job->mean_init || job->later[0] > 0)
            continue;
        job->fragments = 2 + (uint32_t)sim_below(&r, most - 1);
        job->barriers = false;
    }
}

void sim_plan_draw_open(sim_plan *plan)
{
    uint64_t r = sim_mix(plan->seed, 31, 7, 40);

    if (!sim_once_in(&r, 2)) return;
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        if ((j > 0 && sim_once_in(&r, 2)) || plan->jobs[j].later[0] > 0 || plan->jobs[j].ready) continue;
        draw_job(plan, &plan->jobs[j], &r);
        draw_shares(plan, &plan->jobs[j]);
        draw_units(plan, &plan->jobs[j]);
        draw_patience(plan, &plan->jobs[j]);
        for (uint64_t n = sim_below(&r, 3); n > 0; n--)
            add_fault(plan, j,
                      sim_once_in(&r, 3)                                 ? SIM_CRASH
                      : plan->jobs[j].open.shrinks && sim_once_in(&r, 2) ? SIM_LEAVE
                                                                         : SIM_STOP,
                      &r);
    }
}
