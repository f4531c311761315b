/* save.c - writes an optimizer's state, all that must survive a restart, to an image, and reads it back. Also converts
 * pending tasks to lists of numbers and back, for exports and imports. */
#include "save.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"
#include "mutant.h"
#include "plan.h"
#include "plan_bytes.h"
#include "quantize.h"
#include "state.h"
#include "task.h"

bool pd_optim_may_be_written(const pd_optim *optim)
{
    return optim->step.stage == PD_STAGE_IDLE && optim->tasks.to_hand_out == NULL;
}

bool pd_optim_may_be_saved(const pd_optim *optim)
{
    if (!pd_optim_may_be_written(optim)) return false;
    for (const pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next)
        if (!pending->back) return false;
    return true;
}

static const pd_field optim_fields[] = { PD_FIELD_IN(pd_optim_saved, count, 0, INT64_MAX / 2),
                                         PD_FIELD(pd_optim_saved, stats.due),
                                         PD_FIELD(pd_optim_saved, stats.adopted),
                                         PD_FIELD(pd_optim_saved, stats.failed),
                                         PD_FIELD(pd_optim_saved, stats.waits),
                                         PD_FIELD(pd_optim_saved, stats.replaced),
                                         PD_FIELD(pd_optim_saved, stats.dropped),
                                         PD_FIELD(pd_optim_saved, stats.last_error),
                                         PD_FIELD(pd_optim_saved, stats.last_cost_ms),
                                         { 0 } };
static const pd_table optim_table = { "optimizer", sizeof(pd_optim_saved), optim_fields };

static const pd_field root_fields[] = { PD_FIELD(pd_root_state, count),     PD_FIELD(pd_root_state, adopted),
                                        PD_FIELD(pd_root_state, failed),    PD_FIELD(pd_root_state, error),
                                        PD_FIELD(pd_root_state, condition), PD_FIELD(pd_root_state, ms),
                                        PD_FIELD(pd_root_state, failing),   { 0 } };
static const pd_table root_table = { "root", sizeof(pd_root_state), root_fields };

/* A pending task as an image stores it. The results of the task follow it in the image. */
typedef struct task_record {
    uint32_t index;
    int64_t count;
    int32_t status;
    uint32_t unfit;
    double error, condition, ms;
    double hyper[PD_MAX_HYPERS];
} task_record;

static const pd_field task_fields[] = { PD_FIELD(task_record, index),
                                        PD_FIELD_IN(task_record, count, 0, INT64_MAX / 2),
                                        PD_FIELD(task_record, status),
                                        PD_FIELD_IN(task_record, unfit, 0, PD_UNFIT_INF),
                                        PD_FIELD(task_record, error),
                                        PD_FIELD(task_record, condition),
                                        PD_FIELD(task_record, ms),
                                        PD_FIELD(task_record, hyper),
                                        { 0 } };
static const pd_table task_table = { "task", sizeof(task_record), task_fields };

/* Writes the names, shapes and storage types of the slots to an image. When an image is read, checks that it has the
 * same ones. */
static void agree_on_slots(pd_archive *archive, const pd_plan *plan)
{
    char text[512], name[128], shape[192];

    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        if (spec->temporary) continue;
        snprintf(text, sizeof text, "%s %s %s%s", pd_slot_name(spec, name, sizeof name),
                 pd_shape_text(&spec->shape, shape, sizeof shape), pd_storage_name(spec->storage),
                 spec->diagonal_apart ? ", diagonal apart" : "");
        pd_archive_agree(archive, "slot", text);
    }
}

static task_record record_of(const pd_task *task)
{
    task_record record = { .index = (uint32_t)pd_task_index(task),
                           .count = task->view.count,
                           .status = task->status,
                           .unfit = (uint32_t)task->view.unfit,
                           .error = task->view.error,
                           .condition = task->view.condition,
                           .ms = task->ms };

    memcpy(record.hyper, task->hyper, sizeof record.hyper);
    return record;
}

/* Writes or reads the results of a task. A failed task has none. */
static void visit_outputs(pd_archive *archive, pd_task *task)
{
    const pd_task_spec *spec = task->view.spec;

    for (int k = 0; task->status == PD_OK && k < spec->n_outputs; k++)
        pd_archive_bytes(archive, task->output[k], (size_t)pd_task_share_bytes(task->view.plan, spec, spec->output[k]));
}

