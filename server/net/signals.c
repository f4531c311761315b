/* signals.c - turns SIGTERM, SIGINT and SIGHUP into events of the loop, through a pipe. */
#include "signals.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static int write_end = -1; /* the end of the pipe that the signal handler writes to; a static variable, because a signal
                            * handler gets no argument */

static void note(int number)
{
    char byte = (char)number;
    int before = errno;

    if (write(write_end, &byte, 1) < 0)
        errno = 0; /* the pipe is full, so enough signals wait in it, and this one may be lost */
    errno = before;
}

static void set_action(void (*action)(int))
{
    static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
    struct sigaction how = { .sa_handler = action, .sa_flags = SA_RESTART };

    sigfillset(&how.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) sigaction(numbers[i], &how, NULL);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    pd_signals *signals = poll->data;
    char byte;

    (void)status, (void)events;
    while (read(signals->pipe[0], &byte, 1) == 1) signals->on_signal(signals->arg, byte);
}

int pd_signals_open(pd_signals *out, uv_loop_t *loop, void (*on_signal)(void *arg, int number), void *arg,
                    pd_error *err)
{
    int rc = uv_pipe(out->pipe, UV_NONBLOCK_PIPE, UV_NONBLOCK_PIPE);

    if (rc != 0) return pd_fail(err, PD_UNAVAILABLE, "no pipe for signals: %s", uv_strerror(rc));
    uv_poll_init(loop, &out->poll, out->pipe[0]);
    out->poll.data = out;
    out->on_signal = on_signal;
    out->arg = arg;
    out->open = true;
    write_end = out->pipe[1];
    return PD_OK;
}

void pd_signals_begin(pd_signals *signals)
{
    if (!signals->open) return;
    uv_poll_start(&signals->poll, UV_READABLE, on_readable);
    set_action(note);
}

/* Ignores the signals from now on, but leaves the pipe open, because another thread may still be running the signal
 * handler, which writes to the pipe. */
void pd_signals_end(pd_signals *signals)
{
    if (!signals->open) return;
    set_action(SIG_IGN);
    uv_close((uv_handle_t *)&signals->poll, NULL);
    signals->open = false;
}
