/* congestion.h - chooses the algorithm by which TCP adapts to the rate of a link (congestion control). */
#ifndef PD_CONGESTION_H
#define PD_CONGESTION_H

#include "paramd/error.h"

/* Makes a TCP socket use an algorithm, such as "bbr". Connections that a listening socket accepts inherit it. Does
 * nothing if `name` is "", or if the socket is not one of TCP. PD_INVALID_ARGUMENT: the kernel does not have the
 * algorithm, or does not allow it to this process; the error names those that it allows. */
int pd_congestion_set(int fd, const char *name, pd_error *err);
/* Prepares a connected TCP socket whose peer is on this machine, which its address tells: it is also the socket's own.
 * Bounds the bytes under way, so that they are still in the CPU's cache when the peer receives them. If `chosen`, the
 * name given to pd_congestion_set, is NULL or "", makes the socket use "reno", since there is no link whose rate an
 * algorithm must find, and BBR would set a timer for every 64 KiB. Leaves all other sockets as they are. Not for TLS:
 * its two ends need longer for their bytes, and a longer queue between them lets both go on. */
void pd_congestion_local(int fd, const char *chosen);
/* Checks by a socket of its own that pd_congestion_set would succeed. */
int pd_congestion_check(const char *name, pd_error *err);

#endif
