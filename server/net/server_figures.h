/* server_figures.h - figures of the whole daemon, for operators, metrics and /jobs.json. Loop thread. */
#ifndef PD_SERVER_FIGURES_H
#define PD_SERVER_FIGURES_H

#include "loop.h"

typedef struct pd_server_figures {
    const char *state; /* "ready", "draining" or "recovering" */
    bool ready;        /* workers are served: the state is "ready" */
    bool healthy;      /* the step thread makes progress */
    double time;       /* seconds since 1970, by this machine's clock; 0: there is none (simulator) */
    double uptime_seconds;
    uint64_t connections, jobs;
    uint64_t ingest_limit, ingest_used;           /* most bytes of gradients in flight; bytes that are */
    uint64_t resident_bytes, peak_resident_bytes; /* memory of the process, now and at most */
    uint64_t tls_bytes;                           /* memory in which bytes of TLS connections wait */
    uint64_t committed_bytes;                     /* memory that all jobs together have claimed (footprint.h) */
    uint64_t ranks_left_out;                      /* ranks that have come, and have no figures of their own */
    uint64_t bytes_in, bytes_out, frames_in, frames_refused;
    double loop_busy_ms[4]; /* times that 50 %, 99 %, 99.9 % and all of the loop's turns did not exceed */
} pd_server_figures;

void pd_server_figures_read(pd_server_figures *out, const pd_daemon *daemon);
/* Returns the bytes of memory that the process has resident. */
uint64_t pd_resident_bytes(const pd_daemon *daemon);
/* Returns the most bytes of memory that the process has had resident: the kernel's peak or the present value, whichever
 * is larger. The kernel updates its peak only at intervals. */
uint64_t pd_peak_resident_bytes(uint64_t resident);
/* Returns whether the step thread has been at one piece of work for less than a minute. */
bool pd_server_is_healthy(const pd_daemon *daemon);
/* Returns "ready", "draining" or "recovering". */
const char *pd_server_state(const pd_daemon *daemon);

#endif
