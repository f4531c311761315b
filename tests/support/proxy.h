/* proxy.h - a TCP proxy that misbehaves on request: cuts connections after so many bytes, swallows answers, delays.
 * Has a thread of its own; forwards every connection made to `port` to the server behind it. */
#ifndef PROXY_H
#define PROXY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct proxy proxy;

/* Fails the test if it cannot be started. Stopped by proxy_stop, which frees it. */
proxy *proxy_start(int server_port);
void   proxy_stop(proxy *p);
int    proxy_port(const proxy *p);

/* These hold from now on; each may be set at any time. */
void   proxy_cut_after(proxy *p, size_t to_server, size_t to_client);   /* bytes of one connection in each direction; 0: never */
void   proxy_swallow(proxy *p, bool answers);                           /* what the server says is read and thrown away */
void   proxy_delay(proxy *p, double seconds);                           /* every read is passed on so much later */
void   proxy_cut_now(proxy *p);                                         /* all connections */
int    proxy_connections(proxy *p);                                     /* made so far */
/* Waits until so many bytes of answers are thrown away since proxy_swallow(p, true). False: not within the time. */
bool   proxy_await_swallowed(proxy *p, size_t bytes, double seconds);

#endif
