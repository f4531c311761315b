/* recover.h - brings back the jobs of a state directory when the daemon starts, from their newest checkpoints. Runs on
 * the thread that starts the step thread, before that one runs. */
#ifndef PD_RECOVER_H
#define PD_RECOVER_H

#include "checkpoint_files.h"
#include "store.h"

typedef struct pd_recovery {
    size_t restored; /* jobs that are in the store now */
    size_t left;     /* jobs that stay on the disk, each with an ERROR line in the log that says why */
} pd_recovery;

/* Restores every job in the state directory `root` that has not ended, each from its newest checkpoint that is whole.
 * Where two have the same name, the one that was written last is restored. `here` names the BLAS kernels and the
 * instruction set of this daemon: a checkpoint of others is taken with a warning, or not if the job says exact = yes.
 *
 * Logs a line for each job, and a warning for each checkpoint that is damaged. Before each job, which may take long, it
 * tells the service manager (systemd) to wait. The checkpoints stay as they are, also those of jobs that are not
 * restored. Fails only if the directory cannot be listed, or memory for that is out. */
int pd_recover(pd_recovery *out, pd_store *store, const pd_disk *disk, const char *root, const pd_kept_about *here,
               pd_error *err);

#endif
