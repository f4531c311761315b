/* server.h - the real server in the simulation: its loop thread, step thread and root pool as events. */
#ifndef SIM_SERVER_H
#define SIM_SERVER_H

#include "conversation.h"
#include "sim.h"
#include "store.h"

typedef struct sim_server sim_server;

sim_server *sim_server_new(sim *s);
/* Ends it as main.c does: the loop, then the step thread, and frees all. Checks that nothing is left. */
void        sim_server_free(sim_server *server);
pd_store   *sim_server_store(sim_server *server);

/* A new connection from outside. Gives the client's end; NULL: the server has stopped, or takes none. */
pd_transport *sim_server_connect(sim_server *server, sim_link **link);
/* The loop thread has something to do. */
void sim_server_wake_loop(sim_server *server);
/* A thread does not run for a while. */
void sim_server_stall(sim_server *server, bool loop, uint64_t ns);
/* Ends the server as a crash does, and starts it anew from images of its jobs, as soon as these can be taken; not at
 * all after so long. */
void sim_server_restart(sim_server *server, uint64_t within_ns);
/* SIGTERM. */
void sim_server_interrupt(sim_server *server);
bool sim_server_stopped(const sim_server *server);
bool sim_server_draining(const sim_server *server);
/* Nothing of a job is left: every budget is zero. */
void sim_server_check_rest(sim_server *server);
/* Prints what the server is at, for a trace that ends with a violation. */
void sim_server_describe(sim_server *server);
/* After every event. */
void sim_server_check(sim_server *server);

#endif
