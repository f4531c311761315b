/* socket.c - sends and receives the bytes of a connection over a non-blocking socket, which libuv watches. */
#include "uvloop.h"

#include "congestion.h"
#include "http.h"
#include "loop.h"
#include "mover.h"
#include "transport.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEAST_WAITING = 64 * 1024 }; /* fewest bytes in a socket for which a mover is asked to receive */

typedef struct sock {
    pd_transport transport; /* must be the first member: the address of a transport is cast to a sock */
    uv_poll_t poll;
    uv_idle_t idle; /* with TLS: calls back as long as decrypted bytes wait to be received */
    bool has_idle;  /* `idle` exists */
    pd_uvloop *loop;
    int uses;           /* number of libuv's handles that are not closed yet, and of passes of movers under way */
    int passes_out;     /* number of passes under way */
    unsigned lent;      /* directions that are lent to movers */
    size_t held;        /* while a stream is lent: bytes of memory that it had before */
    bool passes;        /* the socket is a Unix socket, which passes file descriptors */
    bool closed;        /* the connection has closed the transport, which is freed when nothing uses it any more */
    unsigned events;    /* events that the connection waits for */
    pd_tls_stream *tls; /* NULL: the bytes are not encrypted */
    int fd;
    int taken, attached; /* file descriptors that a Unix socket passes. taken: the last received one. attached: the next
                          * one to send. -1: none */
} sock;

/* Returns the result of a call that moved no bytes: 0 if the socket is not ready, PD_UNAVAILABLE if it is broken. */
static ssize_t nothing_moved(pd_error *err)
{
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : pd_fail(err, PD_UNAVAILABLE, "%s", strerror(errno));
}

static ssize_t sock_receive(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    sock *s = (sock *)transport;
    ssize_t got;

    do got = s->passes ? pd_descriptor_receive(s->fd, iov, n, &s->taken) : readv(s->fd, iov, n);
    while (got < 0 && errno == EINTR);
    if (got > 0) return got;
    return got == 0 ? PD_CANCELLED : nothing_moved(err);
}

static ssize_t sock_send(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    sock *s = (sock *)transport;
    struct msghdr message = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };
    ssize_t sent;

    do
        sent = s->passes ? pd_descriptor_send(s->fd, iov, n, &s->attached)
                         : sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent >= 0 ? sent : nothing_moved(err);
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

/* Sets the identity to the user as whom the peer's process ran when it connected, which the kernel knows. */
static void local_identity(const pd_transport *transport, pd_identity *identity)
{
    pd_descriptor_identify(((const sock *)transport)->fd, identity);
}

static void settle(sock *s);

/* Reports events to the connection, which may close the transport in the callback. */
static void report(sock *s, unsigned happened)
{
    if (happened != 0) s->transport.ready(s->transport.arg, happened);
    if (s->tls != NULL && !s->closed) settle(s);
}

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
    if (s->tls != NULL) {
        if ((happened & PD_ON_WRITE) != 0) pd_tls_flush(s->tls);
        happened &= s->events | PD_ON_READ | PD_ON_GONE;
    }
    report(s, happened);
}

/* Makes libuv report these events, but those of directions that are lent. */
static void poll_for(sock *s, unsigned events)
{
    int wanted = 0;

    events &= ~s->lent;
    if ((events & PD_ON_READ) != 0) wanted |= UV_READABLE;
    if ((events & PD_ON_WRITE) != 0) wanted |= UV_WRITABLE;
    if ((events & PD_ON_GONE) != 0) wanted |= UV_DISCONNECT;
    /* Errors are always reported. If nothing else is wanted, libuv still needs an event, so it watches for urgent data,
     * which is rare. */
    if (wanted == 0) wanted = UV_PRIORITIZED;
    uv_poll_start(&s->poll, wanted, on_poll);
}

static void sock_watch(pd_transport *transport, unsigned events)
{
    ((sock *)transport)->events = events;
    poll_for((sock *)transport, events);
}

static void sock_gather(pd_transport *transport, size_t bytes)
{
    pd_descriptor_gather(((const sock *)transport)->fd, bytes);
}

static void sock_shut(pd_transport *transport)
{
    shutdown(((sock *)transport)->fd, SHUT_WR);
}

static void drop_use(sock *s)
{
    if (--s->uses > 0) return;
    pd_tls_stream_free(s->tls);
    free(s);
}

static void on_closed(uv_handle_t *handle)
{
    drop_use(handle->data);
}

static void close_handles(sock *s)
{
    s->closed = true;
    uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, on_closed);
    if (s->has_idle) uv_close((uv_handle_t *)&s->idle, on_closed);
}

