/* Tests that the daemon lets the bytes of a fast payload gather in the kernel, and what it makes of a peer that becomes
 * slow or stops meanwhile. The loop thread's code runs on sockets of the test with a store in the same thread. */
#define _GNU_SOURCE /* for accept4 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "test.h"
#include "conn.h"
#include "daemon_process.h"
#include "scene.h"

enum { FAST = 128 * 1024, FLOATS = 256 * 1024, PAYLOAD = FLOATS * 4 };

static size_t asked; /* how many bytes the daemon wants to gather */

static void keep(pd_transport *transport, size_t bytes)
{
    (void)transport;
    asked = bytes;
}

/* A scene with a worker that has sent the header of initial weights of PAYLOAD bytes. */
typedef struct payload_scene {
    scene *s;
    int fd;
} payload_scene;

/* Connects a client over TCP. Returns its socket. */
static int connect_tcp(const scene *s)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, size), 0);
    assert_int_equal(pd_daemon_adopt(s->daemon, accept4(listener, NULL, NULL, SOCK_NONBLOCK)), PD_OK);
    close(listener);
    return client;
}

/* Returns the only connection. */
static pd_conn *conn_of(const payload_scene *p)
{
    for (size_t i = 0; i < p->s->daemon->table.capacity; i++)
        if (p->s->daemon->table.at[i] != NULL) return p->s->daemon->table.at[i];
    return NULL;
}

static void declare_one(scene *s, int fd)
{
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter at = PARAMD__PARAMETER__INIT, *list[] = { &at };
    uint64_t shape = FLOATS;

    at.name = (char *)"large";
    at.shape = &shape;
    at.n_shape = 1;
    declare.parameters = list;
    declare.n_parameters = 1;
    declare.last = true;
    scene_send(s, fd, PD_DECLARE, &declare.base, 0);
}

/* Sends n zeros, while the daemon reads. */
static void send_slowly(const payload_scene *p, size_t n)
{
    static const uint8_t zeros[PAYLOAD];

    while (n > 0) {
        ssize_t sent = send(p->fd, zeros, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) n -= (size_t)sent;
        pd_daemon_turn(p->s->daemon);
    }
}

static bool has_memory(void *arg)
{
    const payload_scene *p = arg;

    scene_settle(p->s);
    return pd_framer_left(conn_of(p)->framer) == PAYLOAD;
}

/* Sends the header of an Initialise of all elements, whose payload the caller sends. */
static void begin_payload(const payload_scene *p)
{
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };
    uint8_t *frame;
    size_t bytes;

    piece.dtype = PD_F32;
    piece.count = FLOATS;
    init.pieces = pieces;
    init.n_pieces = 1;
    assert_int_equal(pd_frame_pack(&frame, &bytes, PD_INIT, 0, ++p->s->last_id, &init.base, NULL, 0, PAYLOAD), PD_OK);
    assert_int_equal(send(p->fd, frame, bytes, MSG_NOSIGNAL), bytes);
    free(frame);
    assert_true(await(has_memory, (void *)p, patient(10)));
}

