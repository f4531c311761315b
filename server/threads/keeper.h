/* keeper.h - the checkpoint writer: writes checkpoints to the disk, and reads those of the last run.
 *
 * The step thread hands it checkpoints as effects (PD_EFF_WRITE_CHECKPOINT). They come back as requests
 * (PD_REQ_CHECKPOINT_WRITTEN) with the result, in the same order, each exactly once. The checkpoint writer reads a
 * checkpoint and nothing else of the training state. */
#ifndef PD_KEEPER_H
#define PD_KEEPER_H

#include "disk.h"
#include "mailbox.h"
#include "manifest.h"

typedef struct pd_keeper pd_keeper;

typedef struct pd_keeper_config {
    const char *dir; /* path of the state directory */
    /* functions of the disk; borrowed, and must exist longer than the keeper. NULL: the real file system, where the
     * state directory is made if need be, checked, and locked until pd_keeper_stop (state_dir.h) */
    const pd_disk *disk;
    /* mailbox of the step thread, to which checkpoints come back; borrowed, and must exist longer than the keeper */
    pd_mailbox *done;
} pd_keeper_config;

/* Starts the checkpoint writer. Fails with PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED, or an error of pd_state_dir_open. */
int pd_keeper_start(pd_keeper **out, const pd_keeper_config *config, pd_error *err);
/* Hands a checkpoint, which an effect PD_EFF_WRITE_CHECKPOINT contains, to the checkpoint writer. Takes the effect
 * over; its memory becomes that of the request, so this cannot fail. Never waits. Step thread. */
void pd_keeper_submit(pd_keeper *keeper, pd_effect *effect);
/* Ends the checkpoint writer: the checkpoint that is being written is finished, and so are marks of jobs that have
 * ended; those that wait come back with PD_CANCELLED. Then all have been posted to the mailbox `done`. Accepts NULL.
 * PD_DEADLINE_EXCEEDED: at the monotonic time until_ns the disk has not answered. Then the keeper is not freed, its
 * thread may still write, and the mailbox `done` must stay; the error names the checkpoint. */
int pd_keeper_stop(pd_keeper *keeper, uint64_t until_ns, pd_error *err);

/* Makes a request PD_REQ_CHECKPOINT_WRITTEN of an effect PD_EFF_WRITE_CHECKPOINT, in the same memory: the checkpoint
 * was not written, because there is no checkpoint writer any more. */
pd_request *pd_keeper_refuse(pd_effect *effect);
/* Tells what software and hardware this process is, for manifests; the time is not filled in. */
pd_checkpoint_about pd_checkpoint_about_here(void);

#endif
