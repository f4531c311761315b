/* http.c - an HTTP connection from its first byte to its end. */
#include "http.h"

#include "http_answer.h"
#include "loop.h"
#include "name_hash.h"
#include "mutant.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* How long an answered connection may take to end its side: closing at once could destroy the last bytes on their
 * way. */
enum { END_MS = 1000 };
/* Bytes of long answers that all connections together send in one turn of the loop, about. */
enum { TURN_BYTES = 8 * PD_HTTP_PIECE };

typedef enum state { READING, ANSWERING, ENDING, CLOSED } state;

struct pd_http_conn {
    pd_daemon *daemon;
    pd_transport *transport;
    state state;
    uint8_t origin;               /* index of the counters of the peer's address */
    bool is_long;                 /* the answer counts as a long one */
    bool writable;                /* the peer takes bytes: the next piece is sent at the end of this turn */
    uint64_t opened_ms, moved_ms; /* times at which it was opened, and at which its state changed or bytes left last */
    size_t n;                     /* number of bytes of the request that have come */
    pd_http_answer answer;
    pd_document out; /* the piece of the answer that is being sent */
    size_t sent;     /* number of its bytes that have left */
    pd_http_conn *prev, *next, *next_closed;
    char request[PD_HTTP_REQUEST_MAX];
};

static pd_http_conn **list_of(pd_http *http, state of)
{
    return of == READING ? &http->reading : of == ANSWERING ? &http->answering : &http->ending;
}

/* Takes a connection out of its list and its counts. */
static void leave(pd_http_conn *conn)
{
    pd_http *http = &conn->daemon->http;

    DL_DELETE(*list_of(http, conn->state), conn);
    if (conn->state == READING) http->heads[conn->origin]--;
    if (!conn->is_long) return;
    conn->is_long = false;
    http->n_long--;
    http->longs[conn->origin]--;
}

static void go_to(pd_http_conn *conn, state next, unsigned events)
{
    leave(conn);
    conn->state = next;
    DL_APPEND(*list_of(&conn->daemon->http, next), conn);
    conn->moved_ms = pd_loop_now_ms(conn->daemon);
    conn->transport->ops->watch(conn->transport, events);
}

static void close_conn(pd_http_conn *conn)
{
    pd_http *http = &conn->daemon->http;

    if (conn->state == CLOSED) return;
    leave(conn);
    conn->state = CLOSED;
    conn->transport->ops->close(conn->transport);
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

/* Writes the next piece of the answer. Returns false if there is none, or out of memory: then the peer sees an answer
 * that ends too early. */
static bool next_piece(pd_http_conn *conn)
{
    pd_document_clear(&conn->out);
    conn->sent = 0;
    return pd_http_answer_next(&conn->answer, conn->daemon, &conn->out) && !conn->out.failed;
}

/* Sends about so many bytes of an answer. Returns the number of bytes that have left. */
static size_t pump(pd_http_conn *conn, size_t most)
{
    size_t moved = 0, sent;

    conn->writable = false;
    while (moved < most) {
        if (conn->sent == conn->out.n && !next_piece(conn)) {
            conn->transport->ops->shut(conn->transport);
            go_to(conn, ENDING, PD_ON_READ | PD_ON_GONE);
            return moved;
        }
        if ((sent = send_some(conn)) == 0) return moved;
        moved += sent;
    }
    return moved;
}

/* Sends pieces of the answers whose peers take bytes. Those that were served go to the end of the list, so the others
 * are the first in the next turn if the bytes of this turn are used up. */
static void pump_all(pd_http *http)
{
    pd_http_conn *conn = http->answering, *last = conn != NULL ? conn->prev : NULL, *next;
    size_t left = TURN_BYTES, share = TURN_BYTES / (http->n_long > 0 ? http->n_long : 1), moved;

    for (bool more = conn != NULL; more && left > 0; conn = next) {
        more = conn != last;
        next = conn->next;
        if (!conn->writable) continue;
        DL_DELETE(http->answering, conn);
        DL_APPEND(http->answering, conn);
        moved = pump(conn, share);
        left -= moved < left ? moved : left;
    }
}

/* Begins to send a short answer, which fits into the kernel's buffer and leaves at once, whatever others read. */
static void begin_short(pd_http_conn *conn)
{
    if (conn->out.failed) {
        close_conn(conn);
        return;
    }
    go_to(conn, ANSWERING, PD_ON_WRITE);
    pump(conn, SIZE_MAX);
}

static void begin_long(pd_http_conn *conn)
{
    pd_http *http = &conn->daemon->http;

    go_to(conn, ANSWERING, PD_ON_WRITE);
    conn->is_long = conn->writable = true;
    http->n_long++;
    http->longs[conn->origin]++;
}

static void refuse(pd_http_conn *conn, int status, const char *why, bool head)
{
    pd_http_answer_refuse(&conn->answer, status, why, head, &conn->out);
    begin_short(conn);
}

static void answer(pd_http_conn *conn, const pd_http_request *request)
{
    const pd_http *http = &conn->daemon->http;

    pd_http_answer_begin(&conn->answer, conn->daemon, request, &conn->out);
    if (conn->out.failed || (conn->answer.ended && conn->out.n <= PD_HTTP_PIECE)) {
        begin_short(conn);
    } else if (http->n_long < PD_HTTP_LONG && http->longs[conn->origin] < PD_HTTP_LONG_SHARE) {
        begin_long(conn);
    } else {
        pd_document_clear(&conn->out);
        refuse(conn, 429, "too many long answers are being sent: try again", request->head);
    }
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
    answer(conn, &request);
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
        if ((events & PD_ON_WRITE) == 0)
            close_conn(conn);
        else
            conn->writable = true;
        break;
    case ENDING: drain(conn); break;
    case CLOSED: break;
    }
}

