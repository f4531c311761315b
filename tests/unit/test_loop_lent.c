/* Tests payloads in shared memory between a worker and the daemon: gradients that the daemon reads there, and weights
 * that it lends, until they are released or their job ends. The loop thread's code runs on socket pairs with a store in
 * the same thread. */
#include <sys/socket.h>

#include "test.h"
#include "transport.h"
#include "descriptors.h"
#include "loop.h"
#include "shared_worker.h"

WITH_THREADS();

static int before; /* descriptors that were open before the test */

static int set_up(void **state)
{
    before = descriptors_open(0);
    *state = scene_new_chunks(SHARED_CHUNK);
    return 0;
}

static int tear_down(void **state)
{
    scene_free(*state);
    return descriptors_open(0) == before ? 0 : -1;
}

static void expect_end(int fd)
{
    uint8_t byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
}

/* The first scene of a process opens descriptors that libuv keeps. */
static int warm_up(void **state)
{
    (void)state;
    scene_free(scene_new_chunks(SHARED_CHUNK));
    return 0;
}

EACH_TEST(set_up, tear_down);

TEST(a_push_by_its_place_is_summed_as_one_through_the_socket, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    shared_push(&w, 0, 1, UNITS_A_CHUNK * 3, 5);
    scene_settle(s);
    scene_expect(s, w.fd, PD_PUSH);
    shared_send_pull(&w, 0, 1);
    scene_settle(s);
    assert_true(shared_are(shared_expect_weights(&w), -5));
    shared_end(&w);
}

TEST(refuses_a_payload_outside_of_the_segment, scene *s)
{
    static const uint32_t places[] = { UNITS_A_CHUNK * 3 + 1, UNITS_A_CHUNK * 4, UINT32_MAX };
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        shared_send_data(&w, PD_PUSH, 0, 1, places[i]);
        scene_settle(s);
        scene_expect_error(s, w.fd, PD_OUT_OF_RANGE, "is outside the shared segment");
    }
    shared_push(&w, 0, 1, 0, 1); /* the connection goes on */
    scene_settle(s);
    scene_expect(s, w.fd, PD_PUSH);
    shared_end(&w);
}

TEST(refuses_a_payload_in_shared_memory_before_a_share, scene *s)
{
    shared_worker w = shared_join(s, "j", 0, 1, 1);

    shared_send_data(&w, PD_INIT, 0, 0, 0);
    scene_settle(s);
    scene_expect_error(s, w.fd, PD_FAILED_PRECONDITION, "send Share first");
    shared_end(&w);
}

TEST(payloads_in_shared_memory_take_nothing_of_the_ingest_budget, scene *s)
{
    shared_worker first = shared_start(s, "j", 0, 2, 4), second = shared_start(s, "j", 1, 2, 4);

    for (uint32_t i = 0; i < 4; i++) shared_push(&first, i, 1, i * UNITS_A_CHUNK, 1);
    scene_turn(s);
    assert_int_equal(s->daemon->ingest.admission.used, 0);
    shared_end(&first);
    shared_end(&second);
}

/* Rank 0 is killed when its gradient is with the daemon: what it has lent stays readable. */
TEST(a_push_of_a_worker_that_has_died_still_counts, scene *s)
{
    shared_worker first = shared_start(s, "j", 0, 2, 1), second = shared_start(s, "j", 1, 2, 1);

    shared_push(&first, 0, 1, 0, 6);
    scene_settle(s);
    shared_end(&first);
    scene_settle(s);
    shared_push(&second, 0, 1, 0, 2);
    scene_settle(s);
    scene_expect(s, second.fd, PD_PUSH);
    shared_send_pull(&second, 0, 1);
    scene_settle(s);
    assert_true(shared_are(shared_expect_weights(&second), -4));
    shared_end(&second);
}

/* Takes a step of a job of one worker, with gradient 1. */
static void step(const shared_worker *w, uint64_t number)
{
    shared_push(w, 0, number, 0, 1);
    scene_settle(w->s);
    scene_expect(w->s, w->fd, PD_PUSH);
}

TEST(weights_that_are_lent_stay_as_they_are_whatever_steps_are_taken, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    const float *lent[6];

    for (uint64_t i = 0; i < 6; i++) {
        shared_send_pull(&w, 0, i);
        scene_settle(s);
        lent[i] = shared_expect_weights(&w);
        step(&w, i + 1);
    }
    for (uint64_t i = 0; i < 6; i++) assert_true(shared_are(lent[i], -(float)i));
    shared_end(&w);
}

/* The segment has room for 8 buffers of a parameter. Without releases it would be used up. */
TEST(weights_that_are_released_make_room_for_others, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    for (uint64_t i = 0; i < 200; i++) {
        shared_send_pull(&w, 0, i);
        scene_settle(s);
        assert_true(shared_are(shared_expect_weights(&w), -(float)i));
        shared_send_release(&w, 1);
        scene_settle(s);
        scene_expect(s, w.fd, PD_RELEASE);
        step(&w, i + 1);
    }
    shared_end(&w);
}

