/* sim_keeper.h - the checkpoint writer of the simulated server: writes checkpoints to a simulated disk, and loads them
 * when the server starts. Only in plans with crashes. */
#ifndef SIM_KEEPER_H
#define SIM_KEEPER_H

#include "server_state.h"
#include "sim_disk.h"

/* Takes a checkpoint from the step thread: pd_turn_user.keep. */
void sim_keeper_keep(void *arg, pd_effect *effect);
/* Hands all checkpoints that wait back to the step thread, unwritten. */
void sim_keeper_end(sim_server *server);
/* Loads the jobs that the disk has, as the daemon does before it accepts connections. */
void sim_keeper_load(sim_server *server);

#endif
