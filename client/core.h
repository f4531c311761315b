/* core.h - the client's side of the protocol as a state machine: what to send, where answers land, when to connect.
 *
 * Pure: no sockets, no clock, no threads. Inputs are the user's calls, the life of the connection, received frames and the
 * time; outputs are bytes to send (headers, and the caller's own tensors), places for payloads (in the caller's own weights) and
 * operations that are done. The caller sees to it that one thread is inside at a time. Times are a monotonic clock in ns. */
#ifndef PD_CORE_H
#define PD_CORE_H

#include "message.h"
#include "paramd/client.h"

typedef struct pd_core pd_core;

/* All copied. */
typedef struct pd_core_config {
    const char *job, *label;
    uint32_t    rank, world_size;
    const char *const *options, *const *rules;      /* as in pd_client_options */
    uint64_t    nonce;
    bool        checksum, impatient;                /* likewise */
    size_t      urls;                               /* how many addresses there are to try */
} pd_core_config;

/* PD_INVALID_ARGUMENT: an option that is not name=value. */
int  pd_core_new(pd_core **out, const pd_core_config *config, pd_error *err);
void pd_core_free(pd_core *core);                   /* accepts NULL */

/* ---- the connection ---- */

typedef enum pd_link {
    PD_LINK_REST,           /* none now; ask again at pd_core_next */
    PD_LINK_CONNECT,        /* make one, to address pd_core_url; then pd_core_up, or pd_core_down */
    PD_LINK_KEEP,
    PD_LINK_DROP,           /* close it, then pd_core_down */
} pd_link;

pd_link  pd_core_link(const pd_core *core, uint64_t now_ns);
size_t   pd_core_url(const pd_core *core);
void     pd_core_up(pd_core *core, uint64_t now_ns);
/* It could not be made, or broke, or was dropped; `reason` goes into errors of calls that time out. What was not answered will be sent again. */
void     pd_core_down(pd_core *core, uint64_t now_ns, const char *reason);
/* Heartbeats, and connections that have gone silent. */
void     pd_core_tick(pd_core *core, uint64_t now_ns);
uint64_t pd_core_next(const pd_core *core);         /* when tick and link want to be called; UINT64_MAX: only after other inputs */

/* The next bytes to send: at most `max` entries, about `bytes` bytes. Valid until pd_core_sent, which must follow, even if no
 * byte went, or pd_core_down; both outlast whatever else is called in between. */
int      pd_core_output(pd_core *core, struct iovec *iov, int max, size_t bytes);
void     pd_core_sent(pd_core *core, size_t n, uint64_t now_ns);
bool     pd_core_has_output(const pd_core *core);
/* n bytes have come. They go through a pd_framer whose user is pd_core_header (landing.h) and pd_core_frame (answer.h). */
void     pd_core_heard(pd_core *core, size_t n, uint64_t now_ns);

/* ---- tickets ---- */

/* Returns the ticket of the server's first welcome, which is there from the start. */
pd_ticket_id pd_core_welcome_ticket(const pd_core *core);
/* True also for a ticket that does not exist. */
bool pd_core_done(const pd_core *core, pd_ticket_id ticket);
/* Ends a ticket that is done: its result. For one of pd_core_call, *reply (free() it) and *bytes are its answer's header; else NULL, 0.
 * PD_NOT_FOUND: no such ticket. */
int  pd_core_finish(pd_core *core, pd_ticket_id ticket, uint8_t **reply, size_t *bytes, pd_error *err);

/* ---- facts ---- */

const pd_welcome *pd_core_welcome(const pd_core *core);
uint64_t          pd_core_step(const pd_core *core, size_t param);
const char       *pd_core_note(const pd_core *core, size_t param);      /* "": none; stays once the parameters are declared */
bool              pd_core_must_init(const pd_core *core);
pd_client_stats   pd_core_stats(const pd_core *core);
bool              pd_core_running(const pd_core *core);         /* connected and welcomed */
const pd_error   *pd_core_ended(const pd_core *core);           /* why the handle is at its end for good; NULL: it is not */
bool              pd_core_lost(const pd_core *core);            /* it is so because the server no longer has the job */
const char       *pd_core_reason(const pd_core *core);          /* why the last connection failed, or what the server waits for; "" if nothing is wrong */

#endif
