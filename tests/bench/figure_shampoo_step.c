/* shampoo_step_N, soap_step_N, kl_step_N, gpt2_step: the speed of one step on a matrix, or on all parameters
 * of a model, without the roots. The step consists of factors, direction, graft, momenta and weights, and uses all
 * cores, as in the daemon. The figure is the step's operations per second, divided by the peak of sgemm. The peak is
 * measured between the steps, with one thread for each core that multiplies matrices of side 1024 of its own.
 * Symmetric products count half. Medians count.
 *
 *     figure_shampoo_step OPTIMIZER ROWSxCOLS|FILE [HYPER=VALUE...]        FILE: names and shapes (shapes_file.h)
 *
 * The hyperparameters must be such that roots are due only in steps 1 + k 10^9, or k 10^9. Only steps after these
 * are measured. */

#include "batch.h"
#include "figure.h"
#include "optimizer.h"
#include "sgemm.h"
#include "shapes_file.h"
#include "stepped.h"

enum { ROUNDS = 60, LEAST_ROUNDS = 5, WARM = 2, PEAKS = 4, MOST_PARAMS = 4096 };
#define ROOTS_AT 1000000001
#define ENOUGH_MS 20000.0

typedef struct model {
    size_t n;
    pd_optim *optims[MOST_PARAMS];
    pd_step_io io[MOST_PARAMS];
    double flops;
} model;

static void add(model *m, const char *name, const pd_shape *shape, const pd_hypers *hypers)
{
    pd_declaration param = { .name = name, .shape = *shape, .hypers = *hypers };
    double stats[PD_MAX_MODEL_STATS];
    pd_error err;
    int64_t n;

    if (m->n == MOST_PARAMS) figure_stop("more than %d parameters", MOST_PARAMS);
    pd_model_stats_of(hypers->row, &param, 1, stats);
    if (pd_optim_new(&m->optims[m->n], &param, stats, &err) != PD_OK) figure_stop("%s", err.text);
    pd_optim_set_count(m->optims[m->n], ROOTS_AT);
    stepped_fill_roots(m->optims[m->n]);
    n = pd_optim_elements(m->optims[m->n]);
    m->io[m->n] =
        (pd_step_io){ .gradient = sgemm_random(n, 1e-2f), .before = sgemm_random(n, 1), .after = sgemm_random(n, 1) };
    m->flops += pd_optim_plan(m->optims[m->n++])->flops;
}

static void read_model(model *m, const char *what, const pd_hypers *hypers)
{
    pd_shape matrix = { .rank = 2 };
    pd_shapes shapes;
    pd_error err;
    char *end;

    matrix.dim[0] = strtoll(what, &end, 10);
    if (end != what && *end == 'x') {
        matrix.dim[1] = strtoll(end + 1, NULL, 10);
        add(m, "w", &matrix, hypers);
        return;
    }
    if (pd_shapes_read(&shapes, what, &err) != PD_OK) figure_stop("%s", err.text);
    for (size_t i = 0; i < shapes.n; i++) add(m, shapes.entries[i].name, &shapes.entries[i].shape, hypers);
    pd_shapes_free(&shapes);
}

static double step_ms(model *m, int threads)
{
    double begin = figure_ms(), ms;

    for (size_t i = 0; i < m->n; i++)
        if (pd_optim_begin(m->optims[i], &m->io[i]) != PD_OK) figure_stop("out of memory");
    if (pd_batch_run(m->optims, m->n, threads) != PD_OK) figure_stop("out of memory");
    ms = figure_ms() - begin;
    for (size_t i = 0; i < m->n; i++) {
        float *after = m->io[i].after;
        if (!pd_optim_done(m->optims[i])) figure_stop("a step waits for roots");
        m->io[i].after = (float *)m->io[i].before; /* the next step writes to the buffer that was the input of this
                                                    * step; the program owns both buffers */
        m->io[i].before = after;
    }
    return ms;
}

int main(int argc, char **argv)
{
    static model m;
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN), rounds = 0, peaks = 0;
    double ms[ROUNDS], most[ROUNDS * PEAKS], step, begin;
    pd_hypers hypers;

    figure_kernels(argv);
    if (argc < 3) figure_stop("usage: %s OPTIMIZER ROWSxCOLS|FILE [HYPER=VALUE...]", argv[0]);
    hypers = stepped_hypers(argv[1], argv + 3, argc - 3);
    read_model(&m, argv[2], &hypers);
    for (int i = 0; i < WARM; i++) sgemm_peak(threads), step_ms(&m, threads);
    begin = figure_ms();
    while (rounds < ROUNDS && (rounds < LEAST_ROUNDS || figure_ms() - begin < ENOUGH_MS)) {
        for (int i = 0; i < PEAKS; i++) most[peaks++] = sgemm_peak(threads);
        ms[rounds++] = step_ms(&m, threads);
    }
    step = figure_quantile(ms, (size_t)rounds, 0.5);
    printf("%.3f\t%.1f ms a step (fastest of %d: %.1f), %.1f GFLOP; sgemm on %d cores %.0f GFLOP/s\n",
           m.flops / step / figure_quantile(most, (size_t)peaks, 0.5), step, rounds, ms[0], m.flops / 1e9, threads,
           figure_quantile(most, (size_t)peaks, 0.5) / 1e6);
    for (size_t i = 0; i < m.n; i++) pd_optim_free(m.optims[i]);
    return 0;
}
