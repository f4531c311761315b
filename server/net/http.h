/* http.h - connections of the HTTP listener: each reads one request, gets one answer, and is closed. Loop thread.
 *
 * Their number, memory and time are bounded: at most PD_HTTP_MOST at a time, PD_HTTP_MS for a request and for each
 * piece of an answer, PD_HTTP_WHOLE_MS for everything. They travel over a pd_transport, as the connections of workers
 * do. */
#ifndef PD_HTTP_H
#define PD_HTTP_H

#include "daemon_config.h"
#include "transport.h"

#define PD_HTTP_MOST 64
#define PD_HTTP_MS 5000u
#define PD_HTTP_WHOLE_MS 60000u

/* Adds a connection whose bytes travel over this transport. If there are PD_HTTP_MOST already, the peer gets an error
 * and the connection ends. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED (twice as many): the transport is still the caller's. */
int pd_http_accept(pd_daemon *daemon, pd_transport *transport);
/* Closes connections that are too slow. */
void pd_http_tick(pd_daemon *daemon, uint64_t now_ms);
/* Frees closed connections, at the end of a turn of the loop. */
void pd_http_free_closed(pd_daemon *daemon);
void pd_http_close_all(pd_daemon *daemon);

#endif
