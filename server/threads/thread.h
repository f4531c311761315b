/* thread.h - starts threads and sets their priority, pairs a helper thread with its user (pd_side_thread), and reads
 * the monotonic clock. */
#ifndef PD_THREAD_H
#define PD_THREAD_H

#include "paramd/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns the nanoseconds of the monotonic clock. */
uint64_t pd_clock_ns(void);
/* Lowers the priority of the calling thread: adds `nicer` to its nice value. On Linux each thread has its own
 * priority. */
void pd_thread_lower(int nicer);
/* Starts a thread. The thread blocks all signals, so that the loop thread gets them. `name` names the thread in the
 * error text, after "cannot start the". PD_RESOURCE_EXHAUSTED: the thread cannot be started. */
int pd_thread_start(pthread_t *thread, void *(*run)(void *), void *arg, const char *name, pd_error *err);

/* A helper thread that works beside one other thread, its user, which owns this struct. One lock protects the data that
 * both change. Each waits for the other with pd_side_wait, in a loop that checks its condition. The helper thread must
 * end when it sees `stop`. */
typedef struct pd_side_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* broadcast by pd_side_unlock: data that the lock protects may have changed */
    bool stop;              /* the helper thread has to end; protected by the lock */
    bool started;           /* the helper thread was started, so pd_side_stop has to end it */
} pd_side_thread;

/* Starts the helper thread. *t must be zero. Errors are those of pd_thread_start. */
int pd_side_start(pd_side_thread *t, void *(*run)(void *), void *arg, const char *name, pd_error *err);
/* Sets `stop`, and waits until the helper thread has ended. Does nothing if the thread was not started. */
void pd_side_stop(pd_side_thread *t);

void pd_side_lock(pd_side_thread *t);
/* Releases the lock, waits until the other thread calls pd_side_unlock, and takes the lock again. May also return if
 * the other thread has not called it. */
void pd_side_wait(pd_side_thread *t);
/* Releases the lock, and wakes the other thread if it waits. */
void pd_side_unlock(pd_side_thread *t);

#endif