static void write_task(pd_archive *archive, pd_task *task)
{
    task_record record = record_of(task);

    pd_archive_fields(archive, &task_table, &record);
    visit_outputs(archive, task);
}

/* Writes the pending tasks that are back. Marks the other pending tasks as awaited, and returns their number: they are
 * still at the preconditioner pool. */
static size_t write_tasks(pd_archive *archive, const pd_optim *optim)
{
    size_t awaited = 0;

    for (pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next) {
        pending->awaited = !pending->back;
        awaited += pending->awaited;
        if (pending->back) write_task(archive, pending->task);
    }
    return awaited;
}

static void read_task(pd_archive *archive, pd_optim *optim)
{
    task_record record = { 0 };
    pd_task *task;

    pd_archive_fields(archive, &task_table, &record);
    if (pd_archive_status(archive) != PD_OK) return;
    if (record.index >= optim->shared->plan.n_tasks || record.count > optim->saved.count) {
        pd_archive_fail(
            archive, PD_DATA_LOSS, "invalid task %u of step %lld: the optimizer has %zu tasks and has taken %lld steps",
            record.index, (long long)record.count, optim->shared->plan.n_tasks, (long long)optim->saved.count);
        return;
    }
    if ((task = pd_tasks_add_back(optim, record.index, record.count)) == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for a root that is not adopted yet");
        return;
    }
    memcpy(task->hyper, record.hyper, sizeof task->hyper);
    task->status = record.status;
    task->ms = record.ms;
    task->view.unfit = (pd_unfit)record.unfit;
    task->view.error = record.error;
    task->view.condition = record.condition;
    visit_outputs(archive, task);
}

/* Writes or reads the pending tasks. Returns how many of them are still at the preconditioner pool, so that their
 * results must be written later. */
static size_t visit_tasks(pd_archive *archive, pd_optim *optim)
{
    size_t n = pd_optim_tasks_left(optim);

    if (PD_MUTANT(image_forgets_roots)) n = 0;
    pd_archive_count(archive, &n, 4 * optim->shared->plan.n_tasks, 1);
    if (!pd_archive_is_reading(archive)) return n > 0 ? write_tasks(archive, optim) : 0;
    for (size_t i = 0; i < n; i++) read_task(archive, optim);
    return 0;
}

static size_t begin(pd_archive *archive, pd_optim *optim)
{
    pd_archive_enter(archive, "optimizer");
    pd_archive_agree(archive, "optimizer", pd_optimizer_name(optim->ops));
    agree_on_slots(archive, &optim->shared->plan);
    pd_archive_fields(archive, &optim_table, &optim->saved);
    pd_archive_bytes(archive, optim->saved.state, (size_t)optim->memory.state_bytes);
    pd_archive_records(archive, &root_table, optim->saved.roots, optim->shared->plan.n_tasks);
    return visit_tasks(archive, optim);
}

void pd_optim_visit(pd_archive *archive, pd_optim *optim)
{
    (void)begin(archive, optim);
    pd_archive_leave(archive);
}

size_t pd_optim_write(pd_archive *archive, pd_optim *optim)
{
    assert(pd_optim_may_be_written(optim));
    return begin(archive, optim);
}

bool pd_optim_write_task(pd_archive *archive, pd_task *task)
{
    if (!task->pending->awaited) return false;
    task->pending->awaited = false;
    write_task(archive, task);
    return true;
}

enum { INDEX, COUNT, STATUS, UNFIT, ERROR, CONDITION, MS, HYPERS, FIRST_HYPER, HEAD = FIRST_HYPER + PD_MAX_HYPERS };

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

/* Copies numbers [first, first + n) of the list that stands for a pending root to `out`, as far as these numbers are
 * elements of the tensor `from`. The tensor has `length` elements; its first element is number `start` of the list. */
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

static bool is_whole(double value, double least, double most)
{
    return value >= least && value <= most && value == floor(value);
}

/* Checks the numbers at the beginning of the list that stands for a pending root. They describe the task. The caller
 * checks the length of the list. */
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
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s has no pending_root: it adopts roots in the step that captures them (root_delay = 0)",
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
