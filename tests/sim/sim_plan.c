/* sim_plan.c - draws a plan from a seed. */
#include "job_keys.h"
#include "sim_plan.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { RESERVE = 4096 }; /* the server reserves memory for a rank's frame in multiples of this many bytes */

uint64_t sim_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t sim_below(uint64_t *state, uint64_t n)
{
    return n > 1 ? sim_next(state) % n : 0;
}
bool sim_once_in(uint64_t *state, uint64_t n)
{
    return sim_below(state, n) == 0;
}

uint64_t sim_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t state =
        a * 0xd6e8feb86659fd93u ^ b * 0xa0761d6478bd642fu ^ c * 0xe7037ed1a0b428dbu ^ d * 0x8ebc6af09c88c6e3u;

    sim_next(&state);
    return sim_next(&state);
}

void sim_plan_add_option(sim_job *job, const char *text)
{
    assert(job->n_options < SIM_OPTIONS);
    snprintf(job->options[job->n_options++], sizeof job->options[0], "%s", text);
}

void sim_plan_forget_option(sim_job *job, const char *name)
{
    uint32_t kept = 0;

    for (uint32_t o = 0; o < job->n_options; o++)
        if (strncmp(job->options[o], name, strlen(name)) != 0 && kept++ != o)
            memcpy(job->options[kept - 1], job->options[o], sizeof job->options[o]);
    job->n_options = kept;
}

static void draw_shape(sim_param *param, uint64_t chunk, uint64_t *r)
{
    static const struct {
        int rank;
        int64_t dim[2];
    } small[] = {
        { 0, { 1, 1 } }, { 1, { 3, 1 } }, { 1, { 16, 1 } }, { 2, { 4, 4 } }, { 2, { 8, 3 } }, { 2, { 6, 10 } }
    };
    uint64_t pick = sim_below(r, 10);

    param->shape = (pd_shape){ .rank = 1 };
    if (pick < 7) {
        size_t i = sim_below(r, sizeof small / sizeof small[0]);
        param->shape.rank = small[i].rank;
        memcpy(param->shape.dim, small[i].dim, (size_t)small[i].rank * sizeof param->shape.dim[0]);
    } else {
        uint64_t chunks = pick < 9 ? 1 + sim_below(r, 4) : 1 + sim_below(r, chunk > 64 ? 16 : 64);
        param->shape.dim[0] = (int64_t)(chunks * chunk - sim_below(r, chunk));
    }
    pd_shape_elements(&param->shape, &param->n);
}

/* Draws the parameters of a job in a crowded plan: vectors of several chunks. Together they usually need more memory
 * than the ingest budget has. */
static void draw_crowded_params(sim_job *job, uint64_t *r)
{
    job->n_params = 1 + (uint32_t)sim_below(r, 12);
    for (uint32_t i = 0; i < job->n_params; i++) {
        job->params[i].shape = (pd_shape){ .rank = 1, .dim = { 300 + (int64_t)sim_below(r, 600) } };
        pd_shape_elements(&job->params[i].shape, &job->params[i].n);
        snprintf(job->params[i].name, sizeof job->params[i].name, "p%u", i);
    }
}

void sim_plan_draw_params(sim_job *job, uint64_t chunk, uint64_t *r)
{
    uint64_t most = sim_once_in(r, 12) ? SIM_PARAMS : sim_once_in(r, 3) ? 12 : 4;
    uint64_t ranged_of = sim_once_in(r, 4) ? 2 : 0;
    bool states = sim_once_in(r, 6);

    job->n_params = 1 + (uint32_t)sim_below(r, most);
    for (uint32_t i = 0; i < job->n_params; i++) {
        sim_param *param = &job->params[i];
        draw_shape(param, chunk, r);
        param->ranged = ranged_of > 0 && param->n >= (int64_t)job->world && sim_once_in(r, ranged_of);
        param->model_state = states && !param->ranged && sim_once_in(r, 4);
        snprintf(param->name, sizeof param->name, "p%u%s", i, param->model_state ? "_state" : "");
    }
}

