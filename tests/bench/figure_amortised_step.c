/* Measures the steps of one optimizer on a matrix together with their inverse roots, for meta_side_by_side.py.
 *
 *     figure_amortised_step THREADS PERIOD CYCLES OPTIMIZER ROWSxCOLS [HYPER=VALUE...]
 *
 * PERIOD is the number of steps from one computation of the roots to the next. The first PERIOD steps only make the
 * first roots. CYCLES times PERIOD steps are measured. Prints the milliseconds of a step on average, and a note. */

#include "blascore.h"
#include "figure.h"
#include "sgemm.h"
#include "stepped.h"

enum { GRADIENTS = 10 };

typedef struct run {
    pd_model *model;
    int64_t elements;
    float *gradients, *before, *after;
    int steps;
} run;

static void start(run *r, int argc, char **argv)
{
    pd_declaration param = { .name = "w", .shape = { .rank = 2 } };
    pd_error err;
    char *end;

    param.shape.dim[0] = strtoll(argv[5], &end, 10);
    if (*end != 'x') figure_stop("expected ROWSxCOLS, got %s", argv[5]);
    param.shape.dim[1] = atoll(end + 1);
    param.hypers = stepped_hypers(argv[4], argv + 6, argc - 6);
    r->elements = param.shape.dim[0] * param.shape.dim[1];
    r->gradients = sgemm_random(GRADIENTS * r->elements, 1e-2f);
    r->before = sgemm_random(r->elements, 1), r->after = sgemm_random(r->elements, 1);
    if (pd_model_new(&r->model, &param, 1, atoi(argv[1]), &err) != PD_OK) figure_stop("%s", err.text);
}

static void step(run *r)
{
    pd_step_io io = { .gradient = r->gradients + r->steps++ % GRADIENTS * r->elements,
                      .before = r->before,
                      .after = r->after };
    pd_error err;

    if (pd_model_step(r->model, &io, &err) != PD_OK) figure_stop("%s", err.text);
    r->before = r->after, r->after = (float *)io.before; /* the next step writes to the buffer that was the input of
                                                          * this step; the program owns both buffers */
}

/* Takes steps. Returns the milliseconds of a step on average. */
static double steps_ms(run *r, int steps)
{
    double begin = figure_ms();

    for (int i = 0; i < steps; i++) step(r);
    return (figure_ms() - begin) / steps;
}

int main(int argc, char **argv)
{
    run r = { 0 };
    int period, cycles;

    figure_kernels(argv);
    if (argc < 6) figure_stop("usage: %s THREADS PERIOD CYCLES OPTIMIZER ROWSxCOLS [HYPER=VALUE...]", argv[0]);
    period = atoi(argv[2]), cycles = atoi(argv[3]);
    if (period < 1 || cycles < 1 || atoi(argv[1]) < 1) figure_stop("THREADS, PERIOD and CYCLES must be at least 1");
    start(&r, argc, argv);
    steps_ms(&r, period);
    printf("%.2f\tms a step of %d; %s\n", steps_ms(&r, cycles * period), cycles * period, pd_blas_core());
    pd_model_free(r.model);
    free(r.gradients), free(r.before), free(r.after);
    return 0;
}
