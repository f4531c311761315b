#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sock.h"

static pd_url one(const char *text)
{
    pd_url *urls, url;
    size_t n;
    pd_error err = { 0 };

    if (pd_urls_parse(&urls, &n, text, &err) != PD_OK) fail_msg("%s: %s", text, err.text);
    assert_int_equal(n, 1);
    url = urls[0];
    free(urls);
    return url;
}

static void expect_tcp(const char *text, const char *host, const char *port)
{
    pd_url url = one(text);
    assert_false(url.local);
    assert_string_equal(url.host, host);
    assert_string_equal(url.port, port);
}

static void reads_names_numbers_brackets_and_paths(void **state)
{
    pd_url url;
    (void)state;

    expect_tcp("tcp://localhost:7070", "localhost", "7070");
    expect_tcp("tcp://10.0.0.1:1", "10.0.0.1", "1");
    expect_tcp("tcp://ps.example.org", "ps.example.org", "7070");
    expect_tcp("tcp://[::1]:65535", "::1", "65535");
    expect_tcp("tcp://[fe80::1]", "fe80::1", "7070");
    url = one("unix:///run/paramd/socket");
    assert_true(url.local);
    assert_string_equal(url.host, "/run/paramd/socket");
}

static void reads_a_list_in_order(void **state)
{
    pd_url *urls;
    size_t n;
    (void)state;

    assert_int_equal(pd_urls_parse(&urls, &n, "tcp://a:1,unix:///b,tcp://[::1]:3", NULL), PD_OK);
    assert_int_equal(n, 3);
    assert_string_equal(urls[0].host, "a");
    assert_string_equal(urls[1].host, "/b");
    assert_string_equal(urls[2].port, "3");
    free(urls);
}

static void refuses_what_is_no_address_and_says_which(void **state)
{
    static const char *const bad[] = {
        "", "localhost:7070", "http://localhost:7070", "tcp://", "tcp://:7070", "tcp://host:", "tcp://host:0", "tcp://host:65536", "tcp://host:7070x",
        "tcp://host:-1", "tcp://[::1", "tcp://[::1]7070", "tcp://[]:1", "unix://", "tcp://good:1,,tcp://other:1", "tcp://good:1,",
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pd_url *urls;
        size_t n;
        pd_error err = { 0 };

        if (pd_urls_parse(&urls, &n, bad[i], &err) != PD_INVALID_ARGUMENT) fail_msg("\"%s\" was taken", bad[i]);
        assert_non_null(strstr(err.text, "address"));
    }
}

/* A listening socket on a free port of that family's loopback. */
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
    pd_url url = one(text);
    int stop = eventfd(0, 0), rc = pd_sock_connect(fd, &url, stop, 2000, err);
    close(stop);
    return rc;
}

/* Ends with what the socket has, or nothing after a second. */
static ssize_t receive_soon(pd_transport *transport, struct iovec *in, pd_error *err)
{
    struct pollfd wait = pd_sock_poll(transport);

    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_true((pd_sock_events(&wait) & PD_ON_READ) != 0);
    return transport->ops->receive(transport, in, 1, err);
}

static void exchange(int listener, int fd)
{
    char got[4] = "";
    struct iovec out = { (char *)"abc", 4 }, in = { got, 4 };
    pd_error err;
    int peer = accept(listener, NULL, NULL);
    pd_transport *transport = pd_sock_transport(fd);

    assert_true(peer >= 0);
    transport->ops->watch(transport, PD_ON_READ);
    assert_int_equal(transport->ops->receive(transport, &in, 1, &err), 0);          /* nothing yet, and it does not wait */
    assert_int_equal(transport->ops->send(transport, &out, 1, &err), 4);
    assert_int_equal(read(peer, got, 4), 4);
    assert_string_equal(got, "abc");
    transport->ops->shut(transport);
    assert_int_equal(read(peer, got, 4), 0);
    assert_int_equal(write(peer, "xyz", 4), 4);                                     /* the other direction goes on */
    assert_int_equal(receive_soon(transport, &in, &err), 4);
    close(peer);
    assert_int_equal(receive_soon(transport, &in, &err), PD_CANCELLED);
    transport->ops->close(transport);
}

static void polls_what_is_watched(void **state)
{
    int pair[2];
    pd_transport *transport;
    struct pollfd wait;
    (void)state;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    transport = pd_sock_transport(pair[0]);
    transport->ops->watch(transport, PD_ON_READ | PD_ON_WRITE);
    wait = pd_sock_poll(transport);
    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_int_equal(pd_sock_events(&wait), PD_ON_WRITE);
    transport->ops->watch(transport, PD_ON_READ);
    wait = pd_sock_poll(transport);
    assert_int_equal(poll(&wait, 1, 0), 0);
    close(pair[1]);
    assert_int_equal(poll(&wait, 1, 1000), 1);
    assert_true((pd_sock_events(&wait) & PD_ON_GONE) != 0);
    transport->ops->close(transport);
}

static void connects_over_ipv4_ipv6_a_name_and_a_unix_socket(void **state)
{
    char text[128];
    int port, fd, listener = listen_on(AF_INET, &port);
    struct sockaddr_un local = { .sun_family = AF_UNIX };
    pd_error err = { 0 };
    (void)state;

    snprintf(text, sizeof text, "tcp://127.0.0.1:%d", port);
    assert_int_equal(connect_to(text, &fd, &err), PD_OK);
    exchange(listener, fd);
    snprintf(text, sizeof text, "tcp://localhost:%d", port);        /* ::1 may be tried first, and refuses */
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

static void says_whom_it_could_not_reach_and_why(void **state)
{
    char text[64];
    int port, fd, listener = listen_on(AF_INET, &port);
    pd_error err = { 0 };
    (void)state;

    close(listener);
    snprintf(text, sizeof text, "tcp://127.0.0.1:%d", port);
    assert_int_equal(connect_to(text, &fd, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, "refused"));
    assert_int_equal(connect_to("unix:///nowhere/at/all", &fd, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_numbers_brackets_and_paths),
        cmocka_unit_test(reads_a_list_in_order),
        cmocka_unit_test(refuses_what_is_no_address_and_says_which),
        cmocka_unit_test(connects_over_ipv4_ipv6_a_name_and_a_unix_socket),
        cmocka_unit_test(polls_what_is_watched),
        cmocka_unit_test(says_whom_it_could_not_reach_and_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
