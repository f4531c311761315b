/* Tests how a turn of the loop is bounded when connections send more requests than it has time for. */
#include "test.h"
#include "conn.h"
#include "loop.h"
#include "scene.h"

enum { HOSTILE = 7, REQUESTS = 200 };

/* The loop's clock, which moves on by `step_ns` with each look. */
static uint64_t clock_now, step_ns;

static uint64_t slow_clock(void *arg)
{
    (void)arg;
    return clock_now += step_ns;
}

/* Lets each request that the loop handles take so long. */
static void slow_down(scene *s, uint64_t ns)
{
    step_ns = ns;
    s->daemon->platform.clock_ns = slow_clock;
}

/* Sends n requests at once, which the loop thread answers by itself. */
static void flood(scene *s, int fd, int n)
{
    Paramd__OptimizersRequest asked = PARAMD__OPTIMIZERS_REQUEST__INIT;

    asked.name = "none"; /* a short answer */
    for (int i = 0; i < n; i++) scene_send(s, fd, PD_OPTIMIZERS, &asked.base, 0);
}

static int count_answers(scene *s, int fd)
{
    int n = 0;

    while (scene_receive(s, fd)) n++;
    return n;
}

OBJECT(scene_new(16, NULL), scene_free);

TEST(a_turn_ends_when_its_time_is_used_up, scene *s)
{
    int fd = scene_operator(s);
    uint64_t before = s->daemon->counters.calls[PD_OPTIMIZERS];
    int answers = 0;

    slow_down(s, PD_PACE_TURN_NS / 10);
    flood(s, fd, REQUESTS);
    pd_daemon_turn(s->daemon);
    assert_in_range(s->daemon->counters.calls[PD_OPTIMIZERS] - before, 1, 12);
    assert_false(s->daemon->peers.pace.first == NULL);
    for (int i = 0; i < REQUESTS; i++) {
        pd_daemon_turn(s->daemon);
        answers += count_answers(s, fd);
    }
    assert_int_equal(s->daemon->counters.calls[PD_OPTIMIZERS] - before, REQUESTS);
    assert_int_equal(answers, REQUESTS);
    assert_null(s->daemon->peers.pace.first);
    close(fd);
}

TEST(a_request_waits_for_few_of_those_that_came_before, scene *s)
{
    int hostile[HOSTILE], fd = scene_operator(s), turns = 0;
    uint64_t before;

    for (int i = 0; i < HOSTILE; i++) hostile[i] = scene_operator(s);
    slow_down(s, PD_PACE_SLICE_NS / 2);
    for (int i = 0; i < HOSTILE; i++) flood(s, hostile[i], REQUESTS);
    pd_daemon_turn(s->daemon);
    before = s->daemon->counters.calls[PD_OPTIMIZERS];
    flood(s, fd, 1);
    for (; count_answers(s, fd) == 0; turns++) pd_daemon_turn(s->daemon);
    assert_true(s->daemon->counters.calls[PD_OPTIMIZERS] - before < HOSTILE * 10); /* of 1,400 */
    assert_true(turns <= HOSTILE);
    for (int i = 0; i < HOSTILE; i++) close(hostile[i]);
    close(fd);
}

/* Floods of one identity on many connections, and of another one on one: both get as much of the loop's time. */
TEST(identities_get_slices_in_turn, scene *s)
{
    int many[HOSTILE - 1], one, ours = 0, theirs = 0;

    s->identity = "token:mallory";
    for (int i = 0; i < HOSTILE - 1; i++) many[i] = scene_operator(s);
    s->identity = "token:bob";
    one = scene_operator(s);
    slow_down(s, PD_PACE_SLICE_NS / 2);
    for (int i = 0; i < HOSTILE - 1; i++) flood(s, many[i], REQUESTS);
    flood(s, one, REQUESTS);
    for (int turns = 0; turns < 4 * REQUESTS && ours < REQUESTS / 2; turns++) {
        pd_daemon_turn(s->daemon);
        ours += count_answers(s, one);
        for (int i = 0; i < HOSTILE - 1; i++) theirs += count_answers(s, many[i]);
    }
    assert_true(ours >= REQUESTS / 2);
    assert_in_range(theirs, ours / 2, 2 * ours);
    for (int i = 0; i < HOSTILE - 1; i++) close(many[i]);
    close(one);
}

TEST(a_connection_that_closes_leaves_the_list, scene *s)
{
    int fds[HOSTILE];

    for (int i = 0; i < HOSTILE; i++) fds[i] = scene_operator(s);
    slow_down(s, PD_PACE_TURN_NS);
    for (int i = 0; i < HOSTILE; i++) flood(s, fds[i], REQUESTS);
    pd_daemon_turn(s->daemon);
    assert_non_null(s->daemon->peers.pace.first);
    for (size_t i = 0; i < s->daemon->table.capacity; i++)
        if (s->daemon->table.at[i] != NULL) pd_conn_close(s->daemon->table.at[i], "test");
    assert_null(s->daemon->peers.pace.first);
    for (int i = 0; i < HOSTILE; i++) close(fds[i]);
}

TEST(a_turn_that_has_time_holds_nothing_back, scene *s)
{
    int fd = scene_operator(s);

    slow_down(s, 1);
    flood(s, fd, REQUESTS);
    pd_daemon_turn(s->daemon);
    assert_int_equal(s->daemon->counters.calls[PD_OPTIMIZERS], REQUESTS);
    assert_null(s->daemon->peers.pace.first);
    close(fd);
}
