/* signals.h - SIGTERM and SIGINT as events of the loop. Loop thread; once in a process.
 *
 * uv_signal_t is not used: when that closes, libuv restores the signal's default action, so a second SIGTERM would kill
 * a process that is just ending. */
#ifndef PD_SIGNALS_H
#define PD_SIGNALS_H

#include "paramd/error.h"

#include <stdbool.h>
#include <uv.h>

typedef struct pd_signals {
    uv_poll_t poll;
    int       pipe[2];                          /* the handler writes a signal's number, the loop reads it */
    bool      open;
    void    (*on_signal)(void *arg, int number);
    void     *arg;
} pd_signals;

/* Opens the pipe from the signal handler to the loop. `out` is zeroed memory. PD_UNAVAILABLE: the process has no
 * descriptors left; nothing has changed. */
int  pd_signals_open(pd_signals *out, uv_loop_t *loop, void (*on_signal)(void *arg, int number), void *arg,
                     pd_error *err);
/* Calls on_signal for each signal from now on. Does nothing if `signals` is not open. */
void pd_signals_begin(pd_signals *signals);
/* Ignores both signals for the rest of the process's life. Called before the loop's last turn. Does nothing if
 * `signals` is not open. */
void pd_signals_end(pd_signals *signals);

#endif
