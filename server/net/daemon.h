/* daemon.h - the daemon on libuv: listens, talks to workers and operators, and connects them to the training state.
 *
 * The caller of pd_daemon_run becomes the loop thread. It exchanges messages with the step thread, which owns the
 * training state, through two mailboxes.
 *
 *     pd_daemon_new(&daemon, &config, &err);
 *     pd_daemon_listen_http(daemon, &err);
 *     pd_daemon_listen(daemon, &err);                         binds and listens; no connection is answered yet
 *     pd_daemon_load(daemon, start_stepper, ...);             answers HTTP while another thread runs start_stepper
 *                                                             (pd_stepper_start with pd_conversation_effects(daemon))
 *     pd_daemon_run(daemon, pd_stepper_requests(stepper));    returns once drained, or after the second stop signal
 *     pd_stepper_stop(stepper);
 *     pd_daemon_free(daemon);                                 frees what was still in the mailbox */
#ifndef PD_DAEMON_H
#define PD_DAEMON_H

#include "conversation.h"
#include "pd_cluster.h"

/* Makes the daemon, which does not listen yet. PD_INVALID_ARGUMENT: the end of the standard input cannot be watched.
 * PD_UNAVAILABLE: no file descriptors are free. PD_NO_MEMORY: out of memory. After an error there is no daemon, and the
 * roles in `config` are freed. */
int pd_daemon_new(pd_daemon **out, const pd_daemon_config *config, pd_error *err);
/* Opens the daemon's listening sockets, and logs "listening on ADDRESS:PORT" for each. Call it before jobs are
 * loaded from checkpoints, so that workers which connect meanwhile wait in the kernel and need not retry. Errors:
 *
 *   PD_INVALID_ARGUMENT   the text is not an address
 *   PD_PERMISSION_DENIED  an address is not loopback, and `insecure` is not set
 *   PD_UNAVAILABLE        an address cannot be bound; the error names the address and the cause
 *   PD_NO_MEMORY          out of memory */
int pd_daemon_listen(pd_daemon *daemon, pd_error *err);
/* Opens the HTTP listener, if the settings name one. Call it before pd_daemon_load, so that health is reported while
 * jobs are loaded. Errors are those of pd_daemon_listen. */
int pd_daemon_listen_http(pd_daemon *daemon, pd_error *err);
/* Lets the loop run the turns of a cluster (pd_cluster.h), which must exist until pd_daemon_part. */
void pd_daemon_join(pd_daemon *daemon, pd_cluster *cluster);
/* Ends that. Does nothing if the daemon has no cluster. */
void pd_daemon_part(pd_daemon *daemon);
/* Answers HTTP requests until `done` returns true, which is asked after each turn of the loop. Reports PD_DAEMON_LOADS
 * as pd_daemon_load does. */
void pd_daemon_wait(pd_daemon *daemon, bool (*done)(void *arg), void *arg);
/* Runs a long task on another thread, and answers HTTP requests until the task is done. Reports PD_DAEMON_LOADS several
 * times a second. Call it before pd_daemon_run. */
void pd_daemon_load(pd_daemon *daemon, void (*run)(void *arg), void *arg);
/* Return the port of the first TCP listener: for workers and operators, or for HTTP. 0: there is none. */
unsigned pd_daemon_port(const pd_daemon *daemon);
unsigned pd_daemon_http_port(const pd_daemon *daemon);
/* Runs the event loop until the daemon stops. Borrows `requests`, the mailbox from which the step thread reads. Returns
 * whether the store has drained in time: all rounds under way have ended. */
bool pd_daemon_run(pd_daemon *daemon, pd_mailbox *requests);
/* Frees the daemon, after the step thread has ended. Accepts NULL. */
void pd_daemon_free(pd_daemon *daemon);

/* Starts the daemon without running the event loop: the first half of pd_daemon_run. */
void pd_daemon_begin(pd_daemon *daemon, pd_mailbox *requests);
/* Adds a connection over a stream socket that is connected already. PD_NO_MEMORY: the socket is still the caller's. */
int pd_daemon_adopt(pd_daemon *daemon, int fd);
/* Adds an HTTP connection, as pd_daemon_adopt does. `origin` is the peer's address as a number (pd_reach_origin). */
int pd_daemon_adopt_http(pd_daemon *daemon, int fd, uint64_t origin);
/* Runs one turn of the event loop: handles what has happened, without waiting. Returns whether connections are open. */
bool pd_daemon_turn(pd_daemon *daemon);
/* Closes all connections and listening sockets: the last part of pd_daemon_run. */
void pd_daemon_end(pd_daemon *daemon);

#endif
