/* read_only_step: step time of jobs beside an identity that may only read, and does its worst, over alone. One job is
 * bound by the processor: kron on a matrix of 256 x 256. The other is small: sgd on 64 KiB of weights. Each takes steps
 * for a while alone and for a while beside the reader, in turn. The ratio is the median, over these pairs, of that of
 * their median step times. The figure is the largest ratio of both jobs and of all attacks of tests/hostile that need
 * the role read alone, each on a daemon of its own. The daemon has one step thread: on a machine of two cores the other
 * core is for its loop thread and for the attacker, who would be another machine.
 * Usage: figure_read_only_step [--seconds S] [--pairs N] [--params N] [--verbose] [ATTACK...]     without names: all */
#include "figure.h"

#include "hostile_daemon.h"

enum { NOTE_BYTES = 4000, MOST_PAIRS = 64, SMALL = 128, LARGE = 256, JOBS = 2 };

typedef struct settings {
    double seconds;
    int pairs;
    uint32_t params;
    bool verbose;
    char **names;
    int n;
} settings;

static const char *const names[JOBS] = { "bound by the processor", "small" };

/* Measures a job alone and beside the attack, in turn. Returns the median ratio. */
static double compare(duel_job *job, duel_attack *by, const settings *set, double *alone_ms)
{
    double ratios[MOST_PAIRS], alone[MOST_PAIRS];
    duel_times times;

    for (int i = 0; i < set->pairs; i++) {
        duel_rest(by);
        duel_steps(job, set->seconds / 10, false, &times); /* what is under way ends */
        duel_steps(job, set->seconds, false, &times);
        alone[i] = times.p50;
        duel_go(by);
        duel_steps(job, set->seconds, false, &times);
        ratios[i] = times.p50 / alone[i];
    }
    duel_rest(by);
    *alone_ms = figure_quantile(alone, (size_t)set->pairs, 0.5);
    return figure_quantile(ratios, (size_t)set->pairs, 0.5);
}

/* Measures both jobs beside an attack. Returns whether it could be prepared. */
static bool measure(const attack *by, const settings *set, double ratios[JOBS])
{
    char folder[] = "/tmp/paramd-hostile-XXXXXX";
    duel_daemon daemon;
    pd_child child;
    duel_job *jobs[JOBS];
    duel_attack *running;
    foe_count count;
    double alone[JOBS];
    bool prepared;

    figure_folder(folder);
    setenv("PARAMD_THREADS_STEP_THREADS", "1", 1);
    hostile_start(&child, &daemon, folder, true);
    jobs[0] = duel_join(daemon.url, "large", LARGE, LARGE, "* kron learning_rate=0.001");
    jobs[1] = duel_join(daemon.url, "small", SMALL, SMALL, "* sgd lr=0.01");
    running = duel_begin(by, &daemon, set->params, "large");
    prepared = duel_is_prepared(running);
    for (int i = 0; i < JOBS; i++) ratios[i] = compare(jobs[i], running, set, &alone[i]);
    duel_end(running, &count);
    if (set->verbose)
        fprintf(stderr, "%-22s %.2f of %.2f ms, small %.2f of %.3f ms; %llu answers, %llu refused, %llu lost%s%s%s\n",
                by->name, ratios[0], alone[0], ratios[1], alone[1], (unsigned long long)count.answered,
                (unsigned long long)count.refused, (unsigned long long)count.lost, prepared ? "" : "; NOT PREPARED",
                count.error[0] != '\0' ? ": " : "", count.error);
    for (int i = 0; i < JOBS; i++) duel_leave(jobs[i]);
    pd_child_stop(&child);
    figure_remove(folder);
    return prepared;
}

static bool is_wanted(const settings *set, const attack *by)
{
    bool found = set->n == 0;

    for (int i = 0; i < set->n; i++) found = found || strcmp(set->names[i], by->name) == 0;
    return found && by->role != ATTACK_ADMIN;
}

static void read_arguments(settings *out, char **argv)
{
    *out = (settings){ .seconds = 0.3, .pairs = 9, .params = DUEL_ALL_PARAMS };
    for (argv++; *argv != NULL && strncmp(*argv, "--", 2) == 0; argv++) {
        if (strcmp(*argv, "--verbose") == 0)
            out->verbose = true;
        else if (strcmp(*argv, "--seconds") == 0 && argv[1] != NULL)
            out->seconds = atof(*++argv);
        else if (strcmp(*argv, "--pairs") == 0 && argv[1] != NULL)
            out->pairs = atoi(*++argv);
        else if (strcmp(*argv, "--params") == 0 && argv[1] != NULL)
            out->params = (uint32_t)atoi(*++argv);
        else
            figure_stop("%s is no option: there are --seconds, --pairs, --params and --verbose", *argv);
    }
    if (out->pairs < 1 || out->pairs > MOST_PAIRS) figure_stop("--pairs: expected 1 to %d", MOST_PAIRS);
    out->names = argv;
    for (; *argv != NULL; argv++, out->n++)
        if (attacks_find(*argv) == NULL) figure_stop("%s is no attack", *argv);
}

int main(int argc, char **argv)
{
    settings set;
    double ratios[JOBS], most = 0;
    const char *worst = "none", *of = "no job";
    char note[NOTE_BYTES] = "";
    size_t used = 0;

    (void)argc;
    read_arguments(&set, argv);
    for (size_t i = 0; i < attacks_count(); i++) {
        const attack *by = attacks_at(i);
        if (!is_wanted(&set, by)) continue;
        if (!measure(by, &set, ratios)) figure_stop("the attack %s could not be prepared", by->name);
        for (int k = 0; k < JOBS; k++)
            if (ratios[k] > most) most = ratios[k], worst = by->name, of = names[k];
        if (used < sizeof note)
            used +=
                (size_t)snprintf(note + used, sizeof note - used, ", %s %.2f and %.2f", by->name, ratios[0], ratios[1]);
    }
    printf("%.3f\t%s, the job that is %s; all%s\n", most, worst, of, note);
    return 0;
}
