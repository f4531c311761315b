/* daemon.h - the daemon on libuv: listens, talks to workers and operators, and connects them to the training state.
 *
 * The caller of pd_daemon_run becomes the loop thread. The training state is reached by two mailboxes.
 *
 *     pd_daemon_new(&daemon, &config, &err);                  binds and listens; no connection is answered yet
 *     pd_stepper_start(...effects = pd_conversation_effects(daemon)...)
 *     pd_daemon_run(daemon, pd_stepper_requests(stepper));    until drained, or told twice to stop
 *     pd_stepper_stop(stepper);
 *     pd_daemon_free(daemon);                                 frees what was still in the mailbox */
#ifndef PD_DAEMON_H
#define PD_DAEMON_H

#include "conversation.h"

/* Makes the daemon, opens its listening sockets, and logs "listening on ADDRESS:PORT" for each. PD_PERMISSION_DENIED:
 * an address beyond loopback without `insecure`. PD_UNAVAILABLE: an address cannot be bound; the error says which and
 * why. PD_INVALID_ARGUMENT: not an address. PD_NO_MEMORY. */
int         pd_daemon_new(pd_daemon **out, const pd_daemon_config *config, pd_error *err);
/* Returns the port of the first TCP listener; 0: none. */
unsigned    pd_daemon_port(const pd_daemon *daemon);
/* Turns the loop until it stops. Borrows `requests`, the step thread's mailbox. Returns whether the store had drained
 * in time. */
bool        pd_daemon_run(pd_daemon *daemon, pd_mailbox *requests);
/* Frees the daemon, after the step thread has ended. Accepts NULL. */
void        pd_daemon_free(pd_daemon *daemon);

/* ---- for tests and fuzzers, which turn the loop themselves ---- */

/* Begins without turning: the first half of pd_daemon_run. */
void        pd_daemon_begin(pd_daemon *daemon, pd_mailbox *requests);
/* Takes a connected stream socket. PD_NO_MEMORY: the socket is still the caller's. */
int         pd_daemon_adopt(pd_daemon *daemon, int fd);
/* Handles the events that are there, without waiting. Returns whether connections are open. */
bool        pd_daemon_turn(pd_daemon *daemon);
/* Closes all connections and listeners: the end of pd_daemon_run. */
void        pd_daemon_end(pd_daemon *daemon);

#endif
