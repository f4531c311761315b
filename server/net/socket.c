/* socket.c - sends and receives the bytes of a connection over a non-blocking socket, which libuv watches. */
#include "socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "descriptor.h"

typedef struct sock {
    pd_transport transport; /* must be the first member: the address of a transport of this file is cast to a sock */
    uv_poll_t poll;
    int fd;
    int taken, attached; /* descriptors of a Unix socket: the last one that came; the one to send. -1: none */
} sock;

static int broken(pd_error *err)
{
    return pd_fail(err, PD_UNAVAILABLE, "%s", strerror(errno));
}

static bool is_later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

static ssize_t sock_receive(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    const sock *s = (const sock *)transport;
    ssize_t got;

    do got = readv(s->fd, iov, n);
    while (got < 0 && errno == EINTR);
    if (got > 0) return got;
    if (got == 0) return PD_CANCELLED;
    return is_later() ? 0 : broken(err);
}

static ssize_t sock_send(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    const sock *s = (const sock *)transport;
    struct msghdr message = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };
    ssize_t sent;

    do sent = sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) return sent;
    return is_later() ? 0 : broken(err);
}

/* ---- Unix sockets, which pass descriptors ---- */

static ssize_t local_receive(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    sock *s = (sock *)transport;
    ssize_t got;

    do got = pd_descriptor_receive(s->fd, iov, n, &s->taken);
    while (got < 0 && errno == EINTR);
    if (got > 0) return got;
    if (got == 0) return PD_CANCELLED;
    return is_later() ? 0 : broken(err);
}

static ssize_t local_send(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    sock *s = (sock *)transport;
    ssize_t sent;

    do sent = pd_descriptor_send(s->fd, iov, n, &s->attached);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) return sent;
    return is_later() ? 0 : broken(err);
}

static void local_attach(pd_transport *transport, int fd)
{
    pd_descriptor_replace(&((sock *)transport)->attached, fd);
}

static int local_take(pd_transport *transport)
{
    return pd_descriptor_take(&((sock *)transport)->taken);
}

static bool local_is_open(pd_transport *transport)
{
    return pd_descriptor_is_open(((const sock *)transport)->fd);
}

/* Tells the user that the peer's process ran as when it connected. The kernel knows it. */
static void local_identity(const pd_transport *transport, pd_identity *identity)
{
    pd_descriptor_identify(((const sock *)transport)->fd, identity);
}

/* ---- events ---- */

/* Reports the events of a socket to its connection. A socket that fails is reported as gone. After urgent data (TCP's
 * out-of-band byte), which nothing reads, watching the socket stops: otherwise the same data would be reported again
 * and again. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
    sock *s = poll->data;
    unsigned happened = 0;

    if (status >= 0 && (events & UV_PRIORITIZED) != 0) {
        uv_poll_stop(&s->poll);
        return;
    }
    if (status < 0 || (events & UV_DISCONNECT) != 0) happened |= PD_ON_GONE;
    if ((events & UV_READABLE) != 0) happened |= PD_ON_READ;
    if ((events & UV_WRITABLE) != 0) happened |= PD_ON_WRITE;
    s->transport.ready(s->transport.arg, happened);
}

static void sock_watch(pd_transport *transport, unsigned events)
{
    sock *s = (sock *)transport;
    int wanted = 0;

    if ((events & PD_ON_READ) != 0) wanted |= UV_READABLE;
    if ((events & PD_ON_WRITE) != 0) wanted |= UV_WRITABLE;
    if ((events & PD_ON_GONE) != 0) wanted |= UV_DISCONNECT;
    /* Errors are always reported. If nothing else is wanted, libuv still needs an event, so it watches for urgent data,
     * which is rare. */
    if (wanted == 0) wanted = UV_PRIORITIZED;
    uv_poll_start(&s->poll, wanted, on_poll);
}

static void sock_shut(pd_transport *transport)
{
    shutdown(((sock *)transport)->fd, SHUT_WR);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void pd_socket_release(pd_transport *transport)
{
    sock *s = (sock *)transport;

    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, on_closed);
}

static void sock_close(pd_transport *transport)
{
    sock *s = (sock *)transport;

    uv_poll_stop(&s->poll);
    close(s->fd);
    pd_descriptor_replace(&s->taken, -1);
    pd_descriptor_replace(&s->attached, -1);
    uv_close((uv_handle_t *)&s->poll, on_closed);
}

static const pd_transport_ops plain = {
    .receive = sock_receive, .send = sock_send, .watch = sock_watch, .shut = sock_shut, .close = sock_close
};
static const pd_transport_ops local = { .receive = local_receive,
                                        .send = local_send,
                                        .watch = sock_watch,
                                        .shut = sock_shut,
                                        .close = sock_close,
                                        .attach = local_attach,
                                        .take = local_take,
                                        .is_open = local_is_open,
                                        .identity = local_identity };

pd_transport *pd_socket_new(pd_uvloop *loop, int fd)
{
    sock *s = calloc(1, sizeof *s);

    if (s == NULL) return NULL;
    s->transport.ops = pd_descriptor_can_pass(fd) ? &local : &plain;
    s->fd = fd;
    s->taken = s->attached = -1;
    s->poll.data = s;
    if (uv_poll_init(&loop->uv, &s->poll, fd) == 0) return &s->transport;
    free(s);
    return NULL;
}
