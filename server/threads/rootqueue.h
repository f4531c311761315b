/* rootqueue.h - decides which root task runs next. A root task computes a matrix root for an optimizer. Jobs share
 * the pool of threads fairly, and a task waits for a bounded number of other tasks.
 *
 * The queue uses no thread, clock or lock. Its decisions depend only on the calls and their order.
 *
 * Between jobs, the order is start-time fair queueing by estimated cost. A job is charged when its task is taken,
 * not when the task ends. So a job of giant tasks does not fill one thread after the other while another job waits.
 * A job that had no tasks for a while gets no credit for that time: it continues at the virtual time of the job that
 * is served now.
 *
 * Within a job, tasks that a step waits for come before tasks whose roots are used when they are ready. Then the
 * largest task comes first, then the oldest. Every PD_ROOTQUEUE_AGED-th task of a job is its oldest one.
 *
 * A light task (PD_TASK_LIGHT) should not wait until a long task of another job ends. So the pool has one more
 * thread, which takes light tasks only (PD_ROOTQUEUE_LIGHT), from each job in turn. Jobs are not charged for tasks
 * on this thread, so they keep their shares of the other threads.
 *
 * Bounds for the threads that take all tasks. C(x) is the largest cost of a task of job x, plus
 * PD_ROOTQUEUE_HANDOVER:
 *   - Job a has a waiting task, and its previous task was taken already. Until the waiting task is taken, the threads
 *     take tasks of each other job b that cost at most C(a) + C(b) in total. A running task is never interrupted, so
 *     job a also waits until the first of the K threads is free.
 *   - A task that is added while n older tasks of its job wait is among the next PD_ROOTQUEUE_AGED * (n + 1) tasks of
 *     its job that are taken.
 *
 * Bounds for the thread of light tasks: while a light task of a job waits for its job's turn, the thread takes at
 * most one task of each other job. Within the job, the second bound above applies to its light tasks. */
#ifndef PD_ROOTQUEUE_H
#define PD_ROOTQUEUE_H

#include "request.h"

/* Operations that handing a root task to another thread costs, by estimate, in addition to the operations of the task
 * itself. */
#define PD_ROOTQUEUE_HANDOVER 1e5
enum { PD_ROOTQUEUE_AGED = 4 };

typedef enum pd_rootqueue_choice { PD_ROOTQUEUE_ALL, PD_ROOTQUEUE_LIGHT } pd_rootqueue_choice;
typedef struct pd_rootqueue pd_rootqueue;

/* Makes a queue of root tasks, which is empty. Returns NULL if memory is out. */
pd_rootqueue *pd_rootqueue_new(void);
/* Frees a queue of root tasks, which must be empty: call pd_rootqueue_take until it returns NULL. Accepts NULL. */
void pd_rootqueue_free(pd_rootqueue *queue);

/* Takes over a root task, and makes the request that will return it to the store. PD_NO_MEMORY: the task is still the
 * caller's.
 *
 * If the optimizer uses the root when it is ready, this task replaces an older waiting task of the same root. Then
 * *unrun is the request of the older task, otherwise NULL. */
int pd_rootqueue_add(pd_rootqueue *queue, struct pd_task *task, uint32_t job, uint32_t param, pd_request **unrun);
/* Makes a PD_REQ_TASK of an effect PD_EFF_TASK, in the same memory: its root task has failed, because there was no
 * memory to add it to a queue. The step goes on with the last good root, and operators see the failed one. */
pd_request *pd_rootqueue_refuse(pd_effect *effect);
/* Removes the root task that runs next from the queue, and returns the PD_REQ_TASK request that contains it. Returns
 * NULL if no task waits. With PD_ROOTQUEUE_LIGHT, it is the next light task, for the thread that takes no others. */
pd_request *pd_rootqueue_take(pd_rootqueue *queue, pd_rootqueue_choice choice);
/* Forgets a job that has ended. Returns its waiting root tasks, which have not run, as a chain of requests linked by
 * mail.next, or NULL if none waits. */
pd_request *pd_rootqueue_forget(pd_rootqueue *queue, uint32_t job);
/* Returns whether a root task is light: its cost is so low that the thread for light tasks takes it. */
bool pd_rootqueue_is_light(const struct pd_task *task);

#endif