TEST(weights_follow_their_header_where_the_segment_is_used_up, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    uint64_t i = 0;
    bool shared = true;

    for (; shared && i < 2000; i++) {
        shared_send_pull(&w, 0, i);
        scene_settle(s);
        assert_true(scene_receive(s, w.fd));
        shared = (s->prefix.flags & PD_FLAG_SHARED) != 0;
        step(&w, i + 1);
    }
    assert_false(shared);
    shared_send_pull(&w, 0, i);
    scene_settle(s);
    assert_true(shared_are(shared_expect_bytes(&w), -(float)i));
    shared_end(&w);
}

TEST(weights_follow_their_header_after_the_worker_has_ended_its_side, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 2, 1), other = shared_start(s, "j", 1, 2, 1);

    shared_push(&w, 0, 1, 0, 2);
    shared_send_pull(&w, 0, 1);
    shutdown(w.fd, SHUT_WR);
    scene_settle(s);
    shared_push(&other, 0, 1, 0, 4); /* closes the round that the pull waits for */
    scene_settle(s);
    assert_true(shared_are(shared_expect_bytes(&w), -3));
    shared_end(&w);
    shared_end(&other);
}

TEST(weights_follow_their_header_where_the_worker_has_not_shared, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 2, 1), other = shared_join(s, "j", 1, 2, 1);

    shared_send_pull(&other, 0, 0);
    scene_settle(s);
    assert_true(shared_are(shared_expect_bytes(&other), 0));
    shared_end(&w);
    shared_end(&other);
}

TEST(answers_to_many_pulls_are_lent_up_to_a_mib_of_their_records, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    uint64_t most = ((1 << 20) - 1) / pd_pending_bytes(1) + 1, lent = 0;
    bool shared = true;

    while (shared && lent < 10000) {
        shared_send_pull(&w, 0, 0);
        scene_turn(s);
        assert_true(scene_receive(s, w.fd));
        shared = (s->prefix.flags & PD_FLAG_SHARED) != 0;
        lent += shared;
    }
    assert_int_equal(lent, most);
    shared_end(&w);
}

static void drop_job(scene *s)
{
    pd_store_apply(s->store, pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 }), s->now);
    scene_settle(s);
}

TEST(lent_weights_stay_when_their_job_is_dropped, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    const float *lent;

    step(&w, 1);
    shared_send_pull(&w, 0, 1);
    scene_settle(s);
    lent = shared_expect_weights(&w);
    drop_job(s);
    assert_true(shared_are(lent, -1));
    shared_end(&w);
}

TEST(lent_weights_of_a_job_that_was_dropped_can_be_released, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    shared_send_pull(&w, 0, 0);
    scene_settle(s);
    shared_expect_weights(&w);
    drop_job(s);
    shared_send_release(&w, 1);
    scene_settle(s);
    scene_expect(s, w.fd, PD_RELEASE);
    shared_end(&w);
}

TEST(the_segment_of_a_job_goes_with_the_job, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    int open = descriptors_of_segments(0);

    drop_job(s);
    assert_int_equal(descriptors_of_segments(0), open - 1);
    shared_end(&w);
}

TEST(a_second_job_has_a_segment_of_its_own, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1), next;

    shared_send_pull(&w, 0, 0);
    scene_settle(s);
    shared_expect_weights(&w);
    drop_job(s);
    next = shared_start(s, "k", 0, 1, 1);
    step(&next, 1);
    shared_send_pull(&next, 0, 1);
    scene_settle(s);
    assert_true(shared_are(shared_expect_weights(&next), -1));
    shared_end(&w);
    shared_end(&next);
}

TEST(a_push_after_the_job_was_dropped_cannot_lie_in_shared_memory, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    drop_job(s);
    shared_push(&w, 0, 1, 0, 1);
    scene_settle(s);
    scene_expect_error(s, w.fd, PD_FAILED_PRECONDITION, "the job has ended");
    shared_end(&w);
}

TEST(the_end_of_a_connection_that_the_daemon_ends_comes_after_lent_weights, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    const float *lent;

    step(&w, 1);
    shared_send_pull(&w, 0, 1);
    scene_settle(s);
    assert_int_equal(send(w.fd, "this is no frame, and it has forty bytes", 40, MSG_NOSIGNAL), 40);
    scene_settle(s);
    lent = shared_expect_weights(&w);
    assert_true(pd_descriptor_is_open(w.fd)); /* so the worker may use them */
    assert_true(shared_are(lent, -1));
    scene_expect_error(s, w.fd, PD_INVALID_ARGUMENT, "expected a frame");
    expect_end(w.fd);
    shared_end(&w);
}

GROUP(warm_up, NULL);
