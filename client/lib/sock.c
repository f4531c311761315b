/* sock.c - connects sockets that never block, makes the TLS handshake, and uses the sockets as transports. */
#include "sock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "connect.h"
#include "transport.h"

/* Connects to a Unix socket, which never takes long. Returns an errno value. */
static int connect_local(int *out, const pd_address *url)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error;

    if (fd < 0) return errno;
    memcpy(address.sun_path, url->host, strlen(url->host) + 1);
    error = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    if (error != 0)
        close(fd);
    else
        *out = fd;
    return error;
}

int pd_sock_connect(int *fd, const pd_address *url, const struct addrinfo *addresses, int stop_fd, int timeout_ms,
                    pd_error *err)
{
    char text[PD_ADDRESS_TEXT];
    int error = url->local ? connect_local(fd, url) : pd_race_connect(fd, addresses, stop_fd, timeout_ms);

    if (error < 0) return pd_fail(err, PD_CANCELLED, "told to stop");
    if (error == 0) return PD_OK;
    return pd_fail(err, PD_UNAVAILABLE, "%s: %s", pd_address_text(url, text), strerror(error));
}

static ssize_t result(ssize_t n, const char *what, pd_error *err)
{
    if (n >= 0) return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    return pd_fail(err, PD_UNAVAILABLE, "%s: %s", what, strerror(errno));
}

/* A socket as a transport (proto/transport.h). */
typedef struct sock {
    pd_transport base;
    int fd;
    pd_tls_stream *tls;  /* NULL: the bytes are not encrypted */
    int taken, attached; /* descriptor that was received last; descriptor to send next. -1: none */
    unsigned watched;
} sock;

static ssize_t receive(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    ssize_t got = readv(((sock *)transport)->fd, iov, n);

    if (got == 0) return pd_fail(err, PD_CANCELLED, "the server closed the connection");
    return result(got, "receiving", err);
}

static ssize_t send_some(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    struct msghdr message = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };

    return result(sendmsg(((sock *)transport)->fd, &message, MSG_NOSIGNAL), "sending", err);
}

static void watch(pd_transport *transport, unsigned events)
{
    ((sock *)transport)->watched = events;
}

static void gather(pd_transport *transport, size_t bytes)
{
    pd_descriptor_gather(((const sock *)transport)->fd, bytes);
}

static void shut(pd_transport *transport)
{
    shutdown(((sock *)transport)->fd, SHUT_WR);
}

static void close_sock(pd_transport *transport)
{
    sock *s = (sock *)transport;

    pd_tls_stream_free(s->tls);
    close(s->fd);
    pd_descriptor_replace(&s->taken, -1);
    pd_descriptor_replace(&s->attached, -1);
    free(s);
}

static ssize_t receive_local(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    sock *s = (sock *)transport;
    ssize_t got = pd_descriptor_receive(s->fd, iov, n, &s->taken);

    if (got == 0) return pd_fail(err, PD_CANCELLED, "the server closed the connection");
    return result(got, "receiving", err);
}

static ssize_t send_local(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    sock *s = (sock *)transport;

    return result(pd_descriptor_send(s->fd, iov, n, &s->attached), "sending", err);
}

static void attach(pd_transport *transport, int fd)
{
    pd_descriptor_replace(&((sock *)transport)->attached, fd);
}

static int take(pd_transport *transport)
{
    return pd_descriptor_take(&((sock *)transport)->taken);
}

static bool is_open(pd_transport *transport)
{
    return pd_descriptor_is_open(((const sock *)transport)->fd);
}

static ssize_t receive_secure(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    return pd_tls_receive(((sock *)transport)->tls, iov, n, err);
}

static ssize_t send_secure(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    return pd_tls_send(((sock *)transport)->tls, iov, n, err);
}

static void shut_secure(pd_transport *transport)
{
    pd_tls_shut(((sock *)transport)->tls);
}

/* Sends TLS's closing message, if the socket takes it now, and frees the transport. */
static void close_secure(pd_transport *transport)
{
    shut_secure(transport);
    close_sock(transport);
}

static void identify_secure(const pd_transport *transport, pd_identity *identity)
{
    pd_tls_identify(((const sock *)transport)->tls, identity);
}

pd_transport *pd_sock_transport(int fd, pd_tls_stream *tls)
{
    static const pd_transport_ops plain = {
        .receive = receive, .send = send_some, .watch = watch, .gather = gather, .shut = shut, .close = close_sock
    };
    static const pd_transport_ops local = { .receive = receive_local,
                                            .send = send_local,
                                            .watch = watch,
                                            .shut = shut,
                                            .close = close_sock,
                                            .attach = attach,
                                            .take = take,
                                            .is_open = is_open };
    static const pd_transport_ops secure = { .receive = receive_secure,
                                             .send = send_secure,
                                             .watch = watch,
                                             .shut = shut_secure,
                                             .close = close_secure,
                                             .identity = identify_secure };
    sock *new = calloc(1, sizeof *new);

    if (new == NULL) return NULL;
    new->base.ops = tls != NULL ? &secure : pd_descriptor_can_pass(fd) ? &local : &plain;
    new->fd = fd;
    new->tls = tls;
    new->taken = new->attached = -1;
    return &new->base;
}

