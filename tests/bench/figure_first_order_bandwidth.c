/* first_order_bandwidth: the memory bandwidth of a step of each element-wise optimizer, divided by the bandwidth of
 * a triad, a[i] = b[i] + s c[i], with as many threads in the same memory. Each step is compared with the triad after
 * it, and the median of the ratios counts. The figure is the ratio of the slowest optimizer.
 *
 * An array counts once for each time that it must be read or written: the gradient, the weights before and after the
 * step (two buffers, as in the daemon), and twice each slot of the optimizer's state, which is read and written.
 * lamb reads the weights twice, and writes and reads its direction, because it needs the norms of both first.
 *
 *     figure_first_order_bandwidth [MEBI_ELEMENTS [OPTIMIZER]]          64 by default, and all optimizers */

#include "figure.h"
#include "stepped.h"
#include "triad.h"

enum { ROUNDS = 9, WARM = 2 };

/* The measured optimizers and their options. For each optimizer, the options with the most state are among them. */
static const struct {
    const char *row, *hyper, *value;
    int read_again;
} cases[] = {
    { "sgd", NULL, NULL, 0 },           { "sgd", "momentum", "0.9", 0 },     { "adam", NULL, NULL, 0 },
    { "adam", "amsgrad", "yes", 0 },    { "adamw", NULL, NULL, 0 },          { "adagrad", NULL, NULL, 0 },
    { "rmsprop", NULL, NULL, 0 },       { "rmsprop", "momentum", "0.9", 0 }, { "rmsprop", "centered", "yes", 0 },
    { "nadam", NULL, NULL, 0 },         { "radam", NULL, NULL, 0 },          { "adamax", NULL, NULL, 0 },
    { "adadelta", NULL, NULL, 0 },      { "rprop", NULL, NULL, 0 },          { "asgd", "t0", "0", 0 },
    { "lamb", NULL, NULL, 1 },          { "lion", NULL, NULL, 0 },           { "delayed_nesterov", NULL, NULL, 0 },
    { "ademamix", NULL, NULL, 0 },      { "mars", NULL, NULL, 0 },           { "mars", "optimize_1d", "yes", 2 },
    { "schedule_free", NULL, NULL, 0 },
};

static int streams(const pd_optim *optim, int read_again)
{
    const pd_plan *plan = pd_optim_plan(optim);
    int n = 3 + read_again;

    for (size_t i = 0; i < plan->n_slots; i++) n += pd_shape_equal(&plan->slots[i].shape, &plan->shape) ? 2 : 0;
    return n;
}

/* Returns the bandwidth of a step, as a share of the bandwidth of the triad after it. */
static double share_of(size_t k, const pd_step_io *io, int64_t n, int threads, double *triad_gb)
{
    pd_optim *optim = stepped_optim(cases[k].row, cases[k].hyper, cases[k].value, (pd_shape){ 1, { n } });
    double share[ROUNDS], step[ROUNDS], triad[ROUNDS], streamed = streams(optim, cases[k].read_again);

    for (int i = -WARM; i < ROUNDS; i++) {
        double s = stepped_ms(optim, io, threads), t = triad_ms(io->after, io->before, io->gradient, n, threads);
        if (i >= 0) step[i] = s, triad[i] = t, share[i] = streamed * t / (3 * s);
    }
    pd_optim_free(optim);
    (void)figure_quantile(share, ROUNDS, 0.5); /* sorts `share`, so that its first and last values are the extremes */
    *triad_gb = 3.0 * sizeof(float) * (double)n / figure_quantile(triad, ROUNDS, 0.5) / 1e6;
    fprintf(stderr, "%-9s %-9s %.3f (%.3f to %.3f), %.1f ms; triad %.1f GB/s\n", cases[k].row,
            cases[k].hyper != NULL ? cases[k].hyper : "", figure_quantile(share, ROUNDS, 0.5), share[0],
            share[ROUNDS - 1], figure_quantile(step, ROUNDS, 0.5), *triad_gb);
    return figure_quantile(share, ROUNDS, 0.5);
}

int main(int argc, char **argv)
{
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int64_t n = (argc > 1 ? atoll(argv[1]) : 64) << 20;
    double worst = 0, triad_gb = 0;
    char note[1024] = "";
    pd_step_io io;

    figure_kernels(argv);
    if (n <= 0) figure_stop("usage: %s [MEBI_ELEMENTS [OPTIMIZER]]", argv[0]);
    io = (pd_step_io){ .gradient = triad_floats(n, 1e-2f), .before = triad_floats(n, 1), .after = triad_floats(n, 1) };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        if (argc > 2 && strcmp(argv[2], cases[k].row) != 0) continue;
        double share = share_of(k, &io, n, threads, &triad_gb);
        size_t used = strlen(note);
        if (worst == 0 || share < worst) worst = share;
        snprintf(note + used, sizeof note - used, ", %s%s%s %.2f", cases[k].row, cases[k].hyper != NULL ? " " : "",
                 cases[k].hyper != NULL ? cases[k].hyper : "", share);
    }
    printf("%.3f\t%d threads, %lld Mi elements, triad %.1f GB/s%s\n", worst, threads, (long long)(n >> 20), triad_gb,
           note);
    return 0;
}
