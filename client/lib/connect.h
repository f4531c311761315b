/* connect.h - looks up names of hosts, and connects to the address that answers first.
 *
 * The system's resolver (getaddrinfo) may block for long: with dead name servers for 40 s. So each lookup has a thread,
 * and a caller that waits for the lookup can abandon it. Callers that look up the same host and port at the same time
 * share one lookup, even for several handles. A numeric address needs no thread. */
#ifndef PD_CONNECT_H
#define PD_CONNECT_H

#include <stdint.h>

#include "address.h"

/* Return the time of the monotonic clock: in nanoseconds, milliseconds, seconds. */
uint64_t pd_clock_now_ns(void);
static inline int64_t pd_clock_ms(void)
{
    return (int64_t)(pd_clock_now_ns() / 1000000);
}
static inline double pd_clock_seconds(void)
{
    return (double)pd_clock_now_ns() * 1e-9;
}

struct addrinfo;

typedef struct pd_lookup pd_lookup;

/* Starts to look up the host of an address that is not a Unix socket, or joins a lookup that is under way. The caller
 * frees *out with pd_lookup_leave. PD_NO_MEMORY. PD_RESOURCE_EXHAUSTED: the process looks up too many other names, or
 * the system gives no thread. */
int pd_lookup_start(pd_lookup **out, const pd_address *url, pd_error *err);
/* Waits at most `timeout_ms` for the addresses of the host, which stay valid until pd_lookup_leave. PD_CANCELLED:
 * `stop_fd` became readable. PD_DEADLINE_EXCEEDED: the name servers have not answered yet; the caller may wait again.
 * PD_UNAVAILABLE: the lookup has failed; the error is the resolver's. */
int pd_lookup_wait(pd_lookup *lookup, const struct addrinfo **out, int stop_fd, int timeout_ms, pd_error *err);
/* Frees the caller's share of a lookup, which may be under way. Accepts NULL. */
void pd_lookup_leave(pd_lookup *lookup);

/* Tries to connect to the first eight of the addresses, in their order. It begins with the next address when all
 * attempts before it have failed, or after a quarter of a second. So an address that does not answer costs no more
 * time.
 *
 * Sets *fd to a connected socket that does not block and sends without delay (TCP_NODELAY), and returns 0. Returns an
 * errno value on failure: of the last attempt, or ETIMEDOUT if no address has answered `timeout_ms` after the last
 * attempt began. Returns -1 if `stop_fd` became readable. */
int pd_race_connect(int *fd, const struct addrinfo *addresses, int stop_fd, int timeout_ms);

#endif
