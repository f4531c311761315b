/* rootpool.h - threads at lower priority that run root tasks: K for all tasks, and one for light tasks alone.
 *
 * rootqueue.h says which task is next: jobs share the pool fairly, and no task waits for ever. If roots are adopted
 * when they are ready, at most one task of a root waits: a newer task takes its place, and the older one is given back
 * unrun. If a root is due at a certain step, every task is run. */
#ifndef PD_ROOTPOOL_H
#define PD_ROOTPOOL_H

#include "mailbox.h"

struct pd_task;
typedef struct pd_rootpool pd_rootpool;

/* Starts `threads` (K) threads, and the one for light tasks. Results go to `done` as PD_REQ_TASK requests; the box
 * is borrowed and outlives the pool. Each thread uses one BLAS thread. */
int  pd_rootpool_start(pd_rootpool **out, int threads, pd_mailbox *done, pd_error *err);
/* Takes a task, and adds it or puts it in the place of an older one. Never waits. Step thread. PD_NO_MEMORY: the task
 * is still the caller's. */
int  pd_rootpool_submit(pd_rootpool *pool, struct pd_task *task, uint32_t job, uint32_t param);
/* Gives the waiting tasks of a job that has gone back unrun, through `done`. Running tasks are finished. Step thread.
 * Accepts NULL. */
void pd_rootpool_forget(pd_rootpool *pool, uint32_t job);
/* Finishes the running tasks, gives the waiting ones back through `done` as failed, joins the threads, and frees.
 * Accepts NULL. */
void pd_rootpool_stop(pd_rootpool *pool);

#endif
