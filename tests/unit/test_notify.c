/* Tests messages to the service manager (systemd), and the sockets that it passes to the daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "notify.h"

/* Binds a datagram socket as the service manager does. Returns its descriptor. */
static int listen_at(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    strcpy(address.sun_path, path);
    if (path[0] == '@') address.sun_path[0] = '\0';
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    return fd;
}

static void expect(int fd, const char *text)
{
    char got[64] = "";
    ssize_t n = recv(fd, got, sizeof got - 1, 0);

    assert_true(n > 0);
    assert_string_equal(got, text);
}

static void tells_the_manager_at_a_path(void **state)
{
    char path[] = "/tmp/notify_XXXXXX";
    int fd;
    (void)state;

    assert_true(mkstemp(path) >= 0);
    unlink(path);
    fd = listen_at(path);
    setenv("NOTIFY_SOCKET", path, 1);
    assert_true(pd_notify("READY=1"));
    expect(fd, "READY=1");
    close(fd);
    unlink(path);
    assert_false(pd_notify("STOPPING=1")); /* the manager's socket is closed */
}

static void tells_the_manager_at_an_abstract_address(void **state)
{
    char path[64];
    int fd;
    (void)state;

    snprintf(path, sizeof path, "@paramd-test-%d", (int)getpid());
    fd = listen_at(path);
    setenv("NOTIFY_SOCKET", path, 1);
    assert_true(pd_notify("WATCHDOG=1"));
    expect(fd, "WATCHDOG=1");
    close(fd);
}

static void says_nothing_without_a_manager(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    assert_true(pd_notify("READY=1"));
}

static void feeds_the_watchdog_twice_as_often_as_it_asks(void **state)
{
    char pid[32];
    (void)state;

    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
    assert_int_equal(pd_notify_watchdog_ms(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_int_equal(pd_notify_watchdog_ms(), 15000);
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(pd_notify_watchdog_ms(), 0); /* the watchdog is meant for another process */
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(pd_notify_watchdog_ms(), 15000);
}

static void takes_sockets_meant_for_this_process_only(void **state)
{
    char pid[32];
    int first;
    (void)state;

    setenv("LISTEN_FDS", "2", 1);
    unsetenv("LISTEN_PID");
    assert_int_equal(pd_notify_sockets(&first), 0);
    setenv("LISTEN_PID", "1", 1);
    assert_int_equal(pd_notify_sockets(&first), 0);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    assert_int_equal(pd_notify_sockets(&first), 2);
    assert_int_equal(first, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_the_manager_at_a_path),
        cmocka_unit_test(tells_the_manager_at_an_abstract_address),
        cmocka_unit_test(says_nothing_without_a_manager),
        cmocka_unit_test(feeds_the_watchdog_twice_as_often_as_it_asks),
        cmocka_unit_test(takes_sockets_meant_for_this_process_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
