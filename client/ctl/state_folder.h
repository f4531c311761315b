/* state_folder.h - the commands checkpoints, verify and restore, which work on a state directory without a daemon. */
#ifndef PD_STATE_FOLDER_H
#define PD_STATE_FOLDER_H

#include "command_line.h"

int pd_run_checkpoints(pd_line *line); /* lists the checkpoints of all jobs */
int pd_run_verify(pd_line *line);      /* reads all bytes of checkpoints, and compares them with their manifests */
int pd_run_restore(pd_line *line);     /* chooses the checkpoint that the next start of the daemon loads */

#endif