/* While a mover uses the socket, it is only shut: its number must not become that of another file. */
static void sock_close(pd_transport *transport)
{
    sock *s = (sock *)transport;

    close_handles(s);
    if (s->passes_out > 0)
        shutdown(s->fd, SHUT_RDWR);
    else
        close(s->fd);
    pd_descriptor_replace(&s->taken, -1);
    pd_descriptor_replace(&s->attached, -1);
}

static void on_idle(uv_idle_t *idle)
{
    report(idle->data, PD_ON_READ);
}

/* Makes libuv report the events that the connection waits for, and those that TLS needs to send its own bytes. If
 * decrypted bytes wait to be received, keeps the loop from sleeping. While the stream is lent, reports nothing. */
static void settle(sock *s)
{
    if (s->lent != 0) {
        uv_poll_stop(&s->poll);
        uv_idle_stop(&s->idle);
        return;
    }
    poll_for(s, pd_tls_events(s->tls, s->events));
    if ((s->events & PD_ON_READ) != 0 && pd_tls_has_more(s->tls))
        uv_idle_start(&s->idle, on_idle);
    else
        uv_idle_stop(&s->idle);
}

static ssize_t secure_receive(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    return pd_tls_receive(((sock *)transport)->tls, iov, n, err);
}

static ssize_t secure_send(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    sock *s = (sock *)transport;
    ssize_t sent = pd_tls_send(s->tls, iov, n, err);

    if (pd_tls_owes(s->tls)) settle(s);
    return sent;
}

static void secure_watch(pd_transport *transport, unsigned events)
{
    ((sock *)transport)->events = events;
    settle((sock *)transport);
}

static void secure_shut(pd_transport *transport)
{
    sock *s = (sock *)transport;

    pd_tls_shut(s->tls);
    settle(s); /* the message that ends TLS may have to wait until the socket takes it */
}

/* A lent stream counts as one that owes bytes: who waits for them asks again when it is back. */
static bool secure_owes(const pd_transport *transport)
{
    const sock *s = (const sock *)transport;

    return s->lent != 0 || pd_tls_owes(s->tls);
}

static size_t secure_held(const pd_transport *transport)
{
    const sock *s = (const sock *)transport;

    return s->lent != 0 ? s->held : pd_tls_held(s->tls);
}

static void secure_identity(const pd_transport *transport, pd_identity *identity)
{
    pd_tls_identify(((const sock *)transport)->tls, identity);
}

/* A pass of a mover over one direction of a socket. */
typedef struct pass {
    pd_mover_job job; /* must be the first member: the address of a job is cast to its pass */
    sock *s;
    unsigned lent; /* set of PD_ON_READ and PD_ON_WRITE: the directions that the mover has until the pass ends */
    pd_moved moved;
    int next, n; /* iov[next..n) are left to receive into, or to send */
    struct iovec iov[];
} pass;

/* Takes `bytes` moved bytes out of the spans that are left. */
static void advance(pass *p, size_t bytes)
{
    p->moved.bytes += bytes;
    while (p->next < p->n && bytes >= p->iov[p->next].iov_len) bytes -= p->iov[p->next++].iov_len;
    if (bytes == 0) return;
    p->iov[p->next].iov_base = (char *)p->iov[p->next].iov_base + bytes;
    p->iov[p->next].iov_len -= bytes;
}

/* Moves as many bytes as the socket has, or takes. Runs on a mover. */
static void run_pass(pd_mover_job *job)
{
    pass *p = (pass *)(void *)job;
    pd_transport *transport = &p->s->transport;
    pd_tls_stream *tls = p->s->tls;
    bool in = p->moved.direction == PD_ON_READ;
    ssize_t n = 1;

    while (n > 0 && p->next < p->n) {
        const struct iovec *iov = p->iov + p->next;
        int spans = p->n - p->next;
        if (tls != NULL)
            n = in ? pd_tls_receive(tls, iov, spans, &p->moved.err) : pd_tls_send(tls, iov, spans, &p->moved.err);
        else
            n = in ? sock_receive(transport, iov, spans, &p->moved.err)
                   : sock_send(transport, iov, spans, &p->moved.err);
        if (n > 0) advance(p, (size_t)n);
    }
    if (n < 0) p->moved.end = n;
}

/* Gives the direction of a pass back to the connection, which may close the transport in the callback. */
static void end_pass(pd_mover_job *job)
{
    pass *p = (pass *)(void *)job;
    sock *s = p->s;
    bool was_closed = s->closed;

    s->lent &= ~p->lent;
    s->passes_out--;
    if (s->tls != NULL) pd_tls_join(s->tls);
    s->transport.moved(s->transport.arg, &p->moved);
    if (was_closed && s->passes_out == 0) close(s->fd);
    if (!s->closed && s->tls != NULL) settle(s);
    if (!s->closed && s->tls == NULL) poll_for(s, s->events);
    free(p);
    drop_use(s);
}

