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

/* Starts the step thread and the root pool. Gives. */
int         pd_stepper_start(pd_stepper **out, const pd_stepper_config *config, pd_error *err);
/* Where the loop posts its requests. Borrowed. */
pd_mailbox *pd_stepper_requests(pd_stepper *stepper);
/* Any thread: 0 while idle, else for how long (ns) the step thread has been at one piece of work: for the watchdog. */
uint64_t    pd_stepper_busy_ns(const pd_stepper *stepper);
/* Closes the mailbox, lets what is running end, joins the threads, frees. Accepts NULL. */
void        pd_stepper_stop(pd_stepper *stepper);

#endif
