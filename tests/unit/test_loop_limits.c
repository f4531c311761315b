/* Tests how much memory one connection may use, and which answers it still gets after its peer has shut down its
 * sending side. The loop thread's code runs on socket pairs with a store in the same thread. */
#include <sys/socket.h>

#include "test.h"
#include "loop.h"
#include "scene.h"

enum { PARAMS = 8, CONTROL = 16 };

/* Connects a worker that declares PARAMS parameters of one chunk each. Rank 0 also initializes them. Returns the
 * socket. */
static int join(scene *s, uint32_t rank, uint32_t world)
{
    int fd = scene_join(s, rank, world, PARAMS);

    if (rank == 0) scene_initialise(s, fd, PARAMS);
    return fd;
}

/* Sends a pull of one parameter. Returns false if the socket takes no more bytes now. */
static bool try_pull(scene *s, int fd, uint64_t min_step)
{
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want };
    uint8_t *frame;
    size_t bytes;
    ssize_t sent;

    want.handle = (uint32_t)(s->last_id % PARAMS);
    want.count = CHUNK;
    pull.min_step = min_step;
    pull.wants = wants;
    pull.n_wants = 1;
    assert_int_equal(pd_frame_pack(&frame, &bytes, PD_PULL, 0, s->last_id + 1, &pull.base, NULL, 0, 0), PD_OK);
    sent = send(fd, frame, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    free(frame);
    if (sent < 0)
        assert_int_equal(errno, EAGAIN);
    else
        assert_int_equal(sent, bytes);
    s->last_id += sent > 0;
    return sent > 0;
}

static void expect_end(int fd)
{
    uint8_t byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
}

OBJECT(scene_new(16, NULL), scene_free);

TEST(a_connection_with_16_unanswered_requests_is_not_read_from, scene *s)
{
    int fd = scene_operator(s);

    for (int i = 0; i < 40; i++) scene_say(s, fd, PD_STATUS);
    scene_turn(s);
    scene_turn(s);
    assert_int_equal(s->daemon->counters.calls[PD_STATUS], CONTROL);
    close(fd);
}

TEST(requests_beyond_16_are_answered_in_their_turn, scene *s)
{
    int fd = scene_operator(s);
    uint64_t first = s->last_id + 1;

    for (int i = 0; i < 100; i++) scene_say(s, fd, PD_STATUS);
    for (int i = 0; i < 8; i++) scene_settle(s);
    for (uint64_t i = 0; i < 100; i++) {
        scene_expect(s, fd, PD_STATUS);
        assert_int_equal(s->prefix.request, first + i);
    }
    close(fd);
}

TEST(requests_that_wait_for_other_workers_are_refused_beyond_16, scene *s)
{
    int fd = join(s, 0, 2), other = join(s, 1, 2);
    Paramd__BarrierRequest barrier = PARAMD__BARRIER_REQUEST__INIT;

    barrier.sequence = 1;
    for (int i = 0; i <= CONTROL; i++) scene_send(s, fd, PD_BARRIER, &barrier.base, 0);
    scene_settle(s);
    scene_expect_error(s, fd, PD_RESOURCE_EXHAUSTED, "wait for answers");
    close(fd);
    close(other);
}

TEST(requests_that_wait_for_other_workers_do_not_stop_the_reading, scene *s)
{
    int fd = join(s, 0, 2), other = join(s, 1, 2);
    Paramd__BarrierRequest barrier = PARAMD__BARRIER_REQUEST__INIT;

    barrier.sequence = 1;
    for (int i = 0; i < CONTROL; i++) scene_send(s, fd, PD_BARRIER, &barrier.base, 0);
    scene_say(s, fd, PD_HEARTBEAT);
    scene_settle(s);
    scene_expect(s, fd, PD_HEARTBEAT);
    close(fd);
    close(other);
}

TEST(a_connection_whose_answers_are_not_read_is_not_read_from, scene *s)
{
    int fd = join(s, 0, 1);
    size_t sent = 0;

    for (int quiet = 0; quiet < 20 && sent < 50000; quiet++) {
        for (; try_pull(s, fd, 0); sent++) quiet = 0;
        scene_turn(s);
    }
    assert_true(sent < 50000);
    assert_true(s->daemon->counters.calls[PD_PULL] < 5000); /* each unsent reply takes memory; the daemon
                                                                    * stops reading before 5000 of them, when they
                                                                    * take PD_HIGH_WATER (1 MiB) */
    close(fd);
}

/* Reads one answer. While a part of it is missing, runs the daemon's loop. Returns false if no answer has begun to
 * arrive. */
static bool receive_slowly(scene *s, int fd)
{
    if (recv(fd, s->in, PD_PREFIX_BYTES, MSG_DONTWAIT | MSG_PEEK) != PD_PREFIX_BYTES) return false;
    assert_int_equal(recv(fd, s->in, PD_PREFIX_BYTES, MSG_DONTWAIT), PD_PREFIX_BYTES);
    assert_int_equal(pd_prefix_read(&s->prefix, s->in, SCENE_HEARD, NULL), PD_OK);
    assert_int_equal(s->prefix.flags, PD_FLAG_REPLY);
    for (size_t left = s->prefix.header_bytes + s->prefix.payload_bytes; left > 0;) {
        ssize_t n = recv(fd, s->in, left, MSG_DONTWAIT);
        if (n > 0)
            left -= (size_t)n;
        else
            scene_turn(s);
    }
    return true;
}

