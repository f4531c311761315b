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
void pd_task_run(pd_task *task); /* computes the task's result and status. A pure function; any thread */
/* marks as failed a task that cannot run, because its scheduler is out of memory */
void pd_task_fail_unrun(pd_task *task);
void pd_task_took(pd_task *task, double ms); /* stores how long pd_task_run took: the optimizer has no clock */
double pd_task_ms(const pd_task *task);      /* returns the stored time; 0: the task has not run */
/* Takes a task back from the caller of pd_optim_capture. A task that was not run counts as failed. The result of a task
 * is stored later, by pd_batch_run, in the step that adopts it: root_delay steps after the step that captured it. */
void pd_optim_deliver(pd_optim *optim, pd_task *task);
void pd_task_free(pd_task *task); /* accepts NULL */
/* returns the estimated operations: the pool runs the most expensive tasks first */
double pd_task_cost(const pd_task *task);
int pd_task_index(const pd_task *task);     /* returns the task's index in plan->tasks */
int64_t pd_task_count(const pd_task *task); /* returns the number of the step that captured the task */
/* Makes the task run even if a newer task of the same root comes, since a later step that repeats an earlier one
 * (pd_optim_take_as_noted) takes its result. Call it before another thread has the task. If the replay ends before that
 * step, the next step waits for the task. */
void pd_task_keep(pd_task *task);
/* Returns whether a task may be given back without a run once a newer task with the same index exists. True if steps
 * use roots as soon as they are ready (PD_ROOT_READY), except for tasks that are kept (pd_task_keep). Every other task
 * must be run, since a step waits for it. */
bool pd_task_replaceable(const pd_task *task);
/* Returns whether a step is parked: the step, or another one of its atomic group, waits for a task that is still at the
 * preconditioner pool. */
bool pd_optim_waits(const pd_optim *optim);

/* Makes the step that has just begun fill *taken with the tasks that it adopts or throws away. There must be room for
 * pd_optim_most_taken(optim) entries. `taken` stays valid until the step is done. */
void pd_optim_note_taken(pd_optim *optim, pd_taken_roots *taken);
/* Makes the step that has just begun repeat an earlier one: it takes the tasks in the list `taken`, which
 * pd_optim_note_taken wrote in the earlier step. A task that failed in the earlier step counts as failed in this one.
 * With root_delay = ready the step takes no other tasks, and waits for those that are still at the preconditioner pool.
 * If a task of the list does not exist, the step sets taken->missed. */
void pd_optim_take_as_noted(pd_optim *optim, pd_taken_roots *taken);
size_t pd_optim_most_taken(const pd_optim *optim); /* returns the largest number of tasks that one step can take */

/* A step captures its tasks by three functions, in this order. pd_tasks_prepare makes the tasks of this step in
 * tasks.work. pd_tasks_copy copies the inputs of tasks.work[i] (any thread of a phase). pd_tasks_captured lets
 * pd_optim_capture hand the tasks out. */
void pd_tasks_prepare(pd_optim *optim);
void pd_tasks_copy(const pd_optim *optim, size_t i);
void pd_tasks_captured(pd_optim *optim);
/* Adds a pending task that is already back: plan->tasks[index], captured in step `count`. Used when the state is read
 * from an image or imported. The caller fills in the result. No other task may be at the preconditioner pool. NULL: out
 * of memory. */
pd_task *pd_tasks_add_back(pd_optim *optim, size_t index, int64_t count);
/* Reports to the atomic group, once, whether a failed task makes this step fail. Does nothing while a task that is due
 * in this step is still at the preconditioner pool. */
void pd_step_settle(pd_optim *optim);
bool pd_step_is_decided(const pd_optim *optim); /* returns true if all steps of the atomic group have reported */
/* Applies the decision of the atomic group to this step: sets whether the step fails, with the error of the group, and
 * which of its due tasks are adopted although it fails. */
void pd_step_decide(pd_optim *optim);
/* Moves due tasks from the list of pending tasks into tasks.work. One call moves only tasks that were captured in the
 * same step, the oldest ones first; the next call moves those of a later step. */
void pd_tasks_collect(pd_optim *optim);
/* Adopts tasks.work[i], unless the task failed. Any thread of a phase. */
void pd_tasks_adopt(const pd_optim *optim, size_t i);
/* Adopts the tasks that the next step would adopt before its first phase, if it comes: only for an optimizer that
 * adopts tasks before its phases read what they write (adopt_phase 0, or adopts_first), with root_delay = 1 and without
 * coded slots; does nothing for others.
 * All tasks must be back. Replays of recorded runs compare the state after this call: upstream programs refresh bases
 * at the end of a step. */
void pd_optim_adopt_early(pd_optim *optim);
void pd_tasks_adopted(pd_optim *optim); /* counts the tasks in tasks.work as adopted or failed, and frees them */
/* Removes all tasks from the list of pending tasks and frees them, except those at the preconditioner pool: whoever
 * called pd_optim_capture frees these. */
void pd_tasks_free(pd_optim *optim);

/* What decides the order in which tasks run: the task with the largest `size` first; of equal tasks the one with the
 * lowest `place`. */
typedef struct pd_load {
    double size;    /* cost of the task, not NaN */
    uint64_t place; /* a number that differs for all tasks that are compared */
} pd_load;

/* Returns whether the task of `a` runs before that of `b`. */
static inline bool pd_load_leads(pd_load a, pd_load b)
{
    return a.size != b.size ? a.size > b.size : a.place < b.place;
}

/* Sorts n loads. The result does not depend on their order before. */
void pd_load_sort(pd_load *load, size_t n);

#endif
