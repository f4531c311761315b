/* daemon_config.h - what a daemon is made from: its settings, the functions of the process around it that it calls, and
 * the functions of the event loop that it runs on. */
#ifndef PD_DAEMON_CONFIG_H
#define PD_DAEMON_CONFIG_H

#include "log_entry.h"
#include "roles.h"
#include "tls_context.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_daemon pd_daemon;
struct pd_cluster_table;

/* Fewest bytes that the loop thread lets a mover receive or send. The messages to the mover and back cost about as much
 * as it takes to copy a tenth of them. */
#define PD_LEAST_LENT (256 * 1024)

/* Nanoseconds after which a turn of the step thread counts as stuck: the service manager's watchdog gets no more
 * messages, and /healthz fails. */
#define PD_STUCK_NS 60000000000u

typedef enum pd_daemon_event {
    PD_DAEMON_LOADS, /* jobs are still being loaded from checkpoints; reported several times a second */
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

/* Times in milliseconds. The first six are settings of the section "server". handshake_ms (handshake_timeout): most
 * time until a new connection has said Hello. heartbeat_ms (heartbeat_interval): time between two heartbeats.
 * silence_ms (heartbeat_timeout): a peer that is silent for longer counts as gone. read_ms (read_timeout): most time to
 * receive a frame. write_ms (write_timeout): most time in which a peer must read an answer. drain_ms (drain_timeout):
 * most time for the drain before the daemon stops. */
typedef struct pd_daemon_times {
    uint32_t handshake_ms, heartbeat_ms, silence_ms, read_ms, write_ms, drain_ms;
    uint32_t keep_ms; /* time for the last checkpoints after the drain, when the daemon stops; 0: it makes none */
    uint32_t idle_ms; /* time without any worker after which the daemon stops by itself; 0: it never does */
} pd_daemon_times;

/* Limits of the configuration that a reload may change while the daemon runs. */
typedef struct pd_daemon_limits {
    pd_daemon_times times;
    uint32_t max_jobs;             /* most jobs that may exist at a time */
    uint64_t max_total_bytes;      /* most bytes of memory that all jobs together may take */
    pd_tls_context *tls;           /* keys for new connections, which the daemon takes over; NULL: the old keys stay */
    pd_roles *roles, *store_roles; /* new roles, and a copy of them for the step thread; the conversation takes over
                                    * both. NULL: the old roles stay */
    const char *http_token;        /* token that HTTP requests must have from now on; borrowed until the next reload.
                                    * NULL: none is needed */
    const char *settings;          /* the configuration for operators: one flag of the program per line; borrowed until
                                    * the next reload. NULL: not known */
} pd_daemon_limits;

/* Functions of the process around the daemon, which the daemon calls. All but `log` get `arg`. */
typedef struct pd_daemon_hooks {
    uint64_t (*busy_ns)(void *arg);  /* returns for how many ns the step thread has worked on its present turn. NULL:
                                     * that is not known */
    bool (*mirror_is_up)(void *arg); /* returns whether the mirror of the state directory gets what is durable. NULL:
                                      * there is no mirror */
    void (*log)(const pd_log_entry *entry);
    void (*event)(void *arg, pd_daemon_event event); /* is told of an event of the daemon; may be NULL */
    void (*reload)(void *arg); /* reads the configuration again after SIGHUP, on a thread that may block; NULL: SIGHUP
                                * changes nothing */
    bool (*reloaded)(void *arg, pd_daemon_limits *limits); /* gets the new limits after a reload, on the loop thread;
                                                            * returns false if no limit has changed */
    void *arg;
} pd_daemon_hooks;

/* The settings of a daemon, which borrows the strings for its life unless a field says otherwise. */
typedef struct pd_daemon_config {
    const char *listen;  /* addresses to listen on, separated by commas, in the syntax of address.h; "": none */
    bool insecure;       /* the daemon may listen on addresses that other machines can reach */
    pd_tls_context *tls; /* the keys of tls:// addresses, which the caller shares with the daemon; NULL: neither
                          * `listen` nor `sockets` uses TLS */
    const pd_given_socket *sockets; /* sockets that the service manager has opened; borrowed until the daemon listens.
                                     * Those for HTTP take the place of `http_listen`, others that of `listen` */
    size_t n_sockets;
    bool signals;          /* the daemon handles signals: SIGTERM and SIGINT drain and stop it, a second one stops it
                            * at once; SIGHUP reloads the configuration */
    bool ends_with_input;  /* the daemon drains and stops when its standard input ends */
    bool shared_memory;    /* workers on Unix sockets may share memory with the daemon */
    uint64_t least_shared; /* an answer with at least so many payload bytes is in shared memory; 0: PD_LEAST_SHARED */
    uint32_t max_connections;
    uint32_t movers;     /* number of threads that move payload bytes for the loop thread; 0: it moves all itself */
    uint64_t least_lent; /* fewest bytes that are given to one of them; 0: PD_LEAST_LENT */
    pd_daemon_times times;
    uint64_t ingest_bytes, chunk_elements, max_payload; /* ingest_bytes: the ingest budget. chunk_elements: number of
                                                         * elements of a chunk. max_payload: bytes of the
                                                         * largest payload of a frame, which has room for at least one
                                                         * chunk of float32 */
    uint32_t max_pieces, max_params, max_header, hello_bytes; /* most pieces of a frame, parameters of a job, bytes of a
                                                               * frame's header, and bytes of a Hello's header */
    pd_roles *roles, *store_roles; /* the roles of all identities, and a copy of them for the step thread. pd_daemon_new
                                    * takes over both, also when it fails. NULL: everybody may do everything */
    const char *blas_core;         /* name of the BLAS kernels in use, for operators */
    /* the daemon's configuration for operators: one flag of the program per line. Borrowed until a reload brings
     * another, or for the daemon's life. NULL: not known */
    const char *settings;
    const char *http_listen; /* addresses of the HTTP listener, in the syntax of `listen`. NULL or "": there is none */
    const char *http_token;  /* token that HTTP requests must have; borrowed until a reload brings another, or for the
                              * daemon's life. NULL: none is needed */
    const char *tcp_congestion; /* algorithm of TCP's congestion control; NULL or "": the kernel's default, and
                                 * "reno" without TLS towards a peer on this machine */
    pd_daemon_hooks hooks;
} pd_daemon_config;

/* A task for another thread: `run` is called on that thread, then `done` on the loop thread. The struct with the task's
 * data contains it as a member. */
typedef struct pd_background {
    void (*run)(struct pd_background *work);
    void (*done)(struct pd_background *work);
} pd_background;

/* The functions of the event loop that the conversation calls. Each gets `arg`. libuv's loop provides them (daemon.c),
 * or a simulator. */
typedef struct pd_platform {
    void *arg;
    uint64_t (*now_ms)(void *arg);                      /* returns the time in milliseconds by a monotonic clock; it
                                                         * does not change during a callback */
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
    /* returns the table of shards (cluster_table.h), valid until the next turn of the loop; NULL: the daemon has no
     * engine. The function itself is NULL where no daemon has one */
    const struct pd_cluster_table *(*table)(void *arg);
} pd_platform;

#endif
