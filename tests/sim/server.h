/* server.h - the real server in the simulation: its loop thread, step thread and preconditioner pool as events. */
#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include "conversation.h"
#include "sim.h"
#include "store.h"

typedef struct sim_server sim_server;

sim_server *sim_server_new(sim *s, uint32_t number);
/* Ends the server as main.c does (the loop, then the step thread), and frees it. Checks that no memory is left. */
void sim_server_free(sim_server *server);
pd_store *sim_server_store(sim_server *server);
uint32_t sim_server_number(const sim_server *server); /* its place in sim.servers */

/* Opens a connection to the server. `is_local`: it can pass descriptors. Returns the client's end; NULL: the server has
 * stopped, or accepts no connections. */
pd_transport *sim_server_connect(sim_server *server, bool is_local, sim_link **link);
/* Opens a connection to the HTTP listener. Returns the client's end; NULL: the server has stopped, or accepts none. */
pd_transport *sim_server_connect_http(sim_server *server);
/* Schedules a turn of the loop thread. */
void sim_server_wake_loop(sim_server *server);
/* Keeps the loop thread (`loop` true) or the step thread from running for `ns` nanoseconds. */
void sim_server_stall(sim_server *server, bool loop, uint64_t ns);
/* Restarts the server: ends it as a crash does, and starts it with the jobs that images restore. This happens as
 * soon as images of all jobs can be taken. If that is not possible within within_ns, there is no restart. */
void sim_server_restart(sim_server *server, uint64_t within_ns);
/* Kills the server at once. The disk forgets what was not synced, and a new server starts from what is there. */
void sim_server_kill(sim_server *server);
/* Kills the server at once if `amount` is even, otherwise in the middle of a later call of the disk: see SIM_KILL. */
void sim_server_kill_in(sim_server *server, uint64_t amount);
/* Makes one of n calls of the disk fail with this error (errno.h). 0: none fails. */
void sim_server_trouble_disk(sim_server *server, int error, uint64_t n, bool dies);
/* Makes the disk well for good. A lone server that was not killed yet is killed now, so that each run has a crash. */
void sim_server_end_trouble(sim_server *server);
/* Sends SIGTERM. */
void sim_server_interrupt(sim_server *server);
bool sim_server_stopped(const sim_server *server);
bool sim_server_draining(const sim_server *server);
/* Checks at the end of all jobs that the server is at rest: nothing is left in any budget. */
void sim_server_check_rest(sim_server *server);
/* Prints the state of the server, at the end of a trace whose run violates an invariant. */
void sim_server_describe(sim_server *server);
/* Checks the server's invariants. Called after every event. */
void sim_server_check(sim_server *server);

#endif