/* All have a weight_decay of 0, to which the fault SIM_SET sets it. */
static const char *const slow_rules[] = {
    "* sgd lr=0.5 momentum=0.5",
    "* adam lr=0.01",
    "* scalable_shampoo learning_rate=0.1 block_size=4 preconditioning_compute_steps=1 root_delay=0 "
    "start_preconditioning_step=1",
    "* scalable_shampoo learning_rate=0.1 block_size=8 preconditioning_compute_steps=3 root_delay=2 "
    "start_preconditioning_step=1",
    "* shampoo lr=0.1 max_preconditioner_dim=8 precondition_frequency=1 start_preconditioning_step=1",
    "* kron learning_rate=0.01 root_delay=0",
    "* kron dQ=QUAD learning_rate=0.01 root_delay=1 merge_small_dims=no",
    "* soap lr=0.01 block_size=4 precondition_frequency=2 weight_decay=0 orthogonalize=yes",
    "* kl_shampoo lr=0.01 block_size=8 precondition_frequency=3 root_delay=2 weight_decay=0",
    "* ademamix lr=0.01 weight_decay=0 alpha=8",
    "* mars lr=0.01",
    "* muon lr=0.01 weight_decay=0 normuon=yes",
};

/* Rules whose weights to evaluate with are an average of the trained ones. */
static const char *const averaging_rules[] = {
    "* schedule_free lr=0.01 warmup_steps=3",
    "* schedule_free lr=0.02 r=1 inner_momentum=0.5 mu_dtype=bfloat16",
    "* schedule_free_sgd lr=0.2 momentum=0.75",
    "* gpa lr=0.01 eval_interp_coeff=0.75",
    "* gpa lr=0.01 iterate_averaging_type=schedule_free weight_pow_coeff=1",
};

bool sim_averages(const sim_job *job)
{
    return strncmp(job->rule, "* schedule_free", 15) == 0 || strncmp(job->rule, "* gpa", 5) == 0;
}

/* Gives a fourth of the jobs without a plain rule one of averaging_rules. The draws do not advance `r`, so that all
 * others stay as they are. */
static void draw_averaging(sim_job *job, const uint64_t *r)
{
    uint64_t own = sim_mix(*r, 36, 3, 0);

    if (sim_once_in(&own, 4))
        snprintf(job->rule, sizeof job->rule, "%s",
                 averaging_rules[sim_below(&own, sizeof averaging_rules / sizeof averaging_rules[0])]);
}

void sim_plan_draw_rule(sim_job *job, bool crowded, uint64_t *r)
{
    const char *slow = slow_rules[sim_below(r, sizeof slow_rules / sizeof slow_rules[0])];

    job->plain = crowded || !sim_once_in(r, 3);
    if (job->plain)
        snprintf(job->rule, sizeof job->rule, "* sgd lr=1");
    else
        snprintf(job->rule, sizeof job->rule, "%s", slow);
    if (!job->plain) draw_averaging(job, r);
}

static void draw_aggregate(sim_job *job, uint64_t *r)
{
    static const char *const names[] = { "mean",        "weighted_mean", "sum",          "adasum",
                                         "adasum_vdot", "median",        "trimmed_mean", "radial_mean" };
    char text[48];

    job->how = sim_once_in(r, 2) ? (int)sim_below(r, 3) : (int)sim_below(r, 7);
    if (job->how == 6 && job->world < 3) job->how = 5;
    if (job->how == PD_VDOT_ADASUM && job->world % 2 == 1) job->how = PD_RADIAL_MEAN;
    snprintf(text, sizeof text, "aggregate=%s", names[job->how]);
    sim_plan_add_option(job, text);
    if (job->how == 3) sim_plan_add_option(job, "adasum_fold=yes");
    job->weighted = pd_is_weighted((pd_aggregation)job->how);
}

/* Returns the time that a link of a plan needs for all frames of a push, and more: each push that ends with a report of
 * the deadline is sent again from its beginning. */
static double sending_time(const sim_job *job, uint64_t chunk)
{
    uint64_t chunks = 0;

    for (uint32_t p = 0; p < job->n_params; p++) chunks += (uint64_t)job->params[p].n / chunk + 1;
    return (double)chunks * 0.01;
}

