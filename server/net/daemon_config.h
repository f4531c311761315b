/* daemon_config.h - the settings of a daemon, and the events that it reports to the process around it. */
#ifndef PD_DAEMON_CONFIG_H
#define PD_DAEMON_CONFIG_H

#include "log_entry.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_daemon pd_daemon;

typedef enum pd_daemon_event {
    PD_DAEMON_TURNS, /* the loop is alive; reported several times a second, for the service manager's watchdog */
    PD_DAEMON_STOPS, /* the daemon has begun to drain in order to exit */
} pd_daemon_event;

/* Limits that may change while the daemon runs. */
typedef struct pd_daemon_limits {
    uint32_t handshake_ms, read_ms, write_ms, drain_ms;
    uint32_t max_jobs;        /* most jobs in the store */
    uint64_t max_total_bytes; /* most bytes of memory that all jobs of the store may take */
} pd_daemon_limits;

/* The settings of a daemon. Strings are borrowed until pd_daemon_new returns. Times are in milliseconds. */
typedef struct pd_daemon_config {
    const char *listen;          /* addresses to listen on, separated by commas, in the syntax of address.h; "": none */
    bool insecure;               /* allow listening on addresses beyond loopback */
    int first_socket, n_sockets; /* listening sockets that the service manager has opened. If there are any, `listen`
                                  * is ignored */
    bool signals;                /* handle signals: SIGTERM and SIGINT drain and stop, a second one stops at once;
                                  * SIGHUP reloads */
    uint32_t max_connections;
    uint32_t handshake_ms, heartbeat_ms, silence_ms, read_ms, write_ms, drain_ms;
    uint64_t ingest_bytes, chunk_elements, max_payload; /* max_payload is at least one chunk of float32 */
    uint32_t max_pieces, max_params, max_header, hello_bytes;
    const char *blas_core; /* name of the BLAS kernels; borrowed for the daemon's life */
    void (*log)(const pd_log_entry *entry);
    void (*event)(void *arg, pd_daemon_event event); /* may be NULL */
    void (*reload)(void *arg); /* on SIGHUP, reads the configuration again, on a thread that may block; NULL: no
                                * reloads */
    bool (*reloaded)(void *arg, pd_daemon_limits *limits); /* called on the loop thread after a reload; false: no
                                                            * limit has changed */
    void *arg;
} pd_daemon_config;

#endif
