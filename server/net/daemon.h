/* daemon.h - the loop thread: listens, talks to workers and operators, and connects them to the training state by two mailboxes.
 *
 *     pd_daemon_new(&daemon, &config, &err);                  binds and listens; nobody is answered yet
 *     pd_stepper_start(...effects = pd_daemon_effects(daemon)...)
 *     pd_daemon_run(daemon, pd_stepper_requests(stepper));    until drained or told twice to stop; the caller becomes the loop thread
 *     pd_stepper_stop(stepper);
 *     pd_daemon_free(daemon);                                 takes home what was still in the mailbox */
#ifndef PD_DAEMON_H
#define PD_DAEMON_H

#include "mailbox.h"

typedef struct pd_daemon pd_daemon;

typedef enum pd_daemon_event {
    PD_DAEMON_TURNS,                    /* several times a second while the loop turns: for the watchdog */
    PD_DAEMON_STOPS,                    /* it has begun to drain in order to exit */
} pd_daemon_event;

/* Text is borrowed until pd_daemon_new returns; times in milliseconds. */
typedef struct pd_daemon_config {
    const char *listen;                 /* "host:port" or "[v6]:port", several by commas; port 0: any free one; "": none */
    const char *unix_socket;            /* path, or "": none */
    bool        insecure;               /* listening beyond loopback is allowed */
    int         first_socket, n_sockets;        /* listening sockets that the service manager has opened; then listen and unix_socket are not used */
    bool        signals;                /* SIGTERM and SIGINT drain and stop, the second one stops at once */
    uint32_t    max_connections;
    uint32_t    handshake_ms, heartbeat_ms, silence_ms, read_ms, write_ms, drain_ms;
    uint64_t    ingest_bytes, chunk_elements, max_payload;      /* max_payload: at least one chunk of float32 */
    uint32_t    max_pieces, max_params, max_header, hello_bytes;
    const char *blas_core;              /* borrowed for the daemon's life */
    void      (*log)(int level, const char *format, ...);       /* level as syslog's; the format's address names the call site */
    void      (*log_text)(int level, uint64_t site, const char *text);      /* a line of the store: `site` is its call site and job. NULL: goes to `log` */
    void      (*event)(void *arg, pd_daemon_event event);       /* may be NULL */
    void       *arg;
} pd_daemon_config;

/* PD_PERMISSION_DENIED: an address beyond loopback without `insecure`. PD_UNAVAILABLE: an address cannot be had (says which and why).
 * PD_INVALID_ARGUMENT: not an address. PD_NO_MEMORY. Logs "listening on ADDRESS:PORT" for each. */
int         pd_daemon_new(pd_daemon **out, const pd_daemon_config *config, pd_error *err);
/* Where the step thread posts its effects. Borrowed. */
pd_mailbox *pd_daemon_effects(pd_daemon *daemon);
/* Port of the first TCP listener; 0: none. */
unsigned    pd_daemon_port(const pd_daemon *daemon);
/* Turns the loop until it stops. Borrows `requests`, where connections' requests go. True: everything under way had ended in time. */
bool        pd_daemon_run(pd_daemon *daemon, pd_mailbox *requests);
/* After the step thread has ended. Accepts NULL. */
void        pd_daemon_free(pd_daemon *daemon);

/* ---- for tests and fuzzers, which turn the loop themselves ---- */

/* Begins without turning: pd_daemon_run's first half. */
void        pd_daemon_begin(pd_daemon *daemon, pd_mailbox *requests);
/* Takes a connected stream socket. PD_NO_MEMORY: it is still the caller's. */
int         pd_daemon_adopt(pd_daemon *daemon, int fd);
/* Handles what is there, without waiting. True: connections are open. */
bool        pd_daemon_turn(pd_daemon *daemon);
/* Closes all connections and listeners: pd_daemon_run's end. */
void        pd_daemon_end(pd_daemon *daemon);
/* How often a method's handler was called. */
uint64_t    pd_daemon_calls(const pd_daemon *daemon, unsigned method);

#endif
