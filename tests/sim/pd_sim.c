/* pd_sim.c - runs seeds, reports violated invariants, prints traces and shrinks plans: see README.md. */
#include "blascore.h"
#include "sim_judge.h"

#include <argp.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SEED_SECONDS = 60 }; /* longest time of a run; a longer one is reported as an endless loop */
enum {
    OPT_LIST = 256,
    OPT_TWICE,
    OPT_UNSHARED,
    OPT_KEEP,
    OPT_CRASHES,
    OPT_ROLES,
    OPT_SCRAPES,
    OPT_SETS,
    OPT_SHARDS,
    OPT_SPARES,
    OPT_MIRRORS,
    OPT_MOVERS
};

enum pd_mutant pd_mutant_on; /* declared in mutant.h */

typedef struct settings {
    uint64_t first, last;
    bool trace, shrink, twice, unshared, keep_going, list, crashes, roles, scrapes, sets, movers;
    bool cluster;    /* jobs are on several servers */
    uint32_t shards; /* so many; 0: any number */
    bool spares;     /* they have an engine and spares */
    bool mirrors;    /* which have shards from their mirrors */
    enum pd_mutant mutant;
} settings;

/* Results of the process that runs seeds, in memory shared with the process that waits for it. */
typedef struct report {
    uint64_t seed, hash;
    uint64_t compared; /* versions of weights that were compared with a run without shared memory */
    char text[SIM_REPORT_BYTES];
} report;

static report *shared;

static const struct {
    const char *name, *text;
} mutants[] = {
#define MUTANT_ROW(name, text) { #name, text },
    { "none", "" }, PD_MUTANTS_TABLE(MUTANT_ROW)
#undef MUTANT_ROW
};
enum { PLANTS = sizeof mutants / sizeof mutants[0] };

static void draw_cluster(sim_plan *plan, uint64_t seed, const settings *set)
{
    sim_plan_draw_cluster(plan, seed, set->shards);
    plan->mirrors = set->mirrors;
    if (set->spares) sim_plan_add_spares(plan);
}

static void draw_lone(sim_plan *plan, uint64_t seed, const settings *set)
{
    if (set->crashes)
        sim_plan_draw_crashes(plan, seed);
    else
        sim_plan_draw(plan, seed);
    if (!set->crashes || set->sets) sim_plan_draw_open(plan);
    sim_plan_draw_fragments(plan);
    if (!set->crashes) sim_plan_draw_reforms(plan);
    if (!set->crashes) sim_plan_draw_quantized(plan);
    if (set->roles) sim_plan_add_trespassers(plan);
    if (set->scrapes) sim_plan_add_scrapers(plan);
}

static void draw_plan(sim_plan *plan, uint64_t seed, const settings *set)
{
    if (set->cluster)
        draw_cluster(plan, seed, set);
    else
        draw_lone(plan, seed, set);
    if (set->movers) sim_plan_add_movers(plan);
}

/* Runs a plan with and without shared memory, and compares the weights. */
static void run_unshared(const sim_plan *plan)
{
    static sim_plan without;
    static sim_digest a, b;

    without = *plan;
    without.shares = without.server_shares = false;
    sim_run(plan, false, &a);
    sim_run(&without, false, &b);
    shared->compared += sim_judge_compare(plan, &a, &b);
}

static void run_plan(const sim_plan *plan, const settings *set)
{
    shared->seed = plan->seed;
    alarm(SEED_SECONDS);
    pd_mutant_on = plan->mutant;
    shared->hash = sim_run(plan, set->trace, NULL);
    if (set->unshared && plan->shares) run_unshared(plan);
    if (set->twice) {
        uint64_t before = shared->hash;
        if (sim_run(plan, false, NULL) != before) sim_fail("determinism", "two runs of one seed have other traces");
    }
}

/* Runs `body` in a process of its own. Returns the process's status: 0, or shared->text says what is wrong. */
static int in_process(void (*body)(const void *arg, const settings *set), const void *arg, const settings *set)
{
    int status;
    pid_t child;

    shared->text[0] = '\0';
    fflush(stdout);
    if ((child = fork()) == 0) {
        sim_report = shared->text;
        body(arg, set);
        fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) return -1;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(shared->text, sizeof shared->text, "spins: the run takes more than %d s", SEED_SECONDS);
    else if (WIFSIGNALED(status))
        snprintf(shared->text, sizeof shared->text, "crash: %s", strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0 && shared->text[0] == '\0')
        snprintf(shared->text, sizeof shared->text, "crash: exit status %d", WEXITSTATUS(status));
    return status;
}

