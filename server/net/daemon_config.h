/* daemon_config.h - what a daemon is given: its settings, the events that it reports to the process around it, and
 * the functions that the conversation needs from an event loop. */
#ifndef PD_DAEMON_CONFIG_H
#define PD_DAEMON_CONFIG_H

#include "log_entry.h"
#include "roles.h"
#include "tls_context.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_daemon pd_daemon;

/* Nanoseconds after which a turn of the step thread counts as stuck: the service manager's watchdog gets no more
 * messages, and /healthz fails. */
#define PD_STUCK_NS 60000000000u

typedef enum pd_daemon_event {
    PD_DAEMON_LOADS, /* jobs of checkpoints are still being loaded; reported several times a second */
    PD_DAEMON_TURNS, /* the event loop is running; reported several times a second, for the watchdog of the service
                      * manager */
    PD_DAEMON_STOPS, /* the daemon has begun to drain: rounds under way may finish, then it exits */
} pd_daemon_event;

/* Protocol of the peers of a listening socket. */
typedef enum pd_socket_use {
    PD_SOCKET_PLAIN, /* frames */
    PD_SOCKET_TLS,   /* frames over TLS */
    PD_SOCKET_HTTP,
} pd_socket_use;

/* A listening socket that the service manager has opened for the daemon. */
typedef struct pd_given_socket {
    int fd;
    pd_socket_use use;
} pd_given_socket;

/* Times in milliseconds. */
typedef struct pd_daemon_times {
    uint32_t handshake_ms, heartbeat_ms, silence_ms, read_ms, write_ms, drain_ms;
    uint32_t keep_ms; /* time that last checkpoints have after the drain of a stopping daemon; 0: it makes none */
    uint32_t idle_ms; /* time without any worker after which the daemon ends by itself; 0: it never does */
} pd_daemon_times;

/* Limits of the configuration that a reload may change while the daemon runs. */
typedef struct pd_daemon_limits {
    pd_daemon_times times;
    uint32_t max_jobs;        /* most jobs that may exist at a time */
    uint64_t max_total_bytes; /* most bytes of memory that all jobs together may take */
    pd_tls_context *tls; /* new keys for new connections, whose owner the daemon becomes; NULL: the old ones stay */
    pd_roles *roles, *store_roles; /* new roles, and a copy of them for the step thread; the conversation takes both
                                    * over. NULL: the roles stay */
    const char *http_token;        /* token that HTTP requests must have from now on, as in pd_daemon_config */
    const char *settings;          /* as in pd_daemon_config */
} pd_daemon_limits;

/* What the daemon calls of the process around it. Each gets `arg`. */
typedef struct pd_daemon_hooks {
    uint64_t (*busy_ns)(void *arg); /* returns how long the step thread has worked on its present turn. NULL: it is not
                                     * known */
    void (*log)(const pd_log_entry *entry);
    void (*event)(void *arg, pd_daemon_event event); /* may be NULL */
    void (*reload)(void *arg); /* reads the configuration again after SIGHUP, on a thread that may block; NULL: SIGHUP
                                * changes nothing */
    bool (*reloaded)(void *arg, pd_daemon_limits *limits); /* called on the loop thread after a reload, to get the new
                                                            * limits; returns false if no limit has changed */
    void *arg;
} pd_daemon_hooks;

/* The settings of a daemon. Strings are borrowed until pd_daemon_new returns. */
typedef struct pd_daemon_config {
    const char *listen;  /* addresses to listen on, separated by commas, in the syntax of address.h; "": none */
    bool insecure;       /* listening on addresses that other machines can reach is allowed */
    pd_tls_context *tls; /* the keys of tls:// addresses, which the daemon shares; NULL: there is no such address, and
                          * no such socket among `sockets` */
    const pd_given_socket *sockets; /* sockets that the service manager has opened; borrowed until the daemon listens.
                                     * Those for HTTP take the place of `http_listen`, others that of `listen` */
    size_t n_sockets;
    bool signals;          /* the daemon handles signals: SIGTERM and SIGINT drain and stop it, a second one stops it
                            * at once; SIGHUP reloads the configuration */
    bool ends_with_input;  /* the daemon drains and stops when its standard input ends */
    bool shared_memory;    /* workers on Unix sockets may share memory with the daemon */
    uint64_t least_shared; /* payload bytes from which on an answer is in shared memory; 0: PD_LEAST_SHARED */
    uint32_t max_connections;
    pd_daemon_times times;
    uint64_t ingest_bytes, chunk_elements, max_payload; /* max_payload: bytes of the largest payload of a frame; room
                                                         * for at least one chunk of float32 */
    uint32_t max_pieces, max_params, max_header, hello_bytes;
    pd_roles *roles, *store_roles; /* who may do what, and a copy for the step thread. pd_daemon_new takes both over,
                                    * also when it fails. NULL: everybody may do everything */
    const char *blas_core; /* name of the set of BLAS kernels in use, for operators; borrowed for the daemon's life */
    /* the daemon's configuration as flags of its program, in lines, for operators; borrowed until a reload brings
     * another, or for the daemon's life. NULL: not known */
    const char *settings;
    const char *http_listen; /* addresses of the HTTP listener, in the syntax of `listen`. NULL or "": there is none */
    const char *http_token;  /* token that HTTP requests must have; borrowed until a reload brings another, or for the
                              * daemon's life. NULL: none is needed */
    pd_daemon_hooks hooks;
} pd_daemon_config;

/* A task for another thread: `run` is called on that thread, then `done` on the loop thread. The struct with the task's
 * data contains it as a member. */
typedef struct pd_background {
    void (*run)(struct pd_background *work);
    void (*done)(struct pd_background *work);
} pd_background;

typedef struct pd_platform {
    void *arg;
    uint64_t (*now_ms)(void *arg);                      /* returns the time in milliseconds, by a clock that never goes
                                                         * back; it does not change during a callback */
    uint64_t (*clock_ns)(void *arg);                    /* returns the time in nanoseconds, to limit how long a callback
                                                         * runs */
    uint64_t (*unix_ms)(void *arg);                     /* returns the milliseconds since 1970, by a clock that people
                                                         * may set. NULL: there is no such clock */
    uint64_t (*random)(void *arg);                      /* returns a random number that peers cannot guess, for the keys
                                                         * of hash tables */
    void (*wake)(void *arg);                            /* makes the loop call pd_conversation_take_effects soon; any
                                                         * thread may call it */
    void (*stop)(void *arg);                            /* ends the event loop after its present turn */
    void (*end_listening)(void *arg);                   /* makes the daemon accept no new connections from now on */
    bool (*background)(void *arg, pd_background *work); /* starts a task on another thread; returns false if that is
                                                         * impossible now. NULL: there are no other threads */
} pd_platform;

#endif
