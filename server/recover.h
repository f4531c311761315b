/* recover.h - restores jobs from a state directory when the daemon starts. */
#ifndef PD_RECOVER_H
#define PD_RECOVER_H

#include "disk.h"
#include "checkpoint_image.h"
#include "wal_record.h"

#include <stdatomic.h>

/* How a job is restored. */
typedef struct pd_recover_user {
    void *arg;
    /* Makes a job of a checkpoint, which is freed after the call. PD_FAILED_PRECONDITION for a foreign checkpoint: the
     * job must be exact, so it cannot continue here. */
    int (*restore)(void *arg, const pd_checkpoint_image *kept, pd_error *err);
    /* Takes a record of the WAL of the job that was restored last: those of steps, the first after its checkpoint and
     * then one after the other; then those of decisions. The record is freed after the call. After an error of a step
     * the job must be at the step before, except for two codes. PD_ABORTED: the job was in the midst of the step and
     * does not exist any more, so it is restored and replayed again up to the step before. PD_NO_MEMORY: the daemon
     * must not start. After an error of decisions none may count. NULL: WALs are not read. */
    int (*replay)(void *arg, const pd_wal_record *record, pd_error *err);
    const atomic_bool *stops; /* becomes true when the daemon has to stop; read before each read of a file. NULL: it
                               * never has to */
} pd_recover_user;

/* Loads the newest intact checkpoint of each job that has not ended, one after the other, and calls `restore` with it;
 * the checkpoint is freed after the call. Sets kept->foreign if other BLAS kernels or another instruction set made the
 * checkpoint. Of two jobs of the same name, the one whose checkpoint was written last counts.
 *
 * Logs each restored job, with a warning for a checkpoint that is damaged or foreign. Before each job, which may take
 * long, it tells the service manager to wait. A job without an intact checkpoint is logged, and lost.
 *
 * Then calls `replay` with each record of steps that follows the checkpoint without a gap, and logs how many steps were
 * replayed. If the WAL is damaged, or `replay` fails, the job stays at the step before, and an error is logged. Then
 * calls it with each record of decisions. If these are damaged they count up to the damage, and if `replay` fails none
 * counts; both are logged. What a stream has beyond that is truncated.
 *
 * If `restore` refuses a foreign checkpoint (PD_FAILED_PRECONDITION: the job says exact = yes), an error is logged, and
 * the job stays on the disk. Any other error of `restore` ends the call and is returned: the daemon must not start
 * without a job whose checkpoint is intact.
 *
 * PD_CANCELLED: the daemon has to stop. Jobs that were not restored by then stay on the disk as they were. */
int pd_recover(const pd_disk *disk, const char *root, const pd_recover_user *user, pd_error *err);

#endif
