/* root_stall p50|p99: how much the roots of a job slow down its steps.
 *
 * The job has two parameters of 1024 x 1024 under scalable_shampoo, and 2 workers that wait 30 ms in each step, in
 * place of an accelerator's computation. Its roots are due every 20 steps and used 20 steps later. A second job in
 * the same daemon is the same, but its roots are never due. Blocks of 20 steps of the two jobs alternate. The figure
 * p50 is the median, over pairs of blocks, of the ratio of their median step times. The figure p99 is the ratio of
 * the 99th percentiles of all step times. */
#include "figure.h"
#include "bench_team.h"

enum { SIDE = 1024, PARAMS = 2, BLOCK = 20, BLOCKS = 16, STEPS = BLOCK * BLOCKS };

#define RULE "* scalable_shampoo learning_rate=0.001 block_size=1024 root_method=eigh "

static team *start(const pd_child *daemon, const char *job, const char *rule)
{
    static const int64_t elements[PARAMS] = { SIDE * SIDE, SIDE * SIDE };

    return team_start(&(team_options){ .url = daemon->url,
                                       .job = job,
                                       .workers = 2,
                                       .elements = elements,
                                       .n = PARAMS,
                                       .square = true,
                                       .rule = rule,
                                       .compute_ms = 30 });
}

/* Asks the daemon how many roots the job "roots" has adopted so far, and how often its steps have waited for a root. */
static void count_roots(const pd_child *daemon, uint64_t *adopted, uint64_t *waits)
{
    pd_operator op;
    const Paramd__StatusReply *status = figure_status(daemon->url, &op);

    *adopted = *waits = 0;
    for (size_t i = 0; i < status->n_jobs; i++) {
        if (strcmp(status->jobs[i]->name, "roots") != 0) continue;
        *adopted = status->jobs[i]->roots_adopted;
        *waits = status->jobs[i]->root_waits;
    }
    pd_operator_close(&op);
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

int main(int argc, char **argv)
{
    bool tail = argc == 2 && strcmp(argv[1], "p99") == 0;
    double *with = figure_alloc(STEPS * sizeof *with), *without = figure_alloc(STEPS * sizeof *without);
    double p50, p99;
    uint64_t adopted[2], waits[2];
    pd_child daemon;
    team *roots, *none;

    if (!tail && (argc != 2 || strcmp(argv[1], "p50") != 0)) figure_stop("expected p50 or p99");
    figure_daemon(&daemon);
    roots = start(&daemon, "roots", RULE "preconditioning_compute_steps=20 root_delay=20");
    none = start(&daemon, "none", RULE "preconditioning_compute_steps=1000000 root_delay=20");
    team_steps(roots, BLOCK, NULL); /* roots are due at the first step of a block, and finish long before its end */
    team_steps(none, BLOCK, NULL);
    count_roots(&daemon, &adopted[0], &waits[0]);
    for (int i = 0; i < BLOCKS; i++) {
        bool first = i % 2 == 0; /* alternates which job begins a pair of blocks */
        team_steps(first ? roots : none, BLOCK, (first ? with : without) + i * BLOCK);
        team_steps(first ? none : roots, BLOCK, (first ? without : with) + i * BLOCK);
    }
    count_roots(&daemon, &adopted[1], &waits[1]);
    p50 = median_of_pairs(with, without); /* comes before figure_quantile, which sorts the step times */
    p99 = figure_quantile(with, STEPS, 0.99) / figure_quantile(without, STEPS, 0.99);
    printf("%.3f\tp50 %.3f, p99 %.3f; with roots: median %.2f, 99 %%: %.2f, most %.2f ms; without: median %.2f, 99 %%: "
           "%.2f, most %.2f ms; %d steps each, %llu roots adopted, %llu waits\n",
           tail ? p99 : p50, p50, p99, figure_quantile(with, STEPS, 0.5), figure_quantile(with, STEPS, 0.99),
           figure_quantile(with, STEPS, 1), figure_quantile(without, STEPS, 0.5), figure_quantile(without, STEPS, 0.99),
           figure_quantile(without, STEPS, 1), STEPS, (unsigned long long)(adopted[1] - adopted[0]),
           (unsigned long long)(waits[1] - waits[0]));
    team_end(roots);
    team_end(none);
    pd_child_stop(&daemon);
    free(with);
    free(without);
    return adopted[1] > adopted[0] ? 0 : 1;
}
