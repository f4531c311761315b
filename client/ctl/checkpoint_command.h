/* checkpoint_command.h - the command checkpoint: asks a daemon for a checkpoint of a job, and waits until the disk has
 * it. */
#ifndef PD_CHECKPOINT_COMMAND_H
#define PD_CHECKPOINT_COMMAND_H

#include "command_line.h"

int pd_run_checkpoint_command(pd_line *line);

#endif
