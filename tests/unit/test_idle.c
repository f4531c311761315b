/* Tests when a daemon that no worker uses ends by itself. The loop thread's code runs on socket pairs, and the tests
 * move its clock. */
#include "test.h"
#include "conn.h"
#include "scene.h"

enum { IDLE_MS = 10000 };

static int set_up(void **state)
{
    scene *s = scene_new(16, NULL);

    s->daemon->config.times.idle_ms = IDLE_MS;
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    scene_free(*state);
    return 0;
}

static bool ends(const scene *s)
{
    return s->daemon->shutdown.begun;
}

EACH_TEST(set_up, tear_down);

TEST(a_daemon_that_no_worker_comes_to_ends_after_the_idle_time, scene *s)
{
    scene_pass(s, IDLE_MS / 2);
    assert_false(ends(s));
    scene_pass(s, IDLE_MS / 2);
    assert_true(ends(s));
    assert_non_null(strstr(s->said, "no worker was connected for 10.0 s (server.idle_exit)"));
    scene_settle(s);
    assert_true(s->daemon->shutdown.drained);
}

TEST(without_an_idle_time_a_daemon_waits_for_ever, scene *s)
{
    s->daemon->config.times.idle_ms = 0;
    scene_pass(s, 1000 * IDLE_MS);
    assert_false(ends(s));
}

TEST(a_connected_worker_keeps_the_daemon, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);

    for (int i = 0; i < 5; i++) scene_pass(s, IDLE_MS);
    assert_false(ends(s));
    close(fd);
}

TEST(the_idle_time_begins_when_the_last_worker_is_gone, scene *s)
{
    int first = scene_join(s, 0, 2, 1), last = scene_join(s, 1, 2, 1);

    close(first);
    scene_settle(s);
    scene_pass(s, 2 * IDLE_MS);
    assert_false(ends(s));
    close(last);
    scene_settle(s);
    scene_pass(s, IDLE_MS / 2);
    assert_false(ends(s));
    scene_pass(s, IDLE_MS / 2);
    assert_true(ends(s));
}

TEST(a_worker_that_has_left_does_not_keep_the_daemon, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);

    scene_say(s, fd, PD_LEAVE);
    scene_settle(s);
    scene_expect(s, fd, PD_LEAVE);
    scene_pass(s, IDLE_MS);
    assert_true(ends(s));
    close(fd);
}

TEST(a_worker_that_came_and_went_between_two_looks_counts, scene *s)
{
    int fd;

    s->loop_ms += IDLE_MS - 1;
    fd = scene_connect(s);
    scene_hello(s, fd, "j", 0, 1);
    scene_settle(s);
    close(fd);
    scene_settle(s);
    scene_pass(s, 1);
    assert_false(ends(s));
    scene_pass(s, IDLE_MS);
    assert_true(ends(s));
}

TEST(an_operator_does_not_keep_the_daemon, scene *s)
{
    int fd = scene_operator(s);

    scene_pass(s, IDLE_MS);
    assert_true(ends(s));
    close(fd);
}

TEST(a_daemon_that_drains_already_is_not_told_again, scene *s)
{
    pd_conversation_interrupt(s->daemon, "Terminated");
    scene_pass(s, IDLE_MS);
    assert_null(strstr(s->said, "no worker"));
    assert_true(ends(s));
}