TEST(answers_that_are_read_after_all_come_complete, scene *s)
{
    int fd = join(s, 0, 1);
    size_t sent = 0, answers = 0;

    for (int quiet = 0; quiet < 20; quiet++) { /* sends pulls until the daemon has stopped reading them */
        for (; sent < 8000 && try_pull(s, fd, 0); sent++) quiet = 0;
        scene_turn(s);
    }
    while (answers < 8000) {
        while (sent < 8000 && try_pull(s, fd, 0)) sent++;
        scene_turn(s);
        while (receive_slowly(s, fd)) answers++;
    }
    close(fd);
}

TEST(pulls_that_wait_are_refused_beyond_a_limit, scene *s)
{
    int fd = join(s, 0, 1);
    size_t refused = 0;

    for (size_t sent = 0; sent < 6000; sent++) {
        while (!try_pull(s, fd, 1)) scene_turn(s);
        if (sent % 50 != 0) continue;
        scene_turn(s);
        while (scene_receive(s, fd)) refused++;
    }
    scene_settle(s);
    while (scene_receive(s, fd)) {
        assert_true((s->prefix.flags & PD_FLAG_ERROR) != 0);
        refused++;
    }
    assert_in_range(refused, 1000, 5000);
    close(fd);
}

TEST(a_push_behind_pulls_that_wait_is_read, scene *s)
{
    int fd = join(s, 0, 1);

    for (size_t sent = 0; sent < 6000; sent++) {
        while (!try_pull(s, fd, 1)) scene_turn(s);
        scene_turn(s);
        while (scene_receive(s, fd)) continue;
    }
    for (uint32_t i = 0; i < PARAMS; i++) scene_data(s, fd, PD_PUSH, i, 1);
    scene_settle(s);
    assert_int_equal(s->daemon->counters.calls[PD_PUSH], PARAMS);
    close(fd);
}

TEST(a_whole_steps_pulls_always_fit_twice, scene *s)
{
    int fd = join(s, 0, 1);

    for (int i = 0; i < 2 * PARAMS; i++) assert_true(try_pull(s, fd, 1));
    scene_settle(s);
    assert_false(scene_receive(s, fd));
    close(fd);
}

static void post(scene *s, pd_effect *effect)
{
    effect->number = ++s->turn.effects;
    assert_int_equal(pd_mailbox_post(pd_conversation_effects(s->daemon), &effect->mail, &effect->mail), PD_OK);
}

TEST(a_late_error_does_not_end_another_request_with_the_same_id, scene *s)
{
    int fd = join(s, 0, 2);
    pd_effect *overdue = calloc(1, sizeof *overdue), *late = calloc(1, sizeof *late);
    pd_request *push;

    scene_data(s, fd, PD_PUSH, 0, 1);
    scene_turn(s);
    push = (pd_request *)(void *)pd_mailbox_take(s->requests);
    assert_int_equal(push->kind, PD_REQ_PUSH);
    overdue->kind = PD_EFF_TIMED_OUT; /* a timeout of the round ends the push before the store has handled it */
    overdue->job = push->job;
    overdue->u.timed_out.fragment = PD_ALL_FRAGMENTS;
    overdue->u.timed_out.step = 1;
    pd_fail(&overdue->u.timed_out.error, PD_DEADLINE_EXCEEDED, "overdue");
    late->kind = PD_EFF_ERROR;
    late->ticket = push->ticket;
    pd_fail(&late->u.error, PD_INVALID_ARGUMENT, "late");
    post(s, overdue);
    scene_turn(s);
    scene_expect_error(s, fd, PD_DEADLINE_EXCEEDED, "overdue");
    s->last_id--; /* the next request gets the id of the failed push, which is free again */
    scene_say(s, fd, PD_STATUS);
    scene_turn(s);
    post(s, late);
    scene_turn(s);
    assert_int_equal(pd_mailbox_post(s->requests, &push->mail, &push->mail), PD_OK);
    scene_settle(s);
    scene_expect(s, fd, PD_STATUS);
    close(fd);
}

TEST(after_its_own_leave_a_worker_is_told_that_it_has_left, scene *s)
{
    int fd = join(s, 0, 2);

    scene_say(s, fd, PD_LEAVE);
    scene_settle(s);
    scene_expect(s, fd, PD_LEAVE);
    scene_say(s, fd, PD_LEAVE);
    scene_settle(s);
    scene_expect_error(s, fd, PD_FAILED_PRECONDITION, "this worker has left");
    close(fd);
}

