/* mover.h - threads that move the bytes of connections for the loop thread.
 *
 * The loop thread gives a mover a job by the mover's mailbox, and gets it back by a mailbox of its own. A job belongs
 * to one thread at a time, and so does all memory that it uses. No job waits for a peer, so each ends by itself. */
#ifndef PD_MOVER_H
#define PD_MOVER_H

#include "mailbox.h"

/* A job of a mover, a member of the struct with the job's data. */
typedef struct pd_mover_job {
    pd_mail mail;                           /* must be the first member: the address of a mail is cast to its job */
    void (*run)(struct pd_mover_job *job);  /* called on the mover; never waits */
    void (*done)(struct pd_mover_job *job); /* called on the loop thread afterwards; may free the job */
    int mover;                              /* number of the mover that has the job */
} pd_mover_job;

typedef struct pd_movers pd_movers;

/* Starts n movers. When jobs have been run, a mover calls wake(arg), which makes the loop thread call pd_movers_take.
 * Returns NULL after an error. PD_NO_MEMORY. PD_RESOURCE_EXHAUSTED: a thread cannot be started. */
pd_movers *pd_movers_new(int n, void (*wake)(void *arg), void *arg, pd_error *err);
/* Gives the job to the mover that has the fewest. Never waits. */
void pd_movers_post(pd_movers *movers, pd_mover_job *job);
/* Calls `done` of the jobs that have been run. Accepts NULL. */
void pd_movers_take(pd_movers *movers);
/* Ends the movers after the jobs that they have, calls `done` of these, and frees the movers. Accepts NULL. */
void pd_movers_free(pd_movers *movers);

#endif
