/* roots_parallel: how much faster the preconditioner pool computes 64 roots of 512 x 512 (p = 4) with one thread for
 * each core than with one thread. The preconditioner tasks belong to an optimizer in this file, and the daemon's own
 * pool runs them. The time is measured from the first submitted task until the last task is back. The roots are
 * computed by coupled Newton, the default method, from well-conditioned statistics, which keeps the time short. The
 * note has the figure for roots by eigendecomposition. Runs with one thread and with many alternate, and the median
 * ratio counts. */
#include <sys/resource.h>

#include "batch.h"
#include "figure.h"
#include "host.h"
#include "matrices.h"
#include "optimizer.h"
#include "root.h"
#include "precond_pool.h"
#include "optimizer_ops.h"

enum { ROOTS = 64, SIDE = 512, ORDER = 4, CONDITION = 4, PAIRS = 3 };

static pd_root_method method;
static const pd_hyper none[] = { { .name = NULL } };

static int plan_root(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    pd_task_spec task = { .n_inputs = 1,
                          .n_outputs = 1,
                          .input = { 0 },
                          .output = { 1 },
                          .cost = pd_root_flops(PD_ROOT_NEWTON, SIDE, ORDER) };
    (void)stats, (void)err;

    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "statistics", .number = -1, .shape = declaration->shape }) < 0)
        return PD_NO_MEMORY;
    if (pd_plan_slot(plan, &(pd_slot_spec){ .name = "root", .number = -1, .shape = declaration->shape }) < 0)
        return PD_NO_MEMORY;
    return pd_plan_task(plan, &task) < 0 ? PD_NO_MEMORY : PD_OK;
}

static int find_root(float *X, float *A, pd_root_report *report)
{
    pd_root_want want = { .method = method, .p = ORDER, .epsilon = 1e-6, .padding = 1, .most_error = 0.1 };

    return pd_root(pd_mat_dense(X, SIDE, SIDE), pd_mat_dense(NULL, 0, 0), pd_mat_dense(A, SIDE, SIDE), &want, report);
}

static int root(pd_task_view *task)
{
    pd_root_report report;
    int rc = find_root(task->output[0], task->input[0], &report);

    task->error = report.error;
    return rc == PD_OK && report.error < 0.1 ? PD_OK : PD_OUT_OF_RANGE;
}

static void keep(const pd_unit *unit)
{
    memcpy(unit->slot[0], unit->gradient, (size_t)SIDE * SIDE * sizeof *unit->gradient);
}
static void show(const pd_unit *unit)
{
    memcpy(unit->after, unit->slot[1], (size_t)SIDE * SIDE * sizeof *unit->after);
}
static bool always(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    return plan != NULL && hyper != NULL && count > 0 && slot != NULL;
}

static const pd_optimizer_ops row = {
    .name = "roots",
    .hypers = none,
    .plan = plan_root,
    .due = always,
    .task = root,
    .capture_phase = 1,
    .adopt_phase = 1,
    .phases = { { "keep", PD_WHOLE, keep, { 0 }, NULL }, { "show", PD_WHOLE, show, { 0 }, NULL } },
};

static pd_optim *optims[ROOTS];
static pd_mat statistics, weights;

static void begin(void)
{
    pd_step_io io = { .gradient = statistics.at, .before = weights.at, .after = weights.at };

    for (int i = 0; i < ROOTS; i++)
        if (pd_optim_begin(optims[i], &io) != PD_OK) figure_stop("no memory for a step");
    if (pd_batch_run(optims, ROOTS, 1) != PD_OK) figure_stop("no memory for a phase");
}

static void finish(void)
{
    if (pd_batch_run(optims, ROOTS, 1) != PD_OK) figure_stop("no memory for a phase");
    for (int i = 0; i < ROOTS; i++)
        if (!pd_optim_done(optims[i]) || pd_optim_root_stats(optims[i]).failed > 0) figure_stop("a root failed");
}

