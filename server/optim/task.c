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

/* ---- capture ---- */

/* Lays n tensors shaped as `slot` one after the other; without memory it only measures. Returns the floats they take. */
static int64_t lay_out(const pd_plan *plan, const int *slot, int n, float *memory, float **tensor, int64_t *elements)
{
    int64_t floats = 0;

    for (int i = 0; i < n; i++) {
        elements[i] = slot_elements(plan, slot[i]);
        tensor[i] = memory == NULL ? NULL : memory + floats;
        floats += pd_floats_padded(elements[i]);
    }
    return floats;
}

static bool give_memory(pd_task *task, const pd_plan *plan)
{
    const pd_task_spec *spec = task->view.spec;
    int64_t in = lay_out(plan, spec->input, spec->n_inputs, NULL, task->input, task->input_elements);
    int64_t out = lay_out(plan, spec->output, spec->n_outputs, NULL, task->output, task->output_elements);

    if ((task->memory = pd_floats_new(in + out)) == NULL) return false;
    lay_out(plan, spec->input, spec->n_inputs, task->memory, task->input, task->input_elements);
    lay_out(plan, spec->output, spec->n_outputs, task->memory + in, task->output, task->output_elements);
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
                                 .input = (const float *const *)task->input, .output = task->output };
    if ((task->slip = calloc(1, sizeof *task->slip)) != NULL && give_memory(task, &optim->basis->plan)) return task;
    free(task->slip);
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
        memcpy(task->input[k], optim->slot[task->view.spec->input[k]], (size_t)task->input_elements[k] * sizeof(float));
}

void pd_tasks_captured(pd_optim *optim)
{
    for (size_t i = 0; i < optim->n_work; i++) {
        pd_slip *slip = optim->work[i]->slip;
        *slip = (pd_slip){ .count = optim->count, .task = optim->work[i] };
        if (optim->oldest == NULL) optim->oldest = slip;
        else optim->newest->next = slip;
        optim->newest = slip;
        if (optim->to_hand_out == NULL) optim->to_hand_out = slip;
    }
    optim->n_work = 0;
}

pd_task *pd_optim_capture(pd_optim *optim)
{
    pd_slip *slip = optim->to_hand_out;
    pd_task *task;

    if (slip == NULL) return NULL;
    optim->to_hand_out = slip->next;
    task = slip->task;
    slip->task = NULL;
    return task;
}

/* ---- away ---- */

static int run_checked(pd_task *task)
{
    const pd_task_spec *spec = task->view.spec;
    int rc;

    for (int i = 0; i < spec->n_inputs; i++)
        if (!pd_all_finite(task->input[i], PD_F32, task->input_elements[i])) return PD_INVALID_ARGUMENT;
    if ((rc = task->row->task(&task->view)) != PD_OK) return rc;
    for (int i = 0; i < spec->n_outputs; i++)
        if (!pd_all_finite(task->output[i], PD_F32, task->output_elements[i])) return PD_OUT_OF_RANGE;
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
    assert(task->basis == optim->basis && task->slip->task == NULL);
    task->slip->task = task;
}

/* The task behind it (NULL is fine) is to be adopted in this step. */
static bool is_due(const pd_optim *optim, const pd_slip *slip)
{
    return slip != NULL && slip->count <= optim->count - optim->basis->plan.root_delay;
}

bool pd_tasks_are_back(const pd_optim *optim)
{
    for (const pd_slip *slip = optim->oldest; is_due(optim, slip); slip = slip->next)
        if (slip->task == NULL || slip == optim->to_hand_out) return false;
    return true;
}

/* Takes the oldest slip away and gives its task. */
static pd_task *take_oldest(pd_optim *optim)
{
    pd_slip *slip = optim->oldest;
    pd_task *task = slip->task;

    optim->oldest = slip->next;
    if (optim->oldest == NULL) optim->newest = NULL;
    free(slip);
    return task;
}

void pd_tasks_collect(pd_optim *optim)
{
    optim->n_work = 0;
    while (is_due(optim, optim->oldest)) {
        pd_task *task;
        if (optim->n_work > 0 && optim->oldest->count != optim->work[0]->view.count) return;
        task = take_oldest(optim);
        if (task->status == PD_OK) {
            optim->work[optim->n_work++] = task;
        } else {
            optim->stats.failed++;
            pd_task_free(task);
        }
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
        memcpy(optim->slot[task->view.spec->output[k]], task->output[k], (size_t)task->output_elements[k] * sizeof(float));
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

void pd_tasks_free(pd_optim *optim)
{
    while (optim->oldest != NULL) pd_task_free(take_oldest(optim));
}