void sim_plan_draw_options(sim_job *job, uint64_t chunk, uint64_t *r)
{
    static const double timeouts[] = { 0.5, 2, 5, 60 };
    char text[48];

    draw_aggregate(job, r);
    job->step_timeout = timeouts[sim_below(r, 4)];
    if (job->step_timeout < 2 && job->step_timeout < sending_time(job, chunk)) job->step_timeout = 2;
    snprintf(text, sizeof text, "step_timeout=%g", job->step_timeout);
    sim_plan_add_option(job, text);
    snprintf(text, sizeof text, "job_linger=%u", 1 + (unsigned)sim_below(r, 3));
    sim_plan_add_option(job, text);
    if (sim_once_in(r, 4)) sim_plan_add_option(job, "nonfinite_scope=job");
    if ((job->rejects = sim_once_in(r, 5))) sim_plan_add_option(job, "nonfinite=reject");
    if ((job->clips = sim_once_in(r, 6))) sim_plan_add_option(job, "clip_global_norm=3");
    if ((job->mean_init = sim_once_in(r, 6))) sim_plan_add_option(job, "initial_weights=mean");
}

/* Draws a job of a crowded plan, whose two jobs begin at about the same time. The second job has many ranks, and
 * each of them reduces the quotas of the other ranks. */
static void draw_crowded_job(sim_job *job, uint64_t *r)
{
    job->world = job->number == 1 ? SIM_WORLD - (uint32_t)sim_below(r, 3) : 2 + (uint32_t)sim_below(r, 2);
    job->steps = job->number == 1 ? 1 : 2;
    job->start_ns = sim_below(r, 60 * SIM_MS);
}

void sim_plan_draw_replaces(const sim_plan *plan, sim_job *job)
{
    bool whole = false;

    for (uint32_t p = 0; p < job->n_params; p++) whole = whole || !job->params[p].ranged;
    job->replaces = whole && sim_mix(plan->seed, 23, 9, job->number) % 2 == 0;
}

static void draw_job(const sim_plan *plan, sim_job *job, uint32_t number, uint64_t *r)
{
    *job = (sim_job){ .number = number,
                      .world = 1 + (uint32_t)sim_below(r, sim_once_in(r, 3) ? SIM_WORLD : 4),
                      .steps = 1 + sim_below(r, SIM_STEPS),
                      .start_ns = sim_once_in(r, 2) ? 0 : sim_below(r, 3 * SIM_S) };
    if (plan->crowded) draw_crowded_job(job, r);
    snprintf(job->name, sizeof job->name, "job%u", number);
    job->missing = job->world;
    if (plan->crowded)
        draw_crowded_params(job, r);
    else
        sim_plan_draw_params(job, plan->chunk, r);
    sim_plan_draw_rule(job, plan->crowded, r);
    sim_plan_draw_options(job, plan->chunk, r);
    job->absent_of_16 = sim_once_in(r, 4) ? 1 + (uint32_t)sim_below(r, 6) : 0;
    job->infinite_of_64 = sim_once_in(r, 4) ? 1 + (uint32_t)sim_below(r, 6) : 0;
    job->barriers = sim_once_in(r, 4);
    sim_plan_draw_replaces(plan, job);
}

static const char *const fault_names[] = {
    "break",      "hole",       "crash",  "gone",    "leave",  "drop",      "import",      "set",        "flood",
    "deaf",       "half_hello", "noise",  "id_zero", "leaver", "puller",    "unlike",      "no_memory",  "stall_step",
    "stall_loop", "restart",    "export", "sharer",  "kill",   "disk_full", "disk_fail",   "trespass",   "scrape",
    "stranger",   "stop",       "kick",   "reform",  "sleep",  "cut_off",   "engine_away", "late_watch", "disk_dies",
};
_Static_assert(sizeof fault_names / sizeof fault_names[0] == SIM_FAULT_KINDS, "every fault has a name");

const char *sim_fault_name(sim_fault_kind kind)
{
    return fault_names[kind];
}

