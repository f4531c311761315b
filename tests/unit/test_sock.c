/* Tests addresses of the client library. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "test.h"
#include "connect.h"
#include "sock.h"

WITH_THREADS();

static pd_address one(const char *text)
{
    pd_address *urls, url;
    size_t n;
    pd_error err = { 0 };

    if (pd_addresses_parse(&urls, &n, text, PD_TO_CONNECT, &err) != PD_OK) fail_msg("%s: %s", text, err.text);
    assert_int_equal(n, 1);
    url = urls[0];
    free(urls);
    return url;
}

/* Returns a socket that listens on a free port of the loopback address of `family`. */
static int listen_on(int family, int *port)
{
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr *address = family == AF_INET6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t size = family == AF_INET6 ? sizeof six : sizeof four;
    int fd = socket(family, SOCK_STREAM, 0);

    if (bind(fd, address, size) != 0) {
        close(fd);
        return -1;
    }
    assert_int_equal(listen(fd, 4), 0);
    getsockname(fd, address, &size);
    *port = ntohs(family == AF_INET6 ? six.sin6_port : four.sin_port);
    return fd;
}

static int connect_to(const char *text, int *fd, pd_error *err)
{
    pd_address url = one(text);
    const struct addrinfo *addresses = NULL;
    pd_lookup *lookup = NULL;
    int stop = eventfd(0, 0), rc = PD_OK;

    if (!url.local) rc = pd_lookup_start(&lookup, &url, err);
    if (rc == PD_OK && !url.local) rc = pd_lookup_wait(lookup, &addresses, stop, 2000, err);
    if (rc == PD_OK) rc = pd_sock_connect(fd, &url, addresses, stop, 2000, err);
    pd_lookup_leave(lookup);
    close(stop);
    return rc;
}

/* Waits up to a second until the transport can be read. Returns the result of its receive. */
static ssize_t receive_soon(pd_transport *transport, struct iovec *in, pd_error *err)
{
    struct pollfd wait = pd_sock_poll(transport);

    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_true((pd_sock_events(transport, &wait) & PD_ON_READ) != 0);
    return transport->ops->receive(transport, in, 1, err);
}

static void exchange(int listener, int fd)
{
    char got[4] = "";
    struct iovec out = { (char *)"abc", 4 }, in = { got, 4 };
    pd_error err;
    int peer = accept(listener, NULL, NULL);
    pd_transport *transport = pd_sock_transport(fd, NULL);

    assert_true(peer >= 0);
    transport->ops->watch(transport, PD_ON_READ);
    assert_int_equal(transport->ops->receive(transport, &in, 1, &err), 0); /* no data yet: receive returns at once */
    assert_int_equal(transport->ops->send(transport, &out, 1, &err), 4);
    assert_int_equal(read(peer, got, 4), 4);
    assert_string_equal(got, "abc");
    transport->ops->shut(transport);
    assert_int_equal(read(peer, got, 4), 0);
    assert_int_equal(write(peer, "xyz", 4), 4); /* the peer can still send */
    assert_int_equal(receive_soon(transport, &in, &err), 4);
    close(peer);
    assert_int_equal(receive_soon(transport, &in, &err), PD_CANCELLED);
    transport->ops->close(transport);
}

TEST(polls_what_is_watched)
{
    int pair[2];
    pd_transport *transport;
    struct pollfd wait;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    transport = pd_sock_transport(pair[0], NULL);
    transport->ops->watch(transport, PD_ON_READ | PD_ON_WRITE);
    wait = pd_sock_poll(transport);
    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_int_equal(pd_sock_events(transport, &wait), PD_ON_WRITE);
    transport->ops->watch(transport, PD_ON_READ);
    wait = pd_sock_poll(transport);
    assert_int_equal(poll(&wait, 1, 0), 0);
    close(pair[1]);
    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_true((pd_sock_events(transport, &wait) & PD_ON_GONE) != 0);
    transport->ops->close(transport);
}

TEST(connects_over_ipv4_ipv6_a_name_and_a_unix_socket)
{
    char text[128];
    int port, fd, listener = listen_on(AF_INET, &port);
    struct sockaddr_un local = { .sun_family = AF_UNIX };
    pd_error err = { 0 };

    snprintf(text, sizeof text, "tcp://127.0.0.1:%d", port);
    assert_int_equal(connect_to(text, &fd, &err), PD_OK);
    exchange(listener, fd);
    snprintf(text, sizeof text, "tcp://localhost:%d", port); /* a client may try ::1 first, where nothing listens */
    assert_int_equal(connect_to(text, &fd, &err), PD_OK);
    exchange(listener, fd);
    close(listener);
    if ((listener = listen_on(AF_INET6, &port)) >= 0) {
        snprintf(text, sizeof text, "tcp://[::1]:%d", port);
        assert_int_equal(connect_to(text, &fd, &err), PD_OK);
        exchange(listener, fd);
        close(listener);
    }
    snprintf(local.sun_path, sizeof local.sun_path, "/tmp/paramd-sock-%d", (int)getpid());
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&local, sizeof local), 0);
    assert_int_equal(listen(listener, 4), 0);
    snprintf(text, sizeof text, "unix://%s", local.sun_path);
    assert_int_equal(connect_to(text, &fd, &err), PD_OK);
    exchange(listener, fd);
    close(listener);
    unlink(local.sun_path);
}

TEST(says_whom_it_could_not_reach_and_why)
{
    char text[64];
    int port, fd, listener = listen_on(AF_INET, &port);
    pd_error err = { 0 };

    close(listener);
    snprintf(text, sizeof text, "tcp://127.0.0.1:%d", port);
    assert_int_equal(connect_to(text, &fd, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, "refused"));
    assert_int_equal(connect_to("unix:///nowhere/at/all", &fd, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
}
