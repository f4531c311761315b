/* task.h - root tasks: how a step makes them, has them run, and stores their results. A step captures a task (copies
 * its inputs), any thread runs it, and the same step or a later one adopts it (stores its result). Called by the
 * step thread, except pd_task_run and functions whose comment says "any thread of a phase". */
#ifndef PD_TASK_H
#define PD_TASK_H

#include "optimizer_types.h"

/* ---- for the schedulers that run tasks ---- */

/* Returns the next task that was captured and not handed out yet, in the order of the plan; NULL: none. The caller
 * gives it back by pd_optim_deliver, whether it was run or not.
 *
 * A task owns all data that it reads, so the optimizer may be freed while the task is handed out. Only then the
 * caller frees the task itself.
 *
 * If there is no memory to copy a task's inputs, the task counts as failed and is never handed out. */
pd_task *pd_optim_capture(pd_optim *optim);
/* Runs a task: fills its result and status. A pure function; any thread. */
void pd_task_run(pd_task *task);
/* Records how long pd_task_run took, measured by a caller that has a clock. */
void pd_task_took(pd_task *task, double ms);
/* Takes a task back from the caller of pd_optim_capture. A task that was not run counts as failed. pd_batch_run
 * adopts the result in the step in which it is due (count + root_delay). */
void pd_optim_deliver(pd_optim *optim, pd_task *task);
void pd_task_free(pd_task *task);         /* accepts NULL */
double pd_task_cost(const pd_task *task); /* estimated operations: the root pool runs the most expensive tasks first */
int pd_task_index(const pd_task *task);   /* index of the task in plan->tasks */
/* Returns whether the task may be given back without a run, once a newer task with the same index exists. This is so
 * with PD_ROOT_READY. Every other task must be run, since a step waits for it. */
bool pd_task_replaceable(const pd_task *task);
/* Returns whether a step is parked: it, or a step of its atomic group, waits for a due task that is still at the
 * root pool. */
bool pd_optim_waits(const pd_optim *optim);

/* ---- for batch.c and optimizer.c: capture and adoption of tasks in a step, in this order ---- */

/* Makes the tasks that this step captures, in optim->work. Their inputs are not copied yet. */
void pd_tasks_prepare(pd_optim *optim);
/* Copies the inputs of the task optim->work[i]. Any thread of a phase. */
void pd_tasks_copy(const pd_optim *optim, size_t i);
/* Lets pd_optim_capture hand out the tasks in optim->work. */
void pd_tasks_captured(pd_optim *optim);
/* Adds a pending task that is back, for state that is read from an image or imported. It is the task
 * plan->tasks[index], captured in step `count`. The list stays in the order of capture. All other tasks must be back
 * too. The caller fills in the result. NULL: out of memory. */
pd_task *pd_tasks_add_back(pd_optim *optim, size_t index, int64_t count);
/* Reports to the atomic group, once, whether this step is refused. Does nothing while a task that is due is at the
 * root pool. */
void pd_step_settle(pd_optim *optim);
/* Returns whether all steps of the atomic group have reported whether they are refused. */
bool pd_step_is_decided(const pd_optim *optim);
/* Applies the atomic group's decision to this step: whether it fails, and which of its tasks are adopted all the
 * same. */
void pd_step_decide(pd_optim *optim);
/* Moves tasks that are due for adoption into optim->work: only those that were captured in the same step, the oldest
 * first. The next call moves those of the next step. */
void pd_tasks_collect(pd_optim *optim);
/* Stores the result of the task optim->work[i] in its slots, unless the task failed. Any thread of a phase. */
void pd_tasks_adopt(const pd_optim *optim, size_t i);
/* Counts the tasks in optim->work as adopted or failed, and frees them. */
void pd_tasks_adopted(pd_optim *optim);
/* Frees all pending tasks that are not at the root pool, and forgets the others. */
void pd_tasks_free(pd_optim *optim);

#endif
