/* Tests the loop thread's code on socket pairs with a store in the same thread, for cases that need an exact order of
 * events. */
#include <fcntl.h>
#include <sys/socket.h>

#include "test.h"
#include "scene.h"
#include "loop.h"
#include "uvloop.h"

static int set_up(void **state)
{
    *state = scene_new(16, NULL);
    return 0;
}

static int tear_down(void **state)
{
    scene_free(*state);
    return 0;
}

/* Connects a worker that declares n parameters. Rank 0 also initializes them. Returns the socket. */
static int join(scene *s, const char *job, uint32_t rank, uint32_t world, unsigned n)
{
    int fd = scene_connect(s);

    scene_hello(s, fd, job, rank, world);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    scene_declare(s, fd, n);
    scene_settle(s);
    scene_expect(s, fd, PD_DECLARE);
    for (unsigned i = 0; rank == 0 && i < n; i++) {
        scene_data(s, fd, PD_INIT, i, 0);
        scene_settle(s);
        scene_expect(s, fd, PD_INIT);
    }
    return fd;
}

EACH_TEST(set_up, tear_down);

TEST(a_worker_that_goes_before_its_welcome_is_lost, scene *s)
{
    int fd = scene_connect(s);
    const Paramd__ListReply *reply;

    scene_hello(s, fd, "j", 1, 2);
    scene_turn(s);
    close(fd);
    scene_turn(s); /* the loop thread sees that the connection has ended, before the store has handled the Hello */
    scene_settle(s);
    reply = scene_list(s, 3, "j");
    assert_int_equal(reply->n_workers, 2);
    assert_string_equal(reply->workers[1]->state, "lost");
}

static bool owes; /* what the transport below answers */

static bool tell_owes(const pd_transport *transport)
{
    (void)transport;
    return owes;
}

/* Connects a client by a transport that has taken bytes and not sent them, as one over TLS, while `owes` is set. */
static int connect_owing(scene *s)
{
    static pd_transport_ops ops;
    pd_transport *transport;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    fcntl(pair[1], F_SETFL, O_NONBLOCK);
    transport = pd_socket_new(s->daemon->platform.arg, pair[1]);
    assert_non_null(transport);
    ops = *transport->ops;
    ops.owes = tell_owes;
    transport->ops = &ops;
    assert_int_equal(pd_conversation_accept(s->daemon, transport, "test"), PD_OK);
    return pair[0];
}

TEST(a_peer_that_has_ended_its_side_gets_what_its_transport_still_has, scene *s)
{
    int fd = connect_owing(s);
    char byte;

    owes = true;
    scene_hello(s, fd, "", 0, 0);
    shutdown(fd, SHUT_WR);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    scene_settle(s);
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1); /* it is open */
    owes = false;
    scene_settle(s);
    while (recv(fd, &byte, 1, MSG_DONTWAIT) > 0) continue; /* a heartbeat */
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    close(fd);
}

TEST(a_rank_whose_share_is_used_is_not_read_from_until_something_comes_home, scene *s)
{
    int slow = join(s, "j", 0, 2, 8),
        fast = join(s, "j", 1, 2, 8); /* rank 0 has pushed nothing, so no push of rank 1 can be summed and freed */

    for (uint32_t i = 0; i < 8; i++) scene_data(s, fast, PD_PUSH, i, 1);
    scene_settle(s);
    assert_true(pd_store_count_bytes(s->store).held <= 4 * CHUNK * sizeof(float));
    assert_int_equal(s->daemon->counters.calls[PD_PUSH],
                     2); /* the quota is the rank's reserve and half of the rest of the budget: two frames */
    for (uint32_t i = 0; i < 8; i++) {
        scene_data(s, slow, PD_PUSH, i, 1);
        scene_settle(s);
    }
    assert_int_equal(s->daemon->counters.calls[PD_PUSH], 16);
    for (int i = 0; i < 8; i++) scene_expect(s, fast, PD_PUSH);
    close(fast);
    close(slow);
}

TEST(a_frame_that_waits_for_its_share_when_the_job_ends_is_refused_and_the_connection_lives, scene *s)
{
    int fd = join(s, "j", 0, 2, 8), other = join(s, "j", 1, 2, 8), operator= scene_connect(s);
    Paramd__DropRequest drop = PARAMD__DROP_REQUEST__INIT;
    Paramd__Empty beat = PARAMD__EMPTY__INIT;

    for (uint32_t i = 0; i < 3; i++) scene_data(s, fd, PD_PUSH, i, 1);
    scene_hello(s, operator, "", 0, 0);
    drop.job = (char *)"j";
    scene_send(s, operator, PD_DROP, &drop.base, 0);
    scene_settle(s);
    scene_expect(s, operator, PD_HELLO);
    scene_expect(s, operator, PD_DROP);
    for (int i = 0; i < 3; i++) scene_expect_error(s, fd, PD_ABORTED, "");
    scene_send(s, fd, PD_HEARTBEAT, &beat.base, 0);
    scene_settle(s);
    scene_expect(s, fd, PD_HEARTBEAT);
    close(fd);
    close(other);
    close(operator);
}

