/* congestion.h - chooses the algorithm by which TCP adapts to the rate of a link (congestion control). */
#ifndef PD_CONGESTION_H
#define PD_CONGESTION_H

#include "paramd/error.h"

/* Makes a TCP socket use an algorithm, such as "bbr". Connections that a listening socket accepts inherit it. Does
 * nothing if `name` is "", or if the socket is not one of TCP. PD_INVALID_ARGUMENT: the kernel does not have the
 * algorithm, or does not allow it to this process; the error names those that it allows. */
int pd_congestion_set(int fd, const char *name, pd_error *err);
/* Checks by a socket of its own that pd_congestion_set would succeed. */
int pd_congestion_check(const char *name, pd_error *err);

#endif
