/* fairness_ms: by how many milliseconds a large job slows down the steps of a small job. The figure is the 99th
 * percentile of the small job's step time (2 workers, 10 tensors of 1,024) while the large job runs, minus the same
 * percentile without it. The large job has 2 workers and 100 parameters of 1024 x 1024, and takes step after step. */

#include "figure.h"
#include "bench_team.h"

enum { WARM_UP = 20, STEPS = 2000, SMALL = 10, LARGE = 100 };

int main(void)
{
    pd_child daemon;
    int64_t small[SMALL], large[LARGE], rounds;
    double *alone = figure_alloc(STEPS * sizeof *alone), *beside = figure_alloc(STEPS * sizeof *beside);
    double p99_alone, p99_beside;
    team *one, *other;

    figure_daemon(&daemon);
    for (int i = 0; i < SMALL; i++) small[i] = 1024;
    for (int i = 0; i < LARGE; i++) large[i] = 1024 * 1024;
    one = team_start(&(team_options){ .url = daemon.url, .job = "small", .workers = 2, .elements = small, .n = SMALL });
    other =
        team_start(&(team_options){ .url = daemon.url, .job = "large", .workers = 2, .elements = large, .n = LARGE });
    team_steps(one, WARM_UP, NULL);
    team_steps(other, 3, NULL);
    team_steps(one, STEPS, alone);
    team_run_on(other);
    team_steps(one, STEPS, beside);
    rounds = team_halt(other);
    p99_alone = figure_quantile(alone, STEPS, 0.99);
    p99_beside = figure_quantile(beside, STEPS, 0.99);
    printf("%.2f\talone: median %.2f, 99 %%: %.2f; beside: median %.2f, 99 %%: %.2f, most %.2f ms; %lld steps of the "
           "large job meanwhile\n",
           p99_beside - p99_alone, figure_quantile(alone, STEPS, 0.5), p99_alone, figure_quantile(beside, STEPS, 0.5),
           p99_beside, figure_quantile(beside, STEPS, 1), (long long)rounds);
    team_end(one);
    team_end(other);
    pd_child_stop(&daemon);
    free(alone);
    free(beside);
    return 0;
}
