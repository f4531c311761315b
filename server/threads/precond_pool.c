/* precond_pool.c - the threads that run preconditioner tasks and return them to the step thread. precond_queue.c
 * decides which task runs next. */
#include "precond_pool.h"

#include "blascore.h"
#include "optimizer.h"
#include "precond_queue.h"
#include "thread.h"

#include <stdlib.h>

/* Threads that run preconditioner tasks add this to their nice value. On a core that a step also needs, such a thread
 * gets about a tenth of the time; on a free core, all of it. A much higher value would starve preconditioner tasks on a
 * machine where other programs are busy. */
enum { NICER = 10 };

/* A thread of the preconditioner pool. */
typedef struct worker {
    struct pd_precond_pool *pool;
    /* which preconditioner tasks this thread takes: all, or light tasks only */
    pd_precond_queue_choice choice;
    pthread_t thread;
} worker;

/* The preconditioner pool: its queue and its threads. */
struct pd_precond_pool {
    pthread_mutex_t lock; /* protects queue, light_is_idle and stop; never held while a preconditioner task runs */
    /* Condition variables on which threads wait for preconditioner tasks: one for the threads that take all tasks, one
     * for the thread of light tasks. */
    pthread_cond_t more[2];
    pd_precond_queue *queue;
    bool light_is_idle; /* the thread for light tasks waits, and nobody has woken it yet */
    bool stop;
    pd_mailbox *done;
    int n_workers;
    worker worker[]; /* the threads; the first one takes only light tasks */
};

/* Waits for a preconditioner task that this thread takes, and returns the request that contains it. Returns NULL when
 * the pool stops. */
static pd_request *take(pd_precond_pool *pool, pd_precond_queue_choice choice)
{
    pd_request *next = NULL;

    pthread_mutex_lock(&pool->lock);
    while (!pool->stop && (next = pd_precond_queue_take(pool->queue, choice)) == NULL) {
        if (choice == PD_PRECOND_QUEUE_LIGHT) pool->light_is_idle = true;
        pthread_cond_wait(&pool->more[choice], &pool->lock);
    }
    if (choice == PD_PRECOND_QUEUE_LIGHT) pool->light_is_idle = false;
    pthread_mutex_unlock(&pool->lock);
    return next;
}

/* Sends preconditioner tasks that are finished or were withdrawn back to the store: posts them, as a chain of requests,
 * to the mailbox `done`. Accepts NULL. */
static void return_tasks(pd_precond_pool *pool, pd_request *first)
{
    for (pd_mail *mail = first == NULL ? NULL : &first->mail, *next; mail != NULL; mail = next) {
        next = mail->next;
        mail->next = NULL;
        pd_mailbox_post(pool->done, mail, mail);
    }
}

static void *run(void *arg)
{
    const worker *self = arg;
    pd_request *next;

    pd_thread_lower(NICER); /* steps come first: a root may be late */
    pd_blas_one_thread();
    while ((next = take(self->pool, self->choice)) != NULL) {
        struct pd_task *task = next->u.task.task;
        uint64_t begun = pd_clock_ns();
        pd_task_run(task);
        pd_task_took(task, (double)(pd_clock_ns() - begun) / 1e6);
        return_tasks(self->pool, next);
    }
    return NULL;
}

/* Wakes a thread for a preconditioner task that was added. If the task is light and the thread for light tasks waits,
 * that thread is woken. Otherwise a thread that takes all tasks is woken. */
static void wake(pd_precond_pool *pool, bool light)
{
    bool first = light && pool->light_is_idle;

    if (first) pool->light_is_idle = false;
    pthread_cond_signal(&pool->more[first ? PD_PRECOND_QUEUE_LIGHT : PD_PRECOND_QUEUE_ALL]);
}

int pd_precond_pool_submit(pd_precond_pool *pool, struct pd_task *task, uint32_t job, uint32_t param)
{
    bool light = pd_precond_queue_is_light(task);
    pd_request *unrun;
    int rc;

    pthread_mutex_lock(&pool->lock);
    rc = pd_precond_queue_add(pool->queue, task, job, param, &unrun);
    if (rc == PD_OK && unrun == NULL) wake(pool, light);
    pthread_mutex_unlock(&pool->lock);
    return_tasks(pool, unrun);
    return rc;
}

void pd_precond_pool_forget(pd_precond_pool *pool, uint32_t job)
{
    pd_request *unrun;

    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    unrun = pd_precond_queue_forget(pool->queue, job);
    pthread_mutex_unlock(&pool->lock);
    return_tasks(pool, unrun);
}

static int start_worker(pd_precond_pool *pool, pd_error *err)
{
    worker *w = &pool->worker[pool->n_workers];
    int rc;

    *w = (worker){ .pool = pool, .choice = pool->n_workers == 0 ? PD_PRECOND_QUEUE_LIGHT : PD_PRECOND_QUEUE_ALL };
    rc = pd_thread_start(&w->thread, run, w, "next thread of the preconditioner pool", err);
    if (rc == PD_OK) pool->n_workers++;
    return rc;
}

int pd_precond_pool_start(pd_precond_pool **out, int threads, pd_mailbox *done, pd_error *err)
{
    pd_precond_pool *pool = calloc(1, sizeof *pool + (size_t)(threads + 1) * sizeof pool->worker[0]);
    int rc = PD_OK;

    if (pool == NULL || (pool->queue = pd_precond_queue_new()) == NULL) {
        free(pool);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&pool->lock, NULL);
    for (int i = 0; i < 2; i++) pthread_cond_init(&pool->more[i], NULL);
    pool->done = done;
    while (rc == PD_OK && pool->n_workers <= threads) rc = start_worker(pool, err);
    if (rc == PD_OK)
        *out = pool;
    else
        pd_precond_pool_stop(pool);
    return rc;
}

static void stop_workers(pd_precond_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    for (int i = 0; i < 2; i++) pthread_cond_broadcast(&pool->more[i]);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_workers; i++) pthread_join(pool->worker[i].thread, NULL);
}

void pd_precond_pool_stop(pd_precond_pool *pool)
{
    pd_request *unrun;

    if (pool == NULL) return;
    stop_workers(pool);
    while ((unrun = pd_precond_queue_take(pool->queue, PD_PRECOND_QUEUE_ALL)) != NULL) return_tasks(pool, unrun);
    pd_precond_queue_free(pool->queue);
    for (int i = 0; i < 2; i++) pthread_cond_destroy(&pool->more[i]);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
