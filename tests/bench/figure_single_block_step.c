/* single_block_step: how much faster a step of a parameter that is one block is on all cores than on one. The figure is
 * the step's time on one thread, divided by its time on all cores, of the optimizer that gains least. Steps on one
 * thread and on all alternate. Medians count. The note also has the same figure for independent products of matrices of
 * side 1024, one for each thread: cores that share a power budget or caches do not reach their number.
 *
 *     figure_single_block_step [ROWSxCOLS [OPTIMIZER]]        4096x1024 by default, and all optimizers
 *
 * Roots of the Shampoos are not due in these steps. Kron updates its factors in every step: its step consists of
 * momentum, copies for the task, new factors, preconditioning and weights. The time of the task itself does not count,
 * since the preconditioner pool runs it beside the step. */

#include "figure.h"
#include "sgemm.h"
#include "stepped.h"

enum { ROUNDS = 9, LEAST_ROUNDS = 3, PEAKS = 9 };
#define ENOUGH_MS 15000.0
#define ROOTS_AT 1000000001

static const struct {
    const char *row, *rule;
    bool roots; /* the optimizer begins after the step in which roots are due, and has dense ones */
} cases[] = {
    { "scalable_shampoo", "scalable_shampoo block_size=0 preconditioning_compute_steps=1000000000", true },
    { "shampoo",
      "shampoo max_preconditioner_dim=1000000 use_merge_dims=no precondition_frequency=1000000000 betas=0.9,0.999 "
      "grafting_config=Adam",
      true },
    { "kron", "kron partition_grads_into_blocks=no preconditioner_update_probability=1", false },
};

/* Takes a step. Exchanges the two buffers of weights: the next step writes to the one that this step has read. */
static double step_ms(pd_optim *optim, pd_step_io *io, int threads)
{
    double ms = stepped_ms(optim, io, threads);
    float *after = io->after;

    io->after = (float *)io->before;
    io->before = after;
    return ms;
}

/* Returns the time on one thread over that on all, and appends a line to the note. */
static double speedup_of(size_t k, pd_shape shape, pd_step_io *io, int threads, char *note, size_t size)
{
    pd_optim *optim = stepped_by_rule(cases[k].rule, shape);
    double one[ROUNDS], all[ROUNDS], begin, speedup;
    size_t n = 0, used = strlen(note);

    if (pd_optim_plan(optim)->n_blocks != 1) figure_stop("%s: expected one block", cases[k].row);
    if (cases[k].roots) pd_optim_set_count(optim, ROOTS_AT), stepped_fill_roots(optim);
    step_ms(optim, io, 1), step_ms(optim, io, threads);
    begin = figure_ms();
    while (n < ROUNDS && (n < LEAST_ROUNDS || figure_ms() - begin < ENOUGH_MS)) {
        one[n] = step_ms(optim, io, 1);
        all[n++] = step_ms(optim, io, threads);
    }
    pd_optim_free(optim);
    speedup = figure_quantile(one, n, 0.5) / figure_quantile(all, n, 0.5);
    snprintf(note + used, size - used, "%s%s %.2f (%.0f and %.0f ms)", used > 0 ? ", " : "", cases[k].row, speedup,
             figure_quantile(one, n, 0.5), figure_quantile(all, n, 0.5));
    return speedup;
}

static double products_speedup(int threads)
{
    double one[PEAKS], all[PEAKS];

    sgemm_peak(threads);
    for (int i = 0; i < PEAKS; i++) one[i] = sgemm_peak(1), all[i] = sgemm_peak(threads);
    return figure_quantile(all, PEAKS, 0.5) / figure_quantile(one, PEAKS, 0.5);
}

static pd_shape shape_of(const char *text)
{
    pd_shape shape = { .rank = 2 };
    char *end;

    shape.dim[0] = strtoll(text, &end, 10);
    if (end == text || *end != 'x') figure_stop("expected ROWSxCOLS, got %s", text);
    shape.dim[1] = strtoll(end + 1, NULL, 10);
    return shape;
}

int main(int argc, char **argv)
{
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    pd_shape shape = shape_of(argc > 1 ? argv[1] : "4096x1024");
    int64_t n = shape.dim[0] * shape.dim[1];
    char note[512] = "";
    double least = 0;
    pd_step_io io;

    figure_kernels(argv);
    io = (pd_step_io){ .gradient = sgemm_random(n, 1e-2f), .before = sgemm_random(n, 1), .after = sgemm_random(n, 1) };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        if (argc > 2 && strcmp(argv[2], cases[k].row) != 0) continue;
        double speedup = speedup_of(k, shape, &io, threads, note, sizeof note);
        if (least == 0 || speedup < least) least = speedup;
    }
    printf("%.3f\t%s; %d threads; independent products %.2f\n", least, note, threads, products_speedup(threads));
    return 0;
}
