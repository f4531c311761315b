/* hostile_step_ms: how long the steps of a small job take while another identity, within its roles, its quota and the
 * default limits, sends each method at its largest and worst. The small job has one worker and 64 KiB of weights, and
 * takes a step every 5 ms. The figure is the largest of the 99th percentiles of its step time beside the attacks of
 * tests/hostile, one after the other, each on a daemon of its own. A long step counts as all those that were due
 * meanwhile.
 * Usage: figure_hostile_step_ms [--seconds S] [--params N] [--verbose] [ATTACK...]     without names: all */
#include "figure.h"

#include <signal.h>

#include "hostile_daemon.h"

enum { SIDE = 128, WARM_S = 1, NOTE_BYTES = 4000 };

typedef struct settings {
    double seconds;
    uint32_t params;
    bool verbose;
    char **names;
    int n;
} settings;

static void say(const attack *by, bool prepared, const duel_times *times, const foe_count *count)
{
    fprintf(stderr,
            "%-18s p50 %8.2f  p99 %9.2f  longest %9.2f ms%s; %zu steps; %llu answers, %llu refused, %llu lost%s%s%s\n",
            by->name, times->p50, times->p99, times->longest, times->stuck ? " (given up)" : "", times->steps,
            (unsigned long long)count->answered, (unsigned long long)count->refused, (unsigned long long)count->lost,
            prepared ? "" : "; NOT PREPARED", count->error[0] != '\0' ? ": " : "", count->error);
}

/* Measures the small job alone (by: NULL) or beside an attack. */
static void measure(const attack *by, const settings *set, duel_times *times)
{
    char folder[] = "/tmp/paramd-hostile-XXXXXX";
    duel_daemon daemon;
    pd_child child;
    duel_attack *running = NULL;
    duel_job *job;
    foe_count count = { 0 };
    bool prepared = true;

    figure_folder(folder);
    hostile_start(&child, &daemon, folder, false);
    job = duel_join(daemon.url, "small", SIDE, SIDE, "* sgd lr=0.01");
    duel_steps(job, WARM_S, true, times);
    if (by != NULL) {
        running = duel_begin(by, &daemon, set->params, NULL);
        prepared = duel_is_prepared(running);
        duel_go(running);
    }
    duel_steps(job, set->seconds, true, times);
    if (times->stuck) kill(child.pid, SIGKILL); /* its turn is longer than anybody waits */
    if (running != NULL) duel_end(running, &count);
    if (set->verbose && by != NULL) say(by, prepared, times, &count);
    duel_leave(job);
    pd_child_stop(&child);
    figure_remove(folder);
}

static bool is_wanted(const settings *set, const char *name)
{
    bool found = set->n == 0;

    for (int i = 0; i < set->n; i++) found = found || strcmp(set->names[i], name) == 0;
    return found;
}

static void read_arguments(settings *out, char **argv)
{
    *out = (settings){ .seconds = 3, .params = DUEL_ALL_PARAMS };
    for (argv++; *argv != NULL && strncmp(*argv, "--", 2) == 0; argv++) {
        if (strcmp(*argv, "--verbose") == 0)
            out->verbose = true;
        else if (strcmp(*argv, "--seconds") == 0 && argv[1] != NULL)
            out->seconds = atof(*++argv);
        else if (strcmp(*argv, "--params") == 0 && argv[1] != NULL)
            out->params = (uint32_t)atoi(*++argv);
        else
            figure_stop("%s is no option: there are --seconds, --params and --verbose", *argv);
    }
    out->names = argv;
    for (; *argv != NULL; argv++, out->n++)
        if (attacks_find(*argv) == NULL) figure_stop("%s is no attack", *argv);
}

int main(int argc, char **argv)
{
    settings set;
    duel_times alone, times, most = { 0 };
    const char *worst = "none";
    char note[NOTE_BYTES] = "";
    size_t used = 0;

    (void)argc;
    read_arguments(&set, argv);
    measure(NULL, &set, &alone);
    for (size_t i = 0; i < attacks_count(); i++) {
        const attack *by = attacks_at(i);
        if (by->role == ATTACK_READER_OF_OTHERS || !is_wanted(&set, by->name)) continue;
        measure(by, &set, &times);
        if (times.p99 >= most.p99) most = times, worst = by->name;
        if (used < sizeof note)
            used += (size_t)snprintf(note + used, sizeof note - used, ", %s %.1f", by->name, times.p99);
    }
    printf("%.2f\t%s (longest %.0f ms%s); alone %.2f; all%s\n", most.p99, worst, most.longest,
           most.stuck ? ", given up" : "", alone.p99, note);
    return 0;
}
