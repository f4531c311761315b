/* rootpool.h - low-priority threads that run root tasks, which compute matrix roots for optimizers. K threads take all
 * tasks, and one more thread takes light tasks (those of low cost) only.
 *
 * rootqueue.h describes which task runs next: jobs share the pool fairly, and no task waits for ever. An optimizer may
 * use a new root as soon as it is ready, or wait for it at a certain step. If it uses roots when they are ready, at
 * most one task of each root waits: a newer task replaces the older one, which is given back without having run. If it
 * waits for the root, every task is run. */
#ifndef PD_ROOTPOOL_H
#define PD_ROOTPOOL_H

#include "mailbox.h"

struct pd_task;
typedef struct pd_rootpool pd_rootpool;

/* Starts the root pool: `threads` (K) threads for all root tasks, and one for light tasks. Finished tasks are posted to
 * the mailbox `done` as PD_REQ_TASK requests. The mailbox is borrowed and must exist longer than the pool. Each thread
 * uses one BLAS thread. */
int pd_rootpool_start(pd_rootpool **out, int threads, pd_mailbox *done, pd_error *err);
/* Takes over a root task: adds it to the queue, or replaces an older task of the same root. Never waits. Step thread.
 * PD_NO_MEMORY: the task is still the caller's. */
int pd_rootpool_submit(pd_rootpool *pool, struct pd_task *task, uint32_t job, uint32_t param);
/* Gives back the waiting root tasks of a job that has ended: posts them to the mailbox `done` without running them.
 * Tasks that are running are finished. Step thread. Accepts NULL. */
void pd_rootpool_forget(pd_rootpool *pool, uint32_t job);
/* Ends the root pool: finishes the running tasks, posts the waiting ones to the mailbox `done` without running them,
 * joins the threads, and frees the pool. Accepts NULL. */
void pd_rootpool_stop(pd_rootpool *pool);

#endif