TEST(the_peak_of_memory_is_not_below_what_is_resident, scene *s)
{
    int fd = scene_operator(s);
    uint8_t *block = malloc(64 << 20);
    Paramd__StatusReply *reply;

    assert_non_null(block);
    memset(block, 1, 64 << 20);
    scene_say(s, fd, PD_STATUS);
    scene_settle(s);
    scene_expect(s, fd, PD_STATUS);
    assert_int_equal(pd_reply_unpack(s->arena, PD_STATUS, s->in, s->prefix.header_bytes, (void **)&reply, NULL), PD_OK);
    assert_true(reply->peak_resident_bytes >= reply->resident_bytes);
    free(block);
    close(fd);
}

TEST(a_header_too_long_for_a_stranger_is_refused_when_its_prefix_is_there, scene *s)
{
    int fd = scene_connect(s);
    uint8_t prefix[PD_PREFIX_BYTES];

    pd_prefix_write(
        prefix, &(pd_prefix){ .version = 1, .method = PD_HELLO, .header_bytes = PD_MAX_HEADER_BYTES, .request = 1 });
    assert_int_equal(send(fd, prefix, sizeof prefix, 0), sizeof prefix);
    scene_turn(s);
    scene_expect_error(s, fd, PD_RESOURCE_EXHAUSTED, "limits.hello_bytes");
    close(fd);
}

TEST(a_stranger_makes_the_daemon_allocate_little, scene *s)
{
    uint8_t prefix[PD_PREFIX_BYTES], header[1000] = { 0 };
    int64_t before, after;
    int fd, other = scene_connect(s); /* the first connection of an identity makes the record of the identity */

    pd_prefix_write(prefix,
                    &(pd_prefix){ .version = 1, .method = PD_HELLO, .header_bytes = sizeof header, .request = 1 });
    oom_forget_largest();
    before = oom_allocations();
    fd = scene_connect(s);
    assert_int_equal(send(fd, prefix, sizeof prefix, 0), sizeof prefix);
    assert_int_equal(send(fd, header, sizeof header - 1, 0), sizeof header - 1); /* never complete */
    scene_turn(s);
    after = oom_allocations();
    assert_true(after - before <= 8);
    assert_true(oom_largest() <= 6 * 1024);
    close(fd);
    close(other);
}

TEST(requests_before_the_end_of_a_peers_side_are_answered, scene *s)
{
    int fd = scene_connect(s);

    scene_hello(s, fd, "", 0, 0);
    for (int i = 0; i < 3; i++) scene_say(s, fd, PD_STATUS);
    shutdown(fd, SHUT_WR);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    for (int i = 0; i < 3; i++) scene_expect(s, fd, PD_STATUS);
    scene_settle(s);
    while (scene_receive(s, fd)) assert_int_equal(s->prefix.method, PD_HEARTBEAT);
    expect_end(fd);
    close(fd);
}

TEST(requests_that_were_held_back_are_answered_too, scene *s)
{
    int fd = scene_operator(s);

    for (int i = 0; i < 40; i++) scene_say(s, fd, PD_STATUS);
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 8; i++) scene_settle(s);
    for (int i = 0; i < 40;) {
        assert_true(scene_receive(s, fd));
        i += s->prefix.method == PD_STATUS;
    }
    close(fd);
}

TEST(a_push_before_the_end_is_answered_when_its_round_has_closed, scene *s)
{
    int fd = join(s, 0, 2), other = join(s, 1, 2);

    scene_data(s, fd, PD_PUSH, 0, 1);
    shutdown(fd, SHUT_WR);
    scene_settle(s);
    scene_data(s, other, PD_PUSH, 0, 1);
    scene_settle(s);
    do assert_true(scene_receive(s, fd));
    while (s->prefix.method == PD_HEARTBEAT);
    assert_int_equal(s->prefix.method, PD_PUSH);
    scene_settle(s);
    expect_end(fd);
    close(fd);
    close(other);
}

TEST(a_worker_that_ends_its_side_is_lost_at_once, scene *s)
{
    int fd = join(s, 0, 2), other = join(s, 1, 2);

    scene_data(s, fd, PD_PUSH, 0, 1);
    scene_settle(s);
    shutdown(fd, SHUT_WR);
    scene_settle(s);
    assert_string_equal(scene_list(s, 3, "j")->workers[0]->state, "lost");
    close(fd);
    close(other);
}

/* The daemon admits eight connections. If a worker is killed, its connection must not count any more, although its
 * push has no answer yet. */
TEST(a_worker_that_is_killed_gives_its_place_back, scene *s)
{
    for (int i = 0; i < 30; i++) {
        int fd = scene_connect(s);
        scene_hello(s, fd, "j", 1, 2);
        scene_settle(s);
        scene_expect(s, fd, PD_HELLO);
        scene_declare(s, fd, PARAMS);
        scene_settle(s);
        scene_expect(s, fd, PD_DECLARE);
        scene_data(s, fd, PD_PUSH, 0, 1);
        scene_settle(s);
        close(fd);
        scene_settle(s);
    }
    assert_false(pd_daemon_turn(s->daemon));
}