uint64_t sim_plan_draw_amount(sim_fault_kind kind, uint64_t room_ns, uint64_t *r)
{
    uint64_t most_ns = room_ns < 3 * SIM_S ? room_ns : 3 * SIM_S;

    switch (kind) {
    case SIM_BREAK: return sim_below(r, 4000);
    case SIM_CRASH:
    case SIM_LEAVE: return sim_once_in(r, 2) ? sim_below(r, 20 * SIM_MS) : sim_below(r, most_ns);
    case SIM_FLOOD:
    case SIM_DEAF: return 1 + sim_below(r, 60);
    case SIM_NO_MEMORY: return 1 + sim_below(r, most_ns < 300 * SIM_MS ? most_ns : 300 * SIM_MS);
    case SIM_STALL_STEP:
    case SIM_STALL_LOOP: return 1 + sim_below(r, most_ns < SIM_S ? most_ns : SIM_S);
    default: return 1 + sim_below(r, most_ns);
    }
}

void sim_plan_add_trespassers(sim_plan *plan)
{
    plan->roles = true;
    for (uint64_t k = 1; k <= 3 && plan->n_faults < SIM_FAULTS; k++)
        plan->faults[plan->n_faults++] = (sim_fault){ .kind = SIM_TRESPASS, .at_ns = plan->calm_ns / 4 * k };
}

void sim_plan_add_scrapers(sim_plan *plan)
{
    plan->scrapes = true;
    for (uint32_t k = 0; k <= SIM_SCRAPE_FLOOD && plan->n_faults < SIM_FAULTS; k++)
        plan->faults[plan->n_faults++] = (sim_fault){ .kind = SIM_SCRAPE, .at_ns = plan->calm_ns / 8 * k, .rank = k };
}

void sim_plan_add_movers(sim_plan *plan)
{
    uint64_t r = sim_mix(plan->seed, 36, 6, 0);

    plan->movers = true;
    plan->least_lent = 1 + sim_below(&r, sim_once_in(&r, 2) ? 64 : plan->payload);
}

static void draw_fault(sim_plan *plan, sim_fault *fault, uint64_t *r)
{
    *fault = (sim_fault){ .kind = (sim_fault_kind)sim_below(r, SIM_RESTART),
                          .at_ns = sim_below(r, plan->calm_ns),
                          .job = (uint32_t)sim_below(r, plan->n_jobs) };
    if (sim_once_in(r, 3)) fault->kind = (sim_fault_kind)sim_below(r, SIM_CRASH + 1);
    fault->rank = (uint32_t)sim_below(r, plan->jobs[fault->job].world);
    /* one fault of three hits while its job begins */
    if (sim_once_in(r, 3) && plan->jobs[fault->job].start_ns + 100 * SIM_MS < plan->calm_ns)
        fault->at_ns = plan->jobs[fault->job].start_ns + sim_below(r, 100 * SIM_MS);
    fault->amount = sim_plan_draw_amount(fault->kind, plan->calm_ns - fault->at_ns, r);
}

/* Draws a connection break for a rank of the first job in a crowded plan. The rank comes back while the server still
 * stores its contributions, and while the ranks of the second job take their quotas. */
static sim_fault draw_crowded_fault(const sim_plan *plan, uint64_t *r)
{
    sim_fault fault = { .kind = SIM_BREAK, .at_ns = sim_below(r, 100 * SIM_MS) };

    fault.amount = sim_below(r, 16000);
    fault.rank = (uint32_t)sim_below(r, plan->jobs[0].world);
    return fault;
}

/* Notes which ranks leave for good. Switches barriers off in jobs where a rank leaves for good or a process is
 * replaced: a wait in a round ends at its deadline, but a wait in a barrier would not. */
void sim_plan_mark_missing(sim_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_faults; i++) {
        const sim_fault *fault = &plan->faults[i];
        sim_job *job = &plan->jobs[fault->job];
        if (fault->kind == SIM_GONE) job->missing = fault->rank;
        for (uint32_t j = 0; fault->kind == SIM_NO_MEMORY && j < plan->n_jobs; j++)
            plan->jobs[j].barriers = false; /* a worker that is refused for lack of memory starts as a new process */
        if (fault->kind == SIM_CRASH || fault->kind == SIM_LEAVE || fault->kind == SIM_GONE)
            job->barriers = false; /* a new process counts barriers from 0 */
    }
}

