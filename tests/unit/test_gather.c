/* Tests that bytes of a payload gather in the kernel while they come fast, and never longer than that: how many, when
 * the kernel reports them, and when the client ends it. */
#define _GNU_SOURCE /* for accept4 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "test.h"
#include "join.h"
#include "pump.h"
#include "sock.h"

enum { FAST = 128 * 1024, MOST = 512 * 1024 };

/* A transport that only keeps what was asked of it. */
typedef struct fake {
    pd_transport base;
    size_t asked, asks;
} fake;

static void keep(pd_transport *transport, size_t bytes)
{
    ((fake *)transport)->asked = bytes;
    ((fake *)transport)->asks++;
}

static const pd_transport_ops keeps = { .gather = keep };

/* Plays random turns of a reader. */
static void play_turns(unsigned seed)
{
    fake f = { .base.ops = &keeps, .asked = 1 };

    for (int i = 0; i < 500; i++) {
        bool eased = rand_r(&seed) % 4 == 0 && f.asked > 1;
        size_t got = (size_t)rand_r(&seed) % (3 * FAST);
        uint64_t left = (uint64_t)rand_r(&seed) % (rand_r(&seed) % 2 == 0 ? 1000 : 4 * MOST);
        if (eased) {
            pd_transport_ease(&f.base);
            assert_int_equal(f.asked, 1);
        }
        if (got == 0) continue;
        pd_transport_gather(&f.base, got, left);
        assert_true(f.asked >= 1 && f.asked <= MOST && f.asked <= 2 * got && (f.asked == 1 || f.asked <= left));
        if (got < FAST || left == 0 || eased) assert_int_equal(f.asked, 1);
        if (got >= FAST && left >= MOST && !eased) assert_true(f.asked >= 2 * FAST);
    }
}

HOLDS(no_more_bytes_gather_than_the_payload_has_left_and_none_after_a_slow_turn, {
    for (unsigned seed = 1; seed <= 200; seed++) play_turns(seed);
});

TEST(a_transport_is_asked_only_for_another_number)
{
    fake f = { .base.ops = &keeps };

    pd_transport_gather(&f.base, 100, MOST);
    pd_transport_ease(&f.base);
    assert_int_equal(f.asks, 0);
    for (int i = 0; i < 5; i++) pd_transport_gather(&f.base, MOST, 2 * MOST);
    assert_int_equal(f.asks, 1);
    assert_int_equal(f.asked, MOST);
}

/* Connects two TCP sockets over loopback. `room`: size of the buffer of the first one, which receives; 0: the kernel's.
 * */
static void connect_pair(int pair[2], int room)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    if (room > 0) assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    pair[1] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(pair[1], (struct sockaddr *)&address, size), 0);
    assert_true((pair[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0);
    close(listener);
}

/* A client's transport over TCP at whose other end the test sends. */
typedef struct line {
    pd_transport *transport;
    int peer;
} line;

static line line_new(int room)
{
    int pair[2];
    line l;

    connect_pair(pair, room);
    l = (line){ pd_sock_transport(pair[0], NULL), pair[1] };
    assert_non_null(l.transport);
    l.transport->ops->watch(l.transport, PD_ON_READ);
    return l;
}

static void line_free(line *l)
{
    if (l->peer >= 0) close(l->peer);
    l->transport->ops->close(l->transport);
}

static bool readable(const line *l, int ms)
{
    struct pollfd wait = pd_sock_poll(l->transport);

    return poll(&wait, 1, ms) == 1;
}

static void send_zeros(int fd, size_t n)
{
    static const uint8_t zeros[MOST];

    for (ssize_t sent; n > 0; n -= (size_t)sent) {
        sent = send(fd, zeros, n < sizeof zeros ? n : sizeof zeros, MSG_NOSIGNAL);
        assert_true(sent > 0);
    }
}

TEST(the_kernel_reports_gathered_bytes_when_the_last_one_comes)
{
    line l = line_new(0);

    pd_transport_gather(l.transport, MOST, 50000);
    send_zeros(l.peer, 49999);
    assert_false(readable(&l, 20));
    send_zeros(l.peer, 1);
    assert_true(readable(&l, 1000));
    line_free(&l);
}

TEST(the_end_of_a_peer_that_is_one_byte_short_is_reported_at_once)
{
    line ended = line_new(0), reset = line_new(0);
    struct linger at_once = { .l_onoff = 1 };

    pd_transport_gather(ended.transport, MOST, 50000);
    pd_transport_gather(reset.transport, MOST, 50000);
    send_zeros(ended.peer, 49999);
    send_zeros(reset.peer, 49999);
    shutdown(ended.peer, SHUT_WR);
    assert_true(readable(&ended, 1000));
    assert_int_equal(setsockopt(reset.peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(reset.peer);
    reset.peer = -1;
    assert_true(readable(&reset, 1000));
    line_free(&ended);
    line_free(&reset);
}

TEST(bytes_that_came_before_the_gathering_is_eased_are_reported_then)
{
    line l = line_new(0);

    pd_transport_gather(l.transport, MOST, 50000);
    send_zeros(l.peer, 1);
    assert_false(readable(&l, 20));
    pd_transport_ease(l.transport);
    assert_true(readable(&l, 1000));
    line_free(&l);
}

/* The buffer has no room for the bytes that are to gather. */
TEST(a_full_buffer_is_reported_however_small_it_is)
{
    for (int room = 1; room < 1 << 18; room *= 8) {
        line l = line_new(room);
        static const uint8_t zeros[4096];

        pd_transport_gather(l.transport, MOST, MOST);
        while (!readable(&l, 0)) { /* a test that hangs here fails by its timeout */
            if (send(l.peer, zeros, sizeof zeros, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) assert_true(readable(&l, 1000));
        }
        line_free(&l);
    }
}

static void no_lock(void *arg)
{
    (void)arg;
}

TEST(the_client_ends_the_gathering_when_nothing_has_come_for_a_while)
{
    const uint64_t ms = 1000000, patience = PD_GATHER_MS * ms;
    const pd_core_config config = { .job = "job", .label = "test:1", .world_size = 1, .nonce = 7, .urls = 1 };
    line l = line_new(0);
    pd_pump pump = { .enter = no_lock, .leave = no_lock };

    assert_int_equal(pd_core_new(&pump.core, &config, NULL), PD_OK);
    pd_pump_open(&pump, l.transport, ms);
    while (pd_pump_send(&pump, ms)) continue;
    assert_true(pd_pump_next(&pump) == UINT64_MAX);
    pd_transport_gather(l.transport, MOST, MOST);
    pump.read_ns = 5 * ms;
    assert_true(pd_pump_next(&pump) == 5 * ms + patience);
    pd_pump_send(&pump, 5 * ms + patience - 1);
    assert_int_equal(l.transport->gathers, MOST);
    pd_pump_send(&pump, 5 * ms + patience);
    assert_int_equal(l.transport->gathers, 1);
    assert_true(pd_pump_next(&pump) == UINT64_MAX);
    pd_pump_lose(&pump, 6 * ms + patience, "the test ends");
    pd_core_free(pump.core);
    close(l.peer);
}
