/* Tests that the client's connections use the congestion control that was chosen for them, also new ones, and that the
 * daemon's program names the key whose value the kernel refuses. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"
#include "proxy.h"

enum { MOST_FDS = 256 };

/* Counts the sockets of this process that are connected to a port, and use an algorithm. */
static int count_connections(int port, const char *algorithm)
{
    int n = 0;

    for (int fd = 0; fd < MOST_FDS; fd++) {
        struct sockaddr_in peer = { 0 };
        socklen_t peer_size = sizeof peer, size = 16;
        char name[16] = "";
        if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0 || peer.sin_family != AF_INET ||
            ntohs(peer.sin_port) != port || getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0)
            continue;
        n += strcmp(name, algorithm) == 0;
    }
    return n;
}

TEST(a_clients_connections_use_the_algorithm_that_was_chosen)
{
    test_daemon *daemon = daemon_start((const char *const[]){ "--tcp-congestion=reno", NULL });
    proxy *link = proxy_start(daemon->port);
    char url[64];
    pd_client_options how = { .urls = url,
                              .job = "j",
                              .world_size = 1,
                              .tcp_congestion = "reno", /* in every kernel */
                              .deadline = patient(30),
                              .quiet = true };
    pd_client *client;
    pd_error err;

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", proxy_port(link));
    assert_int_equal(pd_client_open(&client, &how, &err), PD_OK);
    assert_int_equal(count_connections(proxy_port(link), "reno"), 1);
    proxy_cut_now(link);
    assert_int_equal(pd_client_declare(client, &(pd_client_param){ .name = "p", .shape = { 1, { 4 } } }, 1, &err),
                     PD_OK);
    assert_int_equal(proxy_connections(link), 2);
    assert_int_equal(count_connections(proxy_port(link), "reno"), 1);
    pd_client_close(client);
    proxy_stop(link);
    daemon_end(daemon);
}

TEST(the_daemon_names_the_key_whose_value_the_kernel_refuses)
{
    char text[1024];

    assert_true(daemon_refuses((const char *const[]){ "--tcp-congestion=no_such_one", NULL }, text, sizeof text) != 0);
    assert_non_null(strstr(text, "server.tcp_congestion"));
    assert_non_null(strstr(text, "it allows: "));
    assert_true(daemon_refuses((const char *const[]){ "--check-config", "--tcp-congestion=no_such_one", NULL }, text,
                               sizeof text) != 0);
}
