/* killed_worker_s, silent_worker_s: how long a job with on_lost_worker=shrink takes from the loss of one of its four
 * workers to the next step.
 *
 *     figure_lost_worker killed|silent
 *
 * killed: by SIGKILL. silent: by SIGSTOP, so that its connections stay; a daemon with heartbeat_timeout=5s. A step
 * takes 20 ms, reconnect_grace is GRACE_MS. The step under way when the worker is lost may still have its contribution,
 * and close at once: the next step is the one that ends the longest pause between steps. The figure is the median of
 * three jobs, one after the other. */
#include "figure.h"
#include "fleet.h"

#include <signal.h>

enum { REPEATS = 3, GRACE_MS = 1000, BEFORE_MS = 1500, AFTER_MS = 1500, MOST_MS = 30000 };

/* Returns the time of the end of the longest pause between steps that ends after `from`, if steps go on since
 * AFTER_MS; 0: not yet. */
static double end_of_pause(const fleet *f, double from)
{
    const fleet_state *s = f->state;
    double longest = 0, end = 0, last = 0;

    for (uint64_t step = 1; step <= atomic_load(&s->step); step++) {
        double at = s->closed_ms[step];
        if (at == 0) continue;
        if (at > from && at - last > longest) {
            longest = at - last;
            end = at;
        }
        last = at;
    }
    return longest > 500 && last > end + AFTER_MS ? end : 0;
}

/* Returns the seconds from the loss to the next step. */
static double lose_one(const char *url, int number, int repeat)
{
    static const char *const options[] = { "on_lost_worker=shrink", "reconnect_grace=1s", NULL };
    char name[32];
    double from, to;
    fleet *f;

    snprintf(name, sizeof name, "lost-%d", repeat);
    f = fleet_start(&(fleet_options){ .url = url,
                                      .name = name,
                                      .rule = "* sgd lr=0.02",
                                      .options = options,
                                      .seed = (uint64_t)repeat + 1,
                                      .batch = 8,
                                      .step_ms = { 20, 20, 20, 20 } });
    fleet_go(f);
    fleet_sleep_until(figure_ms() + BEFORE_MS);
    from = fleet_ms(f);
    if (number == SIGKILL)
        fleet_kill(f, 1 + repeat % 3);
    else
        fleet_signal(f, 1 + repeat % 3, number);
    while ((to = end_of_pause(f, from)) == 0) {
        fleet_over(f);
        if (fleet_ms(f) > MOST_MS)
            figure_stop("no step %d s after a worker was lost, at step %d", MOST_MS / 1000,
                        (int)atomic_load(&f->state->step));
        fleet_sleep_until(figure_ms() + 20);
    }
    fleet_end(f);
    return (to - from) / 1e3;
}

int main(int argc, char **argv)
{
    bool silent = argc == 2 && strcmp(argv[1], "silent") == 0;
    double seconds[REPEATS], sorted[REPEATS], value;
    pd_child daemon;

    if (argc != 2 || (!silent && strcmp(argv[1], "killed") != 0)) figure_stop("expected killed|silent");
    figure_kernels(argv);
    if (silent) {
        setenv("PARAMD_SERVER_HEARTBEAT_TIMEOUT", "5s", 1);
        setenv("PARAMD_SERVER_HEARTBEAT_INTERVAL", "1s", 1);
    }
    fleet_load();
    figure_daemon(&daemon);
    for (int i = 0; i < REPEATS; i++) seconds[i] = sorted[i] = lose_one(daemon.local, silent ? SIGSTOP : SIGKILL, i);
    value = figure_quantile(sorted, REPEATS, 0.5);
    printf("%.3f\tby repeat %.3f, %.3f, %.3f s; reconnect_grace %.1f s%s; 4 workers, steps of 20 ms\n", value,
           seconds[0], seconds[1], seconds[2], GRACE_MS / 1e3, silent ? ", heartbeat_timeout 5 s" : "");
    pd_child_stop(&daemon);
    return 0;
}
