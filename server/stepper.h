/* stepper.h - the step thread: takes requests from its mailbox, runs the store, and posts effects (the store's
 * answers and reports) to the loop thread. */
#ifndef PD_STEPPER_H
#define PD_STEPPER_H

#include "mailbox.h"
#include "store.h"

typedef struct pd_stepper pd_stepper;

typedef struct pd_stepper_config {
    pd_store_config store;
    int pool_threads;    /* threads of the root pool, besides the one for light tasks */
    pd_mailbox *effects; /* the loop thread's mailbox; borrowed, and must exist longer than the stepper */
} pd_stepper_config;

/* Starts the step thread and the root pool. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED, and the errors of pd_store_new. */
int pd_stepper_start(pd_stepper **out, const pd_stepper_config *config, pd_error *err);
/* Returns the mailbox to which the loop thread posts its requests. The caller only borrows it. */
pd_mailbox *pd_stepper_requests(pd_stepper *stepper);
/* Returns how many nanoseconds the step thread's present turn has taken so far; 0 while the thread is idle. For the
 * watchdog. Any thread. */
uint64_t pd_stepper_busy_ns(const pd_stepper *stepper);
/* Finishes the work under way, joins the threads, and frees the stepper. Accepts NULL. */
void pd_stepper_stop(pd_stepper *stepper);

#endif
