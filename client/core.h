/* core.h - the client's side of the protocol as a state machine: what to send, where answers land, when to connect.
 *
 * Pure: no sockets, no clock, no threads. Inputs are the user's calls (call.h), the state of the connection, received
 * frames and the time. Outputs are bytes to send (headers, and the caller's own tensors), places for payloads (in the
 * caller's own weights), and operations that are done. The caller lets one thread inside at a time. Times are a
 * monotonic clock in ns. */
#ifndef PD_CORE_H
#define PD_CORE_H

#include "message.h"
#include "paramd/client.h"

typedef struct pd_core pd_core;

/* All texts are copied. */
typedef struct pd_core_config {
    const char *job, *label;
    uint32_t    rank, world_size;
    const char *const *options, *const *rules;      /* as in pd_client_options */
    uint64_t    nonce;
    bool        checksum, impatient;                /* as in pd_client_options */
    size_t      urls;                               /* number of addresses */
} pd_core_config;

/* Makes a core. PD_INVALID_ARGUMENT: an option is not name=value. PD_NO_MEMORY. */
int  pd_core_new(pd_core **out, const pd_core_config *config, pd_error *err);
/* Accepts NULL. */
void pd_core_free(pd_core *core);

/* ---- the connection ---- */

typedef enum pd_link {
    PD_LINK_REST,           /* none now; ask again at pd_core_next */
    PD_LINK_CONNECT,        /* connect to address pd_core_url, then call pd_core_up or pd_core_down */
    PD_LINK_KEEP,
    PD_LINK_DROP,           /* close it, then call pd_core_down */
} pd_link;

/* Returns which connection the core wants now. */
pd_link  pd_core_link(const pd_core *core, uint64_t now_ns);
/* Returns the number of the address to connect to. */
size_t   pd_core_url(const pd_core *core);
/* Takes the report of a new connection. */
void     pd_core_up(pd_core *core, uint64_t now_ns);
/* Takes the report that a connection could not be made, broke, or was dropped. `reason` goes into errors of calls that
 * time out. Frames without an answer will be sent again. */
void     pd_core_down(pd_core *core, uint64_t now_ns, const char *reason);
/* Sends heartbeats when they are due, and drops connections that have gone silent. */
void     pd_core_tick(pd_core *core, uint64_t now_ns);
/* Returns when pd_core_tick and pd_core_link are due; UINT64_MAX: not before other inputs. */
uint64_t pd_core_next(const pd_core *core);

/* Lends the next bytes to send, at most `max` entries and about `bytes` bytes. They are valid until pd_core_sent, which
 * must follow even if no byte was sent, or pd_core_down, whatever else is called in between. */
int      pd_core_output(pd_core *core, struct iovec *iov, int max, size_t bytes);
void     pd_core_sent(pd_core *core, size_t n, uint64_t now_ns);
bool     pd_core_has_output(const pd_core *core);
/* Takes the report of n received bytes. The bytes go through a pd_framer whose callbacks are pd_core_header (landing.h)
 * and pd_core_frame (answer.h). */
void     pd_core_received(pd_core *core, size_t n, uint64_t now_ns);

/* ---- tickets ---- */

/* Returns the ticket of the server's first welcome, which is there from the start. */
pd_ticket_id pd_core_welcome_ticket(const pd_core *core);
/* Returns whether a ticket is done. True also for a ticket that does not exist. */
bool pd_core_done(const pd_core *core, pd_ticket_id ticket);
/* Ends a ticket that is done, and returns its result. For a ticket of pd_core_call, *reply (free() it) and *bytes are
 * the header of the answer; else NULL and 0. PD_NOT_FOUND: there is no such ticket. */
int  pd_core_finish(pd_core *core, pd_ticket_id ticket, uint8_t **reply, size_t *bytes, pd_error *err);

/* ---- facts ---- */

const pd_welcome *pd_core_welcome(const pd_core *core);
uint64_t          pd_core_step(const pd_core *core, size_t param);
/* Returns the optimizer's note on a parameter; "": none. It stays once the parameters are declared. */
const char       *pd_core_note(const pd_core *core, size_t param);
bool              pd_core_must_init(const pd_core *core);
pd_client_stats   pd_core_stats(const pd_core *core);
/* Returns whether the handle is connected and welcomed. */
bool              pd_core_running(const pd_core *core);
/* Returns the error with which the handle has ended; NULL: it has not. */
const pd_error   *pd_core_ended(const pd_core *core);
/* Returns whether the handle has ended because the server no longer has the job. */
bool              pd_core_lost(const pd_core *core);
/* Returns why the last connection failed, or for what the server waits; "" if nothing is wrong. */
const char       *pd_core_reason(const pd_core *core);

#endif
