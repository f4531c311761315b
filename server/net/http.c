/* http.c - an HTTP connection from its first byte to its end. */
#include "http.h"

#include "http_answer.h"
#include "loop.h"
#include "plant.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* How long an answered connection may take to end its side: closing at once could destroy the last bytes on their
 * way. */
enum { END_MS = 1000 };
/* Most bytes that a connection sends in one turn of the loop. */
enum { TURN_BYTES = 4 * PD_HTTP_PIECE };

typedef enum state { READING, ANSWERING, ENDING, CLOSED } state;

struct pd_http_conn {
    pd_daemon *daemon;
    pd_transport *transport;
    state state;
    uint64_t opened_ms, moved_ms; /* times at which it was opened, and at which its state changed or bytes left last */
    size_t n;                     /* number of bytes of the request that have come */
    pd_http_answer answer;
    pd_document out; /* the piece of the answer that is being sent */
    size_t sent;     /* number of its bytes that have left */
    pd_http_conn *prev, *next, *next_closed;
    char request[PD_HTTP_REQUEST_MAX];
};

static void go_to(pd_http_conn *conn, state next, unsigned events)
{
    conn->state = next;
    conn->moved_ms = pd_loop_now_ms(conn->daemon);
    conn->transport->ops->watch(conn->transport, events);
}

static void close_conn(pd_http_conn *conn)
{
    pd_http *http = &conn->daemon->http;

    if (conn->state == CLOSED) return;
    conn->state = CLOSED;
    conn->transport->ops->close(conn->transport);
    DL_DELETE(http->first, conn);
    http->n--;
    conn->next_closed = http->closed;
    http->closed = conn;
}

/* ---- sending the answer ---- */

/* Sends bytes of the present piece. Returns their number; 0: the peer takes none now, or the connection is closed. */
static size_t send_some(pd_http_conn *conn)
{
    struct iovec iov = { conn->out.at + conn->sent, conn->out.n - conn->sent };
    pd_error err;
    ssize_t sent = conn->transport->ops->send(conn->transport, &iov, 1, &err);

    if (sent < 0) close_conn(conn);
    if (sent <= 0) return 0;
    conn->sent += (size_t)sent;
    conn->moved_ms = pd_loop_now_ms(conn->daemon);
    return (size_t)sent;
}

/* Writes the next piece of the answer. Returns false if there is none, or memory is out: then the peer sees an answer
 * that ends too early. */
static bool next_piece(pd_http_conn *conn)
{
    pd_document_clear(&conn->out);
    conn->sent = 0;
    return pd_http_answer_next(&conn->answer, conn->daemon, &conn->out) && !conn->out.failed;
}

static void pump(pd_http_conn *conn)
{
    size_t moved = 0, sent;

    while (moved < TURN_BYTES) {
        if (conn->sent == conn->out.n && !next_piece(conn)) {
            conn->transport->ops->shut(conn->transport);
            go_to(conn, ENDING, PD_ON_READ | PD_ON_GONE);
            return;
        }
        if ((sent = send_some(conn)) == 0) break;
        moved += sent;
    }
    if (conn->state != CLOSED) conn->transport->ops->watch(conn->transport, PD_ON_WRITE);
}

static void begin_answer(pd_http_conn *conn)
{
    if (conn->out.failed) {
        close_conn(conn);
        return;
    }
    go_to(conn, ANSWERING, PD_ON_WRITE);
    pump(conn);
}

static void refuse(pd_http_conn *conn, int status, const char *why, bool head)
{
    pd_http_answer_refuse(&conn->answer, status, why, head, &conn->out);
    begin_answer(conn);
}

/* ---- receiving the request ---- */

static void look_at_request(pd_http_conn *conn)
{
    pd_http_request request;
    const char *why = "";
    pd_http_parsed parsed = pd_http_parse(&request, conn->request, conn->n, &why);

    if (parsed == PD_HTTP_MORE) return;
    if (parsed != PD_HTTP_COMPLETE) {
        refuse(conn, (int)parsed, why, request.head);
        return;
    }
    pd_http_answer_begin(&conn->answer, conn->daemon, &request, &conn->out);
    begin_answer(conn);
}

static void receive(pd_http_conn *conn)
{
    struct iovec iov = { conn->request + conn->n, sizeof conn->request - conn->n };
    pd_error err;
    ssize_t got = conn->transport->ops->receive(conn->transport, &iov, 1, &err);

    if (got < 0) {
        close_conn(conn);
        return;
    }
    conn->n += (size_t)got;
    if (got > 0) look_at_request(conn);
}

/* Reads the bytes that the peer still sends, and drops them, until it ends its side. */
static void drain(pd_http_conn *conn)
{
    struct iovec iov = { conn->request, sizeof conn->request };
    pd_error err;

    if (conn->transport->ops->receive(conn->transport, &iov, 1, &err) < 0) close_conn(conn);
}

static void on_ready(void *arg, unsigned events)
{
    pd_http_conn *conn = arg;

    switch (conn->state) {
    case READING: receive(conn); break;
    case ANSWERING:
        if ((events & PD_ON_WRITE) != 0)
            pump(conn);
        else
            close_conn(conn);
        break;
    case ENDING: drain(conn); break;
    case CLOSED: break;
    }
}

/* ---- life ---- */

int pd_http_accept(pd_daemon *daemon, pd_transport *transport)
{
    pd_http_conn *conn;

    if (daemon->http.n >= 2 * PD_HTTP_MOST && !PD_PLANTED(http_without_limit)) return PD_RESOURCE_EXHAUSTED;
    if ((conn = calloc(1, sizeof *conn)) == NULL) return PD_NO_MEMORY;
    conn->daemon = daemon;
    conn->transport = transport;
    transport->ready = on_ready;
    transport->arg = conn;
    conn->opened_ms = pd_loop_now_ms(daemon);
    DL_APPEND(daemon->http.first, conn);
    daemon->http.n++;
    if (daemon->http.n > PD_HTTP_MOST)
        refuse(conn, 503, "too many HTTP connections are open: try again", false);
    else
        go_to(conn, READING, PD_ON_READ | PD_ON_GONE);
    return PD_OK;
}

static void tick(pd_http_conn *conn, uint64_t now_ms)
{
    uint64_t waited = now_ms - conn->moved_ms;

    if (conn->state == READING && waited > PD_HTTP_MS && !PD_PLANTED(http_never_late))
        refuse(conn, 408, "expected a whole request within 5 s", false);
    else if ((conn->state == ANSWERING && waited > PD_HTTP_MS) || (conn->state == ENDING && waited > END_MS) ||
             now_ms - conn->opened_ms > PD_HTTP_WHOLE_MS)
        close_conn(conn);
}

void pd_http_tick(pd_daemon *daemon, uint64_t now_ms)
{
    pd_http_conn *conn, *next;

    DL_FOREACH_SAFE(daemon->http.first, conn, next) tick(conn, now_ms);
}

void pd_http_free_closed(pd_daemon *daemon)
{
    while (daemon->http.closed != NULL) {
        pd_http_conn *conn = daemon->http.closed;
        daemon->http.closed = conn->next_closed;
        pd_document_free(&conn->out);
        free(conn);
    }
}

void pd_http_close_all(pd_daemon *daemon)
{
    pd_http_conn *conn, *next;

    DL_FOREACH_SAFE(daemon->http.first, conn, next) close_conn(conn);
    pd_http_free_closed(daemon);
}
