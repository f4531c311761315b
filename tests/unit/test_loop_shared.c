/* Tests the conversation with workers that share memory with the daemon. The loop thread's code runs on socket pairs
 * with a store in the same thread. */
#include <arpa/inet.h>
#include <netinet/in.h>
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

/* The first scene of a process opens descriptors that libuv keeps. */
static int warm_up(void **state)
{
    (void)state;
    scene_free(scene_new_chunks(SHARED_CHUNK));
    return 0;
}

/* Sends a Share and expects this error. */
static void assert_refuses(const shared_worker *w, int fd, uint64_t bytes, int code, const char *part)
{
    shared_send_share(w, fd, bytes);
    scene_settle(w->s);
    scene_expect_error(w->s, w->fd, code, part);
}

FIXTURE(set_up, tear_down);

TEST(refuses_a_share_without_a_descriptor, scene *s)
{
    shared_worker w = shared_join(s, "j", 0, 1, 1);

    assert_refuses(&w, -1, 4096, PD_INVALID_ARGUMENT, "the request has no file descriptor");
    shared_end(&w);
}

TEST(refuses_a_share_of_memory_that_could_end, scene *s)
{
    shared_worker w = shared_join(s, "j", 0, 1, 1);

    assert_refuses(&w, memfd_with(0, 4096, 0), 4096, PD_INVALID_ARGUMENT, "expected the seals F_SEAL_SHRINK");
    shared_end(&w);
}

TEST(refuses_a_share_of_more_bytes_than_there_are, scene *s)
{
    shared_worker w = shared_join(s, "j", 0, 1, 1);

    assert_refuses(&w, memfd_sealed(4096, 1), 4097, PD_INVALID_ARGUMENT, "expected a memfd of 4097 bytes, got 4096");
    shared_end(&w);
}

TEST(refuses_a_share_that_is_larger_than_gradients_need, scene *s)
{
    enum { MOST = (1 << 20) + 512 + 3 * SHARED_BYTES };
    shared_worker w = shared_join(s, "j", 0, 1, 1);
    char part[100];

    snprintf(part, sizeof part, "at most %d are allowed for the parameters of this worker", MOST);
    assert_refuses(&w, memfd_sealed(MOST + 1, 1), MOST + 1, PD_RESOURCE_EXHAUSTED, part);
    shared_send_share(&w, memfd_sealed(MOST, 1), MOST);
    scene_settle(s);
    scene_expect(s, w.fd, PD_SHARE);
    shared_end(&w);
}

TEST(refuses_a_second_share, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    assert_refuses(&w, memfd_sealed(4096, 1), 4096, PD_FAILED_PRECONDITION, "a second Share on one connection");
    shared_end(&w);
}

TEST(the_descriptor_of_a_share_that_is_refused_is_closed, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    int open = descriptors_open(0);

    assert_refuses(&w, memfd_sealed(4096, 1), 4096, PD_FAILED_PRECONDITION, "a second Share");
    assert_int_equal(descriptors_open(0), open);
    shared_end(&w);
}

TEST(a_share_that_was_refused_may_be_sent_again, scene *s)
{
    shared_worker w = shared_join(s, "j", 0, 1, 1);

    assert_refuses(&w, -1, 4096, PD_INVALID_ARGUMENT, "has no file descriptor");
    shared_share(&w);
    shared_end(&w);
}

TEST(refuses_a_share_before_parameters_are_declared, scene *s)
{
    shared_worker w = { .s = s, .fd = scene_connect(s), .mine = PD_NO_SEGMENT, .weights = PD_NO_SEGMENT };

    scene_hello(s, w.fd, "j", 0, 1);
    scene_settle(s);
    scene_expect(s, w.fd, PD_HELLO);
    assert_refuses(&w, memfd_sealed(4096, 1), 4096, PD_FAILED_PRECONDITION, "Share before the parameters are declared");
    shared_end(&w);
}

TEST(refuses_a_share_of_an_operator, scene *s)
{
    shared_worker w = { .s = s, .fd = scene_operator(s), .mine = PD_NO_SEGMENT, .weights = PD_NO_SEGMENT };

    assert_refuses(&w, memfd_sealed(4096, 1), 4096, PD_FAILED_PRECONDITION, "Share is for workers");
    shared_end(&w);
}

