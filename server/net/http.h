/* http.h - the HTTP listener: each connection reads one request, gets one answer, and is closed. Loop thread.
 *
 *     GET /metrics     Prometheus' text 0.0.4, or OpenMetrics 1.0 if the peer would rather have it
 *     GET /healthz     200 while the loop turns and the step thread makes progress, otherwise 503
 *     GET /readyz      200 while workers are served; 503 while jobs are recovered, and while the daemon drains
 *     GET /jobs.json   what the daemon and its jobs do now (JOBS_JSON.md)
 *     GET /            the dashboard
 *
 * A long answer is written in pieces as the peer reads, so a slow peer keeps little memory.
 *
 * The number, memory and time of connections are bounded: at most PD_HTTP_MOST at a time, PD_HTTP_MS for a request and
 * for each piece of an answer, PD_HTTP_WHOLE_MS for everything. They travel over a pd_transport, as the connections of
 * workers do.
 *
 * A flood of slow peers does not keep a probe of health out. When there are PD_HTTP_MOST connections, the newcomer
 * takes the place of one that is answered already, or of the oldest incomplete request of the address that has most of
 * them: that one gets status 429. A complete request is always answered. Long answers (metrics, jobs, the dashboard),
 * which a peer may read slowly, are limited for each address and in total; a request for one more gets status 429. */
#ifndef PD_HTTP_H
#define PD_HTTP_H

#include "daemon_config.h"
#include "transport.h"

#define PD_HTTP_MOST 128
#define PD_HTTP_LONG 64       /* most long answers at a time */
#define PD_HTTP_LONG_SHARE 16 /* most long answers of one address */
#define PD_HTTP_MS 5000u
#define PD_HTTP_WHOLE_MS 60000u

/* Adds a connection whose bytes travel over this transport. `origin` is the peer's address as a number
 * (pd_reach_origin). PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED (there are PD_HTTP_MOST, and all of them are being answered):
 * the transport is still the caller's. */
int pd_http_accept(pd_daemon *daemon, pd_transport *transport, uint64_t origin);
/* Closes connections that are too slow. */
void pd_http_tick(pd_daemon *daemon, uint64_t now_ms);
/* Sends the next pieces of answers, and frees closed connections, at the end of a turn of the loop. */
void pd_http_finish_turn(pd_daemon *daemon);
void pd_http_close_all(pd_daemon *daemon);

#endif