/* Draws a restart of the server in a fourth of the plans. Half of the restarts hit while a job is young. The draws have
 * a random state of their own, so that the other faults of a seed stay the same. */
static void draw_restart(sim_plan *plan)
{
    uint64_t own = sim_mix(plan->seed, 17, 23, 42), at;

    if (plan->n_faults == SIM_FAULTS || !sim_once_in(&own, 4)) return;
    at = plan->jobs[sim_below(&own, plan->n_jobs)].start_ns + sim_below(&own, 300 * SIM_MS);
    if (at >= plan->calm_ns || sim_once_in(&own, 2)) at = sim_below(&own, plan->calm_ns);
    plan->faults[plan->n_faults++] =
        (sim_fault){ .kind = SIM_RESTART, .at_ns = at, .amount = 1 + sim_below(&own, SIM_S) };
}

/* Draws one or two exports in a third of the plans. The draws have a random state of their own, so that the other
 * faults of a seed stay the same. */
static void draw_exports(sim_plan *plan)
{
    uint64_t own = sim_mix(plan->seed, 19, 84, 6), n = sim_once_in(&own, 3) ? 1 + sim_below(&own, 2) : 0;

    for (; n > 0 && plan->n_faults < SIM_FAULTS; n--) {
        sim_fault fault = { .kind = SIM_EXPORT, .job = (uint32_t)sim_below(&own, plan->n_jobs) };
        fault.rank = (uint32_t)sim_below(&own, 2);
        fault.at_ns = plan->jobs[fault.job].start_ns + sim_below(&own, sim_once_in(&own, 2) ? 100 * SIM_MS : SIM_S);
        if (fault.at_ns >= plan->calm_ns) fault.at_ns = sim_below(&own, plan->calm_ns);
        fault.amount = 1 + sim_below(&own, plan->calm_ns - fault.at_ns);
        plan->faults[plan->n_faults++] = fault;
    }
}

/* Draws whether half of the plans have workers that share memory with the server, and workers of the kind that tries
 * what the client never does. The draws have a random state of their own, so that the other plans stay the same. */
static void draw_sharing(sim_plan *plan)
{
    static const uint64_t least[] = { 1, 64, 200, 1024 };
    uint64_t own = sim_mix(plan->seed, 12, 5, 86), n;

    plan->shares = sim_once_in(&own, 2);
    plan->server_shares = plan->shares && !sim_once_in(&own, 16);
    plan->least_shared = least[sim_below(&own, 4)];
    plan->share_fails = sim_once_in(&own, 4) ? 2 + sim_below(&own, 12) : 0;
    n = plan->shares && sim_once_in(&own, 2) ? 1 + sim_below(&own, 2) : 0;
    for (; n > 0 && plan->n_faults < SIM_FAULTS; n--)
        plan->faults[plan->n_faults++] =
            (sim_fault){ .kind = SIM_SHARER, .at_ns = sim_below(&own, plan->calm_ns), .amount = sim_next(&own) };
}

void sim_plan_draw_strangers(sim_plan *plan)
{
    uint64_t own = sim_mix(plan->seed, 29, 11, 26), n = sim_once_in(&own, 3) ? 1 + sim_below(&own, 3) : 0;

    for (; n > 0 && plan->n_faults < SIM_FAULTS; n--) {
        sim_fault fault = { .kind = SIM_STRANGER, .job = (uint32_t)sim_below(&own, plan->n_jobs) };
        fault.rank = (uint32_t)sim_below(&own, plan->jobs[fault.job].world);
        fault.at_ns = plan->jobs[fault.job].start_ns + sim_below(&own, sim_once_in(&own, 2) ? 100 * SIM_MS : SIM_S);
        if (fault.at_ns >= plan->calm_ns) fault.at_ns = sim_below(&own, plan->calm_ns);
        fault.amount = sim_below(&own, 2);
        plan->faults[plan->n_faults++] = fault;
    }
}

