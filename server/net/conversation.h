/* conversation.h - how the event loop of any platform drives the conversation with workers and operators.
 *
 * Runs on the loop thread.
 *
 * The caller makes and starts the conversation. In each turn of the loop, the caller calls _take_effects if the
 * platform was woken, _accept for each new connection, and _finish_turn at the end. The caller calls _tick several
 * times a second, and _close_all and _dispose when the daemon ends. */
#ifndef PD_CONVERSATION_H
#define PD_CONVERSATION_H

#include "daemon_config.h"
#include "mailbox.h"
#include "transport.h"

/* Makes the conversation, which serves nobody yet. Copies `config` and `platform`. The strings in them are borrowed for
 * the daemon's life, the roles are taken over, also when it fails with PD_NO_MEMORY. */
int pd_conversation_make(pd_daemon **out, const pd_daemon_config *config, const pd_platform *platform, pd_error *err);
/* Starts the conversation. Borrows `requests`, the mailbox from which the step thread reads. */
void pd_conversation_start(pd_daemon *daemon, pd_mailbox *requests);
/* Returns the mailbox to which the step thread posts its effects. The caller only borrows it. */
pd_mailbox *pd_conversation_effects(pd_daemon *daemon);
/* Adds a connection whose bytes travel over this transport. If there are max_connections, one that has not said Hello
 * is closed for it (peers.h). If there are still more, or more than the quota of the peer's identity, the peer gets an
 * error and the connection ends. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED: far more than the quota; the transport is still
 * the caller's. */
int pd_conversation_accept(pd_daemon *daemon, pd_transport *transport, const char *peer);
/* Handles the effects that the step thread has posted, for about a millisecond. */
void pd_conversation_take_effects(pd_daemon *daemon);
/* Ends a turn of the loop, before the loop waits for events: tries held-back frames again, writes answers, posts
 * requests to the step thread. */
void pd_conversation_finish_turn(pd_daemon *daemon);
/* Checks the timeouts of all connections, of the shutdown, and of a daemon without workers. The platform calls it
 * several times a second. */
void pd_conversation_tick(pd_daemon *daemon);
/* Handles a termination signal. The first one drains the daemon and stops it, the second one stops it at once. */
void pd_conversation_interrupt(pd_daemon *daemon, const char *name);
/* Drains the daemon and stops it. Logs the reason. Does nothing if that has begun. */
void pd_conversation_end(pd_daemon *daemon, const char *reason);
/* Closes all connections, and returns the published versions of the version table to the store. */
void pd_conversation_close_all(pd_daemon *daemon);
/* Frees the conversation, after the step thread has ended and all background work is done. Accepts NULL. */
void pd_conversation_dispose(pd_daemon *daemon);

#endif
