/* stepper.h - the step thread: takes requests from its mailbox, runs the store, and posts effects to the loop
 * thread. */
#ifndef PD_STEPPER_H
#define PD_STEPPER_H

#include "mailbox.h"
#include "host.h"
#include "store.h"

#include <stdatomic.h>

typedef struct pd_stepper pd_stepper;

typedef struct pd_stepper_config {
    pd_store_config store;
    int pool_threads; /* number of threads of the preconditioner pool, without the one for light tasks */
    pd_numa numa;     /* node of the step threads; zeros: any */
    /* path of the state directory, in which jobs have checkpoints and from which they are restored; borrowed for the
     * call of pd_stepper_start. NULL: jobs have none. Sets store.keeps. */
    const char *keep_dir;
    const atomic_bool *stops; /* becomes true when the daemon has to stop, so that no more jobs are loaded; borrowed for
                               * the call of pd_stepper_start. NULL: it never has to */
    /* mailbox of the loop thread, to which effects are posted; borrowed, and must exist longer than the stepper */
    pd_mailbox *effects;
} pd_stepper_config;

/* Starts the step thread, the preconditioner pool, the checkpoint writer and the WAL thread. Before that, restores jobs
 * from the state directory, which may take long. Fails with PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED, or an error of
 * pd_store_new, pd_disk_writer_start or pd_recover: PD_CANCELLED if the daemon has to stop. */
int pd_stepper_start(pd_stepper **out, const pd_stepper_config *config, pd_error *err);
/* Returns the mailbox to which the loop thread posts its requests. The caller only borrows it. */
pd_mailbox *pd_stepper_requests(pd_stepper *stepper);
/* Returns how many nanoseconds the step thread has worked on its present turn so far, by which the watchdog sees that
 * it is stuck; 0 while the thread is idle. Any thread. */
uint64_t pd_stepper_busy_ns(const pd_stepper *stepper);
/* Stops the step thread, the preconditioner pool, the checkpoint writer and the WAL thread when their work under way is
 * done, and frees the stepper. Accepts NULL. Returns false if the disk has not answered at the monotonic time until_ns:
 * then the log says what is not written, nothing is freed, and the process must end without freeing what the threads
 * use (_exit). *lost, unless NULL, becomes the number of jobs whose steps since the durable one are lost. */
bool pd_stepper_stop(pd_stepper *stepper, uint64_t until_ns, size_t *lost);

#endif
