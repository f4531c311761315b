/* idle_1000: how much 1,000 idle workers of other jobs, which only send heartbeats, slow down a job (2 workers, 20
 * tensors of 65,536). Blocks of steps with and without the idle workers alternate. Each block has a median step
 * time, each pair of blocks the ratio of its two medians. The figure is the median ratio. */
#include "figure.h"
#include "bench_team.h"
#include "idle_workers.h"

enum { PAIRS = 7, STEPS = 150, TENSORS = 20, CROWD = 1000 };

static double median_step(team *t)
{
    double ms[STEPS];

    team_steps(t, STEPS / 10, NULL);
    team_steps(t, STEPS, ms);
    return figure_quantile(ms, STEPS, 0.5);
}

int main(void)
{
    pd_child daemon;
    int64_t elements[TENSORS];
    double ratio[PAIRS], alone[PAIRS], beside[PAIRS];
    team *workers;

    figure_daemon(&daemon);
    for (int i = 0; i < TENSORS; i++) elements[i] = 65536;
    workers = team_start(
        &(team_options){ .url = daemon.url, .job = "busy", .workers = 2, .elements = elements, .n = TENSORS });
    median_step(workers);
    for (int i = 0; i < PAIRS; i++) {
        idle_workers *idle;
        alone[i] = median_step(workers);
        idle = idle_workers_connect(daemon.url, CROWD);
        beside[i] = median_step(workers);
        idle_workers_close(idle);
        ratio[i] = beside[i] / alone[i];
    }
    double value = figure_quantile(ratio, PAIRS, 0.5);
    printf("%.3f\tratios %.3f to %.3f of %d pairs; median step alone %.2f ms, beside %.2f ms\n", value, ratio[0],
           ratio[PAIRS - 1], PAIRS, figure_quantile(alone, PAIRS, 0.5), figure_quantile(beside, PAIRS, 0.5));
    team_end(workers);
    pd_child_stop(&daemon);
    return 0;
}
