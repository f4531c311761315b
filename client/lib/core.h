/* core.h - the client's side of the protocol as a state machine: decides what to send, where answers are received, and
 * when to connect.
 *
 * The core uses no sockets, clock or threads. Its inputs are the user's calls (call.h), the state of the connection,
 * received frames and the time. Its outputs are bytes to send (headers, and the caller's own tensors), places for
 * payloads (in the caller's own weights), and calls that are done. Only one thread at a time may call the core. Times
 * are nanoseconds of a monotonic clock. */
#ifndef PD_CORE_H
#define PD_CORE_H

#include "message.h"
#include "paramd/client.h"

typedef struct pd_core pd_core;

/* Most seconds for which a process tries to get a rank that another process has, which may be dead: a little more than
 * the server's usual heartbeat_timeout. */
enum { PD_HELD_SECONDS = 35 };

/* The settings of a core. pd_core_new copies all texts, so the caller may free them. */
typedef struct pd_core_config {
    const char *job, *label;
    uint32_t rank, world_size;
    const char *const *options, *const *rules; /* see pd_client_options */
    uint64_t nonce;
    bool checksum, impatient, no_shared_memory; /* see pd_client_options */
    uint32_t window;                            /* see pd_client_options */
    const char *run;                            /* see pd_client_options; NULL: unknown */
    int resume;                                 /* see pd_client_options */
    bool joins;                                 /* see pd_client_options */
    uint64_t least_shared; /* payload bytes from which on a gradient is in shared memory; 0: PD_LEAST_SHARED */
    size_t urls;           /* number of addresses */
    /* the addresses, which the caller keeps as long as the core; NULL: texts of the server name none */
    const struct pd_address *addresses;
} pd_core_config;

/* Makes a core. PD_INVALID_ARGUMENT: an option is not of the form name=value. PD_NO_MEMORY: out of memory. */
int pd_core_new(pd_core **out, const pd_core_config *config, pd_error *err);
/* Accepts NULL. */
void pd_core_free(pd_core *core);

/* ---- the connection ---- */

typedef enum pd_link {
    PD_LINK_REST,    /* no connection is wanted now; call pd_core_link again at the time that pd_core_next returns */
    PD_LINK_CONNECT, /* make a connection to address number pd_core_url, then call pd_core_up, or pd_core_down on
                      * failure */
    PD_LINK_KEEP,
    PD_LINK_DROP, /* the caller must close the connection, then call pd_core_down */
} pd_link;

/* Returns what the caller has to do with the connection now: make one, keep it, or drop it. */
pd_link pd_core_link(const pd_core *core, uint64_t now_ns);
/* Returns the index of the server address to connect to, in the handle's list of addresses. */
size_t pd_core_url(const pd_core *core);
/* Tells the core that a connection has been made. `passes_descriptors`: its transport has the functions for shared
 * memory. */
void pd_core_up(pd_core *core, bool passes_descriptors, uint64_t now_ns);
/* Tells the core that a connection could not be made, broke, or was dropped. `reason` becomes part of the error texts
 * of calls that time out. On the next connection, requests without an answer are sent again. */
void pd_core_down(pd_core *core, uint64_t now_ns, const char *reason);
/* Queues a heartbeat, which the server answers at once, if it has welcomed this client. */
void pd_core_ask(pd_core *core);
/* Returns whether the core wants another connection after one that is lost (pd_client_options.impatient is false). */
bool pd_core_reconnects(const pd_core *core);
/* Tells the core why a connection that is being made takes long: `reason` becomes part of the error texts of calls that
 * time out meanwhile. */
void pd_core_explain(pd_core *core, const char *reason);
/* Does what is due at this time: queues heartbeats, and drops a connection whose server has gone silent. */
void pd_core_tick(pd_core *core, uint64_t now_ns);
/* Returns the time at which the caller must call pd_core_tick and pd_core_link again. UINT64_MAX: not before something
 * happens, such as a received byte or a call of the user. */
