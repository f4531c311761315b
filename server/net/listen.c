/* listen.c - opens listening sockets, accepts connections, and makes handshakes, connections or HTTP connections of
 * them. */
#define _GNU_SOURCE
#include "uvloop.h"

#include "congestion.h"
#include "loop.h"
#include "reach.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

enum { BACKLOG = 1024, ACCEPTS_A_TURN = 32 };

static int add(pd_uvloop *loop, int fd, const char *path, bool secure, pd_error *err)
{
    pd_listener *listener = &loop->listener[loop->n_listeners];
    const char *congestion = loop->daemon->config.tcp_congestion;
    int rc = congestion != NULL ? pd_congestion_set(fd, congestion, err) : PD_OK;

    if (rc != PD_OK) return rc;
    if (loop->n_listeners == 2 * PD_MAX_LISTENERS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "more than %d addresses to listen on", 2 * PD_MAX_LISTENERS);
    if (uv_poll_init(&loop->uv, &listener->poll, fd) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "socket %d cannot be polled: is it a listening socket?", fd);
    listener->loop = loop;
    listener->poll.data = listener;
    listener->fd = fd;
    listener->secure = secure;
    listener->http = loop->opens_http;
    snprintf(listener->path, sizeof listener->path, "%s", path);
    loop->n_listeners++;
    return PD_OK;
}

static unsigned port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)address)->sin_port);
    return address->ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)address)->sin6_port) : 0;
}

/* Logs the address of a listening socket. Stores the port of the first TCP socket for workers, and for HTTP. */
static void report(pd_uvloop *loop, int fd, const char *path, bool secure)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    const char *what = loop->opens_http ? "listening for HTTP on" : "listening on";
    unsigned *port = loop->opens_http ? &loop->http_port : &loop->port;
    char text[80];

    if (path[0] != '\0') {
        pd_loop_log(loop->daemon, LOG_NOTICE, (pd_log_facts){ 0 }, "%s unix://%s", what, path);
        return;
    }
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0) return;
    pd_reach_text((struct sockaddr *)&address, length, text, sizeof text);
    if (*port == 0) *port = port_of(&address);
    pd_loop_log(loop->daemon, LOG_NOTICE, (pd_log_facts){ 0 }, "%s %s%s", what, secure ? "tls://" : "", text);
}

static int open_tcp(const struct addrinfo *info)
{
    int on = 1, fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (info->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    on = errno;
    close(fd);
    errno = on;
    return -1;
}

/* Adds a listening socket that the daemon has opened. Closes it after an error. */
static int add_opened(pd_uvloop *loop, int fd, const char *path, bool secure, pd_error *err)
{
    int rc = add(loop, fd, path, secure, err);

    if (rc == PD_OK)
        report(loop, fd, path, secure);
    else
        close(fd);
    return rc;
}

static int listen_tcp(pd_uvloop *loop, const struct addrinfo *info, bool secure, pd_error *err)
{
    char text[80];
    int fd, rc;

    if ((fd = open_tcp(info)) < 0) {
        rc = errno;
        pd_reach_text(info->ai_addr, info->ai_addrlen, text, sizeof text);
        return pd_fail(err, PD_UNAVAILABLE, "cannot listen on %s: %s", text, strerror(rc));
    }
    return add_opened(loop, fd, "", secure, err);
}

/* Returns whether a Unix socket at a path refuses connections. Then a server that no longer runs has left it behind,
 * and it may be replaced. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat found;
    int fd, rc;

    if (lstat(address->sun_path, &found) != 0 || !S_ISSOCK(found.st_mode)) return false;
    if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0) return false;
    rc = connect(fd, (const struct sockaddr *)address, sizeof *address);
    rc = rc != 0 && errno == ECONNREFUSED;
    close(fd);
    return rc;
}

static int bind_unix(int fd, const struct sockaddr_un *address)
{
    int rc = bind(fd, (const struct sockaddr *)address, sizeof *address);

    if (rc == 0 || errno != EADDRINUSE || !is_stale(address)) return rc;
    unlink(address->sun_path);
    return bind(fd, (const struct sockaddr *)address, sizeof *address);
}

static int listen_unix(pd_uvloop *loop, const char *path, pd_error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd, rc;

    memcpy(address.sun_path, path, strlen(path) + 1); /* the path fits: the parser of addresses has checked its
                                                       * length */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind_unix(fd, &address) != 0 || listen(fd, BACKLOG) != 0) {
        rc = pd_fail(err, PD_UNAVAILABLE, "cannot listen on unix://%s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return rc;
    }
    return add_opened(loop, fd, path, false, err);
}

