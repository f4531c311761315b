/* stepped.c - times whole steps of one optimizer in this process. */
#include "stepped.h"

#include "batch.h"
#include "figure.h"
#include "rule.h"
#include "sgemm.h"
#include "plan_make.h"
#include "optimizer_ops.h"

pd_optim *stepped_by_rule(const char *rule, pd_shape shape)
{
    pd_declaration param = { .name = "w", .shape = shape };
    char text[512], *texts[] = { text };
    double stats[PD_MAX_MODEL_STATS];
    pd_rule *rules;
    pd_optim *optim;
    pd_error err;
    size_t n;

    snprintf(text, sizeof text, "* %s", rule);
    if (pd_rules_parse(&rules, &n, texts, 1, pd_optimizer_table, &err) != PD_OK) figure_stop("%s", err.text);
    param.hypers = rules[0].hypers;
    pd_model_stats_of(param.hypers.row, &param, 1, stats);
    if (pd_optim_new(&optim, &param, stats, &err) != PD_OK) figure_stop("%s", err.text);
    pd_optim_set_job_bytes(optim, pd_optim_elements(optim) * (int64_t)sizeof(float));
    return optim; /* the rule stays in memory: the optimizer borrows its schedules */
}

pd_hypers stepped_hypers(const char *row, char **argument, int n)
{
    const pd_optimizer_ops *found = pd_optim_find(row);
    pd_hypers hypers;
    pd_error err;

    if (found == NULL) figure_stop("no optimizer %s", row);
    pd_hypers_init(&hypers, found);
    for (int i = 0; i < n; i++) {
        char *value = strchr(argument[i], '=');
        if (value == NULL) figure_stop("expected HYPER=VALUE, got %s", argument[i]);
        *value++ = '\0';
        if (pd_hypers_set(&hypers, argument[i], value, &err) != PD_OK) figure_stop("%s", err.text);
    }
    return hypers;
}

pd_optim *stepped_optim(const char *row, const char *hyper, const char *value, pd_shape shape)
{
    char rule[256];

    if (hyper == NULL) return stepped_by_rule(row, shape);
    snprintf(rule, sizeof rule, "%s %s=%s", row, hyper, value);
    return stepped_by_rule(rule, shape);
}

void stepped_fill_roots(const pd_optim *optim)
{
    const pd_plan *plan = pd_optim_plan(optim);

    for (size_t t = 0; t < plan->n_tasks; t++)
        for (int k = 0; k < plan->tasks[t].n_outputs; k++) {
            pd_tensor root = pd_optim_slot(optim, (size_t)plan->tasks[t].output[k]);
            if (root.at != NULL) sgemm_fill(root.at, root.shape.dim[0] * root.shape.dim[1], 0.1f);
        }
}

/* Runs all preconditioner tasks that the optimizer has captured, on all cores, and returns the time that it took. */
static double run_tasks(pd_optim *optim)
{
    double begin = figure_ms();
    pd_batch *batch = pd_batch_new(&optim, 1, (int)sysconf(_SC_NPROCESSORS_ONLN));
    pd_task *task;

    if (batch == NULL) figure_stop("out of memory");
    while ((task = pd_optim_capture(optim)) != NULL) {
        pd_batch_run_tasks(batch, &task, 1);
        pd_optim_deliver(optim, task);
    }
    pd_batch_free(batch);
    return figure_ms() - begin;
}

double stepped_ms(pd_optim *optim, const pd_step_io *io, int threads)
{
    double begin = figure_ms(), tasks_ms = 0;

    if (pd_optim_begin(optim, io) != PD_OK) figure_stop("out of memory");
    do {
        if (pd_batch_run(&optim, 1, threads) != PD_OK) figure_stop("out of memory");
        tasks_ms += run_tasks(optim);
    } while (!pd_optim_done(optim));
    return figure_ms() - begin - tasks_ms;
}
