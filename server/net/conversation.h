/* conversation.h - the conversation with workers and operators, on any platform: how the event loop drives it.
 *
 * Loop thread. pd_conversation_make, _start, then for each turn of the loop _take_effects when the platform was woken,
 * _accept for each new connection, _finish_turn at the end; _tick several times a second; _close_all and _dispose at
 * the end. */
#ifndef PD_CONVERSATION_H
#define PD_CONVERSATION_H

#include "daemon_config.h"
#include "mailbox.h"
#include "platform.h"
#include "transport.h"

/* Makes the conversation. Copies `config` and `platform`; their texts are borrowed for the daemon's life.
 * PD_NO_MEMORY. */
int  pd_conversation_make(pd_daemon **out, const pd_daemon_config *config, const pd_platform *platform, pd_error *err);
/* Begins. Borrows `requests`, the step thread's mailbox. */
void pd_conversation_start(pd_daemon *daemon, pd_mailbox *requests);
/* Returns the mailbox to which the step thread posts its effects. Borrowed. */
pd_mailbox *pd_conversation_effects(pd_daemon *daemon);
/* Takes a connected transport. Beyond max_connections the peer gets an error and the connection ends. PD_NO_MEMORY:
 * the transport is still the caller's. */
int  pd_conversation_accept(pd_daemon *daemon, pd_transport *transport, const char *peer);
/* Handles the effects that the step thread has posted, for about a millisecond. */
void pd_conversation_take_effects(pd_daemon *daemon);
/* Ends a turn, before the loop waits: resumes connections, writes answers, posts requests. */
void pd_conversation_finish_turn(pd_daemon *daemon);
/* Checks deadlines. The platform calls it several times a second. */
void pd_conversation_tick(pd_daemon *daemon);
/* Handles a signal: the first drains and stops, the second stops at once. */
void pd_conversation_interrupt(pd_daemon *daemon, const char *name);
/* Closes all connections and gives the store its snapshots back. */
void pd_conversation_close_all(pd_daemon *daemon);
/* Frees the conversation, after the step thread has ended and all background work is done. Accepts NULL. */
void pd_conversation_dispose(pd_daemon *daemon);

bool     pd_conversation_has_conns(const pd_daemon *daemon);
bool     pd_conversation_is_drained(const pd_daemon *daemon);
/* Returns how often a method's handler was called. */
uint64_t pd_conversation_calls(const pd_daemon *daemon, unsigned method);
const pd_daemon_config *pd_conversation_settings(const pd_daemon *daemon);
const pd_platform      *pd_conversation_platform(const pd_daemon *daemon);

#endif
