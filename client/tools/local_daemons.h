/* local_daemons.h - finds this user's local daemons, which Python programs have started (client/python/LOCAL.md), by
 * the sockets on which they listen. */
#ifndef PD_LOCAL_DAEMONS_H
#define PD_LOCAL_DAEMONS_H

#include <stddef.h>
#include <sys/types.h>

#include "paramd/error.h"

/* A local daemon that runs. */
typedef struct pd_local_daemon {
    char name[64];  /* name of its files: the run's name and a hash */
    char base[108]; /* path of its files without their ending: .sock, .http, .log */
    pid_t pid;      /* its process */
} pd_local_daemon;

/* Lists the local daemons that listen, by name. The caller frees *out. PD_NO_MEMORY. */
int pd_local_daemons(pd_local_daemon **out, size_t *n, pd_error *err);
/* Finds the one local daemon whose name is `name`, or `name` and a hash; with a `name` of NULL, the only one that runs.
 * PD_NOT_FOUND: there is none. PD_INVALID_ARGUMENT: there are several; the error lists names. PD_NO_MEMORY. */
int pd_local_daemon_find(pd_local_daemon *out, const char *name, pd_error *err);
/* Connects to the Unix socket whose path is a local daemon's `base` followed by `ending`. Returns the descriptor; -1:
 * no process listens there, see errno. */
int pd_local_connect(const char *base, const char *ending);

#endif