static void run_one(const void *arg, const settings *set)
{
    run_plan(arg, set);
}

static void run_range(const void *arg, const settings *set)
{
    const uint64_t *from = arg;
    static sim_plan plan;

    for (uint64_t seed = *from; seed <= set->last; seed++) {
        draw_plan(&plan, seed, set);
        plan.mutant = set->mutant;
        run_plan(&plan, set);
    }
}

/* Returns whether the plan violates the same invariant as `before` reports: the texts are equal up to the first
 * colon. */
static bool fails_alike(const sim_plan *plan, const settings *set, const char *before)
{
    settings quiet = *set;
    size_t n = strcspn(before, ":");

    quiet.trace = quiet.twice = false;
    return in_process(run_one, plan, &quiet) != 0 && strncmp(shared->text, before, n + 1) == 0;
}

static void forget_job(sim_plan *plan, uint32_t job)
{
    uint32_t kept = 0;

    for (uint32_t f = 0; f < plan->n_faults; f++)
        if (plan->faults[f].job != job) plan->faults[kept++] = plan->faults[f];
    plan->n_faults = kept;
    plan->jobs[job].world = 0;
    memset(plan->jobs[job].later, 0, sizeof plan->jobs[job].later);
    plan->jobs[job].missing = 0;
}

/* Makes the plan smaller in one way, chosen by `i`: without a fault, without a job, or with fewer parameters or
 * steps of a job. Returns false if `i` is past the last way. */
static bool make_smaller(sim_plan *plan, uint32_t i)
{
    if (i < plan->n_faults) {
        memmove(&plan->faults[i], &plan->faults[i + 1], (plan->n_faults - i - 1) * sizeof plan->faults[0]);
        plan->n_faults--;
        return true;
    }
    i -= plan->n_faults;
    if (i < plan->n_jobs) {
        forget_job(plan, i);
        return true;
    }
    i -= plan->n_jobs;
    if (i < 2 * plan->n_jobs) {
        sim_job *job = &plan->jobs[i / 2];
        if (i % 2 == 0 && job->n_params > 1) job->n_params = (job->n_params + 1) / 2;
        if (i % 2 == 1 && job->steps > 1) job->steps--;
        return true;
    }
    return false;
}