TEST(refuses_a_share_where_the_server_shares_no_memory, scene *s)
{
    shared_worker w;

    s->daemon->config.shared_memory = false;
    w = shared_join(s, "j", 0, 1, 1);
    assert_refuses(&w, memfd_sealed(4096, 1), 4096, PD_FAILED_PRECONDITION,
                   "shared memory is disabled (server.shared_memory)");
    shared_end(&w);
}

/* Connects over TCP. Returns the client's end. */
static int connect_tcp(scene *s)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), end;

    assert_int_equal(bind(listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&at, &size);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, size), 0);
    assert_true((end = accept(listener, NULL, NULL)) >= 0);
    close(listener);
    assert_int_equal(pd_daemon_adopt(s->daemon, end), PD_OK);
    return fd;
}

TEST(refuses_a_share_over_tcp, scene *s)
{
    shared_worker w = shared_join(s, "j", 0, 2, 1);
    shared_worker other = { .s = s, .fd = connect_tcp(s), .mine = PD_NO_SEGMENT, .weights = PD_NO_SEGMENT };
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter a = PARAMD__PARAMETER__INIT, *list[] = { &a };
    uint64_t shape = SHARED_CHUNK;

    a.name = (char *)"a";
    a.shape = &shape;
    a.n_shape = 1;
    declare.parameters = list;
    declare.n_parameters = 1;
    declare.last = true;
    scene_hello(s, other.fd, "j", 1, 2);
    scene_settle(s);
    scene_expect(s, other.fd, PD_HELLO);
    scene_send(s, other.fd, PD_DECLARE, &declare.base, 0);
    scene_settle(s);
    scene_expect(s, other.fd, PD_DECLARE);
    assert_refuses(&other, -1, 4096, PD_FAILED_PRECONDITION, "only a Unix socket can pass shared memory");
    shared_end(&other);
    shared_end(&w);
}

TEST(a_job_of_a_worker_that_does_not_share_lends_nothing, scene *s)
{
    shared_worker w = shared_join(s, "j", 0, 2, 1), late;
    Paramd__ShareReply *reply;

    shared_end(&w);
    scene_settle(s);
    pd_store_apply(s->store, pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 }), s->now);
    scene_settle(s);
    s->shares = false;
    w = (shared_worker){ .s = s, .fd = scene_connect(s), .mine = PD_NO_SEGMENT, .weights = PD_NO_SEGMENT };
    scene_hello(s, w.fd, "j", 0, 2);
    scene_settle(s);
    scene_expect(s, w.fd, PD_HELLO);
    late = shared_join(s, "j", 1, 2, 1);
    shared_send_share(&late, memfd_sealed(4096, 1), 4096);
    scene_settle(s);
    scene_expect(s, late.fd, PD_SHARE);
    pd_reply_unpack(s->arena, PD_SHARE, s->in, s->prefix.header_bytes, (void **)&reply, NULL);
    assert_int_equal(reply->bytes, 0);
    assert_int_equal(s->taken, -1);
    shared_end(&late);
    shared_end(&w);
}

TEST(a_descriptor_that_comes_with_another_request_is_not_kept, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);
    uint8_t prefix[PD_PREFIX_BYTES];
    int open = 0;

    pd_prefix_write(prefix, &(pd_prefix){ .version = 1, .method = PD_HEARTBEAT, .request = 77 });
    for (int i = 0; i < 20; i++) {
        int fd = memfd_sealed(64, 1);
        open = descriptors_open(0) - 1;
        assert_int_equal(pd_descriptor_send(w.fd, &(struct iovec){ prefix, sizeof prefix }, 1, &fd), sizeof prefix);
        scene_settle(s);
        scene_expect(s, w.fd, PD_HEARTBEAT);
    }
    assert_int_equal(descriptors_open(0), open); /* the last one, which waits for a Share */
    shared_end(&w);
}

TEST(refuses_to_release_more_than_is_lent, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    shared_send_pull(&w, 0, 0);
    scene_settle(s);
    shared_expect_weights(&w);
    shared_send_release(&w, 2);
    scene_settle(s);
    scene_expect_error(s, w.fd, PD_OUT_OF_RANGE, "Release of 2 answers: 1 are outstanding");
    shared_end(&w);
}

