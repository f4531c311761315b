/* checkpoint_stall adamw|shampoo p50|p99: how much checkpoints slow down a job's steps.
 *
 * The job has 25 matrices of 1000 x 1000 and 2 workers on the daemon's machine. It makes a checkpoint every 50 steps. A
 * second job in the same daemon is the same, but makes none. Blocks of 50 steps of the two jobs alternate; a checkpoint
 * begins with the first step of a block, so it is written while its own job takes steps. The figure p50 is the median,
 * over pairs of blocks, of the ratio of their median step times. The figure p99 is the ratio of the 99th percentiles of
 * all step times. */
#include "figure.h"
#include "pair.h"

enum { EVERY = 50, BLOCKS = 6 };

static const struct {
    const char *name, *rule;
} optimizers[] = {
    { "adamw", "* adamw lr=0.001" },
    { "shampoo", "* shampoo lr=0.001 max_preconditioner_dim=250 precondition_frequency=1000000 grafting_config=Adam" },
};

static void report(pair_result *r, bool tail)
{
    size_t n = (size_t)r->steps;
    double p99 = figure_quantile(r->with, n, 0.99) / figure_quantile(r->without, n, 0.99);

    printf("%.3f\tp50 %.3f, pairs from %.3f to %.3f (two blocks without checkpoints differ by up to %.3f), p99 %.3f; ",
           tail ? p99 : r->ratio, r->ratio, r->least, r->most, r->noise, p99);
    printf(
        "with checkpoints: median %.2f, 99 %%: %.2f, most %.2f ms; without: median %.2f, 99 %%: %.2f, most %.2f ms; ",
        figure_quantile(r->with, n, 0.5), figure_quantile(r->with, n, 0.99), figure_quantile(r->with, n, 1),
        figure_quantile(r->without, n, 0.5), figure_quantile(r->without, n, 0.99), figure_quantile(r->without, n, 1));
    printf("%d steps each, %.0f MB a checkpoint, durable step %llu\n", r->steps, r->checkpoint_mb,
           (unsigned long long)r->durable);
}

int main(int argc, char **argv)
{
    static const char *const with[] = { "checkpoint_every=50", NULL }, *const without[] = { "durability=none", NULL };
    int which = argc == 3 && strcmp(argv[1], "shampoo") == 0;
    bool tail = argc == 3 && strcmp(argv[2], "p99") == 0;
    pair_result r;

    if (argc != 3 || strcmp(argv[1], optimizers[which].name) != 0 || (!tail && strcmp(argv[2], "p50") != 0))
        figure_stop("expected adamw|shampoo p50|p99");
    pair_measure(&r, &(pair_options){ .rule = optimizers[which].rule,
                                      .with = with,
                                      .without = without,
                                      .side = 1000,
                                      .params = 25,
                                      .before = EVERY - 1, /* the next step is a multiple of EVERY */
                                      .block = EVERY,
                                      .blocks = BLOCKS });
    report(&r, tail);
    pair_free(&r);
    return r.durable == (uint64_t)EVERY * BLOCKS ? 0 : 1;
}
