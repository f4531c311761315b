/* precond_pool.h - low-priority threads that run preconditioner tasks. K threads take all tasks, and one more thread
 * takes light tasks only.
 *
 * precond_queue.h describes which task runs next: jobs share the pool fairly, and no task waits forever. If an
 * optimizer adopts an inverse root whenever the root is ready, at most one task of each root waits in the queue: a
 * newer task replaces the older one, which is returned without having run. If the optimizer waits for the root at a
 * certain step, every task is run. */
#ifndef PD_PRECOND_POOL_H
#define PD_PRECOND_POOL_H

#include "mailbox.h"

struct pd_task;
typedef struct pd_precond_pool pd_precond_pool;

/* Starts the preconditioner pool: `threads` (K) threads for all preconditioner tasks, and one for light tasks. Finished
 * tasks are posted to the mailbox `done` as PD_REQ_TASK requests. The mailbox is borrowed and must exist longer than
 * the pool. Each thread calls BLAS with one BLAS thread. */
int pd_precond_pool_start(pd_precond_pool **out, int threads, pd_mailbox *done, pd_error *err);
/* Takes over a preconditioner task: adds it to the queue, or replaces an older task of the same root. Never waits. Step
 * thread. PD_NO_MEMORY: the task is still the caller's. */
int pd_precond_pool_submit(pd_precond_pool *pool, struct pd_task *task, uint32_t job, uint32_t param);
/* Withdraws the waiting preconditioner tasks of a job that has ended: posts them to the mailbox `done` without running
 * them. Tasks that are running finish. Step thread. Accepts NULL. */
void pd_precond_pool_forget(pd_precond_pool *pool, uint32_t job);
/* Ends the preconditioner pool: finishes the running tasks, posts the waiting ones to the mailbox `done` without
 * running them, joins the threads, and frees the pool. Accepts NULL. */
void pd_precond_pool_stop(pd_precond_pool *pool);

#endif
