/* handshake_thread.c - a thread that computes the arithmetic of TLS handshakes, at lower priority than steps. */
#include "handshake_thread.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Added to the daemon's nice value. On a core that a step needs too, the thread gets about a tenth of the time; on a
 * free core, all of it. */
enum { NICER = 10 };

/* Tasks in the order in which they came. */
typedef struct tasks {
    pd_background *at[PD_MOST_COMPUTED];
    int n;
} tasks;

struct pd_handshake_thread {
    uv_thread_t thread;
    uv_mutex_t lock; /* of the three that follow */
    tasks posted, finished;
    bool stop;
    uv_cond_t more;   /* something was posted, or `stop` is set */
    uv_async_t wakes; /* the loop, when a task is finished */
};

static void append(tasks *list, pd_background *work)
{
    assert(list->n < PD_MOST_COMPUTED);
    list->at[list->n++] = work;
}

/* Returns the first posted task, which stays in the list until it is finished; NULL: the thread is to end. */
static pd_background *next_task(pd_handshake_thread *thread)
{
    pd_background *work;

    uv_mutex_lock(&thread->lock);
    while (thread->posted.n == 0 && !thread->stop) uv_cond_wait(&thread->more, &thread->lock);
    work = thread->posted.n > 0 ? thread->posted.at[0] : NULL;
    uv_mutex_unlock(&thread->lock);
    return work;
}

/* Moves the first posted task to those that are finished. */
static void finish_task(pd_handshake_thread *thread)
{
    uv_mutex_lock(&thread->lock);
    append(&thread->finished, thread->posted.at[0]);
    thread->posted.n--;
    for (int i = 0; i < thread->posted.n; i++) thread->posted.at[i] = thread->posted.at[i + 1];
    uv_mutex_unlock(&thread->lock);
    uv_async_send(&thread->wakes);
}

/* Runs the thread. On Linux each thread has its own priority. */
static void run(void *arg)
{
    pd_handshake_thread *thread = arg;
    id_t self = (id_t)syscall(SYS_gettid);
    pd_background *work;

    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + NICER);
    while ((work = next_task(thread)) != NULL) {
        work->run(work);
        finish_task(thread);
    }
}

/* Calls `done` of the tasks that are finished. It may post others. */
static void take_finished(pd_handshake_thread *thread)
{
    tasks all;

    uv_mutex_lock(&thread->lock);
    all = thread->finished;
    thread->finished.n = 0;
    uv_mutex_unlock(&thread->lock);
    for (int i = 0; i < all.n; i++) all.at[i]->done(all.at[i]);
}

static void on_finished(uv_async_t *handle)
{
    take_finished(handle->data);
}

static void on_closed(uv_handle_t *handle)
{
    pd_handshake_thread *thread = handle->data;

    uv_mutex_destroy(&thread->lock);
    uv_cond_destroy(&thread->more);
    free(thread);
}

pd_handshake_thread *pd_handshake_thread_new(pd_uvloop *loop)
{
    pd_handshake_thread *thread = calloc(1, sizeof *thread);

    if (thread == NULL) return NULL;
    uv_mutex_init(&thread->lock);
    uv_cond_init(&thread->more);
    uv_async_init(&loop->uv, &thread->wakes, on_finished);
    thread->wakes.data = thread;
    if (uv_thread_create(&thread->thread, run, thread) == 0) return thread;
    uv_close((uv_handle_t *)&thread->wakes, on_closed);
    return NULL;
}

void pd_handshake_thread_free(pd_handshake_thread *thread)
{
    if (thread == NULL) return;
    uv_mutex_lock(&thread->lock);
    thread->stop = true;
    uv_cond_signal(&thread->more);
    uv_mutex_unlock(&thread->lock);
    uv_thread_join(&thread->thread);
    take_finished(thread);
    uv_close((uv_handle_t *)&thread->wakes, on_closed);
}

void pd_handshake_thread_post(pd_handshake_thread *thread, pd_background *work)
{
    uv_mutex_lock(&thread->lock);
    append(&thread->posted, work);
    uv_cond_signal(&thread->more);
    uv_mutex_unlock(&thread->lock);
}
