/* goodput_kill: how much work counts if a worker of four is killed every 5 s, and comes back after 3 s.
 *
 *     figure_goodput_kill wait|shrink|quorum|async [SECONDS]     SECONDS of kills [300]
 *     figure_goodput_kill all [SECONDS]                          the four at once; prints a line for each
 *
 * A step takes 50 ms, a worker has batches of 8 examples. Three jobs, with seeds 1, 2, 3 for the choice of workers,
 * run at the same time: first UNDISTURBED_S without kills, then SECONDS with SIGKILL of a random worker every 5 s; a
 * new process of its rank starts 3 s later. The figure is the number of examples that counted in a second then, over
 * that before: the median of the jobs. One of four workers is away for 3 of 5 s, so 0.85 is the most that a job can
 * have in which the others lose nothing.
 *
 *     wait     rounds=sync: all wait until the killed worker is back
 *     shrink   rounds=sync, on_lost_worker=shrink, reconnect_grace=100ms
 *     quorum   rounds=quorum, quorum=3, grace=10ms, staleness=1, and the same
 *     async    rounds=async, and the same */
#include "figure.h"
#include "fleet.h"

enum { SEEDS = 3, UNDISTURBED_S = 20, EVERY_MS = 5000, BACK_MS = 3000, JOIN_MS = 1000, MODES = 4 };

#define SHRINK "on_lost_worker=shrink", "reconnect_grace=100ms"

typedef struct mode {
    const char *name, *rule;
    const char *options[8];
} mode;

static const mode modes[MODES] = {
    { "wait", "* sgd lr=0.02", { NULL } },
    { "shrink", "* sgd lr=0.02", { SHRINK, NULL } },
    { "quorum", "* sgd lr=0.02", { "rounds=quorum", "quorum=3", "grace=10ms", "staleness=1", SHRINK, NULL } },
    { "async", "* sgd lr=0.005", { "rounds=async", SHRINK, NULL } },
};

/* One job, and the worker of it that is away. */
typedef struct victim {
    const mode *mode;
    char name[32];
    fleet *job;
    unsigned short random[3];
    int away;       /* rank of the killed worker; -1: none is away */
    double next_ms; /* when the next worker is killed, or the killed one comes back */
    int kills;
    int back;       /* rank that has come back, and none of whose contributions has counted since; -1: there is none */
    double back_ms; /* when it came back */
    int64_t back_from;  /* number of its contributions that had counted then */
    double joining_ms;  /* time from coming back until a contribution counts, of all kills */
    int64_t examples;   /* that had counted when the kills began */
    uint64_t step;      /* last step that was taken then */
    double undisturbed; /* examples a second before them */
    double rate, rates; /* steps a second before them, and over that since */
    int64_t late;       /* contributions that did not count, in all */
    double value;
} victim;

static void start(victim *v, const mode *m, int seed, const char *url)
{
    *v = (victim){ .mode = m, .random = { 1, 2, (unsigned short)seed }, .away = -1, .back = -1 };
    snprintf(v->name, sizeof v->name, "%s-%d", m->name, seed);
    v->job = fleet_start(&(fleet_options){ .url = url,
                                           .name = v->name,
                                           .rule = m->rule,
                                           .options = m->options,
                                           .seed = (uint64_t)seed,
                                           .batch = 8,
                                           .step_ms = { 50, 50, 50, 50 } });
    fleet_go(v->job);
}

static int64_t counted_of(const victim *v, int rank)
{
    return atomic_load(&v->job->state->workers[rank].counted);
}

/* Measures how long a worker that has come back needs until a contribution of it counts. */
static void watch(victim *v)
{
    if (v->back < 0 || counted_of(v, v->back) == v->back_from) return;
    v->joining_ms += figure_ms() - v->back_ms;
    v->back = -1;
}

