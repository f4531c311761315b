/* daemon_config.h - the settings of a daemon, and the events that it reports to the process around it. */
#ifndef PD_DAEMON_CONFIG_H
#define PD_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_daemon pd_daemon;

typedef enum pd_daemon_event {
    PD_DAEMON_TURNS,                    /* the loop turns; reported several times a second, for the watchdog */
    PD_DAEMON_STOPS,                    /* the daemon has begun to drain in order to exit */
} pd_daemon_event;

/* Texts are borrowed until pd_daemon_new returns. Times are in milliseconds. */
typedef struct pd_daemon_config {
    const char *listen;                 /* "host:port" or "[v6]:port", several by commas; port 0: any; "": none */
    const char *unix_socket;            /* path, or "": none */
    bool        insecure;               /* addresses beyond loopback are allowed */
    int         first_socket, n_sockets;        /* listening sockets that the service manager has opened. Where there
                                                 * are some, `listen` and `unix_socket` are not used */
    bool        signals;                /* SIGTERM and SIGINT drain and stop; the second one stops at once */
    uint32_t    max_connections;
    uint32_t    handshake_ms, heartbeat_ms, silence_ms, read_ms, write_ms, drain_ms;
    uint64_t    ingest_bytes, chunk_elements, max_payload;      /* max_payload: at least one chunk of float32 */
    uint32_t    max_pieces, max_params, max_header, hello_bytes;
    const char *blas_core;              /* borrowed for the daemon's life */
    void      (*log)(int level, const char *format, ...);       /* level as syslog's. The format's address names the
                                                                 * call site */
    void      (*log_text)(int level, uint64_t site, const char *text);  /* logs a line of the store; `site` names its
                                                                         * call site and job. NULL: `log` gets it */
    void      (*event)(void *arg, pd_daemon_event event);       /* may be NULL */
    void       *arg;
} pd_daemon_config;

#endif
