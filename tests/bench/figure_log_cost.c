/* log_cost adamw|sgd: how much a log slows down the steps of a small job.
 *
 * The job has 1 M parameters in 4 matrices, and 2 workers on the daemon's machine. It has durability = log, so each
 * step is an entry of 4 MB on the disk. A second job in the same daemon is the same, but has durability = none. Blocks
 * of 50 steps of the two jobs alternate. The figure is the median, over pairs of blocks, of the ratio of their median
 * step times. */
#include "figure.h"
#include "pair.h"

enum { BLOCK = 50, BLOCKS = 8, UNDER_WAY = 5 };

static void report(pair_result *r)
{
    size_t n = (size_t)r->steps;

    printf("%.3f\tpairs from %.3f to %.3f (two blocks without a log differ by up to %.3f); ", r->ratio, r->least,
           r->most, r->noise);
    printf("with a log: median %.2f, 99 %%: %.2f ms; without: median %.2f, 99 %%: %.2f ms; ",
           figure_quantile(r->with, n, 0.5), figure_quantile(r->with, n, 0.99), figure_quantile(r->without, n, 0.5),
           figure_quantile(r->without, n, 0.99));
    printf("%d steps each, durable step %llu of %d\n", r->steps, (unsigned long long)r->durable, BLOCK + r->steps);
}

int main(int argc, char **argv)
{
    static const char *const with[] = { "durability=log", "checkpoint_every=100", NULL };
    static const char *const without[] = { "durability=none", "checkpoint_every=100", NULL };
    bool sgd = argc == 2 && strcmp(argv[1], "sgd") == 0;
    pair_result r;

    if (argc != 2 || (!sgd && strcmp(argv[1], "adamw") != 0)) figure_stop("expected adamw|sgd");
    pair_measure(&r, &(pair_options){ .rule = sgd ? "* sgd lr=0.001" : "* adamw lr=0.001",
                                      .with = with,
                                      .without = without,
                                      .side = 500,
                                      .params = 4,
                                      .before = BLOCK, /* the first checkpoint, and the first segments of the log */
                                      .block = BLOCK,
                                      .blocks = BLOCKS });
    report(&r);
    pair_free(&r);
    return r.durable + UNDER_WAY > (uint64_t)(BLOCK + r.steps) ? 0 : 1;
}