const char *sim_plan_identity(const sim_plan *plan, uint32_t job, uint32_t rank)
{
    static char names[SIM_JOBS][SIM_WORLD + 1][24]; /* connections keep the text */
    uint64_t who = sim_mix(plan->seed, 26, 11, 28) % 3;
    char *name;

    if (who == 0) return NULL;
    /* With roles, only the owner of a restored job may change its number of workers. */
    if (who == 1 || plan->roles) rank = SIM_WORLD;
    name = names[job][rank];
    if (rank == SIM_WORLD)
        snprintf(name, sizeof names[0][0], "job%u", job);
    else
        snprintf(name, sizeof names[0][0], "job%u-rank%u", job, rank);
    return name;
}

/* Draws jobs whose processes do not know their run: one of four of those in which no worker leaves in the middle, since
 * nobody could take its rank, and no stranger comes, who could take the rank of a worker that is lost for a moment. The
 * draws have a random state of their own. */
static void draw_runless(sim_plan *plan)
{
    uint64_t own = sim_mix(plan->seed, 28, 11, 20);

    for (uint32_t j = 0; j < plan->n_jobs; j++) plan->jobs[j].runless = sim_once_in(&own, 4);
    for (uint32_t i = 0; i < plan->n_faults; i++)
        if (plan->faults[i].kind == SIM_LEAVE || plan->faults[i].kind == SIM_STRANGER)
            plan->jobs[plan->faults[i].job].runless = false;
}

static void draw_faults(sim_plan *plan, uint64_t *r)
{
    uint64_t most = sim_once_in(r, 4) ? SIM_FAULTS : 6;

    plan->calm_ns = 100 * SIM_MS + sim_below(r, 5 * SIM_S);
    plan->n_faults = (uint32_t)sim_below(r, most + 1);
    for (uint32_t i = 0; i < plan->n_faults; i++) draw_fault(plan, &plan->faults[i], r);
    if (plan->crowded && plan->n_faults < SIM_FAULTS) plan->faults[plan->n_faults++] = draw_crowded_fault(plan, r);
    draw_restart(plan);
    draw_exports(plan);
    draw_sharing(plan);
    sim_plan_draw_strangers(plan);
    draw_runless(plan);
    sim_plan_mark_missing(plan);
}

uint32_t sim_most_world(const sim_job *job)
{
    uint32_t most = job->world;

    for (int i = 0; i < SIM_CHANGES; i++)
        if (job->later[i] > most) most = job->later[i];
    return most;
}

uint64_t sim_last_step(const sim_job *job)
{
    return job->steps + (job->open.on ? sim_most_world(job) : 0);
}

/* Returns roughly how many roots all jobs compute in all their steps. */
static uint64_t count_roots(const sim_plan *plan)
{
    uint64_t roots = 0;

    for (uint32_t j = 0; j < plan->n_jobs; j++)
        for (uint32_t p = 0; p < plan->jobs[j].n_params && !plan->jobs[j].plain; p++)
            roots += plan->jobs[j].steps * (2 + (uint64_t)plan->jobs[j].params[p].n / 2);
    return roots;
}

void sim_plan_draw_limits(sim_plan *plan, uint64_t *r)
{
    static const uint64_t payloads[] = { 1, 2, 4, 16 };
    uint64_t ranks = 0;

    plan->payload = plan->chunk * sizeof(float) * payloads[sim_below(r, 4)];
    if (plan->crowded) plan->payload = 256 << sim_below(r, 3);
    for (uint32_t j = 0; j < plan->n_jobs; j++) ranks += sim_most_world(&plan->jobs[j]);
    plan->ingest = ranks * ((plan->payload + RESERVE - 1) / RESERVE *
                            RESERVE); /* the smallest legal ingest budget: one frame for each rank */
    if (!plan->crowded && !sim_once_in(r, 3)) plan->ingest += sim_below(r, 4 * plan->ingest);
    plan->pieces = 2 + sim_below(r, 30);
    plan->batch_ns = sim_once_in(r, 2) ? 1e3 : 50e6;
    plan->pool_threads = 1 + (uint32_t)sim_below(r, 2);
    plan->root_ns = sim_once_in(r, 2) && count_roots(plan) < 400 ? 500 * SIM_MS : 5 * SIM_MS;
}

