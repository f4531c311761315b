/* input.c - ends the daemon when its standard input ends: the process that has started the daemon holds the other end,
 * and the system closes it however that process ends. */
#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads a part of the input and throws it away. Once a read gives no bytes, the input has ended: ends the daemon. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    pd_uvloop *loop = poll->data;
    char bin[256];
    ssize_t n;

    (void)status, (void)events;
    n = read(STDIN_FILENO, bin, sizeof bin);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    uv_poll_stop(poll);
    pd_conversation_end(loop->daemon, "the standard input has ended (server.input_exit)");
}

int pd_input_watch(pd_uvloop *loop, pd_error *err)
{
    struct stat found;

    if (!pd_conversation_settings(loop->daemon)->ends_with_input) return PD_OK;
    if (fstat(STDIN_FILENO, &found) != 0 || !(S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode)) ||
        uv_poll_init(&loop->uv, &loop->input, STDIN_FILENO) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "server.input_exit: expected a pipe or a socket as standard input, whose end can be seen");
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    loop->input.data = loop;
    loop->watches_input = true;
    uv_poll_start(&loop->input, UV_READABLE, on_readable);
    return PD_OK;
}

void pd_input_end(pd_uvloop *loop)
{
    if (loop->watches_input) uv_close((uv_handle_t *)&loop->input, NULL);
    loop->watches_input = false;
}
