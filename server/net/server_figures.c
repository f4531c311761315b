/* server_figures.c - reads figures of the whole daemon: its state, memory, traffic, and how busy the loop is. */
#include "server_figures.h"

#include "conn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

uint64_t pd_resident_bytes(const pd_daemon *daemon)
{
    char text[128];
    ssize_t n = pread(daemon->statm, text, sizeof text - 1, 0);
    char *space;

    if (n <= 0) return 0;
    text[n] = '\0';
    space = strchr(text, ' ');
    return space != NULL ? strtoull(space, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

uint64_t pd_peak_resident_bytes(uint64_t resident)
{
    struct rusage usage;
    uint64_t peak = getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;

    return peak > resident ? peak : resident;
}

bool pd_server_is_healthy(const pd_daemon *daemon)
{
    return daemon->config.busy_ns == NULL || daemon->config.busy_ns(daemon->config.arg) < PD_STUCK_NS;
}

const char *pd_server_state(const pd_daemon *daemon)
{
    if (daemon->shutdown.begun || daemon->drains) return "draining";
    return daemon->requests == NULL ? "recovering" : "ready";
}

static void count_jobs(pd_server_figures *out, const pd_daemon *daemon)
{
    for (const pd_figure *figure = daemon->figures.first; figure != NULL; figure = figure->next) {
        out->jobs++;
        out->committed_bytes += figure->stats->info.committed_bytes;
    }
}

/* Adds up the memory of all connections that no budget counts. */
static uint64_t transport_bytes(const pd_daemon *daemon)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL) bytes += pd_transport_held(daemon->conns[i]->transport);
    return bytes;
}

static void read_lag(pd_server_figures *out, const pd_lag *lag)
{
    out->loop_busy_ms[0] = pd_lag_percentile(lag, 0.5);
    out->loop_busy_ms[1] = pd_lag_percentile(lag, 0.99);
    out->loop_busy_ms[2] = pd_lag_percentile(lag, 0.999);
    out->loop_busy_ms[3] = (double)lag->largest_ns / 1e6;
}

void pd_server_figures_read(pd_server_figures *out, const pd_daemon *daemon)
{
    const pd_platform *platform = &daemon->platform;

    *out = (pd_server_figures){
        .state = pd_server_state(daemon),
        .healthy = pd_server_is_healthy(daemon),
        .time = platform->unix_ms != NULL ? (double)platform->unix_ms(platform->arg) / 1e3 : 0,
        .connections = daemon->n_conns,
        .ranks_left_out = daemon->figures.left_out,
        .ingest_limit = daemon->admission.budget,
        .ingest_used = daemon->admission.used,
        .resident_bytes = pd_resident_bytes(daemon),
        .tls_bytes = transport_bytes(daemon),
        .bytes_in = daemon->bytes_in,
        .bytes_out = daemon->bytes_out,
        .frames_in = daemon->frames_in,
        .frames_refused = daemon->frames_refused,
    };
    out->ready = strcmp(out->state, "ready") == 0;
    out->peak_resident_bytes = pd_peak_resident_bytes(out->resident_bytes);
    if (daemon->requests != NULL) out->uptime_seconds = (double)(pd_loop_now_ms(daemon) - daemon->started_ms) / 1e3;
    count_jobs(out, daemon);
    read_lag(out, &daemon->lag);
}
