/* bell.h - lets a thread of the user wait for operations of several cores at once, each with a lock of its own. */
#ifndef PD_BELL_H
#define PD_BELL_H

#include <pthread.h>
#include <stdbool.h>

/* Wakes the threads that wait for several cores. Its lock is taken last: a thread that has it takes no other one. */
typedef struct pd_bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
} pd_bell;

void pd_bell_init(pd_bell *bell);
void pd_bell_free(pd_bell *bell);
/* Waits until the bell is rung, or until `end`, a time of pd_clock_seconds. The bell must be locked. */
void pd_bell_wait(pd_bell *bell, double end);

#endif