uint64_t pd_core_next(const pd_core *core);

/* Lends the next bytes to send: at most `max` iovec entries, about `bytes` bytes in all. The bytes stay valid until
 * pd_core_sent or pd_core_down, whatever other functions are called in between. The caller must call pd_core_sent
 * afterwards, even if no byte was sent. */
int pd_core_output(pd_core *core, struct iovec *iov, int max, size_t bytes);
/* Copies gradients to shared memory, if the output tells the server that they are there. Called after pd_core_output,
 * before the bytes are sent, without a lock. */
void pd_core_fill(const pd_core *core);
void pd_core_sent(pd_core *core, size_t n, uint64_t now_ns);
bool pd_core_has_output(const pd_core *core);
/* Tells the core that n bytes were received. The bytes themselves go to a pd_framer, whose callbacks are pd_core_header
 * and pd_core_frame (answer.h). */
void pd_core_received(pd_core *core, size_t n, uint64_t now_ns);

/* Returns the descriptor that must go with the next bytes to send, and passes it to the caller; -1: none. */
int pd_core_take_descriptor(pd_core *core);
/* Takes a descriptor that came with the received bytes. */
void pd_core_give_descriptor(pd_core *core, int fd);

/* ---- tickets ---- */

/* Returns the ticket of the first connection. The ticket is done when the server has answered this process's Hello for
 * the first time. */
pd_ticket_id pd_core_welcome_ticket(const pd_core *core);
/* Returns whether the call that has this ticket is done. Returns true for a ticket that does not exist, too. */
bool pd_core_done(const pd_core *core, pd_ticket_id ticket);
/* Returns how many pushes, pulls and other calls with a ticket have ended so far. */
uint64_t pd_core_ended_ops(const pd_core *core);
/* Frees the ticket of a call that is done, and returns the result of the call. For a ticket of pd_core_call, *reply is
 * the header of the answer (*bytes long) with the payload behind it; the caller frees it. For other tickets *reply is
 * NULL and *bytes is 0. PD_NOT_FOUND: there is no such ticket. */
int pd_core_finish(pd_core *core, pd_ticket_id ticket, uint8_t **reply, size_t *bytes, pd_error *err);

/* ---- facts ---- */

/* Returns the name of the job. */
const char *pd_core_job(const pd_core *core);
/* Returns the server's last welcome; all fields are 0 before the first one. */
const pd_welcome *pd_core_welcome(const pd_core *core);
/* Returns how many rounds of the parameter are closed, as far as the server's answers have reported. */
uint64_t pd_core_step(const pd_core *core, size_t param);
/* Returns the durable step, as the server's last answer reported. */
uint64_t pd_core_durable(const pd_core *core);
/* Returns the optimizer's note on a parameter, or "" if there is none. Once the parameters are declared, the text stays
 * valid. */
const char *pd_core_note(const pd_core *core, size_t param);
/* Returns whether the server waits for initial weights that this rank has to send. */
bool pd_core_must_init(const pd_core *core);
pd_client_stats pd_core_stats(const pd_core *core);
/* Returns whether the client is connected and the server has accepted its Hello. */
bool pd_core_running(const pd_core *core);
/* Returns whether the server has refused the last Hello for now, so that the client tries again. */
bool pd_core_refused(const pd_core *core);
/* Returns whether it has done so because another process, which may be dead, has the rank. */
bool pd_core_held(const pd_core *core);
/* Returns the error that ended the client handle; NULL if it has not ended. */
const pd_error *pd_core_ended(const pd_core *core);
/* Returns whether the client handle has ended because the server no longer has its job. */
bool pd_core_lost(const pd_core *core);
/* Returns whether the client handle has ended because the server has gone back to an earlier step. */
bool pd_core_gone_back(const pd_core *core);
/* Returns why the last connection failed, or what the server is waiting for; "" if nothing is wrong. */
const char *pd_core_reason(const pd_core *core);

#endif
