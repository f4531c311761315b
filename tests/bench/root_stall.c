/* root_stall p50|p99: what roots cost the steps of a job: two parameters of 1024 x 1024 under scalable_shampoo, 2 workers that wait 30 ms a step in
 * place of an accelerator's computing. Step time with roots due every 20 steps and used 20 steps later, over that of the same job with roots
 * never due: the median, or the 99th percentile. Blocks of 40 steps of the two jobs take turns in one daemon. */
#include "figure.h"
#include "team.h"

#include <string.h>

enum { SIDE = 1024, PARAMS = 2, BLOCK = 40, BLOCKS = 10, STEPS = BLOCK * BLOCKS };

#define RULE "* scalable_shampoo learning_rate=0.001 block_size=1024 root_method=eigh "

static team *start(const pd_child *daemon, const char *job, const char *rule)
{
    static const int64_t elements[PARAMS] = { SIDE * SIDE, SIDE * SIDE };

    return team_start(&(team_options){ .url = daemon->url, .job = job, .workers = 2, .elements = elements, .n = PARAMS, .square = true, .rule = rule,
                                       .compute_ms = 30 });
}

/* Roots adopted and waits so far, of the job with roots. */
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

int main(int argc, char **argv)
{
    double part = argc == 2 && strcmp(argv[1], "p99") == 0 ? 0.99 : 0.5;
    double *with = figure_alloc(STEPS * sizeof *with), *without = figure_alloc(STEPS * sizeof *without);
    uint64_t adopted[2], waits[2];
    pd_child daemon;
    team *roots, *none;

    if (argc != 2 || (strcmp(argv[1], "p50") != 0 && strcmp(argv[1], "p99") != 0)) figure_stop("expected p50 or p99");
    figure_daemon(&daemon);
    roots = start(&daemon, "roots", RULE "preconditioning_compute_steps=20 root_delay=20");
    none = start(&daemon, "none", RULE "preconditioning_compute_steps=1000000 root_delay=20");
    team_steps(roots, BLOCK, NULL);             /* roots are due at the first step of a block, so none is under way at its end */
    team_steps(none, BLOCK, NULL);
    count_roots(&daemon, &adopted[0], &waits[0]);
    for (int i = 0; i < BLOCKS; i++) {
        team_steps(roots, BLOCK, with + i * BLOCK);
        team_steps(none, BLOCK, without + i * BLOCK);
    }
    count_roots(&daemon, &adopted[1], &waits[1]);
    printf("%.3f\twith roots: median %.2f, 99 %%: %.2f, most %.2f ms; without: median %.2f, 99 %%: %.2f, most %.2f ms; %d steps each, %llu roots "
           "adopted, %llu waits\n", figure_quantile(with, STEPS, part) / figure_quantile(without, STEPS, part), figure_quantile(with, STEPS, 0.5),
           figure_quantile(with, STEPS, 0.99), figure_quantile(with, STEPS, 1), figure_quantile(without, STEPS, 0.5),
           figure_quantile(without, STEPS, 0.99), figure_quantile(without, STEPS, 1), STEPS, (unsigned long long)(adopted[1] - adopted[0]),
           (unsigned long long)(waits[1] - waits[0]));
    team_end(roots);
    team_end(none);
    pd_child_stop(&daemon);
    free(with);
    free(without);
    return adopted[1] > adopted[0] ? 0 : 1;
}
