/* memory: how much memory the daemon needs beyond what training needs, while 4 workers push and pull a model of 256
 * MiB, each in an order of its own. From the daemon's peak resident memory, the ingest budget and 64 MiB are
 * subtracted. The figure is the remainder divided by the memory of weights, accumulators, momentum and published
 * snapshots. */
#include "figure.h"
#include "bench_team.h"

enum { STEPS = 20 };

int main(void)
{
    pd_child daemon;
    pd_operator op;
    team_options options = { .job = "memory", .workers = 4, .shuffled = true };
    team *workers;
    const Paramd__StatusReply *status;
    double model = 0, needed, beyond;

    setenv("PARAMD_LIMITS_INGEST_BYTES", "256MiB", 1); /* whatever memory the machine has */
    figure_daemon(&daemon);
    options.url = daemon.url;
    options.elements = figure_model(&options.n);
    for (size_t i = 0; i < options.n; i++) model += 4.0 * (double)options.elements[i];
    workers = team_start(&options);
    team_steps(workers, STEPS, NULL);
    status = figure_status(daemon.url, &op);
    needed = 4 * model;
    beyond = (double)status->peak_resident_bytes - (double)status->ingest_bytes - 64 * 1048576.0;
    printf("%.3f\tpeak %.0f MiB, ingest budget %.0f MiB, 4 x %.0f MiB\n", beyond / needed,
           (double)status->peak_resident_bytes / 1048576, (double)status->ingest_bytes / 1048576, model / 1048576);
    pd_operator_close(&op);
    team_end(workers);
    pd_child_stop(&daemon);
    return 0;
}