/* ---- room for newcomers ---- */

/* Returns the oldest incomplete request of the address that has most of them. NULL: there is none. */
static pd_http_conn *find_victim(const pd_http *http)
{
    pd_http_conn *conn, *victim = NULL;

    DL_FOREACH(http->reading, conn)
    {
        if (victim == NULL || http->heads[conn->origin] > http->heads[victim->origin]) victim = conn;
    }
    return victim;
}

/* Refuses a request that is not complete. Looks first whether the rest of it has come meanwhile: then it is
 * answered. */
static void give_way(pd_http_conn *conn)
{
    receive(conn);
    if (conn->state == READING) refuse(conn, 429, "too many requests are incomplete: try again", false);
}

/* Makes room for one more connection: closes the oldest one that is answered. Returns false if all connections are
 * being answered. */
static bool make_room(pd_http *http)
{
    pd_http_conn *victim;

    while (http->n >= PD_HTTP_MOST && !PD_MUTANT(http_without_limit)) {
        if (http->ending != NULL)
            close_conn(http->ending);
        else if ((victim = find_victim(http)) != NULL)
            give_way(victim);
        else
            return false;
    }
    return true;
}

/* ---- life ---- */

/* Returns the index of an address's counters. The hash is keyed, so that no peer can choose an address that shares
 * those of another. */
static uint8_t index_of(const pd_daemon *daemon, uint64_t origin)
{
    const uint64_t key[2] = { daemon->key, daemon->key };
    char bytes[sizeof origin];

    memcpy(bytes, &origin, sizeof bytes);
    return (uint8_t)(pd_name_hash(key, bytes, sizeof bytes) % PD_HTTP_ORIGINS);
}

int pd_http_accept(pd_daemon *daemon, pd_transport *transport, uint64_t origin)
{
    pd_http *http = &daemon->http;
    pd_http_conn *conn;

    if (!make_room(http)) return PD_RESOURCE_EXHAUSTED;
    if ((conn = calloc(1, sizeof *conn)) == NULL) return PD_NO_MEMORY;
    conn->daemon = daemon;
    conn->transport = transport;
    conn->origin = index_of(daemon, origin);
    transport->ready = on_ready;
    transport->arg = conn;
    conn->opened_ms = conn->moved_ms = pd_loop_now_ms(daemon);
    DL_APPEND(http->reading, conn); /* the state is READING */
    http->heads[conn->origin]++;
    http->n++;
    transport->ops->watch(transport, PD_ON_READ | PD_ON_GONE);
    return PD_OK;
}

static void tick(pd_http_conn *conn, uint64_t now_ms)
{
    uint64_t waited = now_ms - conn->moved_ms;

    if (conn->state == READING && waited > PD_HTTP_MS && !PD_MUTANT(http_never_late))
        refuse(conn, 408, "expected a whole request within 5 s", false);
    else if ((conn->state == ANSWERING && waited > PD_HTTP_MS) || (conn->state == ENDING && waited > END_MS) ||
             now_ms - conn->opened_ms > PD_HTTP_WHOLE_MS)
        close_conn(conn);
}

static void tick_all(pd_http_conn *first, uint64_t now_ms)
{
    pd_http_conn *conn, *next;

    DL_FOREACH_SAFE(first, conn, next) tick(conn, now_ms);
}

void pd_http_tick(pd_daemon *daemon, uint64_t now_ms)
{
    tick_all(daemon->http.ending, now_ms);
    tick_all(daemon->http.answering, now_ms);
    tick_all(daemon->http.reading, now_ms);
}

static void free_closed(pd_http *http)
{
    while (http->closed != NULL) {
        pd_http_conn *conn = http->closed;
        http->closed = conn->next_closed;
        pd_document_free(&conn->out);
        free(conn);
    }
}

void pd_http_finish_turn(pd_daemon *daemon)
{
    pump_all(&daemon->http);
    free_closed(&daemon->http);
}

static void close_list(pd_http_conn *first)
{
    pd_http_conn *conn, *next;

    DL_FOREACH_SAFE(first, conn, next) close_conn(conn);
}

void pd_http_close_all(pd_daemon *daemon)
{
    close_list(daemon->http.reading);
    close_list(daemon->http.answering);
    close_list(daemon->http.ending);
    free_closed(&daemon->http);
}
