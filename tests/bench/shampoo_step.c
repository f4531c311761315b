/* shampoo_step_N: a step of scalable_shampoo on a parameter of 4096 x 1024 with blocks of side N, without its roots: statistics, preconditioning,
 * graft, momenta and weights on all cores, as the daemon runs it. The share of the machine's sgemm peak: of as many threads as there are cores that
 * multiply matrices of side 1024, each on its own, between the steps. Symmetric products count half. Medians.
 *
 *     figure_shampoo_step BLOCK_SIZE [HYPER=VALUE...] */
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "figure.h"
#include "linalg.h"
#include "optim.h"
#include "pages.h"

enum { ROWS = 4096, COLS = 1024, SIDE = 1024, ROUNDS = 60, WARM = 5 };

static float *random_floats(int64_t n, float size)
{
    float *at = pd_pages_new((size_t)n * sizeof *at);
    uint32_t seed = 1;

    if (at == NULL) figure_stop("out of memory");
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        at[i] = size * ((float)(seed >> 8) / 8388608.0f - 1);
    }
    return at;
}

/* Floating-point operations a millisecond of all threads together. */
static double peak(int threads)
{
    static float *A, *B, *C;
    int64_t n = (int64_t)SIDE * SIDE;
    double begin;

    if (A == NULL) A = random_floats(n, 1), B = random_floats(n, 1), C = random_floats(n * threads, 1);
    begin = figure_ms();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++)
        pd_gemm(pd_mat_dense(C + n * t, SIDE, SIDE), 0, 1, pd_mat_dense(A, SIDE, SIDE), PD_AS_IS, pd_mat_dense(B, SIDE, SIDE), PD_AS_IS);
    return 2.0 * SIDE * SIDE * SIDE * threads / (figure_ms() - begin);
}

static pd_optim *optim_of(int argc, char **argv)
{
    pd_declaration param = { .name = "w", .shape = { 2, { ROWS, COLS } } };
    double fact[PD_MAX_FACTS];
    pd_optim *optim;
    pd_error err;

    pd_hypers_init(&param.hypers, pd_optim_find("scalable_shampoo"));
    if (pd_hypers_set(&param.hypers, "block_size", argv[1], &err) != PD_OK) figure_stop("%s", err.text);
    if (pd_hypers_set(&param.hypers, "preconditioning_compute_steps", "1000000000", &err) != PD_OK) figure_stop("%s", err.text);
    for (int i = 2; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value == NULL) figure_stop("expected HYPER=VALUE, got %s", argv[i]);
        *value++ = '\0';
        if (pd_hypers_set(&param.hypers, argv[i], value, &err) != PD_OK) figure_stop("%s", err.text);
    }
    pd_optim_survey(param.hypers.row, &param, 1, fact);
    if (pd_optim_new(&optim, &param, fact, &err) != PD_OK) figure_stop("%s", err.text);
    pd_optim_set_count(optim, 1);                       /* roots are due in the first step alone */
    return optim;
}

static double step_ms(pd_optim *optim, const pd_step_io *io, int threads)
{
    double begin = figure_ms();

    if (pd_optim_begin(optim, io) != PD_OK || pd_batch_run(&optim, 1, threads) != PD_OK) figure_stop("out of memory");
    if (!pd_optim_done(optim)) figure_stop("the step waits for roots");
    return figure_ms() - begin;
}

int main(int argc, char **argv)
{
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double ms[ROUNDS], peaks[ROUNDS], flops, step, most;
    float *gradient, *weights[2];
    pd_optim *optim;

    figure_kernels(argv);
    if (argc < 2) figure_stop("usage: %s BLOCK_SIZE [HYPER=VALUE...]", argv[0]);
    optim = optim_of(argc, argv);
    gradient = random_floats((int64_t)ROWS * COLS, 1e-2f);
    for (int i = 0; i < 2; i++) weights[i] = random_floats((int64_t)ROWS * COLS, 1);
    for (int i = -WARM; i < ROUNDS; i++) {
        double p = peak(threads), s = step_ms(optim, &(pd_step_io){ .gradient = gradient, .before = weights[i & 1], .after = weights[~i & 1] }, threads);
        if (i >= 0) peaks[i] = p, ms[i] = s;
    }
    flops = pd_optim_plan(optim)->flops;
    step = figure_quantile(ms, ROUNDS, 0.5);
    most = figure_quantile(peaks, ROUNDS, 0.5);
    printf("%.3f\t%.1f ms a step (fastest %.1f), %.1f GFLOP; sgemm on %d cores %.0f GFLOP/s\n", flops / step / most, step, ms[0], flops / 1e9, threads, most / 1e6);
    pd_optim_free(optim);
    return 0;
}
