/* Tests messages to the service manager, and the sockets that it passes to the daemon. */
#include <sys/socket.h>
#include <sys/un.h>

#include "test.h"
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

TEST(tells_the_manager_at_a_path)
{
    char path[] = "/tmp/notify_XXXXXX";
    int fd;

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

TEST(tells_the_manager_at_an_abstract_address)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "@paramd-test-%d", (int)getpid());
    fd = listen_at(path);
    setenv("NOTIFY_SOCKET", path, 1);
    assert_true(pd_notify("WATCHDOG=1"));
    expect(fd, "WATCHDOG=1");
    close(fd);
}

TEST(says_nothing_without_a_manager)
{
    unsetenv("NOTIFY_SOCKET");
    assert_true(pd_notify("READY=1"));
}

TEST(feeds_the_watchdog_twice_as_often_as_it_asks)
{
    char pid[32];

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

/* Says that the sockets are meant for this process. */
static void claim_sockets(void)
{
    char pid[32];

    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
}

TEST(takes_sockets_meant_for_this_process_only)
{
    pd_given_socket sockets[PD_NOTIFY_SOCKETS];

    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_FDNAMES", "tls:http", 1);
    unsetenv("LISTEN_PID");
    assert_int_equal(pd_notify_sockets(sockets), 0);
    setenv("LISTEN_PID", "1", 1);
    assert_int_equal(pd_notify_sockets(sockets), 0);
    assert_false(pd_notify_has_socket(PD_SOCKET_TLS));
    claim_sockets();
    assert_int_equal(pd_notify_sockets(sockets), 2);
    assert_int_equal(sockets[0].fd, 3);
    assert_int_equal(sockets[1].fd, 4);
}

TEST(more_sockets_than_fit_are_counted)
{
    pd_given_socket sockets[PD_NOTIFY_SOCKETS];

    claim_sockets();
    setenv("LISTEN_FDS", "17", 1);
    setenv("LISTEN_FDNAMES", "a:b:c:d:e:f:g:h:i:j:k:l:m:n:o:p:tls", 1);
    assert_int_equal(pd_notify_sockets(sockets), PD_NOTIFY_SOCKETS + 1);
    assert_int_equal(sockets[PD_NOTIFY_SOCKETS - 1].fd, 3 + PD_NOTIFY_SOCKETS - 1);
    assert_false(pd_notify_has_socket(PD_SOCKET_TLS));
    unsetenv("LISTEN_FDNAMES");
}

TEST(the_names_of_sockets_say_what_is_spoken_there)
{
    /* what LISTEN_FDNAMES says, and the uses of three sockets: "p" plain, "t" TLS, "h" HTTP */
    static const char *const cases[][2] = {
        { "tls:http:paramd.socket", "thp" },
        { "paramd.socket:tls:tls", "ptt" },
        { "http", "hpp" },
        { "", "ppp" },
        { "TLS:tlsx:https", "ppp" },
        { ":tls:", "ptp" },
        { "tl:s:htt", "ppp" },
        { "tls:tls:tls:http:unknown", "ttt" },
    };
    pd_given_socket sockets[PD_NOTIFY_SOCKETS];

    claim_sockets();
    setenv("LISTEN_FDS", "3", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("LISTEN_FDNAMES", cases[i][0], 1);
        assert_int_equal(pd_notify_sockets(sockets), 3);
        for (int j = 0; j < 3; j++)
            if ("pth"[sockets[j].use] != cases[i][1][j]) fail_msg("%s: socket %d", cases[i][0], j);
        assert_int_equal(pd_notify_has_socket(PD_SOCKET_HTTP), strchr(cases[i][1], 'h') != NULL);
    }
    unsetenv("LISTEN_FDNAMES");
    assert_int_equal(pd_notify_sockets(sockets), 3);
    assert_int_equal(sockets[0].use, PD_SOCKET_PLAIN);
}
