/* save.c - writes the part of an optimizer that must survive a restart to an image, or
 * reads it from one, with the same functions. */
#include "save.h"

#include "plan.h"
#include "mutant.h"
#include "plan_bytes.h"
#include "quantize.h"
#include "state.h"
#include "task.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

bool pd_optim_is_at_rest(const pd_optim *optim)
{
    return optim->stage == PD_STAGE_IDLE && optim->to_hand_out == NULL;
}

bool pd_optim_may_be_saved(const pd_optim *optim)
{
    if (!pd_optim_is_at_rest(optim)) return false;
    for (const pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next)
        if (!pending->back) return false;
    return true;
}

/* ---- tables ---- */

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

/* The record of a preconditioner task in an image. The task's result is computed, but not yet
 * stored in the optimizer state. */
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

/* ---- slots ---- */

/* Writes the names, shapes and storage types of the state tensors to an image. When an image is read, checks that it
 * has the same ones. */
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

/* ---- pending tasks: their results are back and not adopted yet ---- */

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

/* Writes or reads the results of a preconditioner task that are not yet stored in the optimizer state. A failed task
 * has none. */
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

/* Writes those pending preconditioner tasks that are back. Marks the others, which are still at the preconditioner
 * pool, and returns their number. */
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
            archive, PD_DATA_LOSS,
            "task %u captured in step %lld is not possible: the optimizer has %zu tasks and has made %lld steps",
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

/* Writes or reads the pending preconditioner tasks. Returns how many of them are still at the preconditioner pool, so
 * that their results must be written later. */
static size_t visit_tasks(pd_archive *archive, pd_optim *optim)
{
    size_t n = 0;

    for (const pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next) n++;
    if (PD_MUTANT(image_forgets_roots)) n = 0;
    pd_archive_count(archive, &n, 4 * optim->shared->plan.n_tasks, 1);
    if (!pd_archive_is_reading(archive)) return n > 0 ? write_tasks(archive, optim) : 0;
    for (size_t i = 0; i < n; i++) read_task(archive, optim);
    return 0;
}

/* ---- one parameter's optimizer ---- */

static size_t begin(pd_archive *archive, pd_optim *optim)
{
    pd_archive_enter(archive, "optimizer");
    pd_archive_agree(archive, "optimizer", pd_optimizer_name(optim->row));
    agree_on_slots(archive, &optim->shared->plan);
    pd_archive_fields(archive, &optim_table, &optim->saved);
    pd_archive_bytes(archive, optim->saved.state, (size_t)optim->state_bytes);
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
    assert(pd_optim_is_at_rest(optim));
    return begin(archive, optim);
}

bool pd_optim_write_task(pd_archive *archive, pd_task *task)
{
    if (!task->pending->awaited) return false;
    task->pending->awaited = false;
    write_task(archive, task);
    return true;
}

void pd_optim_write_end(pd_archive *archive)
{
    pd_archive_leave(archive);
}
