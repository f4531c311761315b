/* task.h - root tasks: captured by a step, run by any thread, adopted by the same step or a later one.
 * Step thread, except pd_task_run and where a comment says "any thread of a phase". */
#ifndef PD_TASK_H
#define PD_TASK_H

#include "optimizer_types.h"

/* ---- for schedulers ---- */

/* Returns the next task that was captured and not handed out yet, in the order of the plan; NULL: none. The caller
 * brings it back by pd_optim_deliver, run or not. Only after the optimizer was freed may it be freed instead. A
 * task owns all it reads, so the optimizer may be freed while it is away. A task without memory for its copies
 * counts as failed and is never handed out. */
pd_task *pd_optim_capture(pd_optim *optim);
/* Runs a task: fills its result and status. Pure; any thread. */
void     pd_task_run(pd_task *task);
/* Records how long pd_task_run took, measured by a caller that has a clock. */
void     pd_task_took(pd_task *task, double ms);
/* Takes a task back. A task that was not run counts as failed. pd_batch_run adopts it in its step (count +
 * root_delay). */
void     pd_optim_deliver(pd_optim *optim, pd_task *task);
void     pd_task_free(pd_task *task);                       /* accepts NULL */
double   pd_task_cost(const pd_task *task);                 /* estimated operations: the pool runs the largest first */
int      pd_task_index(const pd_task *task);                /* its place in plan->tasks */
/* Returns whether the task may come back unrun once a newer task of its index exists (PD_ROOT_READY). Every other
 * task is waited for and must be run. */
bool     pd_task_replaceable(const pd_task *task);
/* Returns whether a step is parked: a task that is due is not back, here or in the atomic group. */
bool     pd_optim_waits(const pd_optim *optim);

/* ---- for batch.c and optimizer.c: the tasks' part of a step, in this order ---- */

/* Makes the tasks that are due, without their copies, in optim->work. */
void pd_tasks_prepare(pd_optim *optim);
/* Copies the inputs of optim->work[i]. Any thread of a phase. */
void pd_tasks_copy(const pd_optim *optim, size_t i);
/* Lets pd_optim_capture hand out the tasks in optim->work. */
void pd_tasks_captured(pd_optim *optim);
/* Adds a task that was captured as plan->tasks[index] at `count` and is back, for state that is read from an image. The caller fills in its
 * result. NULL: out of memory. */
pd_task *pd_tasks_add_back(pd_optim *optim, size_t index, int64_t count);
/* Reports to the atomic group, once, whether this step is refused. Does nothing while a task that is due is away. */
void pd_step_settle(pd_optim *optim);
/* Returns whether all steps of the atomic group have reported. */
bool pd_step_is_decided(const pd_optim *optim);
/* Takes the group's decision over: whether this step fails, and which of its tasks are adopted all the same. */
void pd_step_decide(pd_optim *optim);
/* Puts the tasks to adopt now into optim->work: those captured in one step at a time, oldest first. */
void pd_tasks_collect(pd_optim *optim);
/* Stores the result of optim->work[i] in its slots, unless the task failed. Any thread of a phase. */
void pd_tasks_adopt(const pd_optim *optim, size_t i);
/* Counts and frees the tasks in optim->work. */
void pd_tasks_adopted(pd_optim *optim);
/* Frees all tasks that are not away, and forgets the others. */
void pd_tasks_free(pd_optim *optim);

#endif
