/* task.c - preconditioner tasks: copies their inputs, hands them to the scheduler, takes them back, and decides whether
 * a task that failed makes the step fail. */
#include "task.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "pages.h"
#include "stored.h"

/* Assigns the memory of a task to n tensors, one after the other. Tensor i is as large as the task's share of the slot
 * with index slot[i]. If `memory` is NULL, only counts. Returns the number of floats that the tensors take. */
static int64_t lay_out(const pd_plan *plan, const pd_task_spec *spec, const int *slot, int n, float *memory,
                       float **tensor)
{
    int64_t floats = 0;

    for (int i = 0; i < n; i++) {
        tensor[i] = memory == NULL ? NULL : memory + floats;
        floats += pd_floats_padded(pd_task_share_bytes(plan, spec, slot[i]) / (int64_t)sizeof(float));
    }
    return floats;
}

static int64_t floats_of_task(const pd_plan *plan, const pd_task_spec *spec)
{
    float *none[PD_MAX_TASK_TENSORS];

    return lay_out(plan, spec, spec->input, spec->n_inputs, NULL, none) +
           lay_out(plan, spec, spec->output, spec->n_outputs, NULL, none);
}

/* Returns one arena for all tasks of a step, if root_delay is 0: then all tasks are freed in the same step, and the
 * next step takes the arena again. Returns NULL with another root_delay, with a single task, or if out of memory: then
 * each task allocates its own memory. */
static pd_task_arena *arena_take(pd_shared_plan *shared)
{
    const pd_plan *plan = &shared->plan;
    pd_task_arena *arena = shared->spare;
    int64_t floats = 0;

    if (plan->root_delay != 0 || plan->n_tasks <= 1) return NULL;
    if (arena != NULL) {
        shared->spare = NULL;
        arena->refs = 1;
        return arena;
    }
    if ((arena = calloc(1, sizeof *arena)) == NULL) return NULL;
    for (size_t i = 0; i < plan->n_tasks; i++) floats += floats_of_task(plan, &plan->tasks[i]);
    arena->refs = 1;
    if ((arena->memory = pd_floats_new(floats)) != NULL) return arena;
    free(arena);
    return NULL;
}

static void arena_free(pd_task_arena *arena)
{
    if (arena == NULL) return;
    free(arena->memory);
    free(arena);
}

void pd_shared_plan_drop(pd_shared_plan *shared)
{
    if (shared == NULL || --shared->refs > 0) return;
    arena_free(shared->spare);
    pd_plan_free(&shared->plan);
    free(shared);
}

/* Drops a reference. With the last one the arena becomes the spare one: its pages stay, which the kernel would have to
 * fill with zeros in each step otherwise. */
static void arena_drop(pd_task_arena *arena, pd_shared_plan *shared)
{
    if (arena == NULL || --arena->refs > 0) return;
    arena->used = 0;
    arena_free(shared->spare);
    shared->spare = arena;
}

static bool give_memory(pd_task *task, const pd_plan *plan, pd_task_arena *arena)
{
    const pd_task_spec *spec = task->view.spec;
    int64_t floats = floats_of_task(plan, spec), in;

    if ((task->arena = arena) != NULL) {
        task->memory = arena->memory + arena->used;
        arena->used += floats;
        arena->refs++;
    } else if ((task->memory = pd_floats_new(floats)) == NULL) {
        return false;
    }
    in = lay_out(plan, spec, spec->input, spec->n_inputs, task->memory, task->input);
    lay_out(plan, spec, spec->output, spec->n_outputs, task->memory + in, task->output);
    return true;
}

/* Makes a task of step `count`, with memory for its inputs and outputs. NULL: out of memory. */
static pd_task *task_new(const pd_optim *optim, const pd_task_spec *spec, int64_t count, pd_task_arena *arena)
{
    pd_task *task = calloc(1, sizeof *task);

    if (task == NULL) return NULL;
    task->ops = optim->ops;
    task->status = PD_CANCELLED;
    memcpy(task->hyper, optim->step.hyper, sizeof task->hyper);
    task->shared = optim->shared;
    task->shared->refs++;
    task->view = (pd_task_view){ .plan = &task->shared->plan,
                                 .spec = spec,
                                 .hyper = task->hyper,
                                 .stats = task->shared->stats,
                                 .count = count,
                                 .random = task->shared->random,
                                 .random_of_all = task->shared->random_of_all,
                                 .draws = optim->step.io.draws,
                                 .input = task->input,
                                 .output = task->output };
    if ((task->pending = calloc(1, sizeof *task->pending)) != NULL && give_memory(task, &optim->shared->plan, arena))
        return task;
    free(task->pending);
    pd_task_free(task);
    return NULL;
}

