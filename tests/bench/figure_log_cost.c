/* log_cost adamw|sgd: how much a log slows down the steps of a small job.
 *
 * The job has 1 M parameters in 4 matrices, and 2 workers on the daemon's machine. It has durability = log, so each
 * step is an entry of 4 MB on the disk. A second job in the same daemon is the same, but has durability = none. Blocks
 * of 50 steps of the two jobs alternate. The figure is the median, over pairs of blocks, of the ratio of their median
 * step times. */
#include "figure.h"
#include "bench_team.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 500, PARAMS = 4, BLOCK = 50, BLOCKS = 8, STEPS = BLOCK * BLOCKS };

static team *start(const pd_child *daemon, const char *job, const char *rule, const char *durability)
{
    static int64_t elements[PARAMS];
    const char *options[] = { durability, "checkpoint_every=100", NULL };

    for (int i = 0; i < PARAMS; i++) elements[i] = (int64_t)SIDE * SIDE;
    return team_start(&(team_options){ .url = daemon->local,
                                       .job = job,
                                       .workers = 2,
                                       .elements = elements,
                                       .n = PARAMS,
                                       .square = true,
                                       .rule = rule,
                                       .options = options });
}

static uint64_t durable_step(const pd_child *daemon)
{
    pd_operator op;
    const Paramd__StatusReply *status = figure_status(daemon->url, &op);
    uint64_t step = 0;

    for (size_t i = 0; i < status->n_jobs; i++) {
        if (strcmp(status->jobs[i]->name, "logged") != 0) continue;
        step = status->jobs[i]->durable_step;
        if (status->jobs[i]->checkpoint_error[0] != '\0') figure_stop("%s", status->jobs[i]->checkpoint_error);
    }
    pd_operator_close(&op);
    return step;
}

static double median_of_pairs(const double *with, const double *without)
{
    double ratio[BLOCKS], a[BLOCK], b[BLOCK];

    for (int i = 0; i < BLOCKS; i++) {
        memcpy(a, with + i * BLOCK, sizeof a);
        memcpy(b, without + i * BLOCK, sizeof b);
        ratio[i] = figure_quantile(a, BLOCK, 0.5) / figure_quantile(b, BLOCK, 0.5);
    }
    return figure_quantile(ratio, BLOCKS, 0.5);
}

static void measure(team *logged, team *none, double *with, double *without)
{
    team_steps(logged, BLOCK, NULL); /* the first checkpoint, and the first segments of the log */
    team_steps(none, BLOCK, NULL);
    for (int i = 0; i < BLOCKS; i++) {
        bool first = i % 2 == 0; /* alternates which job begins a pair of blocks */
        team_steps(first ? logged : none, BLOCK, (first ? with : without) + i * BLOCK);
        team_steps(first ? none : logged, BLOCK, (first ? without : with) + i * BLOCK);
    }
}

int main(int argc, char **argv)
{
    static double with[STEPS], without[STEPS];
    bool sgd = argc == 2 && strcmp(argv[1], "sgd") == 0;
    const char *rule = sgd ? "* sgd lr=0.001" : "* adamw lr=0.001";
    char folder[] = "/var/tmp/paramd-figure.XXXXXX";
    double ratio;
    uint64_t durable;
    pd_child daemon;
    team *logged, *none;

    if (argc != 2 || (!sgd && strcmp(argv[1], "adamw") != 0)) figure_stop("expected adamw|sgd");
    figure_folder(folder);
    figure_daemon(&daemon);
    logged = start(&daemon, "logged", rule, "durability=log");
    none = start(&daemon, "none", rule, "durability=none");
    measure(logged, none, with, without);
    durable = durable_step(&daemon);
    ratio = median_of_pairs(with, without);
    printf(
        "%.3f\twith a log: median %.2f, 99 %%: %.2f ms; without: median %.2f, 99 %%: %.2f ms; %d steps each, durable "
        "step %llu of %d\n",
        ratio, figure_quantile(with, STEPS, 0.5), figure_quantile(with, STEPS, 0.99),
        figure_quantile(without, STEPS, 0.5), figure_quantile(without, STEPS, 0.99), STEPS, (unsigned long long)durable,
        BLOCK + STEPS);
    team_end(logged);
    team_end(none);
    pd_child_stop(&daemon);
    figure_remove(folder);
    return durable + 5 > (uint64_t)(BLOCK + STEPS) ? 0 : 1;
}
