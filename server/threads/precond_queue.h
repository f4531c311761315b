/* precond_queue.h - decides which preconditioner task runs next. Jobs share the pool of threads fairly, and a task
 * waits for a bounded number of other tasks.
 *
 * The queue uses no thread, clock or lock. Its decisions depend only on the calls and their order.
 *
 * Between jobs, the order is start-time fair queueing by estimated cost: each job has a virtual time, which is the cost
 * charged to it so far, and the job with the smallest virtual time is served next. A job is charged when its task is
 * taken, not when the task ends. So a job with giant tasks does not occupy one thread after the other while another job
 * waits. A job that had no tasks for a while gets no credit for that time: it continues at the virtual time of the job
 * that is served now.
 *
 * Within a job, tasks that a step waits for come before tasks whose roots are used when they are ready. Then the
 * largest task comes first, then the oldest. As every PD_PRECOND_QUEUE_AGED-th task of a job, its oldest one is taken.
 *
 * A light task (PD_TASK_LIGHT) should not wait until a long task of another job ends. So the pool has one more thread,
 * which takes light tasks only (PD_PRECOND_QUEUE_LIGHT), from each job in turn. Jobs are not charged for tasks on this
 * thread, so they keep their shares of the other threads.
 *
 * Bounds for the threads that take all tasks. C(x) is the largest cost of a task of job x, plus
 * PD_PRECOND_QUEUE_HANDOVER:
 *   - Suppose that job a has a waiting task, and its previous task was taken already. Until the waiting task is taken,
 *     the threads take tasks of each other job b that cost at most C(a) + C(b) in total. A running task is never
 *     interrupted, so job a also waits until the first of the K threads is free.
 *   - A task that is added while n older tasks of its job wait is among the next PD_PRECOND_QUEUE_AGED * (n + 1) tasks
 *     of its job that are taken.
 *
 * Bounds for the thread of light tasks: while a light task of a job waits for its job's turn, the thread takes at most
 * one task of each other job. Within the job, the second bound above applies to its light tasks. */
#ifndef PD_PRECOND_QUEUE_H
#define PD_PRECOND_QUEUE_H

#include "request.h"

/* Estimated number of operations that it costs to hand a preconditioner task to another thread. It is added to the cost
 * of the task itself. */
#define PD_PRECOND_QUEUE_HANDOVER 1e5
enum { PD_PRECOND_QUEUE_AGED = 4 };

/* Which preconditioner tasks a thread takes: all, or light ones only. */
typedef enum pd_precond_queue_choice { PD_PRECOND_QUEUE_ALL, PD_PRECOND_QUEUE_LIGHT } pd_precond_queue_choice;
typedef struct pd_precond_queue pd_precond_queue;

/* Makes a queue of preconditioner tasks, which is empty. Returns NULL if out of memory. */
pd_precond_queue *pd_precond_queue_new(void);
/* Frees a queue of preconditioner tasks, which must be empty: call pd_precond_queue_take until it returns NULL. Accepts
 * NULL. */
void pd_precond_queue_free(pd_precond_queue *queue);

/* Takes over a preconditioner task, and makes the request that will return it to the store. PD_NO_MEMORY: the task is
 * still the caller's.
 *
 * If the optimizer uses the root when it is ready, this task replaces an older waiting task of the same root. Then
 * *unrun is the request of the older task, otherwise NULL. */
int pd_precond_queue_add(pd_precond_queue *queue, struct pd_task *task, uint32_t job, uint32_t param,
                         pd_request **unrun);
/* Marks the preconditioner task of a PD_EFF_TASK effect as failed, because there was no memory to add it to a queue.
 * Returns the PD_REQ_TASK request that contains the task; it uses the memory of the effect. The step continues with the
 * last good root, and operators see that a root has failed. */
pd_request *pd_precond_queue_refuse(pd_effect *effect);
/* Removes the preconditioner task that runs next from the queue, and returns the PD_REQ_TASK request that contains it.
 * Returns NULL if no task waits. With PD_PRECOND_QUEUE_LIGHT, only light tasks count. */
pd_request *pd_precond_queue_take(pd_precond_queue *queue, pd_precond_queue_choice choice);
/* Forgets a job that has ended. Returns its waiting preconditioner tasks, which have not run, as a chain of requests
 * linked by mail.next, or NULL if none waits. */
pd_request *pd_precond_queue_forget(pd_precond_queue *queue, uint32_t job);
/* Returns whether a preconditioner task is light: its cost is so low that the thread for light tasks takes it. */
bool pd_precond_queue_is_light(const struct pd_task *task);

#endif
