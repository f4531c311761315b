/* child.h - a daemon that a program starts for itself and stops again. */
#ifndef PD_CHILD_H
#define PD_CHILD_H

#include <sys/types.h>

#include "paramd/error.h"

typedef struct pd_child {
    pid_t pid;
    int log;                    /* an unnamed file with the daemon's output */
    char url[64];               /* where it listens: on a port of the loopback interface */
    char local[80];             /* and on a Unix socket */
    char secure[64], token[80]; /* and on TLS, for clients with the token in this file; "": it does not */
    char folder[64];
} pd_child;

/* Starts the `paramd` in this program's folder, on a free port of the loopback interface and on a Unix socket in a new
 * folder, with its default configuration otherwise. Waits until the daemon listens. The daemon ends with its parent at
 * the latest. Forks, so it must be called before any thread is started. PD_UNAVAILABLE: there is no such program, or it
 * ended; the error has the last lines of its output. PD_DEADLINE_EXCEEDED: it does not listen within 20 seconds. */
int pd_child_start(pd_child *out, pd_error *err);
/* Works as pd_child_start. The daemon listens on TLS, too, with a new token. */
int pd_child_start_secure(pd_child *out, pd_error *err);
/* Ends the daemon by SIGTERM, and after 10 seconds by SIGKILL. Does nothing if it is not running. */
void pd_child_stop(pd_child *child);

#endif