/* Returns whether enough bytes wait in the socket that a mover is worth its message. */
static bool has_many(const sock *s)
{
    int bytes = 0;

    return ioctl(s->fd, FIONREAD, &bytes) == 0 && bytes >= LEAST_WAITING;
}

static unsigned sock_lend(pd_transport *transport, unsigned direction, const struct iovec *iov, int n)
{
    sock *s = (sock *)transport;
    pass *p;

    if (s->loop->movers == NULL || (direction == PD_ON_READ && !has_many(s))) return 0;
    if ((p = calloc(1, sizeof *p + (size_t)n * sizeof iov[0])) == NULL) return 0;
    p->job = (pd_mover_job){ .run = run_pass, .done = end_pass };
    p->s = s;
    p->lent = s->tls != NULL ? PD_ON_READ | PD_ON_WRITE : direction;
    p->moved.direction = direction;
    p->n = n;
    memcpy(p->iov, iov, (size_t)n * sizeof iov[0]);
    if (s->tls != NULL) {
        s->held = pd_tls_held(s->tls);
        pd_tls_part(s->tls);
    }
    s->lent |= p->lent;
    s->passes_out++;
    s->uses++;
    if (s->tls != NULL)
        settle(s);
    else
        poll_for(s, s->events);
    pd_movers_post(s->loop->movers, &p->job);
    return p->lent;
}

static const pd_transport_ops plain = { .receive = sock_receive,
                                        .send = sock_send,
                                        .watch = sock_watch,
                                        .gather = sock_gather,
                                        .shut = sock_shut,
                                        .close = sock_close,
                                        .lend = sock_lend };
static const pd_transport_ops local = { .receive = sock_receive,
                                        .send = sock_send,
                                        .watch = sock_watch,
                                        .shut = sock_shut,
                                        .close = sock_close,
                                        .attach = local_attach,
                                        .take = local_take,
                                        .is_open = local_is_open,
                                        .identity = local_identity };

static const pd_transport_ops secure = { .receive = secure_receive,
                                         .send = secure_send,
                                         .watch = secure_watch,
                                         .shut = secure_shut,
                                         .close = sock_close,
                                         .owes = secure_owes,
                                         .held = secure_held,
                                         .identity = secure_identity,
                                         .lend = sock_lend };

/* Sets the options of a TCP socket. For tls:// addresses this happens after the handshake, so that handshakes that
 * never complete cost less. */
static void tune(int fd, const pd_daemon_config *config)
{
    int on = 1, idle = (int)(config->times.silence_ms / 1000) + 1, unsent = (int)config->times.write_ms;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent, sizeof unsent);
}

/* Makes a transport over a socket, with TLS unless `tls` is NULL. Returns NULL if out of memory or `fd` is not a
 * socket. */
static sock *make(pd_uvloop *loop, int fd, pd_tls_stream *tls)
{
    sock *s = calloc(1, sizeof *s);

    if (s == NULL) return NULL;
    s->passes = tls == NULL && pd_descriptor_can_pass(fd);
    s->transport.ops = tls != NULL ? &secure : s->passes ? &local : &plain;
    s->tls = tls;
    s->loop = loop;
    s->fd = fd;
    s->taken = s->attached = -1;
    if (!s->passes) tune(fd, &loop->daemon->config);
    if (tls == NULL) pd_congestion_local(fd, loop->daemon->config.tcp_congestion);
    s->poll.data = s->idle.data = s;
    if (uv_poll_init(&loop->uv, &s->poll, fd) != 0) {
        free(s);
        return NULL;
    }
    s->has_idle = tls != NULL;
    s->uses = s->has_idle ? 2 : 1;
    if (s->has_idle) uv_idle_init(&loop->uv, &s->idle);
    return s;
}

/* Frees a transport that no connection has used, but not its socket and stream, which the caller owns again. Returns
 * PD_NO_MEMORY. */
static int give_back(sock *s)
{
    s->tls = NULL;
    close_handles(s);
    return PD_NO_MEMORY;
}

int pd_socket_adopt(pd_uvloop *loop, int fd, pd_tls_stream *tls, const char *peer)
{
    sock *s = make(loop, fd, tls);

    if (s == NULL) return PD_NO_MEMORY;
    return pd_conversation_accept(loop->daemon, &s->transport, peer) == PD_OK ? PD_OK : give_back(s);
}

int pd_socket_adopt_http(pd_uvloop *loop, int fd, uint64_t origin)
{
    sock *s = make(loop, fd, NULL);

    if (s == NULL) return PD_NO_MEMORY;
    return pd_http_accept(loop->daemon, &s->transport, origin) == PD_OK ? PD_OK : give_back(s);
}

pd_transport *pd_socket_new(pd_uvloop *loop, int fd)
{
    sock *s = make(loop, fd, NULL);

    return s != NULL ? &s->transport : NULL;
}
