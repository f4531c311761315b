/* Tests that sockets get the congestion control that was chosen, on both sides, and that the kernel's refusal is a
 * clear error. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"
#include "congestion.h"
#include "options.h"

static const char *const other = "reno"; /* every kernel has it */

static const char *algorithm_of(int fd)
{
    static char name[16];
    socklen_t size = sizeof name;

    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
    return name;
}

TEST(a_connection_inherits_the_choice_of_its_listening_socket)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), accepted;

    assert_int_equal(pd_congestion_set(listener, other, NULL), PD_OK);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, size), 0);
    assert_true((accepted = accept(listener, NULL, NULL)) >= 0);
    assert_string_equal(algorithm_of(accepted), other);
    assert_int_equal(pd_congestion_set(client, other, NULL), PD_OK); /* of a connected socket, too */
    assert_string_equal(algorithm_of(client), other);
    close(listener);
    close(client);
    close(accepted);
}

/* Returns a socket that is connected to a listening socket of 127.0.0.1, or of another address of the machine. */
static int connect_to_address(int *listener, const char *host)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(host) };
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    *listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(*listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(*listener, 1), 0);
    assert_int_equal(getsockname(*listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, size), 0);
    return fd;
}

static int send_buffer_of(int fd)
{
    int bytes = 0;
    socklen_t size = sizeof bytes;

    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
    return bytes;
}

TEST(a_peer_on_this_machine_gets_no_pacing_and_a_small_buffer)
{
    int listener, fd = connect_to_address(&listener, "127.0.0.1");

    pd_congestion_local(fd, "");
    assert_string_equal(algorithm_of(fd), "reno");
    assert_int_equal(send_buffer_of(fd), 2 * 192 * 1024);
    close(listener);
    close(fd);
}

TEST(a_peer_on_this_machine_keeps_the_algorithm_that_was_chosen)
{
    int listener, fd = connect_to_address(&listener, "127.0.0.1");
    char before[16];

    strcpy(before, algorithm_of(fd));
    pd_congestion_local(fd, before);
    assert_string_equal(algorithm_of(fd), before);
    assert_int_equal(send_buffer_of(fd), 2 * 192 * 1024);
    close(listener);
    close(fd);
}

/* A socket that connects to 127.0.0.2 has the address 127.0.0.1 itself. */
TEST(a_peer_with_another_address_is_left_alone)
{
    int listener, fd = connect_to_address(&listener, "127.0.0.2"), bytes = send_buffer_of(fd);
    char before[16];

    strcpy(before, algorithm_of(fd));
    pd_congestion_local(fd, "");
    assert_string_equal(algorithm_of(fd), before);
    assert_int_equal(send_buffer_of(fd), bytes);
    close(listener);
    close(fd);
}

TEST(an_algorithm_that_the_kernel_lacks_is_refused_with_those_that_it_allows)
{
    const char *const wrong[] = { "no_such_one", "a name that is longer than any of the kernel's" };
    pd_error err = { 0 };

    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(pd_congestion_check(wrong[i], &err), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "it allows: "));
        assert_non_null(strstr(err.text, "reno"));
    }
    assert_int_equal(pd_congestion_check(other, &err), PD_OK);
}

TEST(nothing_is_asked_of_unix_sockets_or_without_a_name)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pd_congestion_set(pair[0], other, NULL), PD_OK);
    assert_int_equal(pd_congestion_set(-1, "", NULL), PD_OK);
    assert_int_equal(pd_congestion_check("", NULL), PD_OK);
    close(pair[0]);
    close(pair[1]);
}

TEST(a_client_takes_the_option_before_the_environment)
{
    pd_client_options options = { .job = "j", .world_size = 1 };
    pd_settings settings;
    pd_error err = { 0 };

    setenv("PARAMD_TCP_CONGESTION", "no_such_one", 1);
    assert_int_equal(pd_settings_resolve(&settings, &options, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "no_such_one"));
    options.tcp_congestion = other;
    assert_int_equal(pd_settings_resolve(&settings, &options, &err), PD_OK);
    assert_string_equal(settings.core.congestion, other);
    unsetenv("PARAMD_TCP_CONGESTION");
    options.tcp_congestion = NULL;
    assert_int_equal(pd_settings_resolve(&settings, &options, &err), PD_OK);
    assert_null(settings.core.congestion);
}
