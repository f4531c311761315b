/* pending_root.c - reads and adds pending roots: matrix roots that are computed, but not yet stored in the optimizer
 * state. */
#include "pending_root.h"

#include "kernels.h"
#include "save.h"
#include "state.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { INDEX, COUNT, STATUS, UNFIT, ERROR, CONDITION, MS, HYPERS, FIRST_HYPER, HEAD = FIRST_HYPER + PD_MAX_HYPERS };

bool pd_pending_roots_are_back(const pd_optim *optim)
{
    return pd_optim_may_be_saved(optim);
}

static const pd_task *task_at(const pd_optim *optim, size_t k)
{
    const pd_pending_task *pending = optim->saved.oldest;

    while (k-- > 0) pending = pending->next;
    return pending->task;
}

static int64_t results_of(const pd_plan *plan, const pd_task_spec *spec)
{
    int64_t n = 0;

    for (int k = 0; k < spec->n_outputs; k++) n += pd_task_elements(plan, spec, spec->output[k]);
    return n;
}

int64_t pd_pending_root_length(const pd_optim *optim, size_t k)
{
    const pd_task *task = task_at(optim, k);

    return HEAD + (task->status == PD_OK ? results_of(task->view.plan, task->view.spec) : 0);
}

int64_t pd_pending_root_most(const pd_plan *plan)
{
    int64_t most = 0;

    for (size_t i = 0; i < plan->n_tasks; i++)
        if (results_of(plan, &plan->tasks[i]) > most) most = results_of(plan, &plan->tasks[i]);
    return HEAD + most;
}

static bool is_wide(const pd_plan *plan, int slot)
{
    return plan->slots[slot].storage == PD_STORE_F64;
}

/* ---- reading ---- */

static void fill_head(double head[HEAD], const pd_task *task)
{
    head[INDEX] = pd_task_index(task);
    head[COUNT] = (double)task->view.count;
    head[STATUS] = task->status;
    head[UNFIT] = (double)task->view.unfit;
    head[ERROR] = task->view.error;
    head[CONDITION] = task->view.condition;
    head[MS] = task->ms;
    head[HYPERS] = PD_MAX_HYPERS;
    memcpy(head + FIRST_HYPER, task->hyper, sizeof task->hyper);
}

/* Copies numbers [first, first + n) of the list that stands for a pending root (a matrix root not yet stored in the
 * optimizer state) to `out`, as far as they come from one tensor. The tensor is `from`, with `length` elements. Its
 * first element is number `start` of the list. */
static void copy_run(double *out, int64_t first, int64_t n, int64_t start, int64_t length, const void *from, bool wide)
{
    int64_t at = first > start ? first : start, end = first + n < start + length ? first + n : start + length;

    for (; at < end; at++)
        out[at - first] = wide ? ((const double *)from)[at - start] : (double)((const float *)from)[at - start];
}

void pd_pending_root_read(const pd_optim *optim, size_t k, int64_t first, int64_t n, double *out)
{
    const pd_task *task = task_at(optim, k);
    const pd_task_spec *spec = task->view.spec;
    int64_t start = HEAD, length;
    double head[HEAD];

    fill_head(head, task);
    copy_run(out, first, n, 0, HEAD, head, true);
    for (int i = 0; task->status == PD_OK && i < spec->n_outputs; i++, start += length) {
        length = pd_task_elements(task->view.plan, spec, spec->output[i]);
        copy_run(out, first, n, start, length, task->output[i], is_wide(task->view.plan, spec->output[i]));
    }
}

/* ---- writing ---- */

static bool is_whole(double value, double least, double most)
{
    return value >= least && value <= most && value == floor(value);
}

/* Checks the numbers at the beginning of the list that stands for a pending root. They describe the preconditioner
 * task. The caller checks the length of the list. */
static bool head_is_sound(const pd_plan *plan, const double *in, int64_t count)
{
    return is_whole(in[INDEX], 0, (double)plan->n_tasks - 1) && is_whole(in[COUNT], 1, (double)count) &&
           is_whole(in[STATUS], PD_NO_MEMORY, PD_OK) && is_whole(in[UNFIT], 0, PD_UNFIT_INF) &&
           in[HYPERS] == PD_MAX_HYPERS;
}

int pd_pending_root_check(const pd_optim *optim, const double *in, int64_t n, int64_t count, pd_error *err)
{
    const pd_plan *plan = &optim->shared->plan;
    int64_t results;

    if (plan->root_delay == 0 || plan->n_tasks == 0)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "%s keeps no pending_root: its roots are adopted in the step that captures them (root_delay = 0)",
            optim->name);
    if (n < HEAD || !head_is_sound(plan, in, count))
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "%s: this pending_root belongs to another optimizer: expected one of %zu roots, captured in step 1 to %lld",
            optim->name, plan->n_tasks, (long long)count);
    results = in[STATUS] == PD_OK ? results_of(plan, &plan->tasks[(size_t)in[INDEX]]) : 0;
    if (n != HEAD + results || !pd_all_finite_f64(in + HEAD, results))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s: expected a pending_root of %lld finite numbers, got %lld",
                       optim->name, (long long)(HEAD + results), (long long)n);
    return PD_OK;
}

static void take_results(const pd_task *task, const double *in)
{
    const pd_plan *plan = task->view.plan;

    for (int k = 0; k < task->view.spec->n_outputs; k++) {
        int slot = task->view.spec->output[k];
        int64_t n = pd_task_elements(plan, task->view.spec, slot);
        for (int64_t i = 0; i < n; i++) {
            if (is_wide(plan, slot))
                ((double *)(void *)task->output[k])[i] = in[i];
            else
                task->output[k][i] = (float)in[i];
        }
        in += n;
    }
}

int pd_pending_root_write(pd_optim *optim, const double *in)
{
    pd_task *task = pd_tasks_add_back(optim, (size_t)in[INDEX], (int64_t)in[COUNT]);

    if (task == NULL) return PD_NO_MEMORY;
    memcpy(task->hyper, in + FIRST_HYPER, sizeof task->hyper);
    task->status = (int)in[STATUS];
    task->ms = in[MS];
    task->view.unfit = (pd_unfit)in[UNFIT];
    task->view.error = in[ERROR];
    task->view.condition = in[CONDITION];
    if (task->status == PD_OK) take_results(task, in + HEAD);
    return PD_OK;
}
