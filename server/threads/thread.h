/* thread.h - starts threads, and the threads that work beside their user, and the clock of all threads. */
#ifndef PD_THREAD_H
#define PD_THREAD_H

#include "paramd/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns the nanoseconds of the monotonic clock. */
uint64_t pd_clock_ns(void);
/* Adds `nicer` to the daemon's nice value in the calling thread. On Linux each thread has its own priority. */
void pd_thread_lower(int nicer);
/* Starts a thread, which blocks all signals, so that the loop thread gets them. `name` follows "the " in the error.
 * PD_RESOURCE_EXHAUSTED: it cannot be started. */
int pd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name, pd_error *err);

/* A thread that works beside its user. What both read and change is protected by one lock. Each waits for the other
 * with pd_side_wait, in a loop that looks whether it may go on. The thread ends when it finds `stop`. */
typedef struct pd_side_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* broadcast when data that the lock protects may have changed */
    bool stop;              /* the thread has to end; changes with the lock held */
    bool started;           /* there is a thread to stop */
} pd_side_thread;

/* Starts the thread, as pd_thread_start does. *t must be zero. */
int pd_side_start(pd_side_thread *t, void *(*run)(void *), void *arg, const char *name, pd_error *err);
/* Lets the thread end, and waits until it has. Does nothing if the thread was not started. */
void pd_side_stop(pd_side_thread *t);

void pd_side_lock(pd_side_thread *t);
/* Releases the lock until the other thread has released it, then takes it again. May return without reason. */
void pd_side_wait(pd_side_thread *t);
/* Releases the lock, and wakes the other thread if it waits. */
void pd_side_unlock(pd_side_thread *t);

#endif
