/* task.h - preconditioner tasks: a step captures a task, any thread runs it, and the same step or a later one adopts
 * it. Called by the step thread, except pd_task_run and functions whose comment says "any thread of a phase". */
#ifndef PD_TASK_H
#define PD_TASK_H

#include "optimizer_types.h"

/* Returns the next captured task that was not handed out yet, in the order of the plan; NULL: there is none. The caller
 * gives it back by pd_optim_deliver, whether it was run or not.
 *
 * A task owns all data that it reads, so the optimizer may be freed while the task is handed out. Only in this case the
 * caller frees the task itself.
 *
 * If there is no memory to copy a task's inputs, the task counts as failed and is never handed out. */
pd_task *pd_optim_capture(pd_optim *optim);
void pd_task_run(pd_task *task);             /* fills the task's result and status. A pure function; any thread */
void pd_task_fail_unrun(pd_task *task);      /* fails a task that is not run because its scheduler is out of memory */
void pd_task_took(pd_task *task, double ms); /* records how long pd_task_run took: the optimizer has no clock */
double pd_task_ms(const pd_task *task);      /* the recorded time; 0: the task has not run */
/* Takes a task back from the caller of pd_optim_capture. A task that was not run counts as failed. pd_batch_run stores
 * its result in the step in which it is due: root_delay steps after the one that copied its inputs. */
void pd_optim_deliver(pd_optim *optim, pd_task *task);
void pd_task_free(pd_task *task);         /* accepts NULL */
double pd_task_cost(const pd_task *task); /* estimated operations: the pool runs the most expensive tasks first */
int pd_task_index(const pd_task *task);   /* index in plan->tasks */
/* Returns whether a task may be given back without a run, once a newer task with the same index exists. This is so if
 * steps use roots as soon as they are ready (PD_ROOT_READY). Every other task must be run, since a step waits for it,
 * and so must tasks that were captured under pd_optim_keep_tasks. */
bool pd_task_replaceable(const pd_task *task);
/* Returns whether a step is parked: the step, or another one of its atomic group, waits for a task that is still at the
 * preconditioner pool. */
bool pd_optim_waits(const pd_optim *optim);

/* Lets the step that has just begun note in *taken which tasks it adopts or throws away. There must be room for
 * pd_optim_most_taken(optim) entries. `taken` stays valid until the step is done. */
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
size_t pd_optim_most_taken(const pd_optim *optim); /* most tasks that one step can take */

/* The steps of a capture: makes the tasks of this step in tasks.work; copies the inputs of one of them (any thread of a
 * phase); lets pd_optim_capture hand them out. */
void pd_tasks_prepare(pd_optim *optim);
void pd_tasks_copy(const pd_optim *optim, size_t i);
void pd_tasks_captured(pd_optim *optim);
/* Adds a pending task, plan->tasks[index] captured in step `count`, when the state is read from an image or imported.
 * The caller fills in the result. No other task may be at the preconditioner pool. NULL: out of memory. */
pd_task *pd_tasks_add_back(pd_optim *optim, size_t index, int64_t count);
/* Reports to the atomic group, once, whether a failed task makes this step fail. Does nothing while a task that is due
 * in this step is still at the preconditioner pool. */
void pd_step_settle(pd_optim *optim);
bool pd_step_is_decided(const pd_optim *optim); /* whether all steps of the atomic group have reported */
/* Applies the decision of the atomic group to this step: whether it fails, and which tasks are adopted although it
 * fails. */
void pd_step_decide(pd_optim *optim);
/* Moves due tasks from the list of pending tasks into tasks.work. One call moves only tasks that were captured in the
 * same step, the oldest ones first; the next call moves those of a later step. */
void pd_tasks_collect(pd_optim *optim);
/* Adopts tasks.work[i], unless the task failed. Any thread of a phase. */
void pd_tasks_adopt(const pd_optim *optim, size_t i);
void pd_tasks_adopted(pd_optim *optim); /* counts the tasks in tasks.work as adopted or failed, and frees them */
/* Frees all pending tasks, except those at the preconditioner pool: they are taken off the list, and their user frees
 * them. */
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
