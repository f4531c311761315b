/* hostile_daemon.h - starts a daemon for the figures about attacks of tests/hostile. */
#ifndef PD_HOSTILE_DAEMON_H
#define PD_HOSTILE_DAEMON_H

#include "bench.h"
#include "duel.h"

/* Starts a daemon with roles, a state directory in `folder`, and HTTP. */
void hostile_start(pd_child *child, duel_daemon *out, const char *folder, bool read_only);

#endif
