/* Tests that the daemon's connections use the congestion control of its settings, and that it does not start with one
 * that the kernel refuses. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"
#include "daemon.h"
#include "small_daemon.h"

enum { MOST_FDS = 256 };

/* Counts the connected sockets of this process that have a local port, and use an algorithm. */
static int count_connections(unsigned port, const char *algorithm)
{
    int n = 0;

    for (int fd = 0; fd < MOST_FDS; fd++) {
        struct sockaddr_in local = { 0 }, peer;
        socklen_t local_size = sizeof local, peer_size = sizeof peer, size = 16;
        char name[16] = "";
        if (getsockname(fd, (struct sockaddr *)&local, &local_size) != 0 || local.sin_family != AF_INET ||
            ntohs(local.sin_port) != port || getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0 ||
            getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0)
            continue;
        n += strcmp(name, algorithm) == 0;
    }
    return n;
}

/* Lets a program of this machine connect to a daemon with this setting. Returns how many connections use "reno", which
 * every kernel has. */
static int connect_and_count(const char *tcp_congestion)
{
    pd_daemon_config config = small_daemon();
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    pd_mailbox *requests = pd_mailbox_new(NULL, NULL);
    int client = socket(AF_INET, SOCK_STREAM, 0), n;
    pd_daemon *daemon;

    config.listen = "127.0.0.1:0";
    config.tcp_congestion = tcp_congestion;
    assert_int_equal(pd_daemon_new(&daemon, &config, NULL), PD_OK);
    assert_int_equal(pd_daemon_listen(daemon, NULL), PD_OK);
    pd_daemon_begin(daemon, requests);
    address.sin_port = htons((uint16_t)pd_daemon_port(daemon));
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    for (int i = 0; i < 4; i++) pd_daemon_turn(daemon);
    n = count_connections(pd_daemon_port(daemon), "reno");
    close(client);
    pd_daemon_end(daemon);
    pd_daemon_free(daemon);
    pd_mailbox_free(requests);
    return n;
}

TEST(its_connections_use_the_algorithm_of_its_settings)
{
    assert_int_equal(connect_and_count("reno"), 1);
}

TEST(its_connections_to_this_machine_do_not_pace)
{
    assert_int_equal(connect_and_count(NULL), 1);
}

TEST(it_does_not_listen_with_one_that_the_kernel_refuses)
{
    pd_daemon_config config = small_daemon();
    pd_daemon *daemon;
    pd_error err;

    config.listen = "127.0.0.1:0";
    config.tcp_congestion = "no_such_one";
    assert_int_equal(pd_daemon_new(&daemon, &config, NULL), PD_OK);
    assert_int_equal(pd_daemon_listen(daemon, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "no_such_one"));
    pd_daemon_free(daemon);
}
