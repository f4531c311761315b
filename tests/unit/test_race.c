/* Tests connecting to the first of several addresses that answers. */
#include <arpa/inet.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

/* Returns whether a socket of this machine waits for the answer of an address. */
static bool is_asked(const struct sockaddr_in *address)
{
    FILE *sockets = fopen("/proc/net/tcp", "re");
    char line[256], wanted[32];
    bool found = false;

    assert_non_null(sockets);
    /* the peer of the socket, and its state SYN_SENT */
    snprintf(wanted, sizeof wanted, " %08X:%04X 02 ", (unsigned)address->sin_addr.s_addr, ntohs(address->sin_port));
    while (!found && fgets(line, sizeof line, sockets) != NULL) found = strstr(line, wanted) != NULL;
    fclose(sockets);
    return found;
}

static bool all_are_asked(void *arg)
{
    const scene *s = arg;
    int n = 0;

    while (n < s->n && is_asked(&s->addresses[n])) n++;
    return n == s->n;
}

static bool first_has_refused(void *arg)
{
    return !is_asked(&((const scene *)arg)->addresses[0]);
}

/* Starts a process that connects to the scene's addresses at once (pd_race_connect), none of which answers. Stops it
 * with SIGSTOP while it waits for all of them. */
static pid_t stop_racer(scene *s)
{
    pid_t racer = fork();
    int status;

    assert_true(racer >= 0);
    if (racer == 0) {
        struct sockaddr_in peer = { 0 };
        socklen_t size = sizeof peer;
        int fd = -1, i = 0;
        if (pd_race_connect(&fd, s->list, eventfd(0, 0), LONG_MS) == 0)
            (void)getpeername(fd, (struct sockaddr *)&peer, &size);
        while (i < s->n && s->addresses[i].sin_port != peer.sin_port) i++;
        _exit(i);
    }
    assert_true(await(all_are_asked, s, patient(20)));
    assert_int_equal(kill(racer, SIGSTOP), 0);
    assert_int_equal(waitpid(racer, &status, WUNTRACED), racer);
    assert_true(WIFSTOPPED(status));
    return racer;
}

/* Lets a silent address answer. Returns once the socket that waited for it is connected. */
static void answer(scene *s, int i)
{
    for (int k = 0; k < 2; k++) { /* the connection that has filled the queue, and the racer's */
        int fd = accept(s->listeners[i], NULL, NULL);
        assert_true(fd >= 0);
        close(fd);
    }
}

/* Lets the racer continue. Returns the number of the address that it takes. */
static int finish(pid_t racer)
{
    int status;

    assert_int_equal(kill(racer, SIGCONT), 0);
    assert_int_equal(waitpid(racer, &status, 0), racer);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(of_several_answers_at_one_look_that_of_the_earliest_address_is_taken)
{
    scene s = { .n = 0 };
    pid_t racer;

    add(&s, SILENT);
    add(&s, SILENT);
    racer = stop_racer(&s);
    answer(&s, 1);
    answer(&s, 0);
    assert_int_equal(finish(racer), 0);
    clear(&s);
}

TEST(a_refusal_at_the_same_look_leaves_the_other_addresses_in_their_order)
{
    scene s = { .n = 0 };
    pid_t racer;

    for (int i = 0; i < 3; i++) add(&s, SILENT);
    racer = stop_racer(&s);
    assert_int_equal(shutdown(s.listeners[0], SHUT_RDWR), 0); /* close would not do: the racer has the listener, too */
    answer(&s, 2);
    answer(&s, 1);
    assert_true(await(first_has_refused, &s, patient(20)));
    assert_int_equal(finish(racer), 1);
    clear(&s);
}
