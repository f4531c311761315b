/* stepper.h - the step thread: takes requests from its mailbox, runs the store, and posts effects to the loop
 * thread. */
#ifndef PD_STEPPER_H
#define PD_STEPPER_H

#include "mailbox.h"
#include "host.h"
#include "store.h"

#include <stdatomic.h>

typedef struct pd_stepper pd_stepper;

/* What pd_stepper_start needs to know. */
typedef struct pd_stepper_config {
    pd_store_config store;
    int pool_threads; /* number of threads of the preconditioner pool, not counting its thread for light tasks */
    pd_numa numa;     /* NUMA node of the step threads; zeros: no node is chosen */
    /* path of the state directory with the checkpoints of jobs; borrowed during pd_stepper_start. NULL: jobs have no
     * checkpoints. pd_stepper_start sets store.keeps from this. */
    const char *keep_dir;
    struct pd_state_dir *lock; /* the lock of the state directory, if the caller has it: the checkpoint writer takes it
                                * over. NULL, or not open: the checkpoint writer locks it */
    const char *mirror; /* path of the mirror of keep_dir; borrowed during pd_stepper_start. NULL: there is none */
    _Atomic uint64_t *tenure; /* in a cluster with an engine: this owner's tenure, for the mirror (mirror.h, "owners").
                               * Another thread may change it. Must exist until the process ends if pd_stepper_stop
                               * returns false. NULL: there is no engine */
    const atomic_bool *stops; /* becomes true when the daemon has to stop, so that pd_stepper_start restores no more
                               * jobs; borrowed during that call. NULL: the daemon never has to stop */
    /* mailbox of the loop thread, to which effects are posted; borrowed, and must exist longer than the stepper */
    pd_mailbox *effects;
} pd_stepper_config;

/* Starts the step thread, the preconditioner pool, the checkpoint writer, the WAL thread and, with `mirror`, the mirror
 * thread. Restores jobs from the
 * state directory before it starts the step thread, which may take long. Fails with PD_NO_MEMORY,
 * PD_RESOURCE_EXHAUSTED, or an error of pd_store_new, pd_disk_writer_start or pd_recover (PD_CANCELLED: the daemon has
 * to stop). Then no thread runs. */
int pd_stepper_start(pd_stepper **out, const pd_stepper_config *config, pd_error *err);
/* Returns the mailbox to which the loop thread posts its requests. The caller only borrows it. */
pd_mailbox *pd_stepper_requests(pd_stepper *stepper);
/* Returns for how many nanoseconds the step thread has been working on its present turn; 0: it is idle. The watchdog
 * uses this to notice that the thread is stuck. Any thread. */
uint64_t pd_stepper_busy_ns(const pd_stepper *stepper);
/* Returns whether the mirror gets what is durable. True if there is no mirror. Any thread. */
bool pd_stepper_mirror_is_up(const pd_stepper *stepper);
/* Logs it if the mirror does not answer. Called several times a second. Any thread. */
void pd_stepper_tick(const pd_stepper *stepper);
/* Stops the step thread, the preconditioner pool, the checkpoint writer and the WAL thread after they have finished
 * what they are doing, lets the mirror thread copy what is left, for ten seconds at most, and frees the stepper.
 * Accepts NULL. Returns false if the disk has not answered by the monotonic time until_ns: then the log says what is
 * not written, nothing is freed, and the caller must end the process with _exit, because a thread may still use memory.
 * Sets *lost, unless `lost` is NULL, to the number of jobs that lose the steps after their durable step. */
bool pd_stepper_stop(pd_stepper *stepper, uint64_t until_ns, size_t *lost);

#endif
