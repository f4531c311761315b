/* sim_disk_writer.h - the disk writers of the simulated server: write checkpoints and records of the WAL to a simulated
 * disk, from which jobs are loaded when the server starts. Only in plans with crashes. */
#ifndef SIM_DISK_WRITER_H
#define SIM_DISK_WRITER_H

#include "server_state.h"
#include "sim_disk.h"

/* Takes a checkpoint from the step thread: pd_turn_user.keep. */
void sim_write_checkpoint(void *arg, pd_effect *effect);
/* Takes a record from the step thread: pd_turn_user.log. */
void sim_write_record(void *arg, pd_effect *effect);
/* Hands all checkpoints and records that wait back to the step thread, unwritten, and closes the WAL. */
void sim_disk_writers_end(sim_server *server);
/* Loads the jobs that the disk has, as the daemon does before it accepts connections. */
void sim_load_jobs(sim_server *server);

#endif
