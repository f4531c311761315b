/* kron_step: the speed of one step of kron with an update of its factors, on one matrix and one core. The step
 * consists of momentum, probe, update, preconditioning, clip and weights. The figure is the step's operations per
 * second, divided by the peak of sgemm on that core, which is measured between the steps. Medians count.
 *
 *     figure_kron_step ROWSxCOLS [HYPER=VALUE...]
 *
 * pd_kron_update_flops and pd_kron_precondition_flops count the operations of a block of m x n with triangular
 * factors. Triangular products, triangular solutions and symmetric products count half of a general product, the
 * product of two triangles a sixth. The sum is:
 *
 *     m n (m + n)        for A = Q0 H Q1'
 *     m n (m + n)        for B, which is solved with Q0 and Q1
 *     m n (m + n)        for A A' and A' A together
 *     m n (m + n)        for B B' and B' B together
 *     (m^3 + n^3) / 3    for the new factors
 *     2 m n (m + n)      for Q0'Q0 X Q1'Q1
 *
 * The probe, norms, bounds and passes over memory take time, but do not count as operations. */

#include "figure.h"
#include "optimizer_ops.h"
#include "plan_make.h"
#include "sgemm.h"

enum { ROUNDS = 60, LEAST_ROUNDS = 5, WARM = 2, PEAKS = 4 };
#define ENOUGH_MS 20000.0

static pd_declaration declaration_of(int argc, char **argv)
{
    pd_declaration param = { .name = "w", .shape = { .rank = 2 } };
    pd_error err;
    char *end;

    param.shape.dim[0] = strtoll(argv[1], &end, 10);
    if (end == argv[1] || *end != 'x') figure_stop("expected ROWSxCOLS, got %s", argv[1]);
    param.shape.dim[1] = strtoll(end + 1, NULL, 10);
    pd_hypers_init(&param.hypers, pd_optim_find("kron"));
    if (pd_hypers_set(&param.hypers, "preconditioner_update_probability", "1", &err) != PD_OK)
        figure_stop("%s", err.text);
    for (int i = 2; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value == NULL) figure_stop("expected HYPER=VALUE, got %s", argv[i]);
        *value++ = '\0';
        if (pd_hypers_set(&param.hypers, argv[i], value, &err) != PD_OK) figure_stop("%s", err.text);
    }
    return param;
}

static double flops_of(const pd_declaration *param)
{
    double stats[PD_MAX_MODEL_STATS] = { 0 }, flops;
    pd_error err;
    pd_plan plan;

    if (pd_plan_make(&plan, param, stats, &err) != PD_OK) figure_stop("%s", err.text);
    flops = plan.flops;
    for (size_t t = 0; t < plan.n_tasks; t++) flops += plan.tasks[t].cost;
    pd_plan_free(&plan);
    return flops;
}

static double step_ms(pd_model *model, pd_step_io *io)
{
    double begin = figure_ms(), ms;
    float *after = io->after;
    pd_error err;

    if (pd_model_step(model, io, &err) != PD_OK) figure_stop("%s", err.text);
    ms = figure_ms() - begin;
    io->after = (float *)io->before; /* the next step writes to the buffer that was the input of this step; the
                                      * program owns both buffers */
    io->before = after;
    return ms;
}

int main(int argc, char **argv)
{
    int rounds = 0, peaks = 0;
    double ms[ROUNDS], most[ROUNDS * PEAKS], step, flops, begin;
    pd_declaration param;
    pd_step_io io = { 0 };
    pd_model *model;
    pd_error err;
    int64_t n;

    figure_kernels(argv);
    if (argc < 2) figure_stop("usage: %s ROWSxCOLS [HYPER=VALUE...]", argv[0]);
    param = declaration_of(argc, argv);
    flops = flops_of(&param);
    n = param.shape.dim[0] * param.shape.dim[1];
    io = (pd_step_io){ .gradient = sgemm_random(n, 1e-2f), .before = sgemm_random(n, 1), .after = sgemm_random(n, 1) };
    if (pd_model_new(&model, &param, 1, 1, &err) != PD_OK) figure_stop("%s", err.text);
    for (int i = 0; i < WARM; i++) sgemm_peak(1), step_ms(model, &io);
    begin = figure_ms();
    while (rounds < ROUNDS && (rounds < LEAST_ROUNDS || figure_ms() - begin < ENOUGH_MS)) {
        for (int i = 0; i < PEAKS; i++) most[peaks++] = sgemm_peak(1);
        ms[rounds++] = step_ms(model, &io);
    }
    step = figure_quantile(ms, (size_t)rounds, 0.5);
    printf("%.3f\t%.1f ms a step (fastest of %d: %.1f), %.1f GFLOP; sgemm on one core %.0f GFLOP/s\n",
           flops / step / figure_quantile(most, (size_t)peaks, 0.5), step, rounds, ms[0], flops / 1e9,
           figure_quantile(most, (size_t)peaks, 0.5) / 1e6);
    pd_model_free(model);
    return 0;
}