/* Kills a worker or starts it again, if it is time. */
static void disturb(victim *v)
{
    fleet_over(v->job);
    watch(v);
    if (figure_ms() < v->next_ms) return;
    if (v->away >= 0) {
        v->back = v->away;
        v->back_ms = figure_ms();
        v->back_from = counted_of(v, v->away);
        fleet_revive(v->job, v->away);
        v->away = -1;
        v->next_ms += EVERY_MS - BACK_MS;
        return;
    }
    v->away = (int)(erand48(v->random) * FLEET_WORKERS);
    fleet_kill(v->job, v->away);
    v->kills++;
    v->next_ms += BACK_MS;
}

static int64_t counted(const victim *v)
{
    return atomic_load(&v->job->state->examples);
}

static uint64_t step_of(const victim *v)
{
    return atomic_load(&v->job->state->step);
}

static void begin(victim *v)
{
    v->examples = counted(v);
    v->step = step_of(v);
}

/* Lets all jobs run undisturbed, then with kills. */
static void run(victim *all, int n, double seconds)
{
    double began, end;

    fleet_sleep_until(figure_ms() + JOIN_MS);
    for (int i = 0; i < n; i++) begin(&all[i]);
    began = figure_ms();
    while (figure_ms() < began + UNDISTURBED_S * 1e3) {
        for (int i = 0; i < n; i++) fleet_over(all[i].job);
        fleet_sleep_until(figure_ms() + 20);
    }
    end = figure_ms();
    for (int i = 0; i < n; i++) {
        all[i].undisturbed = (double)(counted(&all[i]) - all[i].examples) / (end - began);
        all[i].rate = (double)(step_of(&all[i]) - all[i].step) / (end - began);
        begin(&all[i]);
        all[i].next_ms = end + (double)EVERY_MS * i / n; /* not all at once */
    }
    began = end;
    while (figure_ms() < began + seconds * 1e3) {
        for (int i = 0; i < n; i++) disturb(&all[i]);
        fleet_sleep_until(figure_ms() + 2);
    }
    end = figure_ms();
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < FLEET_WORKERS; r++) all[i].late += atomic_load(&all[i].job->state->workers[r].late);
        all[i].value = (double)(counted(&all[i]) - all[i].examples) / (end - began) / all[i].undisturbed;
        all[i].rates = (double)(step_of(&all[i]) - all[i].step) / (end - began) / all[i].rate;
    }
}

static void print(const victim *jobs, bool named)
{
    double value[SEEDS];

    for (int s = 0; s < SEEDS; s++) value[s] = jobs[s].value;
    if (named) printf("%s\t", jobs->mode->name);
    printf("%.3f\t%s: by seed %.3f, %.3f, %.3f; %d kills and %d late pushes each; undisturbed %.0f examples a second; "
           "steps over undisturbed %.3f; %.0f ms from coming back to the first contribution that counts\n",
           figure_quantile(value, SEEDS, 0.5), jobs->mode->name, jobs[0].value, jobs[1].value, jobs[2].value,
           jobs->kills, (int)jobs->late, jobs->undisturbed * 1e3, jobs->rates, jobs->joining_ms / jobs->kills);
}

int main(int argc, char **argv)
{
    static victim all[MODES * SEEDS];
    double seconds = argc > 2 ? atof(argv[2]) : 300;
    pd_child daemon;
    int n = 0;

    figure_kernels(argv);
    fleet_load();
    figure_daemon(&daemon);
    for (int m = 0; m < MODES && argc > 1; m++) {
        if (strcmp(argv[1], "all") != 0 && strcmp(argv[1], modes[m].name) != 0) continue;
        for (int s = 0; s < SEEDS; s++) start(&all[n++], &modes[m], s + 1, daemon.local);
    }
    if (n == 0 || seconds < EVERY_MS / 1e3) figure_stop("expected wait|shrink|quorum|async|all [SECONDS]");
    run(all, n, seconds);
    for (int i = 0; i < n; i++) fleet_end(all[i].job);
    pd_child_stop(&daemon);
    for (int i = 0; i < n; i += SEEDS) print(&all[i], n > SEEDS);
    return 0;
}