TEST(heartbeats_take_no_memory, scene *s)
{
    int fd = join(s, "j", 0, 1, 1);
    Paramd__Empty beat = PARAMD__EMPTY__INIT;

    for (int i = 0; i < 8; i++) scene_send(s, fd, PD_HEARTBEAT, &beat.base, 0);
    oom_arm(0);
    scene_turn(s);
    assert_false(oom_disarm());
    for (int i = 0; i < 8; i++) scene_expect(s, fd, PD_HEARTBEAT);
    close(fd);
}

/* Sends a request with a checksum. Checks that the answer has a checksum, and that it is right. */
static void assert_checksum(scene *s, int fd, unsigned method, const ProtobufCMessage *message, unsigned flags)
{
    uint64_t checksum;
    uint8_t *frame;
    size_t bytes;

    assert_int_equal(pd_frame_pack(&frame, &bytes, method, PD_FLAG_CHECKSUM, ++s->last_id, message, NULL, 0, 0), PD_OK);
    assert_int_equal(send(fd, frame, bytes, MSG_NOSIGNAL), bytes);
    free(frame);
    scene_settle(s);
    if (!scene_receive(s, fd)) fail_msg("no answer to %s", pd_method_name(method));
    if (s->prefix.flags != (PD_FLAG_REPLY | PD_FLAG_CHECKSUM | flags))
        fail_msg("the answer to %s has flags %u", pd_method_name(method), s->prefix.flags);
    assert_int_equal(pd_frame_checksum(&checksum, s->in, s->prefix.header_bytes, NULL, 0), PD_OK);
    assert_true(s->prefix.checksum == checksum);
}

TEST(whatever_answers_a_request_with_a_checksum_has_one, scene *s)
{
    int fd = join(s, "j", 0, 1, 1);
    Paramd__Empty empty = PARAMD__EMPTY__INIT;
    Paramd__BarrierRequest barrier = PARAMD__BARRIER_REQUEST__INIT;
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;
    Paramd__OptimizersRequest optimizers = PARAMD__OPTIMIZERS_REQUEST__INIT;
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    int other = scene_connect(s);

    list.what = barrier.sequence = 1;
    assert_checksum(s, fd, PD_HEARTBEAT, &empty.base, 0);
    assert_checksum(s, fd, PD_OPTIMIZERS, &optimizers.base, 0);
    assert_checksum(s, fd, PD_LIST, &list.base, 0); /* the store answers this request */
    assert_checksum(s, fd, PD_BARRIER, &barrier.base, 0);
    assert_checksum(s, fd, PD_DRAIN, &empty.base, PD_FLAG_ERROR);    /* the loop thread refuses this request */
    assert_checksum(s, fd, PD_BARRIER, &empty.base, PD_FLAG_ERROR);  /* the store refuses this request, since the
                                                                      * barrier has no number */
    assert_checksum(s, other, PD_HELLO, &hello.base, PD_FLAG_ERROR); /* the Hello has protocol version 0, so it is
                                                                      * refused and the connection ends */
    close(fd);
    close(other);
}

TEST(an_id_under_way_ends_the_connection_that_uses_it_again, scene *s)
{
    int fd = join(s, "j", 0, 2, 1);

    scene_data(s, fd, PD_PUSH, 0, 1);
    scene_settle(s);
    s->last_id--;
    scene_data(s, fd, PD_PUSH, 0, 1);
    scene_settle(s);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, "duplicate request id");
    assert_int_equal(recv(fd, s->in, 1, MSG_DONTWAIT), 0);
    close(fd);
}

TEST(a_push_for_a_closed_round_is_read_away_and_answered, scene *s)
{
    int fd = join(s, "j", 0, 1, 1);
    Paramd__DataReply *reply;

    for (int i = 0; i < 2; i++) {
        scene_data(s, fd, PD_PUSH_PULL, 0, 1);
        scene_settle(s);
        scene_expect(s, fd, PD_PUSH_PULL);
        assert_int_equal(s->prefix.payload_bytes, CHUNK * sizeof(float));
        pd_arena_reset(s->arena);
        assert_int_equal(pd_reply_unpack(s->arena, PD_PUSH_PULL, s->in, s->prefix.header_bytes, (void **)&reply, NULL),
                         PD_OK);
        assert_int_equal(reply->outcomes[0]->outcome, PD_STEPPED);
        assert_int_equal(reply->outcomes[0]->step, 1);
    }
    close(fd);
}

/* Makes each allocation of a conversation fail in turn. The daemon answers or closes the connection, and nothing is
 * lost. */
TEST_STATE(survives_an_allocation_that_fails_anywhere)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        scene *s;
        int fd;
        if (n > 0) set_up(state);
        s = *state;
        fd = scene_connect(s);
        scene_hello(s, fd, "j", 0, 1);
        oom_arm(n);
        scene_turn(s);
        failed = oom_disarm();
        scene_settle(s);
        if (scene_receive(s, fd) && s->prefix.flags == PD_FLAG_REPLY) {
            scene_declare(s, fd, 2);
            oom_arm(n);
            scene_turn(s);
            failed |= oom_disarm();
            scene_settle(s);
            scene_data(s, fd, PD_INIT, 0, 0);
            oom_arm(n);
            scene_turn(s);
            failed |= oom_disarm();
            scene_settle(s);
            scene_data(s, fd, PD_PUSH_PULL, 0, 1);
            oom_arm(n);
            scene_turn(s);
            failed |= oom_disarm();
            scene_settle(s);
        }
        close(fd);
        if (failed) tear_down(state);
    }
}
