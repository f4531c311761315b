/* Tests frames that the loop thread refuses after their first bytes have arrived, and the effect on the frames behind
 * them. The loop thread's code runs on socket pairs with a store in the same thread. */
#include <sys/socket.h>

#include "test.h"
#include "most_shards.h"
#include "loop.h"
#include "scene.h"

enum { PAYLOAD = CHUNK * sizeof(float) };

static void assert_alive(scene *s, int fd)
{
    scene_say(s, fd, PD_HEARTBEAT);
    scene_settle(s);
    scene_expect(s, fd, PD_HEARTBEAT);
}

static bool has_ended(int fd)
{
    uint8_t byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* Begins to send a push of `count` elements of a parameter: its header and the first `sent` bytes of its payload.
 * `last` closes the step. `mark` is the mark (a number) of the last error that the sender has read. */
static void begin_marked_push(scene *s, int fd, uint32_t handle, uint64_t count, bool last, uint64_t mark, size_t sent)
{
    static const uint8_t zeros[PAYLOAD];
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };
    uint64_t payload = count * sizeof(float);
    uint8_t *frame;
    size_t bytes;

    piece.handle = handle;
    piece.dtype = PD_F32;
    piece.count = count;
    push.pieces = pieces;
    push.n_pieces = 1;
    push.step = 1;
    push.last = last;
    push.mark = mark;
    assert_int_equal(pd_frame_pack(&frame, &bytes, PD_PUSH, 0, ++s->last_id, &push.base, NULL, 0, payload), PD_OK);
    assert_int_equal(send(fd, frame, bytes, MSG_NOSIGNAL), bytes);
    assert_int_equal(send(fd, zeros, sent, MSG_NOSIGNAL), sent);
    free(frame);
}

static void begin_push(scene *s, int fd, uint32_t handle, uint64_t count, bool last, size_t sent)
{
    begin_marked_push(s, fd, handle, count, last, 0, sent);
}

static void push(scene *s, int fd, uint32_t handle, uint64_t count, bool last)
{
    begin_push(s, fd, handle, count, last, count * sizeof(float));
}

OBJECT(scene_new(16, NULL), scene_free);

/* A header of 64 KiB has room for 30,000 empty tallies, whose views would take 480 KB. */
TEST(a_verdict_of_more_tallies_than_a_cluster_has_shards_is_refused, scene *s)
{
    static ProtobufCBinaryData tallies[200];
    Paramd__SettleRequest settle = PARAMD__SETTLE_REQUEST__INIT;
    int fd = scene_join(s, 0, 1, 2);

    scene_initialise(s, fd, 2);
    settle.step = 1;
    settle.tallies = tallies;
    settle.n_tallies = PD_MAX_SHARDS + 1;
    scene_send(s, fd, PD_SETTLE, &settle.base, 0);
    settle.n_tallies = sizeof tallies / sizeof *tallies;
    scene_send(s, fd, PD_SETTLE, &settle.base, 0);
    scene_settle(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "verdict of 65 tallies: a cluster has at most 64 shards");
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "verdict of 200 tallies");
    assert_alive(s, fd);
    close(fd);
}

TEST(a_push_that_arrives_while_its_worker_leaves_is_refused_and_the_connection_lives, scene *s)
{
    static const uint8_t zeros[PAYLOAD];
    int fd = scene_join(s, 0, 1, 2);

    scene_initialise(s, fd, 2);
    scene_say(s, fd, PD_LEAVE);
    begin_push(s, fd, 0, CHUNK, false, PAYLOAD / 2);
    scene_settle(s);
    scene_expect(s, fd, PD_LEAVE);
    assert_int_equal(send(fd, zeros, PAYLOAD / 2, MSG_NOSIGNAL), PAYLOAD / 2);
    scene_settle(s);
    scene_expect_error(s, fd, PD_FAILED_PRECONDITION, "this worker has left");
    assert_alive(s, fd);
    close(fd);
}

/* The rank's quota is two frames. The rank sends a Leave and three pushes. The first two pushes reach the store
 * after the Leave and are refused. The third push waits for memory and must be refused too. */
TEST(pushes_behind_a_leave_are_refused_also_when_one_waits_for_memory, scene *s)
{
    int other = scene_join(s, 0, 2, 4), fd = scene_join(s, 1, 2, 4);

    scene_initialise(s, other, 4);
    scene_say(s, fd, PD_LEAVE);
    for (uint32_t i = 0; i < 3; i++) push(s, fd, i, CHUNK, false);
    scene_settle(s);
    scene_expect(s, fd, PD_LEAVE);
    for (uint32_t i = 0; i < 2; i++) scene_expect_error(s, fd, PD_ABORTED, "has left");
    scene_expect_error(s, fd, PD_FAILED_PRECONDITION, "this worker has left");
    assert_alive(s, fd);
    close(fd);
    close(other);
}

