/* listen.h - the listening sockets of the daemon. Loop thread. */
#ifndef PD_LISTEN_H
#define PD_LISTEN_H

#include "uvloop.h"

/* Opens the listening sockets that the settings name, or takes those that the service manager has opened. Errors are
 * those of pd_daemon_listen. */
int pd_listen(pd_uvloop *loop, pd_error *err);
/* Opens the HTTP listener that the settings name, if any, or takes the service manager's sockets for it. Errors are
 * those of pd_daemon_listen. */
int pd_listen_http(pd_uvloop *loop, pd_error *err);
/* Starts to accept connections; while jobs are loaded, only those for HTTP. Call it again when they are loaded. */
void pd_listen_begin(pd_uvloop *loop);
/* Closes the listening sockets for workers and operators. The HTTP listener stays: a daemon that drains says so. */
void pd_listen_end_workers(pd_uvloop *loop);
/* Closes all listening sockets. */
void pd_listen_end(pd_uvloop *loop);

#endif