void sim_plan_draw(sim_plan *plan, uint64_t seed)
{
    uint64_t r = seed;

    memset(plan, 0, sizeof *plan);
    plan->seed = seed;
    plan->chunk = sim_once_in(&r, 2) ? 16 : sim_once_in(&r, 2) ? 64 : 256;
    plan->crowded = sim_once_in(&r, 3);
    if (plan->crowded) plan->chunk = 64;
    plan->n_jobs = 1 + (uint32_t)sim_below(&r, sim_once_in(&r, 2) ? 2 : SIM_JOBS);
    if (plan->crowded) plan->n_jobs = 2;
    for (uint32_t j = 0; j < plan->n_jobs; j++) draw_job(plan, &plan->jobs[j], j, &r);
    sim_plan_draw_limits(plan, &r);
    draw_faults(plan, &r);
    plan->latency_ns = sim_once_in(&r, 3) ? 100 * SIM_MS : 2 * SIM_MS;
    if (plan->crowded) plan->latency_ns = 10 * SIM_MS;
    plan->window = plan->latency_ns < SIM_MS * 10 && sim_once_in(&r, 2) ? 200 + sim_below(&r, 2000) : 65536;
    plan->drains = sim_once_in(&r, 12);
}

void sim_plan_print(const sim_plan *plan)
{
    printf("seed %llu: chunks of %llu elements, payloads of %llu bytes, ingest budget %llu, %u pool threads, calm "
           "after %.3f s%s\n",
           (unsigned long long)plan->seed, (unsigned long long)plan->chunk, (unsigned long long)plan->payload,
           (unsigned long long)plan->ingest, plan->pool_threads, (double)plan->calm_ns / 1e9,
           plan->drains ? ", drains" : "");
    if (plan->shards > 0) printf("  %u shards\n", plan->shards);
    if (plan->spares > 0)
        printf("  %u spares, leases of %llu ms%s%s\n", plan->spares, (unsigned long long)plan->lease_ms,
               plan->mirrors ? ", mirrors" : "", plan->two_owners ? ", two owners for a while" : "");
    if (plan->shares)
        printf("  memory is shared from %llu bytes on%s\n", (unsigned long long)plan->least_shared,
               plan->server_shares ? "" : ", but the server does not want it");
    if (plan->shares && plan->share_fails > 0)
        printf("  one of %llu kernel calls for shared memory fails\n", (unsigned long long)plan->share_fails);
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        const sim_job *job = &plan->jobs[j];
        printf("  %s: %u workers, %llu steps from %.3f s on, \"%s\"", job->name, job->world,
               (unsigned long long)job->steps, (double)job->start_ns / 1e9, job->rule);
        for (uint32_t o = 0; o < job->n_options; o++) printf(" %s", job->options[o]);
        if (job->push_dtype != 0) printf(", pushes in int%d", job->push_dtype == PD_INT8 ? 8 : 4);
        if (job->open.meets) printf(", a barrier");
        if (job->open.any_rank) printf(", the server chooses ranks");
        if (job->open.group > 1) printf(", groups of %u", job->open.group);
        if (job->open.shares > 0)
            printf(", up to %u shares a push%s", job->open.shares, job->open.carries ? ", late ones carried" : "");
        for (int i = 0; i < SIM_CHANGES && job->later[i] > 0; i++) printf(", later %u workers", job->later[i]);
        for (uint32_t rank = 0; plan->crashes && rank < sim_most_world(job); rank++)
            printf("%s %u", rank == 0 ? "\n    windows:" : "", job->window[rank]);
        printf("\n    parameters:");
        for (uint32_t p = 0; p < job->n_params; p++)
            printf(" %s[%lld]%s", job->params[p].name, (long long)job->params[p].n,
                   job->params[p].ranged ? " in ranges" : "");
        printf("\n");
    }
    for (uint32_t f = 0; f < plan->n_faults; f++) {
        const sim_fault *fault = &plan->faults[f];
        printf("  fault at %.3f s: %s of %s rank %u, %llu", (double)fault->at_ns / 1e9, sim_fault_name(fault->kind),
               plan->jobs[fault->job].name, fault->rank, (unsigned long long)fault->amount);
        if (plan->shards > 0) printf(", shard %u", fault->shard);
        if (fault->down_ns > 0) printf(", down for %.3f s", (double)fault->down_ns / 1e9);
        printf("\n");
    }
}
