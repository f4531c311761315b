/* conversation.h - the conversation with workers and operators: the functions that an event loop calls. The loop is
 * that of libuv (daemon.c) or a simulator's.
 *
 * Runs on the loop thread.
 *
 * The caller makes and starts the conversation. In each turn of the loop, the caller calls pd_conversation_take_effects
 * if the platform was woken, pd_conversation_accept for each new connection, and pd_conversation_finish_turn at the
 * end. The caller calls pd_conversation_tick several times a second, and pd_conversation_close_all and
 * pd_conversation_dispose when the daemon ends. */
#ifndef PD_CONVERSATION_H
#define PD_CONVERSATION_H

#include "daemon_config.h"
#include "mailbox.h"
#include "transport.h"

/* Makes the conversation, which does not accept connections yet. Copies `config` and `platform`, and borrows their
 * strings for the daemon's life. Takes over the roles in `config`, also if it fails with PD_NO_MEMORY. */
int pd_conversation_make(pd_daemon **out, const pd_daemon_config *config, const pd_platform *platform, pd_error *err);
/* Starts the conversation. Borrows `requests`, the mailbox from which the step thread reads. */
void pd_conversation_start(pd_daemon *daemon, pd_mailbox *requests);
/* Returns the mailbox to which the step thread posts its effects. The caller only borrows it. */
pd_mailbox *pd_conversation_effects(pd_daemon *daemon);
/* Adds a connection whose bytes travel over `transport`. `peer` is the peer's address, as text for the log.
 *
 * If max_connections are open already, first closes one that ends or has not said Hello (peers.h). If none can be
 * closed, or if the identity of the peer exceeds its quota, the new connection gets an error and ends; the result is
 * PD_OK all the same.
 *
 * PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED (the identity is far beyond its quota, or out of memory): the transport still
 * belongs to the caller. */
int pd_conversation_accept(pd_daemon *daemon, pd_transport *transport, const char *peer);
/* Handles the effects that the step thread has posted, for about a millisecond. */
void pd_conversation_take_effects(pd_daemon *daemon);
/* Ends a turn of the loop, before the loop waits for events: tries held-back frames again, writes answers, posts
 * requests to the step thread. */
void pd_conversation_finish_turn(pd_daemon *daemon);
/* Checks the timeouts of all connections, of the shutdown, and of a daemon without workers. The platform calls it
 * several times a second. */
void pd_conversation_tick(pd_daemon *daemon);
/* Tells workers that follow their shards that an entry of the table of shards has changed (pd_platform.table). */
void pd_conversation_tell_moved(pd_daemon *daemon);
/* Handles a termination signal, whose name goes to the log. The first one drains the daemon and stops it, the second
 * one stops it at once. */
void pd_conversation_interrupt(pd_daemon *daemon, const char *name);
/* Drains the daemon and stops it. Logs the reason. Does nothing if the shutdown has begun already. */
void pd_conversation_end(pd_daemon *daemon, const char *reason);
/* Closes all connections, and returns the published versions of the version table to the store. */
void pd_conversation_close_all(pd_daemon *daemon);
/* Frees the conversation, after the step thread has ended and all background work is done. Accepts NULL. */
void pd_conversation_dispose(pd_daemon *daemon);

#endif