TEST(a_request_with_id_0_ends_the_connection_with_an_error_that_says_so, scene *s)
{
    int fd = scene_join(s, 0, 1, 1);

    s->last_id = UINT64_MAX;
    scene_say(s, fd, PD_HEARTBEAT);
    scene_settle(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "ids begin with 1");
    assert_true(has_ended(fd));
    close(fd);
}

TEST(a_hello_with_id_0_is_refused, scene *s)
{
    int fd = scene_connect(s);

    s->last_id = UINT64_MAX;
    scene_hello(s, fd, "", 0, 0);
    scene_settle(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "ids begin with 1");
    assert_true(has_ended(fd));
    close(fd);
}

TEST(a_connection_whose_push_was_refused_does_not_end_a_step, scene *s)
{
    int fd = scene_join(s, 0, 1, 2);

    scene_initialise(s, fd, 2);
    push(s, fd, 0, CHUNK / 2, false); /* the push has only half a chunk, so the loop thread refuses it */
    push(s, fd, 1, CHUNK, true);      /* this push closes the step: all other parameters are absent */
    scene_settle(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "");
    scene_expect_error(s, fd, PD_FAILED_PRECONDITION, "cannot end step");
    close(fd);
}

TEST(a_worker_that_has_read_that_its_push_was_refused_ends_the_step, scene *s)
{
    int fd = scene_join(s, 0, 1, 2);

    scene_initialise(s, fd, 2);
    push(s, fd, 0, CHUNK / 2, false);
    scene_settle(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "");
    push(s, fd, 0, CHUNK, false);
    begin_marked_push(s, fd, 1, CHUNK, true, UINT64_MAX, PAYLOAD);
    scene_settle(s);
    for (int i = 0; i < 2; i++) scene_expect(s, fd, PD_PUSH);
    close(fd);
}

TEST(a_connection_whose_push_was_refused_still_takes_pushes_that_end_no_step, scene *s)
{
    int fd = scene_join(s, 0, 1, 2);

    scene_initialise(s, fd, 2);
    push(s, fd, 0, CHUNK / 2, false);
    push(s, fd, 0, CHUNK, false);
    scene_settle(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "");
    scene_expect(s, fd, PD_PUSH);
    close(fd);
}

TEST(a_step_whose_end_was_refused_ends_on_another_connection, scene *s)
{
    int fd = scene_join(s, 0, 1, 3), again;

    scene_initialise(s, fd, 3);
    push(s, fd, 0, CHUNK / 2, false);
    push(s, fd, 1, CHUNK, true);
    scene_settle(s);
    close(fd);
    scene_settle(s);
    again = scene_join(s, 0, 1, 3);
    push(s, again, 0, CHUNK, false);
    push(s, again, 1, CHUNK, true);
    scene_settle(s);
    for (int i = 0; i < 2; i++) scene_expect(s, again, PD_PUSH);
    assert_int_equal(scene_list(s, 2, "j")->params[2]->step, 1); /* the parameter that was not pushed has taken part
                                                                  * in the step as absent */
    close(again);
}

TEST(a_refused_pull_leaves_the_end_of_the_step_alone, scene *s)
{
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    int fd = scene_join(s, 0, 1, 2);

    scene_initialise(s, fd, 2);
    scene_send(s, fd, PD_PULL, &pull.base, 0); /* it wants nothing */
    push(s, fd, 1, CHUNK, true);
    scene_settle(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "");
    scene_expect(s, fd, PD_PUSH);
    close(fd);
}

/* Makes each allocation fail in turn while a push is read. Either the push reaches the store, or the connection is
 * closed without an answer, so that the worker sends all of the step again. */
TEST(a_push_for_which_memory_is_short_is_not_refused_but_ends_the_connection, scene *s)
{
    int other = scene_join(s, 0, 2, 1), closed = 0;
    bool failed = true;

    scene_initialise(s, other, 1);
    for (int64_t n = 0; failed; n++) {
        int fd = scene_join(s, 1, 2, 1);
        uint64_t pushes = s->daemon->counters.calls[PD_PUSH];
        push(s, fd, 0, CHUNK, true);
        oom_arm(n);
        scene_turn(s);
        failed = oom_disarm();
        if (s->daemon->counters.calls[PD_PUSH] == pushes) {
            assert_true(has_ended(fd)); /* no error arrives before the connection ends */
            closed++;
        }
        close(fd);
        scene_settle(s);
    }
    assert_true(closed > 2);
    close(other);
}