static bool has_answer(void *arg)
{
    payload_scene *p = arg;
    char byte;

    scene_settle(p->s);
    return recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

static void expect(payload_scene *p, unsigned method)
{
    assert_true(await(has_answer, p, patient(10)));
    scene_expect(p->s, p->fd, method);
}

/* Joins a job, and begins the payload. */
static void join(payload_scene *p)
{
    int room = PAYLOAD;

    assert_int_equal(setsockopt(p->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    scene_hello(p->s, p->fd, "j", 0, 1);
    expect(p, PD_HELLO);
    declare_one(p->s, p->fd);
    expect(p, PD_DECLARE);
    begin_payload(p);
}

/* Makes a scene whose worker's connection only keeps what it is asked. */
static payload_scene payload_scene_new(void)
{
    static pd_transport_ops ops;
    payload_scene p = { .s = scene_new_chunks(FLOATS) };
    pd_conn *conn;

    p.fd = scene_connect(p.s);
    conn = conn_of(&p);
    assert_non_null(conn);
    ops = *conn->transport->ops;
    ops.gather = keep;
    conn->transport->ops = &ops;
    asked = 1;
    join(&p);
    return p;
}

static void payload_scene_free(payload_scene *p)
{
    close(p->fd);
    scene_settle(p->s);
    scene_free(p->s);
}

/* Sends FAST bytes at once, so that the daemon receives them in a turn, and lets the rest gather. */
static void send_fast(const payload_scene *p)
{
    static const uint8_t zeros[FAST];

    assert_int_equal(send(p->fd, zeros, FAST, MSG_NOSIGNAL | MSG_DONTWAIT), FAST);
    pd_daemon_turn(p->s->daemon);
    pd_daemon_turn(p->s->daemon);
    assert_int_equal(asked, 2 * FAST);
}

static bool is_eased(void *arg)
{
    payload_scene *p = arg;

    scene_turn(p->s);
    scene_pass(p->s, 1);
    return asked == 1;
}

TEST(the_daemon_lets_a_payload_gather_and_ends_that_with_the_frame)
{
    payload_scene p = payload_scene_new();

    send_fast(&p);
    send_slowly(&p, PAYLOAD - FAST);
    expect(&p, PD_INIT);
    assert_int_equal(asked, 1);
    payload_scene_free(&p);
}

TEST(the_daemon_ends_the_gathering_when_nothing_has_come_for_a_while)
{
    payload_scene p = payload_scene_new();

    send_fast(&p);
    assert_true(await(is_eased, &p, patient(5)));
    send_slowly(&p, PAYLOAD - FAST);
    expect(&p, PD_INIT);
    payload_scene_free(&p);
}

/* A client over TCP that sends a byte from time to time, until the number of bytes is used up. */
typedef struct trickle {
    payload_scene *p;
    size_t left;
} trickle;

static bool is_used_up(void *arg)
{
    trickle *t = arg;

    assert_int_equal(send(t->p->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT), 1);
    scene_turn(t->p->s);
    scene_pass(t->p->s, 5);
    assert_int_equal(conn_of(t->p)->state, PD_OPEN);
    return --t->left == 0;
}

/* The bytes take 15 times as long as a silent peer would have. */
TEST(the_daemon_counts_a_payload_that_becomes_slow_as_progress)
{
    payload_scene p = { .s = scene_new_chunks(FLOATS) };
    pd_transport *transport;

    p.fd = connect_tcp(p.s);
    join(&p);
    transport = conn_of(&p)->transport;
    p.s->daemon->config.times.silence_ms = 300;
    for (int i = 0; i < 3; i++) {
        pd_transport_gather(transport, FAST, PAYLOAD);
        assert_int_equal(transport->gathers, 2 * FAST);
        assert_true(await(is_used_up, &(trickle){ &p, 300 }, patient(30)));
    }
    p.s->daemon->config.times.silence_ms = 60000;
    payload_scene_free(&p);
}

static bool has_ended(void *arg)
{
    payload_scene *p = arg;

    scene_pass(p->s, 5);
    scene_turn(p->s);
    return conn_of(p) == NULL || conn_of(p)->state == PD_ENDING;
}

TEST(the_daemon_ends_a_peer_that_stops_one_byte_short_as_it_ends_any_silent_one)
{
    payload_scene p = payload_scene_new();

    send_fast(&p);
    send_slowly(&p, PAYLOAD - FAST - 1);
    p.s->daemon->config.times.silence_ms = 200;
    assert_true(await(has_ended, &p, patient(5)));
    scene_expect_error(p.s, p.fd, PD_DEADLINE_EXCEEDED, "no data from the peer within 0.2 s");
    assert_int_equal(asked, 1);
    payload_scene_free(&p);
}
