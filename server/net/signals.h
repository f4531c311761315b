/* signals.h - turns SIGTERM, SIGINT and SIGHUP into events of the loop. Loop thread; at most once in a process.
 *
 * This module does not use libuv's uv_signal_t. When a uv_signal_t closes, libuv restores the signal's default
 * action, so a second SIGTERM would kill a process that is about to end. */
#ifndef PD_SIGNALS_H
#define PD_SIGNALS_H

#include "paramd/error.h"

#include <stdbool.h>
#include <uv.h>

typedef struct pd_signals {
    uv_poll_t poll;
    int pipe[2]; /* the signal handler writes the number of each signal into it, and the loop reads them */
    bool open;
    void (*on_signal)(void *arg, int number);
    void *arg;
} pd_signals;

/* Opens the pipe from the signal handler to the loop. `out` must be zeroed memory. PD_UNAVAILABLE: the process has
 * no free file descriptors; nothing has changed. */
int pd_signals_open(pd_signals *out, uv_loop_t *loop, void (*on_signal)(void *arg, int number), void *arg,
                    pd_error *err);
/* Starts to call on_signal on the loop thread for each of the three signals. Does nothing if pd_signals_open has not
 * succeeded. */
void pd_signals_begin(pd_signals *signals);
/* Ignores the three signals for the rest of the process's life. Called before the loop's last turn. Does nothing if
 * pd_signals_open has not succeeded. */
void pd_signals_end(pd_signals *signals);

#endif
