#include "rootpool.h"

#include "optim.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { NICENESS = 5 };

typedef struct job {                /* a task that waits, and the mail that brings it home */
    struct job     *next;
    double          cost;
    struct pd_task *task;
    pd_request     *back;
} job;

struct pd_rootpool {
    pthread_mutex_t lock;
    pthread_cond_t  more;
    job            *waiting;        /* the largest first */
    bool            stop;
    pd_mailbox     *done;
    int             n_threads;
    pthread_t       thread[];
};

/* ---- pool threads ---- */

/* Roots may be late; the step may not: on Linux a thread has a priority of its own. One BLAS thread, and no team of this thread's own. */
static void settle_down(void)
{
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICENESS);
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
}

static job *take(pd_rootpool *pool)
{
    job *first;

    pthread_mutex_lock(&pool->lock);
    while (pool->waiting == NULL && !pool->stop) pthread_cond_wait(&pool->more, &pool->lock);
    first = pool->stop ? NULL : pool->waiting;
    if (first != NULL) pool->waiting = first->next;
    pthread_mutex_unlock(&pool->lock);
    return first;
}

static void bring_home(pd_rootpool *pool, job *j)
{
    pd_mailbox_post(pool->done, &j->back->mail, &j->back->mail);
    free(j);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void *run(void *arg)
{
    pd_rootpool *pool = arg;
    job *j;

    settle_down();
    while ((j = take(pool)) != NULL) {
        double begun = now_ms();
        pd_task_run(j->task);
        pd_task_took(j->task, now_ms() - begun);
        bring_home(pool, j);
    }
    return NULL;
}

/* ---- step thread ---- */

static void insert(pd_rootpool *pool, job *j)
{
    job **at = &pool->waiting;

    while (*at != NULL && (*at)->cost >= j->cost) at = &(*at)->next;
    j->next = *at;
    *at = j;
}

int pd_rootpool_submit(pd_rootpool *pool, struct pd_task *task, uint32_t number, uint32_t param)
{
    job *j = calloc(1, sizeof *j);

    if (j == NULL || (j->back = pd_request_new(PD_REQ_TASK, (pd_ticket){ 0, 0 })) == NULL) {
        free(j);
        return PD_NO_MEMORY;
    }
    j->task = task;
    j->cost = pd_task_cost(task);
    j->back->job = number;
    j->back->u.task.task = task;
    j->back->u.task.param = param;
    pthread_mutex_lock(&pool->lock);
    insert(pool, j);
    pthread_cond_signal(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    return PD_OK;
}

int pd_rootpool_start(pd_rootpool **out, int threads, pd_mailbox *done, pd_error *err)
{
    pd_rootpool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof pool->thread[0]);

    if (pool == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    pool->done = done;
    while (pool->n_threads < threads && pthread_create(&pool->thread[pool->n_threads], NULL, run, pool) == 0) pool->n_threads++;
    if (pool->n_threads == threads) {
        *out = pool;
        return PD_OK;
    }
    pd_rootpool_stop(pool);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "the root pool's %d threads cannot be started", threads);
}

void pd_rootpool_stop(pd_rootpool *pool)
{
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->more);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_threads; i++) pthread_join(pool->thread[i], NULL);
    while (pool->waiting != NULL) {
        job *j = pool->waiting;
        pool->waiting = j->next;
        bring_home(pool, j);
    }
    pthread_cond_destroy(&pool->more);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
