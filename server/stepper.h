/* stepper.h - the step thread: takes requests from its mailbox, runs the store, posts effects to the loop. */
#ifndef PD_STEPPER_H
#define PD_STEPPER_H

#include "mailbox.h"
#include "store.h"

typedef struct pd_stepper pd_stepper;

typedef struct pd_stepper_config {
    pd_store_config store;
    int             pool_threads;       /* K of the root pool */
    pd_mailbox     *effects;            /* the loop's mailbox; borrowed, outlives the stepper */
} pd_stepper_config;

/* Starts the step thread and the root pool. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED, and the errors of pd_store_new. */
int         pd_stepper_start(pd_stepper **out, const pd_stepper_config *config, pd_error *err);
/* Returns the mailbox to which the loop thread posts its requests. Borrowed. */
pd_mailbox *pd_stepper_requests(pd_stepper *stepper);
/* Returns for how long (ns) the step thread has been at one turn; 0 while it is idle. For the watchdog. Any thread. */
uint64_t    pd_stepper_busy_ns(const pd_stepper *stepper);
/* Finishes the work under way, joins the threads, and frees. Accepts NULL. */
void        pd_stepper_stop(pd_stepper *stepper);

#endif
