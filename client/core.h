/* core.h - the client's side of the protocol as a state machine: what to send, where answers land, when to connect.
 *
 * It uses no sockets, clock or threads. Its inputs are the user's calls (call.h), the state of the connection,
 * received frames and the time. Its outputs are bytes to send (headers, and the caller's own tensors), places for
 * payloads (in the caller's own weights), and operations that are done. Only one thread at a time may call it. Times
 * are ns of a monotonic clock. */
#ifndef PD_CORE_H
#define PD_CORE_H

#include "message.h"
#include "paramd/client.h"

typedef struct pd_core pd_core;

/* The core copies all texts. */
typedef struct pd_core_config {
    const char *job, *label;
    uint32_t rank, world_size;
    const char *const *options, *const *rules; /* see pd_client_options */
    uint64_t nonce;
    bool checksum, impatient; /* see pd_client_options */
    size_t urls;              /* number of addresses */
} pd_core_config;

/* Makes a core. PD_INVALID_ARGUMENT: an option is not of the form name=value. PD_NO_MEMORY: out of memory. */
int pd_core_new(pd_core **out, const pd_core_config *config, pd_error *err);
/* Accepts NULL. */
void pd_core_free(pd_core *core);

/* ---- the connection ---- */

typedef enum pd_link {
    PD_LINK_REST,    /* no connection for now; ask again at the time that pd_core_next returns */
    PD_LINK_CONNECT, /* connect to address pd_core_url, then call pd_core_up or pd_core_down */
    PD_LINK_KEEP,
    PD_LINK_DROP, /* close the connection, then call pd_core_down */
} pd_link;

/* Returns which connection the core wants now. */
pd_link pd_core_link(const pd_core *core, uint64_t now_ns);
/* Returns the index of the server address to connect to, in the handle's list of addresses. */
size_t pd_core_url(const pd_core *core);
/* Tells the core that a connection has been made. */
void pd_core_up(pd_core *core, uint64_t now_ns);
/* Tells the core that a connection could not be made, broke, or was dropped. `reason` goes into the errors of calls
 * that time out. Frames without an answer will be sent again. */
void pd_core_down(pd_core *core, uint64_t now_ns, const char *reason);
/* Sends heartbeats when they are due, and drops connections that have gone silent. */
void pd_core_tick(pd_core *core, uint64_t now_ns);
/* Returns the time at which pd_core_tick and pd_core_link must be called again. UINT64_MAX: only after another
 * input. */
uint64_t pd_core_next(const pd_core *core);

/* Lends the next bytes to send: at most `max` entries, about `bytes` bytes. They stay valid until pd_core_sent or
 * pd_core_down, whatever else is called in between. pd_core_sent must follow even if no byte was sent. */
int pd_core_output(pd_core *core, struct iovec *iov, int max, size_t bytes);
void pd_core_sent(pd_core *core, size_t n, uint64_t now_ns);
bool pd_core_has_output(const pd_core *core);
/* Tells the core that n bytes were received. The caller passes the bytes to a pd_framer, whose callbacks are
 * pd_core_header (landing.h) and pd_core_frame (answer.h). */
void pd_core_received(pd_core *core, size_t n, uint64_t now_ns);

/* ---- tickets ---- */

/* Returns the ticket of the first connection: it is done when the server has welcomed this process for the first
 * time. */
pd_ticket_id pd_core_welcome_ticket(const pd_core *core);
/* Returns whether a ticket is done. True also for a ticket that does not exist. */
bool pd_core_done(const pd_core *core, pd_ticket_id ticket);
/* Frees a ticket that is done, and returns the result of its operation. For a ticket of pd_core_call, *reply is the
 * header of the answer (*bytes long) with the payload behind it; the caller frees it. For other tickets *reply is
 * NULL and *bytes is 0. PD_NOT_FOUND: there is no such ticket. */
int pd_core_finish(pd_core *core, pd_ticket_id ticket, uint8_t **reply, size_t *bytes, pd_error *err);

/* ---- facts ---- */

/* Returns the name of the job. */
const char *pd_core_job(const pd_core *core);
/* Returns the server's last welcome; all fields are 0 before the first one. */
const pd_welcome *pd_core_welcome(const pd_core *core);
/* Returns how many rounds of the parameter are closed, as the server's last answer reported. */
uint64_t pd_core_step(const pd_core *core, size_t param);
/* Returns the optimizer's note on a parameter, or "" if there is none. Once the parameters are declared, the text
 * stays valid. */
const char *pd_core_note(const pd_core *core, size_t param);
/* Returns whether the server waits for this rank to send initial weights. */
bool pd_core_must_init(const pd_core *core);
pd_client_stats pd_core_stats(const pd_core *core);
/* Returns whether the handle is connected and welcomed. */
bool pd_core_running(const pd_core *core);
/* Returns the error that ended the handle; NULL if the handle has not ended. */
const pd_error *pd_core_ended(const pd_core *core);
/* Returns whether the handle has ended because the server no longer has the job. */
bool pd_core_lost(const pd_core *core);
/* Returns why the last connection failed, or what the server is waiting for; "" if nothing is wrong. */
const char *pd_core_reason(const pd_core *core);

#endif
