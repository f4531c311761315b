/* proxy.h - a TCP proxy for tests that cuts connections after a number of bytes, throws answers away, or delays
 * bytes. It has a thread of its own, and forwards every connection made to its port to the server. */
#ifndef PROXY_H
#define PROXY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct proxy proxy;

/* Starts a proxy. Fails the test if it cannot be started. proxy_stop stops and frees it. */
proxy *proxy_start(int server_port);
void proxy_stop(proxy *p);
int proxy_port(const proxy *p);

/* Change the proxy's behaviour from now on. A test may call them at any time. */
void proxy_cut_after(proxy *p, size_t to_server,
                     size_t to_client);     /* cuts each connection after this many bytes in a direction; 0: no limit */
void proxy_swallow(proxy *p, bool answers); /* reads the server's answers and throws them away */
void proxy_delay(proxy *p, double seconds); /* forwards bytes `seconds` after they were read */
/* Forwards `fast` more bytes to the server, or to the client, and then `bytes` bytes of this direction every 10 ms; 0:
 * none. It does so until proxy_hurry. */
void proxy_slow_after(proxy *p, bool to_client, size_t fast, size_t bytes);
void proxy_hurry(proxy *p);
/* Waits until a number of bytes were forwarded slowly. Returns false if this takes longer than `seconds`. */
bool proxy_await_slow(proxy *p, size_t bytes, double seconds);
/* Returns how many bytes were forwarded to the server, or to the client, so far. */
size_t proxy_forwarded(proxy *p, bool to_client);
void proxy_cut_now(proxy *p); /* cuts all connections */
/* Makes the proxy forward nothing and accept no connection, as a dead link would, until `stalls` is false. */
void proxy_stall(proxy *p, bool stalls);
int proxy_connections(proxy *p); /* returns the number of connections made so far */
/* Records the bytes that are forwarded from now on, up to 4 MiB. Called once. */
void proxy_record(proxy *p);
/* Returns whether the recorded bytes of one direction have these bytes somewhere. */
bool proxy_recorded(proxy *p, const void *bytes, size_t n);
/* Waits until `bytes` bytes of answers have been thrown away since proxy_swallow(p, true). Returns false if this
 * takes longer than `seconds`. */
bool proxy_await_swallowed(proxy *p, size_t bytes, double seconds);

#endif
