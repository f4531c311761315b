/* http.h - the HTTP listener: each connection reads one request, gets one answer, and is closed. Loop thread.
 *
 *     GET /metrics     Prometheus' text 0.0.4, or OpenMetrics 1.0 if the peer prefers it
 *     GET /healthz     200 while the loop turns and the step thread makes progress, otherwise 503
 *     GET /readyz      200 while workers are served; 503 while jobs are recovered, and while the daemon drains
 *     GET /jobs.json   what the daemon and its jobs do now (JOBS_JSON.md)
 *     GET /            the dashboard
 *
 * A long answer is written in parts as the peer reads, so the answer to a slow peer takes little memory.
 *
 * Connections are limited in number, memory and time: at most PD_HTTP_MOST at a time, PD_HTTP_MS for a request and for
 * each part of an answer, PD_HTTP_WHOLE_MS for everything. Their bytes travel over a pd_transport, as those of workers
 * do.
 *
 * A flood of slow peers does not block health checks. When there are PD_HTTP_MOST connections, a new one replaces a
 * connection whose answer is sent. If there is none, it replaces the oldest incomplete request of the address that has
 * most of them; that request gets status 429. A complete request is always answered. Long answers (metrics, jobs, the
 * dashboard), which a peer may read slowly, are limited per address and in total; a request beyond these limits gets
 * status 429. */
#ifndef PD_HTTP_H
#define PD_HTTP_H

#include "daemon_config.h"
#include "transport.h"

#define PD_HTTP_MOST 128        /* most connections at a time */
#define PD_HTTP_LONG 64         /* most long answers at a time */
#define PD_HTTP_LONG_SHARE 16   /* most long answers of one address */
#define PD_HTTP_MS 5000u        /* most time for a request, and for each part of an answer */
#define PD_HTTP_WHOLE_MS 60000u /* most time from the opening of a connection to its end */

/* Adds a connection whose bytes travel over this transport. `origin` is the peer's address as a number
 * (pd_reach_origin). PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED (there are PD_HTTP_MOST connections, and all are being
 * answered): the transport still belongs to the caller. */
int pd_http_accept(pd_daemon *daemon, pd_transport *transport, uint64_t origin);
/* Closes connections that are too slow. */
void pd_http_tick(pd_daemon *daemon, uint64_t now_ms);
/* Sends the next parts of answers, and frees closed connections, at the end of a turn of the loop. */
void pd_http_finish_turn(pd_daemon *daemon);
void pd_http_close_all(pd_daemon *daemon);

#endif