void pd_task_free(pd_task *task)
{
    if (task == NULL) return;
    if (task->arena == NULL) free(task->memory);
    arena_drop(task->arena, task->shared);
    pd_shared_plan_drop(task->shared);
    free(task);
}

/* Returns whether a step may capture one more task of each root: at most four tasks of each may be pending. With
 * root_delay = ready, several threads of the preconditioner pool may compute the same root at a time, each from newer
 * statistics. A replayed step gets the same answer, because the same tasks are pending then. */
static bool has_room(const pd_optim *optim)
{
    size_t pending = 0;

    for (const pd_pending_task *at = optim->saved.oldest; at != NULL; at = at->next) pending++;
    return pending + optim->shared->plan.n_tasks <= pd_optim_most_taken(optim);
}

void pd_tasks_prepare(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;
    pd_task_arena *arena;

    optim->tasks.n_work = 0;
    if (plan->n_tasks == 0 || !optim->ops->due(plan, optim->step.hyper, optim->saved.count, optim->slot)) return;
    optim->saved.stats.due += (int64_t)plan->n_tasks;
    if (!has_room(optim)) {
        optim->saved.stats.replaced += (int64_t)plan->n_tasks;
        return;
    }
    arena = arena_take(optim->shared);
    for (size_t i = 0; i < plan->n_tasks; i++) {
        pd_task *task = task_new(optim, &plan->tasks[i], optim->saved.count, arena);
        if (task != NULL) {
            optim->tasks.work[optim->tasks.n_work++] = task;
            continue;
        }
        optim->saved.stats.failed++;
        optim->saved.roots[i].failed++;
        optim->saved.roots[i].failing = true;
    }
    arena_drop(arena, optim->shared);
}

void pd_tasks_copy(const pd_optim *optim, size_t i)
{
    pd_task *task = optim->tasks.work[i];

    for (int k = 0; k < task->view.spec->n_inputs; k++)
        pd_slot_part_load(optim, task->view.spec, task->view.spec->input[k], task->input[k]);
}

/* Inserts a task into the list of pending tasks. The list is sorted by the step that captured it, and within a step by
 * the order of the plan. Call it only while no task of the list is at the preconditioner pool. */
static void insert(pd_optim *optim, pd_pending_task *pending)
{
    pd_pending_task **link = &optim->saved.oldest;

    while (*link != NULL &&
           ((*link)->count < pending->count ||
            ((*link)->count == pending->count && pd_task_index((*link)->task) <= pd_task_index(pending->task))))
        link = &(*link)->next;
    pending->next = *link;
    *link = pending;
    if (pending->next == NULL) optim->saved.newest = pending;
}

/* Appends a task to the list of pending tasks. */
static pd_pending_task *append(pd_optim *optim, pd_task *task)
{
    pd_pending_task *pending = task->pending;

    *pending = (pd_pending_task){ .count = task->view.count, .index = (uint32_t)pd_task_index(task), .task = task };
    if (optim->saved.oldest == NULL)
        optim->saved.oldest = pending;
    else
        optim->saved.newest->next = pending;
    optim->saved.newest = pending;
    return pending;
}

void pd_tasks_captured(pd_optim *optim)
{
    for (size_t i = 0; i < optim->tasks.n_work; i++) {
        pd_pending_task *pending = append(optim, optim->tasks.work[i]);
        if (optim->tasks.to_hand_out == NULL) optim->tasks.to_hand_out = pending;
    }
    optim->tasks.n_work = 0;
}

pd_task *pd_tasks_add_back(pd_optim *optim, size_t index, int64_t count)
{
    pd_task *task = task_new(optim, &optim->shared->plan.tasks[index], count, NULL);

    if (task == NULL) return NULL;
    *task->pending = (pd_pending_task){ .count = count, .index = (uint32_t)index, .task = task, .back = true };
    insert(optim, task->pending);
    return task;
}

pd_task *pd_optim_capture(pd_optim *optim)
{
    pd_pending_task *pending = optim->tasks.to_hand_out;
    pd_task *task;

    if (pending == NULL) return NULL;
    optim->tasks.to_hand_out = pending->next;
    task = pending->task;
    pending->task = NULL;
    return task;
}

