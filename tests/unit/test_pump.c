/* Tests the pump, which carries bytes between the client's protocol core and a connection. The connection is a fake
 * in memory. Checks which events the pump watches, and how it learns that the connection has ended. */
#include "test.h"
#include "call.h"
#include "join.h"
#include "pump.h"

/* A fake transport that accepts `capacity` bytes and whose receive returns `result`. */
typedef struct pipe_end {
    pd_transport base;
    size_t capacity, taken, sends;
    ssize_t result;
    unsigned watched;
    bool broken, closed;
} pipe_end;

typedef struct rig {
    pd_core *core;
    pd_pump pump;
    pipe_end end;
    int inside; /* pd_pump.enter without leave */
} rig;

static ssize_t receive(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    pipe_end *end = (pipe_end *)transport;
    ssize_t result = end->result;
    (void)iov;
    (void)n;

    if (result < 0) return pd_fail(err, (int)result, "the end of the pipe");
    end->result = 0;
    if (result > 0) memset(iov[0].iov_base, 0xff, (size_t)result);
    return result;
}

static ssize_t send_some(pd_transport *transport, const struct iovec *iov, int n, pd_error *err)
{
    pipe_end *end = (pipe_end *)transport;
    size_t bytes = 0;

    end->sends++;
    if (end->broken) return pd_fail(err, PD_UNAVAILABLE, "a broken pipe");
    for (int i = 0; i < n; i++) bytes += iov[i].iov_len;
    if (bytes > end->capacity) bytes = end->capacity;
    end->capacity -= bytes;
    end->taken += bytes;
    return (ssize_t)bytes;
}

static void watch(pd_transport *transport, unsigned events)
{
    ((pipe_end *)transport)->watched = events;
}
static void shut(pd_transport *transport)
{
    (void)transport;
}
static void close_end(pd_transport *transport)
{
    ((pipe_end *)transport)->closed = true;
}

static void enter(void *arg)
{
    assert_int_equal(((rig *)arg)->inside++, 0);
}

static void leave(void *arg)
{
    assert_int_equal(--((rig *)arg)->inside, 0);
}

static const pd_transport_ops ops = {
    .receive = receive, .send = send_some, .watch = watch, .shut = shut, .close = close_end
};

static void set_up(rig *r)
{
    const pd_core_config config = { .job = "job", .label = "test:1", .world_size = 1, .nonce = 7, .urls = 1 };
    pd_error err;

    assert_int_equal(pd_core_new(&r->core, &config, &err), PD_OK);
    r->pump = (pd_pump){ .core = r->core, .enter = enter, .leave = leave, .arg = r };
    r->end = (pipe_end){ .base.ops = &ops, .capacity = SIZE_MAX };
}

static void tear_down(rig *r)
{
    if (r->pump.transport != NULL) pd_pump_lose(&r->pump, 0, "the test ends");
    pd_core_free(r->core);
}

FIXTURE(rig, set_up, tear_down);

TEST(sends_the_hello_once, rig *r)
{
    pd_pump_open(&r->pump, &r->end.base, 1);
    assert_int_equal(r->end.watched, PD_ON_READ);
    assert_true(pd_pump_send(&r->pump, 2));
    assert_true(r->end.taken > PD_PREFIX_BYTES);
    assert_false(pd_pump_send(&r->pump, 3));
    assert_int_equal(r->end.sends, 1);
}

TEST(watches_for_room_while_the_transport_is_full, rig *r)
{
    r->end.capacity = 10;
    pd_pump_open(&r->pump, &r->end.base, 1);
    assert_false(pd_pump_send(&r->pump, 2));
    assert_int_equal(r->end.watched, PD_ON_READ | PD_ON_WRITE);
    assert_false(pd_pump_send(&r->pump, 3));
    assert_int_equal(r->end.sends, 1); /* the pump does not try to send again before the transport is writable */
    r->end.capacity = SIZE_MAX;
    pd_pump_ready(&r->pump, PD_ON_WRITE, 4);
    assert_int_equal(r->end.watched, PD_ON_READ);
    assert_true(pd_pump_send(&r->pump, 5));
    assert_true(pd_core_stats(r->core).bytes_out == r->end.taken);
}

static void assert_lost(rig *r, const char *reason)
{
    assert_true(r->end.closed);
    assert_null(r->pump.transport);
    assert_int_equal(pd_core_link(r->core, UINT64_MAX), PD_LINK_CONNECT);
    assert_non_null(strstr(r->core->link.reason, reason));
    assert_false(pd_pump_send(&r->pump, 9));
    assert_false(pd_pump_ready(&r->pump, PD_ON_READ | PD_ON_WRITE, 9));
}

TEST(tells_the_core_why_a_connection_broke_while_sending, rig *r)
{
    pd_pump_open(&r->pump, &r->end.base, 1);
    r->end.broken = true;
    assert_false(pd_pump_send(&r->pump, 2));
    assert_lost(r, "a broken pipe");
}

TEST(tells_the_core_that_the_peer_ended_the_connection, rig *r)
{
    pd_pump_open(&r->pump, &r->end.base, 1);
    r->end.result = PD_CANCELLED;
    assert_false(pd_pump_ready(&r->pump, PD_ON_READ, 2));
    assert_lost(r, "the end of the pipe");
}

TEST(drops_a_connection_that_carries_no_frames, rig *r)
{
    pd_pump_open(&r->pump, &r->end.base, 1);
    r->end.result = PD_PREFIX_BYTES;
    assert_false(pd_pump_ready(&r->pump, PD_ON_READ, 2));
    assert_lost(r, "frame");
}

TEST(counts_what_it_heard_although_the_connection_breaks_next, rig *r)
{
    pd_pump_open(&r->pump, &r->end.base, 1);
    r->end.result = 5;
    pd_pump_ready(&r->pump, PD_ON_READ, 2);
    pd_pump_lose(&r->pump, 3, "cut");
    assert_int_equal(pd_core_stats(r->core).bytes_in, 5);
}

TEST(closes_the_transport_where_there_is_no_memory, rig *r)
{
    oom_arm(0);
    pd_pump_open(&r->pump, &r->end.base, 1);
    assert_true(oom_disarm());
    assert_lost(r, "out of memory");
}
