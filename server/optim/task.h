/* task.h - preconditioner tasks: how a step makes them, has them run, and stores their results. A step captures a task,
 * any thread runs it, and the same step or a later one adopts it (stores its result). Called by the step thread, except
 * pd_task_run and functions whose comment says "any thread of a phase". */
#ifndef PD_TASK_H
#define PD_TASK_H

#include "optimizer_types.h"

/* Returns the next task that was captured and not handed out yet, in the order of the plan; NULL: there is none. The
 * caller gives it back by pd_optim_deliver, whether it was run or not.
 *
 * A task owns all data that it reads, so the optimizer may be freed while the task is handed out. Only in this case the
 * caller frees the task itself.
 *
 * If there is no memory to copy a task's inputs, the task counts as failed and is never handed out. */
pd_task *pd_optim_capture(pd_optim *optim);
/* Runs a task: fills its result and status. A pure function; any thread. */
void pd_task_run(pd_task *task);
/* Lets a task fail that is not run because its scheduler has no memory for it. */
void pd_task_fail_unrun(pd_task *task);
/* Records how long pd_task_run took. The caller measures it, because the optimizer has no clock. */
void pd_task_took(pd_task *task, double ms);
/* Returns the time that was recorded for the task; 0: it has not run. */
double pd_task_ms(const pd_task *task);
/* Takes a task back from the caller of pd_optim_capture. A task that was not run counts as failed. pd_batch_run stores
 * its result in the step in which it is due: root_delay steps after the one that copied its inputs. */
void pd_optim_deliver(pd_optim *optim, pd_task *task);
void pd_task_free(pd_task *task); /* accepts NULL */
/* returns the estimated operations of the task: the preconditioner pool runs the most expensive tasks first */
double pd_task_cost(const pd_task *task);
int pd_task_index(const pd_task *task); /* returns the index of the task in plan->tasks */
/* Returns whether a task may be given back without a run, once a newer task with the same index exists. This is so if
 * steps use roots as soon as they are ready (PD_ROOT_READY). Every other task must be run, since a step waits for it,
 * and so must tasks that were captured under pd_optim_keep_tasks. */
bool pd_task_replaceable(const pd_task *task);
/* Returns whether a step is parked: the step, or another one of its atomic group, waits for a task that is still at the
 * preconditioner pool. */
bool pd_optim_waits(const pd_optim *optim);

/* Lets the step that has just begun write into *taken which tasks it takes: those whose results it stores or throws
 * away. There must be room for pd_optim_most_taken(optim) entries. `taken` stays valid until the step is done. */
void pd_optim_note_taken(pd_optim *optim, pd_taken_roots *taken);
/* Makes the step that has just begun repeat an earlier one: it takes the tasks in the list `taken`, which
 * pd_optim_note_taken wrote in the earlier step. A task that failed then counts as failed now. With root_delay = ready
 * the step takes no other tasks, and waits for those that are still at the preconditioner pool. If a task of the list
 * is not there, the step sets taken->missed. */
void pd_optim_take_as_noted(pd_optim *optim, pd_taken_roots *taken);
/* Says whether tasks that steps make from now on must all be run: true while later steps will repeat earlier ones
 * (pd_optim_take_as_noted), which may take tasks that a newer one would replace now. The first step that repeats none
 * waits for them. */
void pd_optim_keep_tasks(pd_optim *optim, bool keep);
/* Returns the most tasks that one step can take. */
size_t pd_optim_most_taken(const pd_optim *optim);

/* Makes the tasks that this step starts, in optim->work. Their inputs are not copied yet. */
void pd_tasks_prepare(pd_optim *optim);
/* Copies the inputs of the task optim->work[i] from the optimizer state. Any thread of a phase. */
void pd_tasks_copy(const pd_optim *optim, size_t i);
/* From now on pd_optim_capture may hand out the tasks in optim->work. */
void pd_tasks_captured(pd_optim *optim);
/* Adds a task whose result is computed, but not yet stored in the state. Used when the state is read from an image or
 * imported. NULL: out of memory.
 *
 * - The task is plan->tasks[index], and its inputs were those of step `count`.
 * - It is inserted into the list of pending tasks, which is sorted by this step.
 * - No other task may be at the preconditioner pool.
 * - The caller fills in the result. */
pd_task *pd_tasks_add_back(pd_optim *optim, size_t index, int64_t count);
/* Reports to the atomic group, once, whether a failed task makes this step fail. Does nothing while a task that is due
 * in this step is still at the preconditioner pool. */
void pd_step_settle(pd_optim *optim);
/* Returns whether all steps of the atomic group have reported whether a failed task makes them fail. */
bool pd_step_is_decided(const pd_optim *optim);
/* Applies the decision of the atomic group to this step: whether it fails, and which tasks' results are stored although
 * it fails. */
void pd_step_decide(pd_optim *optim);
/* Moves the tasks that are due from the list of pending tasks, those whose results are not used yet, into optim->work.
 * One call moves only tasks whose inputs were copied in the same step, the oldest ones first; the next call moves those
 * of a later step. */
void pd_tasks_collect(pd_optim *optim);
/* Stores the result of the task optim->work[i] in the optimizer state, unless the task failed. Any thread of a
 * phase. */
void pd_tasks_adopt(const pd_optim *optim, size_t i);
/* Counts the tasks in optim->work as adopted or failed, and frees them. */
void pd_tasks_adopted(pd_optim *optim);
/* Frees all tasks whose results are not stored yet, except those at the preconditioner pool: they are only taken off
 * the list, and their user frees them. */
void pd_tasks_free(pd_optim *optim);

/* The order in which tasks run: the most expensive first, of equal ones the one with the lower place. */
typedef struct pd_load {
    double size;    /* not NaN */
    uint64_t place; /* no two have the same */
} pd_load;

static inline bool pd_load_leads(pd_load a, pd_load b)
{
    return a.size != b.size ? a.size > b.size : a.place < b.place;
}

/* Sorts n loads. The result does not depend on their order before. */
void pd_load_sort(pd_load *load, size_t n);

#endif