/* Returns whether n tensors of a task have finite values only. Tensor i belongs to the slot with index slot[i]. */
static bool all_finite(const pd_plan *plan, const pd_task_spec *spec, const int *slot, int n, float *const *tensor)
{
    for (int i = 0; i < n; i++) {
        int64_t elements = pd_task_elements(plan, spec, slot[i]);
        bool finite = plan->slots[slot[i]].storage == PD_STORE_F64
                          ? pd_all_finite_f64((const void *)tensor[i], elements)
                          : pd_all_finite(tensor[i], PD_F32, elements);
        if (!finite) return false;
    }
    return true;
}

static bool has_nan(const void *at, bool is_wide, int64_t n)
{
    const float *narrow = at;
    const double *wide = at;
    bool found = false;

    for (int64_t i = 0; i < n && !found; i++) found = is_wide ? isnan(wide[i]) : isnan(narrow[i]);
    return found;
}

/* Returns why the inputs of a task, which are not all finite, have no root: they have a NaN (PD_UNFIT_NAN), or
 * infinities but no NaN (PD_UNFIT_INF). */
static pd_unfit why_unfit(const pd_task *task)
{
    const pd_plan *plan = task->view.plan;
    const pd_task_spec *spec = task->view.spec;

    for (int i = 0; i < spec->n_inputs; i++) {
        int slot = spec->input[i];
        if (has_nan(task->input[i], plan->slots[slot].storage == PD_STORE_F64, pd_task_elements(plan, spec, slot)))
            return PD_UNFIT_NAN;
    }
    return PD_UNFIT_INF;
}

static int run_checked(pd_task *task)
{
    const pd_plan *plan = task->view.plan;
    const pd_task_spec *spec = task->view.spec;
    int rc;

    if (!all_finite(plan, spec, spec->input, spec->n_inputs, task->input)) {
        task->view.unfit = why_unfit(task);
        task->view.error = NAN;
        return PD_INVALID_ARGUMENT;
    }
    if ((rc = task->ops->task(&task->view)) != PD_OK) return rc;
    return all_finite(plan, spec, spec->output, spec->n_outputs, task->output) ? PD_OK : PD_OUT_OF_RANGE;
}

void pd_task_run(pd_task *task)
{
    task->status = run_checked(task);
}

void pd_task_fail_unrun(pd_task *task)
{
    task->status = PD_NO_MEMORY;
}

void pd_task_took(pd_task *task, double ms)
{
    task->ms = ms;
}

double pd_task_ms(const pd_task *task)
{
    return task->ms;
}
double pd_task_cost(const pd_task *task)
{
    return task->view.spec->cost;
}
int pd_task_index(const pd_task *task)
{
    return (int)(task->view.spec - task->shared->plan.tasks);
}
int64_t pd_task_count(const pd_task *task)
{
    return task->view.count;
}
void pd_task_keep(pd_task *task)
{
    task->kept = task->pending->kept = true;
}
bool pd_task_replaceable(const pd_task *task)
{
    return task->shared->plan.root_delay == PD_ROOT_READY && !task->kept;
}

void pd_optim_deliver(pd_optim *optim, pd_task *task)
{
    assert(task->shared == optim->shared && task->pending->task == NULL);
    task->pending->task = task;
    task->pending->back = true;
    if (task->status == PD_CANCELLED && task->arena == NULL) {
        free(task->memory); /* so that a root has no more memory than its last two tasks need */
        task->memory = NULL;
    }
    if (optim->step.stage == PD_STAGE_WAIT) pd_step_settle(optim);
}

static bool adopts_when_ready(const pd_optim *optim)
{
    return optim->shared->plan.root_delay == PD_ROOT_READY;
}

/* Finds a pending task in `taken`, the list of tasks that a replayed step takes. NULL: the step does not take the
 * task. */
static const pd_taken_root *find_taken(const pd_taken_roots *taken, const pd_pending_task *pending)
{
    for (size_t i = 0; i < taken->n; i++)
        if (taken->at[i].count == pending->count && taken->at[i].task == pending->index) return &taken->at[i];
    return NULL;
}

/* Returns whether a pending task must be adopted in this step. */
static bool is_due(const pd_optim *optim, const pd_pending_task *pending)
{
    if (adopts_when_ready(optim) && optim->tasks.taken != NULL && optim->tasks.retakes)
        return pending->back && find_taken(optim->tasks.taken, pending) != NULL;
    if (adopts_when_ready(optim)) return pending->back;
    return pending->count <= optim->saved.count - optim->shared->plan.root_delay;
}

/* Returns whether a step with root_delay = ready waits for a task that is at the preconditioner pool. A replayed step
 * waits for the tasks that it takes. If a replay ends early, the next step waits for the tasks that had to run
 * (pd_task_keep): so there are never more tasks than the job has counted memory for. */
