/* rootqueue.h - which root task runs next: jobs share the pool fairly, and every task is taken after a bounded
 * number of others.
 *
 * Pure: no thread, clock or lock. Decisions depend on the calls and their order alone.
 *
 * Between jobs: start-time fair queueing by estimated cost. A job is charged when its task is taken, not when the
 * task ends, so a job of giant tasks does not fill one thread after the other while another job waits. A job that
 * had nothing to run comes back without credit: it goes on where the job that is served now stands.
 * Within a job: tasks that a step waits for come before tasks that are used when they are ready, then the largest
 * first, then the oldest. Every PD_ROOTQUEUE_AGED-th task of a job is its oldest one.
 *
 * A light task (PD_TASK_LIGHT) should not wait as long as another job's task runs. So the pool has one thread more,
 * which takes light tasks alone (PD_ROOTQUEUE_LIGHT) and goes round the jobs that have some. It charges nobody: the
 * other threads' shares stay as they are.
 *
 * Bounds, for the threads that take all tasks. C(x): the largest cost of a task of job x, plus
 * PD_ROOTQUEUE_HANDOVER.
 *   - From the moment when job a has a waiting task, or when its last task was taken, until its next task is taken,
 *     each other job b takes tasks of at most C(a) + C(b) together. A task that runs is never interrupted, so job a
 *     also waits until the first of the K threads is free.
 *   - A task that came when n older ones of its job waited is at most the PD_ROOTQUEUE_AGED * (n + 1)-th of that
 *     job's next tasks.
 * For the thread of light tasks: one task of each other job, and the same within the job. */
#ifndef PD_ROOTQUEUE_H
#define PD_ROOTQUEUE_H

#include "request.h"

/* Estimated operations that every task costs beside its own: the hand-over between threads. */
#define PD_ROOTQUEUE_HANDOVER 1e5
enum { PD_ROOTQUEUE_AGED = 4 };

typedef enum pd_rootqueue_choice { PD_ROOTQUEUE_ALL, PD_ROOTQUEUE_LIGHT } pd_rootqueue_choice;
typedef struct pd_rootqueue pd_rootqueue;

/* NULL: out of memory. */
pd_rootqueue *pd_rootqueue_new(void);
/* Frees the queue, which must be empty (pd_rootqueue_take until NULL). Accepts NULL. */
void          pd_rootqueue_free(pd_rootqueue *queue);

/* Takes the task, and makes the request that will bring it home. Where roots are adopted when they are ready, at
 * most one task of a root waits: the newer task takes the place of the older one, whose request is given back in
 * *unrun (else NULL). PD_NO_MEMORY: the task is still the caller's. */
int         pd_rootqueue_add(pd_rootqueue *queue, struct pd_task *task, uint32_t job, uint32_t param,
                             pd_request **unrun);
/* Gives the next task, as the request of kind PD_REQ_TASK that brings it home. PD_ROOTQUEUE_LIGHT: the next light
 * task, for the thread that takes no others. NULL: none waits. */
pd_request *pd_rootqueue_take(pd_rootqueue *queue, pd_rootqueue_choice choice);
/* Forgets a job, which has ended. Gives its waiting tasks, unrun, as a chain of requests linked by mail.next; NULL:
 * none waits. */
pd_request *pd_rootqueue_forget(pd_rootqueue *queue, uint32_t job);
/* Returns whether PD_ROOTQUEUE_LIGHT would take the task. */
bool        pd_rootqueue_is_light(const struct pd_task *task);

#endif
