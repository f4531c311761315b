/* loop_lag_ms: how long the loop thread computes between two polls, while 4 workers push and pull a model of 256
 * MiB. The time is CPU time of the loop thread. */
#include "figure.h"
#include "bench_team.h"

enum { STEPS = 30 };

int main(void)
{
    pd_child daemon;
    pd_operator op;
    team_options options = { .job = "loop_lag", .workers = 4 };
    team *workers;
    const Paramd__StatusReply *status;

    figure_daemon(&daemon);
    options.url = daemon.url;
    options.elements = figure_model(&options.n);
    workers = team_start(&options);
    team_steps(workers, STEPS, NULL);
    status = figure_status(daemon.url, &op);
    if (status->n_loop_busy_ms != 4) figure_stop("Status has no loop_busy_ms");
    printf("%.3f\t50 %%: %.3f, 99 %%: %.3f, 99.9 %%: %.3f, most: %.3f ms over %llu polls\n", status->loop_busy_ms[2],
           status->loop_busy_ms[0], status->loop_busy_ms[1], status->loop_busy_ms[2], status->loop_busy_ms[3],
           (unsigned long long)status->loop_polls);
    pd_operator_close(&op);
    team_end(workers);
    pd_child_stop(&daemon);
    return 0;
}