static bool is_awaited(const pd_optim *optim, const pd_pending_task *pending)
{
    if (optim->tasks.taken != NULL && optim->tasks.retakes) return find_taken(optim->tasks.taken, pending) != NULL;
    return pending->kept;
}

static bool awaited_are_back(const pd_optim *optim)
{
    for (const pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next)
        if (!pending->back && is_awaited(optim, pending)) return false;
    return true;
}

static bool tasks_are_back(const pd_optim *optim)
{
    if (adopts_when_ready(optim)) return awaited_are_back(optim);
    for (const pd_pending_task *pending = optim->saved.oldest; pending != NULL && is_due(optim, pending);
         pending = pending->next)
        if (!pending->back) return false;
    return true;
}

/* Removes from the list of pending tasks the one that follows `before`; if `before` is NULL, the oldest one. Returns
 * its task. */
static pd_task *take_out(pd_optim *optim, pd_pending_task *before)
{
    pd_pending_task **link = before == NULL ? &optim->saved.oldest : &before->next, *pending = *link;
    pd_task *task = pending->task;

    *link = pending->next;
    if (optim->saved.newest == pending) optim->saved.newest = before;
    free(pending);
    return task;
}

/* Returns whether the result of a task is out of date. Either the task was never run, because a newer one replaced it,
 * or a newer root is in use already. */
static bool is_stale(const pd_optim *optim, const pd_task *task)
{
    return adopts_when_ready(optim) &&
           (task->status == PD_CANCELLED || task->view.count < optim->saved.roots[pd_task_index(task)].count);
}

static bool refuses(const pd_optim *optim, pd_task *task, pd_error *why)
{
    pd_error text = { 0 };
    int rc;

    if (task->status == PD_OK || is_stale(optim, task)) return false;
    task->view.status = task->status;
    if ((rc = optim->ops->refusal(&task->view, &text)) == PD_OK) return false;
    (void)pd_fail(why, rc, "%s: %.340s", optim->name, text.text);
    return true;
}

/* Adds a pending task to `taken`, the list of tasks that the step takes. */
static void note_taken(pd_taken_roots *taken, const pd_pending_task *pending)
{
    if (taken->n == taken->room)
        taken->missed = true;
    else
        taken->at[taken->n++] = (pd_taken_root){ pending->index, pending->count, pending->task->status };
}

/* Marks a task as failed if it failed in the step that is replayed. */
static void retake(const pd_taken_roots *taken, const pd_pending_task *pending)
{
    const pd_taken_root *noted = find_taken(taken, pending);

    if (noted != NULL && noted->status != PD_OK) pending->task->status = noted->status;
}

/* Adds the due tasks of a step to the list optim->tasks.taken. In a replayed step, checks instead that they are the
 * tasks in the list, and marks those as failed that failed in the original step. */
static void settle_taken(pd_optim *optim)
{
    pd_taken_roots *taken = optim->tasks.taken;
    size_t n = 0;

    if (taken == NULL) return;
    if (!optim->tasks.retakes) taken->left = 0;
    for (const pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next) {
        if (!pending->due) {
            taken->left += !optim->tasks.retakes;
            continue;
        }
        n++;
        if (optim->tasks.retakes)
            retake(taken, pending);
        else
            note_taken(taken, pending);
    }
    if (optim->tasks.retakes && n != taken->n) taken->missed = true;
}

void pd_optim_note_taken(pd_optim *optim, pd_taken_roots *taken)
{
    optim->tasks.taken = taken;
    optim->tasks.retakes = false;
}

void pd_optim_take_as_noted(pd_optim *optim, pd_taken_roots *taken)
{
    optim->tasks.taken = taken;
    optim->tasks.retakes = true;
}

/* A step can take all pending tasks: at most four of each root (has_room). */
size_t pd_optim_most_taken(const pd_optim *optim)
{
    return 4 * optim->shared->plan.n_tasks;
}

void pd_step_settle(pd_optim *optim)
{
    pd_atomic_group *group = optim->bond.group;
    pd_error why;

    if (optim->bond.settled || !tasks_are_back(optim)) return;
    optim->bond.settled = true;
    for (pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next)
        pending->due = is_due(optim, pending);
    settle_taken(optim);
    for (pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next) {
        if (pending->due && optim->bond.last == NULL && optim->ops->refusal != NULL &&
            refuses(optim, pending->task, &why))
            optim->bond.last = pending;
    }
    group->arrived++;
    if (optim->bond.last == NULL || group->first <= optim->bond.place) return;
    group->first = optim->bond.place;
    group->why = why;
}