TEST(a_release_that_was_refused_releases_nothing, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    shared_send_pull(&w, 0, 0);
    scene_settle(s);
    shared_expect_weights(&w);
    shared_send_release(&w, UINT64_MAX);
    shared_send_release(&w, 1);
    scene_settle(s);
    scene_expect_error(s, w.fd, PD_OUT_OF_RANGE, "are outstanding");
    scene_expect(s, w.fd, PD_RELEASE);
    shared_end(&w);
}

/* Lets more time pass than the daemon waits for a worker. Returns whether the daemon has closed the connection. */
static bool ends_in_time(const shared_worker *w)
{
    uint8_t byte;

    w->s->daemon->config.times.write_ms = 1;
    scene_pass(w->s, 2);
    scene_turn(w->s);
    return recv(w->fd, &byte, 1, MSG_DONTWAIT) == 0;
}

TEST(a_worker_that_releases_nothing_in_time_is_closed, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 1, 1);

    shared_send_pull(&w, 0, 0);
    scene_settle(s);
    shared_expect_weights(&w);
    assert_true(ends_in_time(&w));
    shared_end(&w);
}

TEST(a_worker_that_has_released_everything_is_not_closed, scene *s)
{
    shared_worker w = shared_start(s, "j", 0, 2, 1), late = shared_start(s, "j", 1, 2, 1);

    shared_send_pull(&w, 0, 0);
    shared_send_pull(&late, 0, 0);
    scene_settle(s);
    shared_expect_weights(&w);
    shared_send_release(&w, 1);
    scene_settle(s);
    scene_expect(s, w.fd, PD_RELEASE);
    shared_expect_weights(&late);
    assert_true(ends_in_time(&late));
    shared_send_pull(&w, 0, 0);
    scene_settle(s);
    shared_expect_weights(&w);
    shared_end(&late);
    shared_end(&w);
}

/* Sends a Share whose n-th allocation fails. The worker gets an answer, or the end of its connection. Returns whether
 * one failed. */
static bool share_without_memory(int64_t n)
{
    scene *s = scene_new_chunks(SHARED_CHUNK);
    shared_worker w = shared_join(s, "j", 0, 1, 1);
    uint8_t byte;
    bool failed;

    shared_send_share(&w, memfd_sealed(4096, 1), 4096);
    oom_arm(n);
    scene_turn(s);
    failed = oom_disarm();
    scene_settle(s);
    assert_true(recv(w.fd, &byte, 1, MSG_DONTWAIT) >= 0);
    shared_end(&w);
    scene_free(s);
    return failed;
}

TEST(a_share_for_which_no_memory_is_left_is_answered_and_leaks_nothing)
{
    int open = descriptors_open(0);
    int64_t n = 0;

    while (share_without_memory(n)) n++;
    assert_true(n >= 3);
    assert_int_equal(descriptors_open(0), open);
}

TEST(a_daemon_that_has_no_descriptor_left_lends_nothing, scene *s)
{
    shared_worker w = shared_join(s, "j", 0, 1, 1);
    Paramd__ShareReply *reply;

    shared_send_share(&w, memfd_sealed(4096, 1), 4096);
    scene_turn(s);
    descriptors_forbid();
    scene_answer(s);
    descriptors_allow();
    scene_settle(s);
    scene_expect(s, w.fd, PD_SHARE);
    pd_reply_unpack(s->arena, PD_SHARE, s->in, s->prefix.header_bytes, (void **)&reply, NULL);
    assert_int_equal(reply->bytes, 0);
    shared_end(&w);
}

TEST(a_job_for_which_no_segment_can_be_made_says_so_and_works, scene *s)
{
    shared_worker w = { .s = s, .fd = scene_connect(s), .mine = PD_NO_SEGMENT, .weights = PD_NO_SEGMENT };

    s->shares = true;
    scene_hello(s, w.fd, "j", 0, 1);
    scene_settle(s);
    scene_expect(s, w.fd, PD_HELLO);
    descriptors_forbid();
    scene_declare(s, w.fd, 1);
    scene_settle(s);
    descriptors_allow();
    scene_expect(s, w.fd, PD_DECLARE);
    assert_non_null(strstr(s->said, "weights travel through sockets: shared memory: memfd_create"));
    shared_end(&w);
}

GROUP(warm_up, NULL);
