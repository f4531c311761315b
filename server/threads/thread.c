/* thread.c - starts threads, sets their priority, and reads the clock. */
#include "thread.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t pd_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pd_thread_lower(int nicer)
{
    id_t self = (id_t)syscall(SYS_gettid);

    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + nicer);
}

int pd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name, pd_error *err)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "cannot start the %s: %s", name, strerror(rc));
}

int pd_side_start(pd_side_thread *t, void *(*run)(void *), void *arg, const char *name, pd_error *err)
{
    int rc;

    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    rc = pd_thread_start(&t->thread, run, arg, name, err);
    t->started = rc == PD_OK;
    return rc;
}

void pd_side_stop(pd_side_thread *t)
{
    if (!t->started) return;
    pd_side_lock(t);
    t->stop = true;
    pd_side_unlock(t);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}

void pd_side_lock(pd_side_thread *t)
{
    pthread_mutex_lock(&t->lock);
}

void pd_side_wait(pd_side_thread *t)
{
    pthread_cond_wait(&t->changed, &t->lock);
}

void pd_side_unlock(pd_side_thread *t)
{
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}