static void shrink(sim_plan *plan, const settings *set)
{
    static char before[SIM_REPORT_BYTES];
    static sim_plan smaller;
    bool better = true;

    snprintf(before, sizeof before, "%s", shared->text);
    while (better) {
        better = false;
        for (uint32_t i = 0;; i++) {
            smaller = *plan;
            if (!make_smaller(&smaller, i)) break;
            if (memcmp(&smaller, plan, sizeof smaller) == 0 || !fails_alike(&smaller, set, before)) continue;
            *plan = smaller;
            better = true;
            i--;
        }
    }
    sim_plan_print(plan);
    in_process(run_one, plan, set);
    printf("shrunk: %s\n", shared->text);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void report_failure(const settings *set)
{
    static sim_plan plan;

    printf("seed %llu: %s\n", (unsigned long long)shared->seed, shared->text);
    if (!set->shrink) return;
    draw_plan(&plan, shared->seed, set);
    plan.mutant = set->mutant;
    shrink(&plan, set);
}

static int run_all(const settings *set)
{
    double begun = now_s();
    uint64_t failed = 0, done;

    for (uint64_t seed = set->first; seed <= set->last;) {
        if (in_process(run_range, &seed, set) == 0) break;
        failed++;
        seed = shared->seed + 1;
        report_failure(set);
        if (!set->keep_going) break;
    }
    done = (failed > 0 && !set->keep_going ? shared->seed : set->last) - set->first + 1;
    if (set->unshared)
        printf("%llu versions of weights compared with runs that share no memory\n",
               (unsigned long long)shared->compared);
    printf("%llu seeds, %llu failed, %.1f a second\n", (unsigned long long)done, (unsigned long long)failed,
           (double)done / (now_s() - begun));
    return failed > 0;
}

static const struct argp_option options[] = {
    { "seeds", 's', "A..B", 0, "Run the seeds from A to B (default 1..1000)", 0 },
    { "trace", 't', 0, 0, "Print the plan and every event of a seed", 0 },
    { "shrink", 'x', 0, 0, "Take faults, jobs, parameters and steps away as long as the same invariant is violated",
      0 },
    { "mutant", 'p', "NAME", 0, "Switch a mutant on", 0 },
    { "list-mutants", OPT_LIST, 0, 0, "List the mutants", 0 },
    { "twice", OPT_TWICE, 0, 0, "Run each seed twice and compare the traces", 0 },
    { "unshared", OPT_UNSHARED, 0, 0, "Run each seed with and without shared memory, and compare the weights", 0 },
    { "crashes", OPT_CRASHES, 0, 0, "Give the server a disk, and kill it in every run", 0 },
    { "sets", OPT_SETS, 0, 0, "With --crashes: let jobs have open sets", 0 },
    { "roles", OPT_ROLES, 0, 0, "Give the server roles, and let a peer without a role ask for everything", 0 },
    { "scrapes", OPT_SCRAPES, 0, 0, "Let peers ask the HTTP listener, whole, in part or with nonsense", 0 },
    { "shards", OPT_SHARDS, "N", 0, "Put the jobs on N servers, 1 to 4 or any, which are killed at times", 0 },
    { "spares", OPT_SPARES, 0, 0, "Put the jobs on servers with an engine and spares, which take shards over", 0 },
    { "mirrors", OPT_MIRRORS, 0, 0, "As --spares, but spares have shards from their mirrors alone", 0 },
    { "movers", OPT_MOVERS, 0, 0, "Let the server lend directions of connections to movers", 0 },
    { "keep-going", OPT_KEEP, 0, 0, "Do not stop at the first seed that fails", 0 },
    { 0 }
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    settings *set = state->input;
    int n;

    switch (key) {
    case 's':
        n = sscanf(value, "%" SCNu64 "..%" SCNu64, &set->first, &set->last);
        if (n == 1) set->last = set->first;
        if (n < 1 || set->last < set->first) argp_error(state, "--seeds %s: expected A..B", value);
        return 0;
    case 't': set->trace = true; return 0;
    case 'x': set->shrink = true; return 0;
    case OPT_LIST: set->list = true; return 0;
    case OPT_TWICE: set->twice = true; return 0;
    case OPT_UNSHARED: set->unshared = true; return 0;
    case OPT_KEEP: set->keep_going = true; return 0;
    case OPT_SETS: set->sets = true; return 0;
    case OPT_ROLES: set->roles = true; return 0;
    case OPT_SCRAPES: set->scrapes = true; return 0;
    case OPT_MOVERS: set->movers = true; return 0;
    case OPT_SHARDS:
        set->cluster = true;
        if (strcmp(value, "any") == 0) return 0;
        if (sscanf(value, "%" SCNu32, &set->shards) != 1 || set->shards < 1 || set->shards > SIM_SHARDS)
            argp_error(state, "--shards %s: expected 1 to %d, or any", value, SIM_SHARDS);
        return 0;
    case OPT_SPARES: set->cluster = set->spares = true; return 0;
    case OPT_MIRRORS: set->cluster = set->spares = set->mirrors = true; return 0;
    case OPT_CRASHES: set->crashes = true; return 0;
    case 'p':
        for (n = 0; n < PLANTS && strcmp(mutants[n].name, value) != 0; n++) continue;
        if (n == PLANTS) argp_error(state, "--mutant %s: no such bug, --list-mutants lists them", value);
        set->mutant = (enum pd_mutant)n;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options, parse, NULL, "Simulates paramd: server, workers, network and faults, all drawn from a seed.",
        NULL,    NULL,  NULL
    };
    settings set = { .first = 1, .last = 1000 };
    static sim_plan plan;

    pd_blas_one_thread(); /* BLAS uses one thread on every machine, so that the same seed gives the same trace */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    argp_parse(&argp, argc, argv, 0, NULL, &set);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 2;
    if (set.list) {
        for (int i = 1; i < PLANTS; i++) printf("%-28s %s\n", mutants[i].name, mutants[i].text);
        return 0;
    }
    if (set.trace) {
        draw_plan(&plan, set.first, &set);
        sim_plan_print(&plan);
    }
    return run_all(&set);
}
