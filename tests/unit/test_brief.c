/* Tests which connections give way to a newcomer when there are the most that the daemon takes. */
#include <sys/socket.h>

#include "test.h"
#include "conn.h"
#include "loop.h"
#include "scene.h"

enum { MOST = 8 }; /* connections that the daemon of a scene takes */

static int set_up(void **state)
{
    scene *s = *state = scene_new(16, NULL);

    assert_int_equal(s->daemon->config.max_connections, MOST);
    return 0;
}

static int tear_down(void **state)
{
    scene_free(*state);
    return 0;
}

/* Returns whether the daemon has closed its side without a word. */
static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void connect_silent(scene *s, const char *identity, int *fds, int n)
{
    s->identity = identity;
    for (int i = 0; i < n; i++) {
        fds[i] = scene_connect(s);
        assert_true(fds[i] >= 0);
    }
    scene_settle(s);
}

static void close_all(int *fds, int n)
{
    for (int i = 0; i < n; i++) close(fds[i]);
}

EACH_TEST(set_up, tear_down);

TEST(a_newcomer_takes_the_place_of_the_oldest_that_has_said_nothing, scene *s)
{
    int fds[MOST], fd;

    connect_silent(s, "token:alice", fds, MOST);
    fd = scene_operator(s);
    assert_true(is_closed(fds[0]));
    for (int i = 1; i < MOST; i++) assert_false(is_closed(fds[i]));
    assert_int_equal(s->daemon->table.n, MOST);
    close_all(fds, MOST);
    close(fd);
}

TEST(a_flood_by_one_identity_takes_no_place_of_another, scene *s)
{
    int first, flood[5 * MOST];

    connect_silent(s, "token:bob", &first, 1);
    connect_silent(s, "token:mallory", flood, 5 * MOST);
    assert_int_equal(s->daemon->table.n, MOST);
    assert_false(is_closed(first));
    scene_hello(s, first, "", 0, 0);
    scene_settle(s);
    scene_expect(s, first, PD_HELLO);
    close_all(flood, 5 * MOST);
    close(first);
}

TEST(those_that_have_said_hello_stay, scene *s)
{
    int fds[MOST], fd;

    s->identity = "token:alice";
    fds[0] = scene_join(s, 0, 1, 1);
    for (int i = 1; i < MOST; i++) fds[i] = scene_operator(s);
    fd = scene_connect(s);
    scene_settle(s);
    scene_expect_error(s, fd, PD_RESOURCE_EXHAUSTED, "8 connections are already open (server.max_connections)");
    for (int i = 0; i < MOST; i++) assert_false(is_closed(fds[i]));
    close_all(fds, MOST);
    close(fd);
}

TEST(those_that_end_with_an_error_go_first, scene *s)
{
    int silent[MOST - 1], bad, fd;

    connect_silent(s, "token:alice", silent, MOST - 1);
    s->identity = "token:mallory";
    bad = scene_connect(s);
    scene_say(s, bad, PD_STATUS); /* before Hello: an error that ends the connection */
    scene_settle(s);
    assert_int_equal(s->daemon->table.n, MOST);
    fd = scene_operator(s);
    scene_expect_error(s, bad, PD_FAILED_PRECONDITION, "expected Hello as the first request");
    assert_true(is_closed(bad));
    for (int i = 0; i < MOST - 1; i++) assert_false(is_closed(silent[i]));
    close_all(silent, MOST - 1);
    close(bad);
    close(fd);
}