bool pd_step_is_decided(const pd_optim *optim)
{
    return optim->bond.settled && optim->bond.group->arrived == optim->bond.group->steps;
}

void pd_step_decide(pd_optim *optim)
{
    const pd_atomic_group *group = optim->bond.group;

    optim->step.refused = group->first < group->steps;
    optim->bond.dropping = optim->step.refused && group->first < optim->bond.place;
    if (optim->step.refused && group != &optim->bond.own) optim->bond.own.why = group->why;
}

bool pd_optim_waits(const pd_optim *optim)
{
    if (optim->step.stage != PD_STAGE_WAIT) return false;
    return optim->bond.settled ? !pd_step_is_decided(optim) : !tasks_are_back(optim);
}

/* Takes the task that follows `before` from the list of pending tasks, and adds it to optim->tasks.work, so that its
 * result is stored. Frees the task instead, and counts it as `replaced` or `dropped`, if its result is out of date, or
 * if it comes after the task that made the step fail. */
static void collect(pd_optim *optim, pd_pending_task *before)
{
    bool last = (before == NULL ? optim->saved.oldest : before->next) == optim->bond.last;
    pd_task *task = take_out(optim, before);
    bool stale = is_stale(optim, task);

    if (!stale && !optim->bond.dropping) {
        optim->tasks.work[optim->tasks.n_work++] = task;
    } else {
        optim->saved.stats.replaced += stale;
        optim->saved.stats.dropped += !stale;
        pd_task_free(task);
    }
    optim->bond.dropping = optim->bond.dropping || last;
}

void pd_tasks_collect(pd_optim *optim)
{
    pd_pending_task *before = NULL, *pending;

    optim->tasks.n_work = 0;
    while ((pending = before == NULL ? optim->saved.oldest : before->next) != NULL) {
        if (pending->due && (optim->tasks.n_work == 0 || pending->count == optim->tasks.work[0]->view.count))
            collect(optim, before);
        else
            before = pending;
    }
}

static void adopt(const pd_optim *optim, const pd_task *task)
{
    if (optim->ops->adopt != NULL) {
        optim->ops->adopt(&task->view, optim->slot);
        return;
    }
    for (int k = 0; k < task->view.spec->n_outputs; k++)
        pd_slot_part_store(optim, task->view.spec, task->view.spec->output[k], task->output[k]);
}

void pd_tasks_adopt(const pd_optim *optim, size_t i)
{
    pd_task *task = optim->tasks.work[i];

    task->view.status = task->status;
    if (task->status == PD_OK) adopt(optim, task);
    if (task->status != PD_CANCELLED && optim->ops->note != NULL) optim->ops->note(&task->view, optim->slot);
}

static void count_task(pd_root_stats *stats, pd_root_state *root, const pd_task *task)
{
    bool good = task->status == PD_OK;

    root->error = task->view.error;
    root->condition = task->view.condition;
    root->ms = task->ms;
    root->adopted += good;
    root->failed += !good;
    root->failing = !good;
    stats->adopted += good;
    stats->failed += !good;
    if (!good) return;
    root->count = task->view.count;
    if (task->view.error > stats->last_error) stats->last_error = task->view.error;
    if (task->ms > stats->last_cost_ms) stats->last_cost_ms = task->ms;
}

void pd_tasks_adopted(pd_optim *optim)
{
    optim->saved.stats.last_error = optim->saved.stats.last_cost_ms = 0;
    for (size_t i = 0; i < optim->tasks.n_work; i++) {
        count_task(&optim->saved.stats, &optim->saved.roots[pd_task_index(optim->tasks.work[i])], optim->tasks.work[i]);
        pd_task_free(optim->tasks.work[i]);
    }
    optim->tasks.n_work = 0;
}

void pd_optim_adopt_early(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;

    bool adopts = optim->ops->adopt_phase == 0 || plan->adopts_first;

    if (!adopts || plan->root_delay != 1 || optim->memory.n_stored > 0) return;
    for (pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next) pending->due = true;
    pd_tasks_collect(optim);
    for (size_t i = 0; i < optim->tasks.n_work; i++) pd_tasks_adopt(optim, i);
    pd_tasks_adopted(optim);
}

void pd_tasks_free(pd_optim *optim)
{
    while (optim->saved.oldest != NULL) pd_task_free(take_out(optim, NULL));
}

static int compare_loads(const void *a, const void *b)
{
    const pd_load *x = a, *y = b;

    return pd_load_leads(*x, *y) ? -1 : pd_load_leads(*y, *x);
}

void pd_load_sort(pd_load *load, size_t n)
{
    if (n > 1) qsort(load, n, sizeof *load, compare_loads);
}