/* Returns who may reach the addresses that are being opened. */
static pd_reach reach_of(const pd_daemon_config *config, bool http)
{
    return (pd_reach){ .http = http,
                       .open = config->insecure || (http && config->http_token != NULL),
                       .identifies = !http && config->tls != NULL && pd_tls_identifies(config->tls) };
}

static int listen_address(pd_uvloop *loop, const pd_address *address, pd_error *err)
{
    pd_reach reach = reach_of(&loop->daemon->config, loop->opens_http);
    struct addrinfo *list;
    int rc;

    if (address->local) return listen_unix(loop, address->host, err);
    rc = pd_reach_resolve(&reach, address, &list, err);
    for (struct addrinfo *info = list; info != NULL && rc == PD_OK; info = info->ai_next)
        rc = listen_tcp(loop, info, address->secure, err);
    if (list != NULL) freeaddrinfo(list);
    return rc;
}

static int listen_addresses(pd_uvloop *loop, const char *text, pd_error *err)
{
    pd_address *addresses;
    size_t n;
    int rc = pd_addresses_parse(&addresses, &n, text, PD_TO_LISTEN, err);

    if (rc != PD_OK) return rc;
    for (size_t i = 0; i < n && rc == PD_OK; i++) rc = listen_address(loop, &addresses[i], err);
    free(addresses);
    return rc;
}

/* Checks that the daemon may serve a socket that the service manager has opened: other machines may reach it only under
 * the rules for addresses that the daemon opens itself (reach_of). */
static int check_given(const pd_daemon_config *config, const pd_given_socket *given, const struct sockaddr *address,
                       socklen_t length, pd_error *err)
{
    pd_reach reach = reach_of(config, given->use == PD_SOCKET_HTTP);
    bool secure = given->use == PD_SOCKET_TLS;

    if (secure && address->sa_family == AF_UNIX)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "descriptor %d of LISTEN_FDS is a Unix socket named tls: there is no TLS on Unix sockets, give "
                       "it another FileDescriptorName=",
                       given->fd);
    assert(!secure || config->tls != NULL);
    return pd_reach_check(&reach, address, length, secure, err);
}

static int take_socket(pd_uvloop *loop, const pd_given_socket *given, pd_error *err)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int listens = 0, fd = given->fd, rc;
    socklen_t size = sizeof listens;
    bool secure = given->use == PD_SOCKET_TLS;

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "descriptor %d of LISTEN_FDS is not a listening socket", fd);
    rc = check_given(&loop->daemon->config, given, (struct sockaddr *)&address, length, err);
    if (rc != PD_OK) return rc;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if ((rc = add(loop, fd, "", secure, err)) == PD_OK) report(loop, fd, "", secure);
    return rc;
}

/* Takes over those sockets of the service manager that are for HTTP, or all others. Sets *any to whether there are
 * any. */
static int take_sockets(pd_uvloop *loop, bool http, bool *any, pd_error *err)
{
    const pd_daemon_config *config = &loop->daemon->config;
    int rc = PD_OK;

    *any = false;
    for (size_t i = 0; i < config->n_sockets && rc == PD_OK; i++) {
        if ((config->sockets[i].use == PD_SOCKET_HTTP) != http) continue;
        *any = true;
        rc = take_socket(loop, &config->sockets[i], err);
    }
    return rc;
}

