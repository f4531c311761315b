/* state_dir.h - opens a state directory, in which a daemon keeps its checkpoints, and locks it: two daemons that write
 * into one would remove each other's files. */
#ifndef PD_STATE_DIR_H
#define PD_STATE_DIR_H

#include <stdbool.h>

#include "paramd/error.h"

typedef struct pd_state_dir {
    int lock; /* descriptor of the file "lock"; -1: not open */
} pd_state_dir;

/* Opens and locks a state directory. With `create` it is made if it is not there, for its owner alone (mode 0700); its
 * parent must exist. The lock lasts until pd_state_dir_close, or the end of the process.
 *
 * PD_FAILED_PRECONDITION: it is no directory, or other users may write in it, so they could exchange the state of jobs.
 * PD_UNAVAILABLE: another daemon, or a paramctl, has locked it; or the disk failed. PD_NOT_FOUND: it is not there. */
int pd_state_dir_open(pd_state_dir *dir, const char *path, bool create, pd_error *err);
void pd_state_dir_close(pd_state_dir *dir);

#endif
