/* listen.h - the listening sockets of the daemon. Loop thread. */
#ifndef PD_LISTEN_H
#define PD_LISTEN_H

#include "uvloop.h"

/* Opens the listening sockets that the settings name. Errors are those of pd_daemon_new. */
int pd_listen(pd_uvloop *loop, pd_error *err);
/* Starts to accept connections. */
void pd_listen_begin(pd_uvloop *loop);
/* Closes the listening sockets. */
void pd_listen_end(pd_uvloop *loop);

#endif
