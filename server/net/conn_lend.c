/* conn_lend.c - lends the directions of a connection's transport to movers, and takes them back.
 *
 * A direction is lent for one pass over bytes that are known already: the rest of a payload, or weights of an answer.
 * Meanwhile the connection neither receives nor sends in this direction, and keeps the memory. All else goes on: its
 * timeouts, its requests, and its end. */
#include "conn.h"

#include "mutant.h"

/* Most bytes and spans of one pass: the peer's other direction, and other connections of the mover, have their turn
 * then. */
enum { MOST_LENT = 4 * 1024 * 1024, MOST_SPANS = 1024 };

/* Returns whether so many bytes are given to a mover. */
static bool is_worth_it(const pd_conn *conn, size_t bytes)
{
    uint64_t least = conn->daemon->config.least_lent;

    return bytes >= (least > 0 ? least : PD_LEAST_LENT);
}

static bool has_movers(const pd_conn *conn)
{
    return conn->daemon->config.movers > 0 && conn->transport->ops->lend != NULL;
}

bool pd_conn_lend_input(pd_conn *conn)
{
    struct iovec span;

    if (!has_movers(conn) || !pd_framer_lends(conn->framer, &span, MOST_LENT) || !is_worth_it(conn, span.iov_len))
        return false;
    conn->lent.in = conn->transport->ops->lend(conn->transport, PD_ON_READ, &span, 1);
    if (conn->lent.in == 0) return false;
    conn->times.read = pd_loop_now_ms(conn->daemon); /* the peer has sent bytes, although they are not counted yet */
    return true;
}

bool pd_conn_lend_output(pd_conn *conn)
{
    struct iovec iov[MOST_SPANS];
    size_t bytes = 0;
    int n;

    if (!has_movers(conn) ||
        pd_output_next(&conn->output, &conn->daemon->scratch, iov, MOST_SPANS, MOST_LENT, &n) != PD_OK)
        return false; /* the caller meets the same error */
    for (int i = 0; i < n; i++) bytes += iov[i].iov_len;
    if (!is_worth_it(conn, bytes)) return false;
    conn->lent.out = conn->transport->ops->lend(conn->transport, PD_ON_WRITE, iov, n);
    return conn->lent.out != 0;
}

/* Counts what a mover has done. */
static void count(pd_loop_counters *counters, const pd_moved *moved)
{
    counters->moves++;
    *(moved->direction == PD_ON_READ ? &counters->moved_in : &counters->moved_out) += moved->bytes;
}

/* Handles what a mover has received. The bytes of a frame that was dropped meanwhile are forgotten. */
static void take_input(pd_conn *conn, const pd_moved *moved)
{
    if (conn->lent.buffer != NULL) pd_conn_return_buffer(conn->daemon, conn->lent.buffer);
    conn->lent.buffer = NULL;
    if (moved->bytes > 0 && pd_conn_live(conn)) pd_conn_received(conn, moved->bytes);
    if (moved->end < 0) pd_conn_input_ended(conn, moved->end, &moved->err);
    if (pd_conn_live(conn)) pd_transport_gather(conn->transport, moved->bytes, pd_framer_left(conn->framer));
}

static void take_output(pd_conn *conn, const pd_moved *moved)
{
    if (moved->bytes > 0) pd_conn_sent(conn, moved->bytes);
    if (moved->end < 0) pd_conn_close(conn, "its socket is broken");
}

void pd_conn_moved(void *arg, const pd_moved *moved)
{
    pd_conn *conn = arg;

    count(&conn->daemon->counters, moved);
    *(moved->direction == PD_ON_READ ? &conn->lent.in : &conn->lent.out) = 0;
    if (conn->state == PD_CLOSED) {
        pd_conn_dispose(conn);
        return;
    }
    if (moved->direction == PD_ON_READ)
        take_input(conn, moved);
    else
        take_output(conn, moved);
    pd_conn_touch(conn); /* answers that were queued meanwhile have their turn before more is received */
}
