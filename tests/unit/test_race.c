/* Tests connecting to the first of several addresses that answers. */
#include <arpa/inet.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "test.h"
#include "daemon_process.h"
#include "connect.h"

/* Addresses of the loopback interface. A silent one has a listener whose queue is full. */
typedef struct scene {
    struct addrinfo list[4];
    struct sockaddr_in addresses[4];
    int listeners[4], fill[4];
    int n;
} scene;

enum kind { SILENT, REFUSING, OPEN };

enum { LONG_MS = 60000 }; /* a time that no test waits for */

static void add(scene *s, enum kind kind)
{
    int i = s->n++;
    socklen_t size = sizeof s->addresses[i];

    s->addresses[i] = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    s->list[i] =
        (struct addrinfo){ .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&s->addresses[i], .ai_addrlen = size };
    if (i > 0) s->list[i - 1].ai_next = &s->list[i];
    s->listeners[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listeners[i], s->list[i].ai_addr, size), 0);
    if (kind != REFUSING) assert_int_equal(listen(s->listeners[i], kind == SILENT ? 0 : 8), 0);
    getsockname(s->listeners[i], s->list[i].ai_addr, &size);
    s->fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (kind == SILENT) assert_int_equal(connect(s->fill[i], s->list[i].ai_addr, size), 0);
}

static void clear(scene *s)
{
    for (int i = 0; i < s->n; i++) {
        close(s->listeners[i]);
        close(s->fill[i]);
    }
}

static int run(scene *s, int timeout_ms, uint16_t *port)
{
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    int stop = eventfd(0, 0), fd = -1, rc = pd_race_connect(&fd, s->list, stop, timeout_ms);

    close(stop);
    if (rc != 0) {
        assert_int_equal(fd, -1);
        return rc;
    }
    assert_int_equal(getpeername(fd, (struct sockaddr *)&peer, &size), 0);
    *port = peer.sin_port;
    close(fd);
    return 0;
}

TEST(a_silent_address_costs_a_moment)
{
    scene s = { .n = 0 };
    double begin = seconds_now();
    uint16_t port;

    add(&s, SILENT);
    add(&s, SILENT);
    add(&s, OPEN);
    assert_int_equal(run(&s, LONG_MS, &port), 0);
    assert_int_equal(port, s.addresses[2].sin_port);
    assert_true(seconds_now() - begin >= 0.4);
    assert_true(seconds_now() - begin < LONG_MS / 2000.0);
    clear(&s);
}

TEST(the_first_address_that_answers_is_taken)
{
    scene s = { .n = 0 };
    uint16_t port;

    add(&s, OPEN);
    add(&s, OPEN);
    assert_int_equal(run(&s, LONG_MS, &port), 0);
    assert_int_equal(port, s.addresses[0].sin_port);
    clear(&s);
}

/* Returns how long it takes to come to the second address, where the first one refuses. */
static double pass_refusing(void)
{
    scene s = { .n = 0 };
    double begin = seconds_now();
    uint16_t port;

    add(&s, REFUSING);
    add(&s, OPEN);
    assert_int_equal(run(&s, LONG_MS, &port), 0);
    assert_int_equal(port, s.addresses[1].sin_port);
    clear(&s);
    return seconds_now() - begin;
}

/* A busy machine makes some of the runs slow, but none fast. */
TEST(an_address_that_refuses_costs_nothing)
{
    double fastest = pass_refusing();

    for (int i = 0; i < 20 && fastest >= 0.2; i++) fastest = fmin(fastest, pass_refusing());
    assert_true(fastest < 0.2);
}

TEST(the_time_ends_where_all_are_silent)
{
    scene s = { .n = 0 };
    double begin = seconds_now();
    uint16_t port;

    add(&s, SILENT);
    add(&s, REFUSING);
    assert_int_equal(run(&s, 300, &port), ETIMEDOUT);
    assert_true(seconds_now() - begin >= 0.25 + 0.3 - 0.05);
    assert_true(seconds_now() - begin < LONG_MS / 2000.0); /* the kernel would try for two minutes */
    clear(&s);
}

TEST(the_last_error_is_told_where_all_refuse)
{
    scene s = { .n = 0 };
    uint16_t port;

    add(&s, REFUSING);
    add(&s, REFUSING);
    assert_int_equal(run(&s, LONG_MS, &port), ECONNREFUSED);
    clear(&s);
}

TEST(a_race_ends_when_its_thread_has_to_end)
{
    scene s = { .n = 0 };
    double begin = seconds_now();
    int stop = eventfd(1, 0), fd;

    add(&s, SILENT);
    assert_int_equal(pd_race_connect(&fd, s.list, stop, LONG_MS), -1);
    assert_true(seconds_now() - begin < LONG_MS / 2000.0);
    clear(&s);
    close(stop);
}