struct pollfd pd_sock_poll(const pd_transport *transport)
{
    const sock *s = (const sock *)transport;
    unsigned wanted = s->tls != NULL ? pd_tls_events(s->tls, s->watched) : s->watched;
    int events = ((wanted & PD_ON_READ) != 0 ? POLLIN : 0) | ((wanted & PD_ON_WRITE) != 0 ? POLLOUT : 0);

    return (struct pollfd){ .fd = s->fd, .events = (short)events };
}

bool pd_sock_has_more(const pd_transport *transport)
{
    const sock *s = (const sock *)transport;

    return s->tls != NULL && pd_tls_has_more(s->tls);
}

unsigned pd_sock_events(pd_transport *transport, const struct pollfd *polled)
{
    const sock *s = (const sock *)transport;
    unsigned events = 0;

    if ((polled->revents & POLLIN) != 0) events |= PD_ON_READ;
    if ((polled->revents & POLLOUT) != 0) events |= PD_ON_WRITE;
    if ((polled->revents & ~(POLLIN | POLLOUT)) != 0) events |= PD_ON_GONE;
    if ((events & PD_ON_WRITE) != 0 && s->tls != NULL) pd_tls_flush(s->tls);
    return events;
}

enum { CERTIFICATE, KEY, CA, TOKEN, N_PATHS };

pd_tls_files pd_secure_files(const pd_secure *secure)
{
    return (pd_tls_files){ .certificate = secure->paths[CERTIFICATE],
                           .key = secure->paths[KEY],
                           .ca = secure->paths[CA],
                           .tokens = secure->paths[TOKEN] };
}

static int copy_paths(pd_secure *out, const pd_tls_files *files, pd_error *err)
{
    const char *const paths[N_PATHS] = { files->certificate, files->key, files->ca, files->tokens };

    *out = (pd_secure){ .paths = { NULL } };
    for (int i = 0; i < N_PATHS; i++)
        if (paths[i] != NULL && (out->paths[i] = strdup(paths[i])) == NULL) {
            pd_secure_close(out);
            return pd_fail(err, PD_NO_MEMORY, "out of memory");
        }
    return PD_OK;
}

static int check_files(const pd_secure *secure, pd_error *err)
{
    pd_tls_files files = pd_secure_files(secure);
    pd_tls_context *context;
    int rc = pd_tls_client(&context, &files, err);

    if (rc == PD_OK) pd_tls_unref(context);
    return rc;
}

int pd_secure_open(pd_secure *out, const pd_tls_files *files, const pd_address *urls, size_t n, pd_error *err)
{
    bool secure = false;
    int rc = copy_paths(out, files, err);

    for (size_t i = 0; i < n; i++) secure |= urls[i].secure;
    return rc == PD_OK && secure ? check_files(out, err) : rc;
}

void pd_secure_close(pd_secure *secure)
{
    for (int i = 0; i < N_PATHS; i++) free(secure->paths[i]);
    *secure = (pd_secure){ .paths = { NULL } };
}

/* Waits until the socket has `events`, which the next step of the TLS handshake needs. */
static int await(int fd, short events, int stop_fd, int64_t deadline, pd_error *err)
{
    struct pollfd wait[2] = { { .fd = fd, .events = events }, { .fd = stop_fd, .events = POLLIN } };
    int64_t left;
    int n;

    do {
        left = deadline - pd_clock_ms();
        n = poll(wait, 2, left > 0 ? (int)left : 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return pd_fail(err, PD_UNAVAILABLE, "waiting for the handshake: %s", strerror(errno));
    if (wait[1].revents != 0) return pd_fail(err, PD_CANCELLED, "told to stop");
    if (n == 0) return pd_fail(err, PD_DEADLINE_EXCEEDED, "TLS handshake timeout: is a daemon listening there?");
    return PD_OK;
}

static int shake_hands(pd_tls_stream *stream, int fd, int stop_fd, int timeout_ms, pd_error *err)
{
    int64_t deadline = pd_clock_ms() + timeout_ms;
    int rc = PD_OK;

    while (rc == PD_OK) {
        pd_tls_step step = pd_tls_handshake(stream, err);
        if (step == PD_TLS_DONE) return PD_OK;
        if (step == PD_TLS_FAILED) return err->code;
        rc = await(fd, step == PD_TLS_READ ? POLLIN : POLLOUT, stop_fd, deadline, err);
    }
    return rc;
}

int pd_secure_connect(const pd_secure *secure, pd_tls_stream **out, int fd, const char *host, int stop_fd,
                      int timeout_ms, pd_error *err)
{
    pd_tls_files files = pd_secure_files(secure);
    pd_tls_context *context;
    int rc = pd_tls_client(&context, &files, err);

    if (rc != PD_OK) return rc;
    rc = pd_tls_stream_new(out, context, fd, host, err);
    pd_tls_unref(context); /* the stream has its own reference */
    if (rc != PD_OK) return rc;
    if ((rc = shake_hands(*out, fd, stop_fd, timeout_ms, err)) != PD_OK) pd_tls_stream_free(*out);
    return rc;
}
