/* recover.h - brings jobs back from a state directory when the daemon starts. */
#ifndef PD_RECOVER_H
#define PD_RECOVER_H

#include "disk.h"
#include "kept.h"

/* Loads the newest whole checkpoint of each job that has not ended, one after the other, and calls `restore` with it;
 * the checkpoint is freed after the call. Sets kept->foreign if other BLAS kernels or another instruction set made the
 * checkpoint. Of two jobs of the same name, the one whose checkpoint was written last counts.
 *
 * Logs each job that comes back, with a warning for a checkpoint that is damaged or foreign. Before each job, which may
 * take long, it tells the service manager (systemd) to wait. A job without a whole checkpoint is logged, and lost.
 *
 * If `restore` refuses a foreign checkpoint (PD_FAILED_PRECONDITION: the job says exact = yes), an error is logged, and
 * the job stays on the disk. Any other error of `restore` ends the call and is returned: the daemon must not start
 * without a job whose checkpoint is whole. */
int pd_recover(const pd_disk *disk, const char *root, int (*restore)(void *arg, const pd_kept *kept, pd_error *err),
               void *arg, pd_error *err);

#endif
