/* Tests TCP sockets whose directions are lent to a mover, which the test holds back where the order matters. */
#include <fcntl.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <sys/socket.h>

#include "test.h"
#include "daemon_process.h"
#include "loop.h"
#include "uvloop.h"

WITH_THREADS();

enum { BYTES = 1024 * 1024, MOST_MOVED = 4 };

typedef struct fixture {
    pd_daemon daemon;
    pd_uvloop loop;
    pd_transport *transport;
    int fd, peer; /* fd: the socket of `transport` */
    bool closed;  /* `transport` is closed */
    pd_mover_job gate;
    sem_t go; /* the mover waits for it, while it is held back */
    unsigned events;
    pd_moved moved[MOST_MOVED];
    int n_moved;
    uint8_t out[BYTES], in[BYTES];
} fixture;

static void wake(void *arg)
{
    uv_async_send(&((fixture *)arg)->loop.wake);
}

static void on_wake(uv_async_t *handle)
{
    pd_movers_take(((fixture *)handle->data)->loop.movers);
}

static void on_ready(void *arg, unsigned events)
{
    ((fixture *)arg)->events |= events;
}

static void on_moved(void *arg, const pd_moved *moved)
{
    fixture *f = arg;

    f->moved[f->n_moved++] = *moved;
}

/* Connects two TCP sockets of this machine. */
static void connect_tcp(fixture *f)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    getsockname(listener, (struct sockaddr *)&at, &size);
    f->peer = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(f->peer, (struct sockaddr *)&at, size), 0);
    f->fd = accept(listener, NULL, NULL);
    fcntl(f->fd, F_SETFL, O_NONBLOCK);
    close(listener);
}

static void set_up(fixture *f)
{
    pd_error err;

    uv_loop_init(&f->loop.uv);
    uv_async_init(&f->loop.uv, &f->loop.wake, on_wake);
    f->loop.wake.data = f;
    f->loop.daemon = &f->daemon;
    f->loop.movers = pd_movers_new(1, wake, f, &err);
    sem_init(&f->go, 0, 0);
    connect_tcp(f);
    f->transport = pd_socket_new(&f->loop, f->fd);
    f->transport->ready = on_ready;
    f->transport->moved = on_moved;
    f->transport->arg = f;
    for (size_t i = 0; i < BYTES; i++) f->out[i] = (uint8_t)(i * 31 + i / 256);
}

static void tear_down(fixture *f)
{
    if (!f->closed) f->transport->ops->close(f->transport);
    pd_movers_free(f->loop.movers);
    uv_close((uv_handle_t *)&f->loop.wake, NULL);
    uv_run(&f->loop.uv, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop.uv), 0);
    close(f->peer);
    sem_destroy(&f->go);
}

FIXTURE(fixture, set_up, tear_down);

static void turn(fixture *f)
{
    uv_run(&f->loop.uv, UV_RUN_NOWAIT);
}

static void wait_for_go(pd_mover_job *job)
{
    sem_wait(&((fixture *)(void *)((char *)job - offsetof(fixture, gate)))->go);
}

static void done(pd_mover_job *job)
{
    (void)job;
}

/* Keeps the mover busy until let_go. */
static void hold_back(fixture *f)
{
    f->gate = (pd_mover_job){ .run = wait_for_go, .done = done };
    pd_movers_post(f->loop.movers, &f->gate);
}

static void let_go(fixture *f)
{
    sem_post(&f->go);
}

/* Sends n bytes from the peer, and waits until the socket has them. */
static bool has_come(void *arg)
{
    const fixture *f = arg;

    return recv(f->fd, (void *)f->in, BYTES, MSG_PEEK | MSG_DONTWAIT) >= 100 * 1024;
}

static void send_from_peer(fixture *f, size_t n)
{
    assert_int_equal(send(f->peer, f->out, n, 0), (ssize_t)n);
    assert_true(await(has_come, f, patient(5)));
    memset(f->in, 0, BYTES);
}

static unsigned lend(fixture *f, unsigned direction, uint8_t *at, size_t n)
{
    struct iovec iov[2] = { { at, n / 3 }, { at + n / 3, n - n / 3 } };

    return f->transport->ops->lend(f->transport, direction, iov, 2);
}

static bool is_back(void *arg)
{
    fixture *f = arg;

    turn(f);
    return f->n_moved > 0;
}

static const pd_moved *await_back(fixture *f)
{
    assert_true(await(is_back, f, patient(5)));
    return &f->moved[0];
}

TEST(a_mover_receives_what_has_come_and_no_more, fixture *f)
{
    enum { COME = 150 * 1024 };
    const pd_moved *moved;

    send_from_peer(f, COME);
    assert_int_equal(lend(f, PD_ON_READ, f->in, BYTES), PD_ON_READ);
    moved = await_back(f);
    assert_int_equal(moved->direction, PD_ON_READ);
    assert_int_equal(moved->bytes, COME);
    assert_int_equal(moved->end, 0);
    assert_memory_equal(f->in, f->out, COME);
}

