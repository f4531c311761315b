/* sim_journal.h - the WAL thread of the simulated server: writes entries of logs to the simulated disk, and repeats
 * them when the server starts. Only in plans with crashes. */
#ifndef SIM_JOURNAL_H
#define SIM_JOURNAL_H

#include "server_state.h"

/* Takes an entry from the step thread: pd_turn_user.log. */
void sim_journal_take(void *arg, pd_effect *effect);
/* Hands all entries that wait back to the step thread, unwritten, and closes the logs. */
void sim_journal_end(sim_server *server);
/* Repeats the steps that the log of a job has after the checkpoint from which the job was restored. */
void sim_journal_load(sim_server *server, const char *job_dir, const pd_checkpoint_image *kept);

#endif