static void open_spare(pd_uvloop *loop)
{
    if (loop->spare_fd < 0) loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int pd_listen_http(pd_uvloop *loop, pd_error *err)
{
    const char *addresses = loop->daemon->config.http_listen;
    bool given;
    int rc;

    open_spare(loop);
    loop->opens_http = true;
    rc = take_sockets(loop, true, &given, err);
    if (rc == PD_OK && !given && addresses != NULL && addresses[0] != '\0') rc = listen_addresses(loop, addresses, err);
    loop->opens_http = false;
    return rc;
}

int pd_listen(pd_uvloop *loop, pd_error *err)
{
    const pd_daemon_config *config = &loop->daemon->config;
    bool given;
    int rc;

    open_spare(loop);
    rc = take_sockets(loop, false, &given, err);
    if (rc == PD_OK && !given && config->listen[0] != '\0') rc = listen_addresses(loop, config->listen, err);
    return rc;
}

static void welcome(const pd_listener *listener, int fd, const struct sockaddr *address, socklen_t length)
{
    pd_uvloop *loop = listener->loop;
    char text[80];

    if (listener->http) {
        if (pd_socket_adopt_http(loop, fd, pd_reach_origin(address)) != PD_OK) close(fd);
        return;
    }
    pd_reach_text(address, length, text, sizeof text);
    if (listener->secure)
        pd_handshake_begin(loop, fd, text);
    else if (pd_socket_adopt(loop, fd, NULL, text) != PD_OK)
        close(fd);
}

/* Refuses a connection when the process has no free file descriptor: closes the spare descriptor, accepts the
 * connection in its place, and closes the connection. So the peer learns that it is refused, and the loop is not woken
 * for it again and again. */
static void turn_away(pd_uvloop *loop, int fd)
{
    int peer;

    pd_loop_log(loop->daemon, LOG_WARNING, (pd_log_facts){ 0 },
                "out of file descriptors: a connection was turned away (ulimit -n, LimitNOFILE)");
    if (loop->spare_fd >= 0) close(loop->spare_fd);
    peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (peer >= 0) close(peer);
    loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (peer >= 0 && loop->spare_fd >= 0) return;
    /* If the connection was not refused, or the spare descriptor cannot be opened again, no connections are accepted
     * until the next tick of the timer. */
    for (int i = 0; i < loop->n_listeners; i++)
        if (loop->listener[i].fd >= 0) uv_poll_stop(&loop->listener[i].poll);
    loop->paused = true;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    pd_listener *listener = poll->data;
    pd_uvloop *loop = listener->loop;
    struct sockaddr_storage address;
    socklen_t length;

    (void)status, (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd;
        length = sizeof address;
        fd = accept4(listener->fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            welcome(listener, fd, (struct sockaddr *)&address, length);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            turn_away(loop, listener->fd);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

void pd_listen_begin(pd_uvloop *loop)
{
    loop->paused = false;
    for (int i = 0; i < loop->n_listeners; i++)
        if (loop->listener[i].fd >= 0 && (loop->listener[i].http || !loop->loads))
            uv_poll_start(&loop->listener[i].poll, UV_READABLE, on_ready);
}

static void end_listener(pd_listener *listener)
{
    if (listener->fd < 0) return;
    uv_poll_stop(&listener->poll);
    uv_close((uv_handle_t *)&listener->poll, NULL);
    /* Removes the path before closing the socket. In the other order, a new daemon might replace the closed socket by
     * its own, and unlink would remove that one. */
    if (listener->path[0] != '\0') unlink(listener->path);
    close(listener->fd);
    listener->fd = -1;
}

void pd_listen_end_workers(pd_uvloop *loop)
{
    for (int i = 0; i < loop->n_listeners; i++)
        if (!loop->listener[i].http) end_listener(&loop->listener[i]);
}

void pd_listen_end(pd_uvloop *loop)
{
    for (int i = 0; i < loop->n_listeners; i++) end_listener(&loop->listener[i]);
    loop->n_listeners = 0;
    if (loop->spare_fd >= 0) close(loop->spare_fd);
    loop->spare_fd = -1;
}