TEST(a_mover_receives_no_byte_beyond_its_spans, fixture *f)
{
    char next;

    send_from_peer(f, 150 * 1024);
    assert_int_equal(lend(f, PD_ON_READ, f->in, 110 * 1024), PD_ON_READ);
    assert_int_equal(await_back(f)->bytes, 110 * 1024);
    assert_int_equal(recv(f->fd, &next, 1, MSG_DONTWAIT), 1);
    assert_int_equal((uint8_t)next, f->out[110 * 1024]);
}

TEST(a_few_bytes_are_not_worth_a_mover, fixture *f)
{
    assert_int_equal(send(f->peer, f->out, 1000, 0), 1000);
    assert_int_equal(lend(f, PD_ON_READ, f->in, BYTES), 0);
    turn(f);
    assert_int_equal(f->n_moved, 0);
}

TEST(a_lent_direction_reports_no_event_until_it_is_back, fixture *f)
{
    hold_back(f);
    send_from_peer(f, 150 * 1024);
    assert_int_equal(lend(f, PD_ON_READ, f->in, 110 * 1024), PD_ON_READ);
    f->transport->ops->watch(f->transport, PD_ON_READ | PD_ON_WRITE);
    for (int i = 0; i < 3; i++) turn(f);
    assert_int_equal(f->events, PD_ON_WRITE); /* the other direction is not lent */
    let_go(f);
    await_back(f);
    turn(f);
    assert_int_equal(f->events, PD_ON_READ | PD_ON_WRITE); /* bytes are left */
}

TEST(a_mover_tells_the_end_after_the_last_bytes, fixture *f)
{
    const pd_moved *moved;

    send_from_peer(f, 150 * 1024);
    shutdown(f->peer, SHUT_WR);
    assert_int_equal(lend(f, PD_ON_READ, f->in, BYTES), PD_ON_READ);
    moved = await_back(f);
    assert_int_equal(moved->bytes, 150 * 1024);
    assert_int_equal(moved->end, PD_CANCELLED);
}

TEST(a_mover_sends_what_the_socket_takes, fixture *f)
{
    const pd_moved *moved;

    assert_int_equal(lend(f, PD_ON_WRITE, f->out, BYTES), PD_ON_WRITE);
    moved = await_back(f);
    assert_int_equal(moved->direction, PD_ON_WRITE);
    assert_int_equal(moved->end, 0);
    assert_in_range(moved->bytes, 1, BYTES);
    assert_int_equal(recv(f->peer, f->in, moved->bytes, MSG_WAITALL), (ssize_t)moved->bytes);
    assert_memory_equal(f->in, f->out, moved->bytes);
}

TEST(a_mover_tells_that_the_peer_is_gone, fixture *f)
{
    struct linger reset = { .l_onoff = 1 };

    setsockopt(f->peer, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    hold_back(f);
    assert_int_equal(lend(f, PD_ON_WRITE, f->out, BYTES), PD_ON_WRITE);
    close(f->peer);
    f->peer = -1;
    let_go(f);
    assert_int_equal(await_back(f)->end, PD_UNAVAILABLE);
    assert_string_equal(f->moved[0].err.text, "Connection reset by peer");
}

TEST(both_directions_may_be_lent_at_once, fixture *f)
{
    hold_back(f);
    send_from_peer(f, 150 * 1024);
    assert_int_equal(lend(f, PD_ON_READ, f->in, BYTES), PD_ON_READ);
    assert_int_equal(lend(f, PD_ON_WRITE, f->out, BYTES), PD_ON_WRITE);
    let_go(f);
    while (f->n_moved < 2) await_back(f);
    assert_int_equal(f->moved[0].direction, PD_ON_READ);
    assert_int_equal(f->moved[1].direction, PD_ON_WRITE);
}

TEST(a_socket_that_is_closed_while_it_is_lent_ends_at_once_and_stays_open_until_it_is_back, fixture *f)
{
    char byte;

    hold_back(f);
    send_from_peer(f, 150 * 1024);
    assert_int_equal(lend(f, PD_ON_READ, f->in, BYTES), PD_ON_READ);
    f->transport->ops->close(f->transport);
    f->closed = true;
    assert_int_equal(recv(f->peer, &byte, 1, 0), 0); /* the peer sees the end */
    for (int i = 0; i < 3; i++) turn(f);
    assert_true(fcntl(f->fd, F_GETFD) >= 0); /* no other file gets its number */
    assert_int_equal(f->n_moved, 0);
    let_go(f);
    assert_int_equal(await_back(f)->direction, PD_ON_READ);
    assert_int_equal(fcntl(f->fd, F_GETFD), -1);
}

TEST(without_movers_nothing_is_lent, fixture *f)
{
    pd_movers *movers = f->loop.movers;

    f->loop.movers = NULL;
    send_from_peer(f, 150 * 1024);
    assert_int_equal(lend(f, PD_ON_READ, f->in, BYTES), 0);
    assert_int_equal(lend(f, PD_ON_WRITE, f->out, BYTES), 0);
    f->loop.movers = movers;
}

TEST(without_memory_nothing_is_lent, fixture *f)
{
    unsigned lent;

    oom_arm(0);
    lent = lend(f, PD_ON_WRITE, f->out, BYTES);
    assert_true(oom_disarm());
    assert_int_equal(lent, 0);
    assert_true(lend(f, PD_ON_WRITE, f->out, BYTES) != 0);
    await_back(f);
}
