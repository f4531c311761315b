/* checkpoint_stall adamw|shampoo p50|p99: how much checkpoints slow down a job's steps.
 *
 * The job has 25 matrices of 1000 x 1000 and 2 workers on the daemon's machine. It makes a checkpoint every 50 steps. A
 * second job in the same daemon is the same, but makes none. Blocks of 50 steps of the two jobs alternate; a checkpoint
 * begins with the first step of a block, so it is written while its own job takes steps. The figure p50 is the median,
 * over pairs of blocks, of the ratio of their median step times. The figure p99 is the ratio of the 99th percentiles of
 * all step times. */
#include "figure.h"
#include "bench_team.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 1000, PARAMS = 25, EVERY = 50, BLOCKS = 6, STEPS = EVERY * BLOCKS };

static const struct {
    const char *name, *rule;
} optimizers[] = {
    { "adamw", "* adamw lr=0.001" },
    { "shampoo", "* shampoo lr=0.001 max_preconditioner_dim=250 precondition_frequency=1000000 grafting_config=Adam" },
};

static team *start(const pd_child *daemon, const char *job, const char *rule, const char *option)
{
    static int64_t elements[PARAMS];
    const char *options[] = { option, NULL };

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

/* Reads the durable step of the job "kept", and the size of its last checkpoint. */
static uint64_t durable_step(const pd_child *daemon, double *mb)
{
    pd_operator op;
    const Paramd__StatusReply *status = figure_status(daemon->url, &op);
    uint64_t step = 0;

    for (size_t i = 0; i < status->n_jobs; i++) {
        if (strcmp(status->jobs[i]->name, "kept") != 0) continue;
        step = status->jobs[i]->durable_step;
        *mb = (double)status->jobs[i]->checkpoint_bytes / 1e6;
        if (status->jobs[i]->checkpoint_error[0] != '\0') figure_stop("%s", status->jobs[i]->checkpoint_error);
    }
    pd_operator_close(&op);
    return step;
}

static double median_of_pairs(const double *with, const double *without)
{
    double ratio[BLOCKS], a[EVERY], b[EVERY];

    for (int i = 0; i < BLOCKS; i++) {
        memcpy(a, with + i * EVERY, sizeof a);
        memcpy(b, without + i * EVERY, sizeof b);
        ratio[i] = figure_quantile(a, EVERY, 0.5) / figure_quantile(b, EVERY, 0.5);
    }
    return figure_quantile(ratio, BLOCKS, 0.5);
}

/* Takes the blocks of both jobs. The step times go to `with` and `without`. */
static void measure(team *kept, team *none, double *with, double *without)
{
    team_steps(kept, EVERY - 1, NULL); /* the next step is a multiple of EVERY */
    team_steps(none, EVERY - 1, NULL);
    for (int i = 0; i < BLOCKS; i++) {
        bool first = i % 2 == 0; /* alternates which job begins a pair of blocks */
        team_steps(first ? kept : none, EVERY, (first ? with : without) + i * EVERY);
        team_steps(first ? none : kept, EVERY, (first ? without : with) + i * EVERY);
    }
}

static void report(double *with, double *without, bool tail, uint64_t durable, double mb)
{
    double p50 = median_of_pairs(with, without); /* comes before figure_quantile, which sorts the step times */
    double p99 = figure_quantile(with, STEPS, 0.99) / figure_quantile(without, STEPS, 0.99);

    printf(
        "%.3f\tp50 %.3f, p99 %.3f; with checkpoints: median %.2f, 99 %%: %.2f, most %.2f ms; without: median %.2f, 99 "
        "%%: %.2f, most %.2f ms; %d steps each, %.0f MB a checkpoint, durable step %llu\n",
        tail ? p99 : p50, p50, p99, figure_quantile(with, STEPS, 0.5), figure_quantile(with, STEPS, 0.99),
        figure_quantile(with, STEPS, 1), figure_quantile(without, STEPS, 0.5), figure_quantile(without, STEPS, 0.99),
        figure_quantile(without, STEPS, 1), STEPS, mb, (unsigned long long)durable);
}

int main(int argc, char **argv)
{
    int which = argc == 3 && strcmp(argv[1], "shampoo") == 0;
    bool tail = argc == 3 && strcmp(argv[2], "p99") == 0;
    double *with = figure_alloc(STEPS * sizeof *with), *without = figure_alloc(STEPS * sizeof *without), mb = 0;
    char folder[] = "/var/tmp/paramd-figure.XXXXXX";
    uint64_t durable;
    pd_child daemon;
    team *kept, *none;

    if (argc != 3 || strcmp(argv[1], optimizers[which].name) != 0 || (!tail && strcmp(argv[2], "p50") != 0))
        figure_stop("expected adamw|shampoo p50|p99");
    figure_folder(folder);
    figure_daemon(&daemon);
    kept = start(&daemon, "kept", optimizers[which].rule, "checkpoint_every=50");
    none = start(&daemon, "none", optimizers[which].rule, "durability=none");
    measure(kept, none, with, without);
    durable = durable_step(&daemon, &mb);
    report(with, without, tail, durable, mb);
    team_end(kept);
    team_end(none);
    pd_child_stop(&daemon);
    figure_remove(folder);
    free(with);
    free(without);
    return durable == (uint64_t)EVERY * BLOCKS ? 0 : 1;
}