static void collect(pd_mailbox *done)
{
    bool closed;

    for (int got = 0; got < ROOTS;) {
        for (pd_mail *mail = pd_mailbox_wait(done, UINT64_MAX, &closed), *next; mail != NULL; mail = next, got++) {
            pd_request *request = (pd_request *)(void *)mail;
            next = mail->next;
            pd_optim_deliver(optims[request->u.task.param], request->u.task.task);
            pd_request_free(request);
        }
    }
}

/* Returns the processor time of this process, in ms. If several threads use more of it for the same work than one
 * thread does, they slow each other down. */
static double processor_ms(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e3;
}

/* Computes all roots on a pool of `threads` threads. Returns the elapsed milliseconds; writes the processor time to
 * *busy. */
static double run(int threads, double *busy)
{
    pd_mailbox *done = pd_mailbox_new(NULL, NULL);
    pd_precond_pool *pool;
    pd_task *task[ROOTS];
    pd_error err;
    double ms;

    if (done == NULL || pd_precond_pool_start(&pool, threads, done, &err) != PD_OK)
        figure_stop("the pool does not start");
    begin();
    for (int i = 0; i < ROOTS; i++)
        if ((task[i] = pd_optim_capture(optims[i])) == NULL) figure_stop("no task");
    *busy = processor_ms();
    ms = figure_ms();
    for (uint32_t i = 0; i < ROOTS; i++)
        if (pd_precond_pool_submit(pool, task[i], 0, i) != PD_OK) figure_stop("no memory for a task");
    collect(done);
    ms = figure_ms() - ms;
    *busy = processor_ms() - *busy;
    finish();
    pd_precond_pool_stop(pool);
    pd_mailbox_free(done);
    return ms;
}

typedef struct outcome {
    double ratio[PAIRS], one[PAIRS], all[PAIRS], busy_one[PAIRS], busy_all[PAIRS];
} outcome;

static outcome measure(pd_root_method wanted, int threads)
{
    outcome o;

    method = wanted;
    for (int i = 0; i < PAIRS; i++) {
        o.one[i] = run(1, &o.busy_one[i]);
        o.all[i] = run(threads, &o.busy_all[i]);
        o.ratio[i] = o.one[i] / o.all[i];
    }
    return o;
}

static double median(double *at)
{
    return figure_quantile(at, PAIRS, 0.5);
}

static void print(const char *name, outcome *o, int threads)
{
    double middle = median(o->ratio);

    printf("%s %.2f (%.2f to %.2f of %d pairs), %.2f s on 1 thread and %.2f s on %d, of processors %.2f s and %.2f s",
           name, middle, o->ratio[0], o->ratio[PAIRS - 1], PAIRS, median(o->one) / 1e3, median(o->all) / 1e3, threads,
           median(o->busy_one) / 1e3, median(o->busy_all) / 1e3);
}

int main(int argc, char **argv)
{
    static const double no_stats[PD_MAX_MODEL_STATS];
    pd_declaration declaration = { .name = "w", .shape = { 2, { SIDE, SIDE } } };
    pd_root_report report;
    pd_error err;
    int cores = pd_host_cores();
    outcome newton, eigh;

    (void)argc;
    figure_kernels(argv);
    statistics = matrices_new(SIDE);
    weights = matrices_new(SIDE);
    matrices_with_condition(statistics, CONDITION, 1);
    pd_hypers_init(&declaration.hypers, &row);
    for (int i = 0; i < ROOTS; i++)
        if (pd_optim_new(&optims[i], &declaration, no_stats, &err) != PD_OK) figure_stop("%s", err.text);
    if (find_root(weights.at, statistics.at, &report) != PD_OK) figure_stop("a root failed");
    newton = measure(PD_ROOT_NEWTON, cores);
    eigh = measure(PD_ROOT_EIGH, cores);
    printf("%.3f\tcondition %d; ", median(newton.ratio), CONDITION);
    print("newton", &newton, cores);
    printf(", %d steps each; ", report.iterations);
    print("eigh", &eigh, cores);
    printf("\n");
    for (int i = 0; i < ROOTS; i++) pd_optim_free(optims[i]);
    free(statistics.at);
    free(weights.at);
    return 0;
}
