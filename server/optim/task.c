#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "state.h"

static int64_t slot_elements(const pd_plan *plan, int slot)
{
    int64_t n = 0;
    (void)pd_shape_elements(&plan->slots[slot].shape, &n);
    return n;
}

static int *missing_of(const pd_optim *optim, int64_t count)
{
    return &optim->missing[count % (optim->basis->plan.root_delay + 1)];
}

/* ---- capture ---- */

static bool give_memory(pd_task *task, const pd_plan *plan)
{
    const pd_task_spec *spec = task->view.spec;
    int64_t floats = 0;
    float *at;

    for (int i = 0; i < spec->n_inputs; i++)
        floats += pd_floats_padded(task->input_elements[i] = slot_elements(plan, spec->input[i]));
    for (int i = 0; i < spec->n_outputs; i++)
        floats += pd_floats_padded(task->output_elements[i] = slot_elements(plan, spec->output[i]));
    if ((at = task->memory = pd_floats_new(floats)) == NULL) return false;
    for (int i = 0; i < spec->n_inputs; i++) {
        task->tensor[i] = at;
        at += pd_floats_padded(task->input_elements[i]);
    }
    for (int i = 0; i < spec->n_outputs; i++) {
        task->tensor[4 + i] = at;
        at += pd_floats_padded(task->output_elements[i]);
    }
    return true;
}

/* NULL: out of memory. */
static pd_task *task_new(const pd_optim *optim, const pd_task_spec *spec)
{
    pd_task *task = calloc(1, sizeof *task);

    if (task == NULL) return NULL;
    task->row = optim->row;
    task->status = PD_CANCELLED;
    memcpy(task->hyper, optim->hyper, sizeof task->hyper);
    task->basis = optim->basis;
    task->basis->refs++;
    task->view = (pd_task_view){ .plan = &task->basis->plan, .spec = spec, .hyper = task->hyper, .fact = task->basis->fact, .count = optim->count,
                                 .input = (const float *const *)task->tensor, .output = task->tensor + 4 };
    if (give_memory(task, &optim->basis->plan)) return task;
    pd_task_free(task);
    return NULL;
}

void pd_task_free(pd_task *task)
{
    if (task == NULL) return;
    pd_basis_drop(task->basis);
    free(task->memory);
    free(task);
}

void pd_tasks_prepare(pd_optim *optim)
{
    const pd_plan *plan = &optim->basis->plan;

    optim->n_work = 0;
    if (plan->n_tasks == 0 || !optim->row->due(plan, optim->hyper, optim->count)) return;
    optim->stats.due += (int64_t)plan->n_tasks;
    for (size_t i = 0; i < plan->n_tasks; i++) {
        pd_task *task = task_new(optim, &plan->tasks[i]);
        if (task == NULL) optim->stats.failed++;
        else optim->work[optim->n_work++] = task;
    }
}

void pd_tasks_copy(const pd_optim *optim, size_t i)
{
    pd_task *task = optim->work[i];

    for (int k = 0; k < task->view.spec->n_inputs; k++)
        memcpy(task->tensor[k], optim->slot[task->view.spec->input[k]], (size_t)task->input_elements[k] * sizeof(float));
}

void pd_tasks_captured(pd_optim *optim)
{
    for (size_t i = 0; i < optim->n_work; i++) {
        pd_task *task = optim->work[i];
        if (optim->ready == NULL) optim->ready = task;
        else optim->ready_last->next = task;
        optim->ready_last = task;
        ++*missing_of(optim, optim->count);
    }
    optim->n_work = 0;
}

pd_task *pd_optim_capture(pd_optim *optim)
{
    pd_task *task = optim->ready;

    if (task == NULL) return NULL;
    optim->ready = task->next;
    task->next = NULL;
    return task;
}

/* ---- away ---- */

static int run_checked(pd_task *task)
{
    const pd_task_spec *spec = task->view.spec;
    int rc;

    for (int i = 0; i < spec->n_inputs; i++)
        if (!pd_all_finite(task->tensor[i], PD_F32, task->input_elements[i])) return PD_INVALID_ARGUMENT;
    if ((rc = task->row->task(&task->view)) != PD_OK) return rc;
    for (int i = 0; i < spec->n_outputs; i++)
        if (!pd_all_finite(task->tensor[4 + i], PD_F32, task->output_elements[i])) return PD_OUT_OF_RANGE;
    return PD_OK;
}

void pd_task_run(pd_task *task)
{
    task->status = run_checked(task);
}

void   pd_task_took(pd_task *task, double ms) { task->ms = ms; }
double pd_task_cost(const pd_task *task)      { return task->view.spec->cost; }

/* ---- back ---- */

void pd_optim_deliver(pd_optim *optim, pd_task *task)
{
    int *missing = missing_of(optim, task->view.count);

    assert(task->basis == optim->basis && *missing > 0);
    --*missing;
    task->next = optim->back;
    optim->back = task;
}

bool pd_tasks_are_back(const pd_optim *optim)
{
    int64_t due = optim->count - optim->basis->plan.root_delay;
    return optim->missing == NULL || due < 1 || *missing_of(optim, due) == 0;
}

void pd_tasks_collect(pd_optim *optim)
{
    int64_t due = optim->count - optim->basis->plan.root_delay;
    pd_task **link = &optim->back;

    optim->n_work = 0;
    while (*link != NULL) {
        pd_task *task = *link;
        if (task->view.count != due) {
            link = &task->next;
            continue;
        }
        *link = task->next;
        if (task->status == PD_OK) {
            optim->work[optim->n_work++] = task;
            continue;
        }
        optim->stats.failed++;
        pd_task_free(task);
    }
}

void pd_tasks_adopt(const pd_optim *optim, size_t i)
{
    const pd_task *task = optim->work[i];

    if (optim->row->adopt != NULL) {
        optim->row->adopt(&task->view, optim->slot);
        return;
    }
    for (int k = 0; k < task->view.spec->n_outputs; k++)
        memcpy(optim->slot[task->view.spec->output[k]], task->tensor[4 + k], (size_t)task->output_elements[k] * sizeof(float));
}

void pd_tasks_adopted(pd_optim *optim)
{
    pd_root_stats *stats = &optim->stats;

    stats->last_error = stats->last_cost_ms = 0;
    for (size_t i = 0; i < optim->n_work; i++) {
        pd_task *task = optim->work[i];
        stats->adopted++;
        if (task->view.error > stats->last_error) stats->last_error = task->view.error;
        if (task->ms > stats->last_cost_ms) stats->last_cost_ms = task->ms;
        pd_task_free(task);
    }
    optim->n_work = 0;
}

static void free_list(pd_task *task)
{
    while (task != NULL) {
        pd_task *next = task->next;
        pd_task_free(task);
        task = next;
    }
}

void pd_tasks_free(pd_optim *optim)
{
    for (size_t i = 0; i < optim->n_work; i++) pd_task_free(optim->work[i]);
    free_list(optim->ready);
    free_list(optim->back);
}
