/* http.c - accepts HTTP connections, reads their requests, and sends the answers. */
#include "http.h"

#include "base64.h"
#include "loop.h"
#include "mutant.h"
#include "name_hash.h"
#include "document.h"
#include "http_request.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* About how many bytes one part of a long answer has. */
enum { PIECE = 16384 };

/* The page of the dashboard, which cmake makes from dashboard.html (dashboard.cmake), and the SHA-256 of its script and
 * of its style, in hexadecimal. */
extern const unsigned char pd_dashboard[];
extern const size_t pd_dashboard_bytes;
extern const char pd_dashboard_script_sha256[], pd_dashboard_style_sha256[];

enum { HASH_BYTES = 32 }; /* bytes of a SHA-256 */

/* A long answer: whether its body is /metrics or /jobs.json, and how much of it is written. */
typedef struct pd_http_answer {
    bool chunked; /* each part is sent as a chunk of HTTP/1.1 */
    bool metrics, jobs, ended;
    pd_metrics_cursor metrics_cursor;
    pd_jobs_json_cursor jobs_cursor;
} pd_http_answer;

static unsigned value_of(char hex)
{
    return hex <= '9' ? (unsigned)(hex - '0') : (unsigned)(hex - 'a' + 10);
}

/* Writes a hash in base64, as a Content-Security-Policy needs it. */
static void write_hash(char out[PD_BASE64_TEXT(HASH_BYTES)], const char *sha256)
{
    uint8_t bytes[HASH_BYTES];

    for (size_t i = 0; i < HASH_BYTES; i++)
        bytes[i] = (uint8_t)(value_of(sha256[2 * i]) << 4 | value_of(sha256[2 * i + 1]));
    pd_base64_encode(out, bytes, sizeof bytes);
}

typedef struct status_code {
    int code;
    const char *reason;
} status_code;

static const status_code reasons[] = {
    { 200, "OK" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 408, "Request Timeout" },
    { 413, "Content Too Large" },
    { 414, "URI Too Long" },
    { 421, "Misdirected Request" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 503, "Service Unavailable" },
    { 505, "HTTP Version Not Supported" },
};

static const char *reason_of(int code)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == code) return reasons[i].reason;
    return "Unknown";
}

/* Writes the header of an answer. Its fields forbid caches to store the answer, and browsers to guess another type. */
static void put_head(pd_document *out, int code, const char *type)
{
    pd_document_put(out,
                    "HTTP/1.1 %d %s\r\n"
                    "Content-Type: %s\r\n"
                    "Cache-Control: no-store\r\n"
                    "X-Content-Type-Options: nosniff\r\n"
                    "Connection: close\r\n",
                    code, reason_of(code), type);
    if (code == 405) pd_document_put(out, "Allow: GET, HEAD\r\n");
    if (code == 429) pd_document_put(out, "Retry-After: 1\r\n");
    if (code == 401) pd_document_put(out, "WWW-Authenticate: Basic realm=\"paramd\", Bearer\r\n");
}

/* Writes a whole answer with a short body. */
static void put_short(pd_document *out, int code, const char *text, bool head)
{
    put_head(out, code, "text/plain; charset=utf-8");
    pd_document_put(out, "Content-Length: %zu\r\n\r\n", strlen(text) + 1);
    if (!head) pd_document_put(out, "%s\n", text);
}

static void begin_pieces(pd_http_answer *answer, const pd_http_request *request, const char *type, pd_document *out)
{
    put_head(out, 200, type);
    answer->chunked = !request->old;
    if (answer->chunked) pd_document_put(out, "Transfer-Encoding: chunked\r\n");
    pd_document_put(out, "\r\n");
    answer->ended = request->head;
}

static void answer_metrics(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                           pd_document *out)
{
    (void)daemon;
    answer->metrics = true;
    answer->metrics_cursor.open = request->open_metrics;
    begin_pieces(answer, request,
                 request->open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                       : "text/plain; version=0.0.4; charset=utf-8",
                 out);
}

static void answer_jobs(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                        pd_document *out)
{
    (void)daemon;
    answer->jobs = true;
    begin_pieces(answer, request, "application/json", out);
}

static void answer_health(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                          pd_document *out)
{
    bool healthy = pd_server_is_healthy(daemon);

    answer->ended = true;
    put_short(out, healthy ? 200 : 503, healthy ? "ok" : "step thread stuck for 60 s in one work item", request->head);
}

static void answer_ready(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                         pd_document *out)
{
    const char *state = pd_server_state(daemon);

    answer->ended = true;
    put_short(out, strcmp(state, "ready") == 0 ? 200 : 503, state, request->head);
}

/* Answers with the dashboard. The Content-Security-Policy lets the page run only its own script and style, which have
 * the given hashes, and fetch only from this listener. */
static void answer_dashboard(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                             pd_document *out)
{
    char script[PD_BASE64_TEXT(HASH_BYTES)], style[PD_BASE64_TEXT(HASH_BYTES)];

    (void)daemon;
    answer->ended = true;
    write_hash(script, pd_dashboard_script_sha256);
    write_hash(style, pd_dashboard_style_sha256);
    put_head(out, 200, "text/html; charset=utf-8");
    pd_document_put(out,
                    "Content-Security-Policy: default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; "
                    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
                    "Referrer-Policy: no-referrer\r\n"
                    "Content-Length: %zu\r\n\r\n",
                    script, style, pd_dashboard_bytes);
    if (!request->head) pd_document_add(out, (const char *)pd_dashboard, pd_dashboard_bytes);
}

typedef struct path {
    const char *path;
    bool open; /* the path needs no token, because its answer is one word */
    void (*answer)(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request, pd_document *out);
} path;

static const path paths[] = {
    { "/metrics", false, answer_metrics }, { "/healthz", true, answer_health }, { "/readyz", true, answer_ready },
    { "/jobs.json", false, answer_jobs },  { "/", false, answer_dashboard },
};

static const path *find_path(const char *wanted)
{
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(paths[i].path, wanted) == 0) return &paths[i];
    return NULL;
}

/* Writes the answer to a refused request, with the status `code`. */
static void refuse_answer(pd_http_answer *answer, int code, const char *why, bool head, pd_document *out)
{
    answer->ended = true;
    put_short(out, code, why, head);
}

/* Writes the header of the answer to a request, and its body if that is short. */
static void begin_answer(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                         pd_document *out)
{
    const path *found = find_path(request->path);
    const char *token = daemon->config.http_token;

    if (found == NULL || !found->open) {
        if (token != NULL && !pd_http_secret_is(request->secret, token)) {
            refuse_answer(answer, 401,
                          "expected the token of http.token: Authorization: Bearer TOKEN, or the password of any user",
                          request->head, out);
            return;
        }
        if (token == NULL && !daemon->config.insecure && !request->numeric_host) {
            refuse_answer(answer, 421,
                          "without a token, expected the field Host to be localhost or an IP address: set http.token "
                          "to use another name",
                          request->head, out);
            return;
        }
    }
    if (found != NULL)
        found->answer(answer, daemon, request, out);
    else
        refuse_answer(answer, 404, "expected one of /metrics, /healthz, /readyz, /jobs.json, /", request->head, out);
}

/* Placeholder for the size of a chunk, which is known when the chunk is written. */
#define SIZE_LINE "00000000\r\n"

/* Appends about PIECE bytes of the body to `out`. Returns false if the whole body was written before. */
static bool put_items(pd_http_answer *answer, const pd_daemon *daemon, pd_document *out)
{
    size_t begin = out->n;

    while (out->n - begin < PIECE &&
           (answer->metrics ? pd_metrics_next(&answer->metrics_cursor, daemon, out)
                            : answer->jobs && pd_jobs_json_next(&answer->jobs_cursor, daemon, out)))
        continue;
    return out->n > begin;
}

static bool put_chunk(pd_http_answer *answer, const pd_daemon *daemon, pd_document *out)
{
    size_t begin = out->n, head = sizeof SIZE_LINE - 1;
    char size[16];

    pd_document_put(out, SIZE_LINE);
    if (!put_items(answer, daemon, out) || out->failed) {
        out->n = begin;
        return false;
    }
    snprintf(size, sizeof size, "%08zx", out->n - begin - head);
    memcpy(out->at + begin, size, 8);
    pd_document_put(out, "\r\n");
    return true;
}

/* Appends the next part of the body to `out`. Returns false if the whole body was written before. */
static bool next_of_answer(pd_http_answer *answer, const pd_daemon *daemon, pd_document *out)
{
    if (answer->ended) return false;
    if (answer->chunked ? put_chunk(answer, daemon, out) : put_items(answer, daemon, out)) return true;
    answer->ended = true;
    if (answer->chunked) pd_document_put(out, "0\r\n\r\n");
    return answer->chunked;
}

/* Most ms that a peer may take to end its side after the answer: closing at once could destroy the last bytes on their
 * way. */
enum { END_MS = 1000 };
/* About how many bytes of long answers all connections together send in one turn of the loop. */
enum { TURN_BYTES = 8 * PIECE };

typedef enum state { READING, ANSWERING, ENDING, CLOSED } state;

struct pd_http_conn {
    pd_daemon *daemon;
    pd_transport *transport;
    state state;
    uint8_t origin;               /* index of the counters for the peer's address */
    bool is_long;                 /* the answer counts against the limits of long answers */
    bool writable;                /* the peer takes bytes, so the next part is sent at the end of this turn */
    uint64_t opened_ms, moved_ms; /* opened_ms: when the connection was opened. moved_ms: when its state last changed or
                                   * bytes were last sent */
    size_t n;                     /* number of received bytes of the request */
    pd_http_answer answer;
    pd_document out; /* the part of the answer that is being sent */
    size_t sent;     /* number of bytes of `out` that are sent */
    pd_http_conn *prev, *next, *next_closed;
    char request[PD_HTTP_REQUEST_MAX];
};

static pd_http_conn **list_of(pd_http *http, state of)
{
    return of == READING ? &http->reading : of == ANSWERING ? &http->answering : &http->ending;
}

/* Removes a connection from its list, and from the counts. */
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

/* Sends bytes of the present part. Returns their number; 0: the peer takes none now, or the connection is closed. */
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

/* Writes the next part of the answer to conn->out. Returns false if no part is left, or if out of memory: then the peer
 * gets an incomplete answer. */
static bool next_piece(pd_http_conn *conn)
{
    pd_document_clear(&conn->out);
    conn->sent = 0;
    return next_of_answer(&conn->answer, conn->daemon, &conn->out) && !conn->out.failed;
}

/* Sends about `most` bytes of an answer. Returns the number of sent bytes. */
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

/* Sends parts of answers to the peers that take bytes. Each connection that was served moves to the end of the list: if
 * TURN_BYTES are used up, the others are served first in the next turn. */
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

/* Begins to send the short answer in conn->out. The answer fits into the kernel's buffer, so it is sent at once and
 * does not wait for other peers. */
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
    refuse_answer(&conn->answer, status, why, head, &conn->out);
    begin_short(conn);
}

static void answer_request(pd_http_conn *conn, const pd_http_request *request)
{
    const pd_http *http = &conn->daemon->http;

    begin_answer(&conn->answer, conn->daemon, request, &conn->out);
    if (conn->out.failed || (conn->answer.ended && conn->out.n <= PIECE)) {
        begin_short(conn);
    } else if (http->n_long < PD_HTTP_LONG && http->longs[conn->origin] < PD_HTTP_LONG_SHARE) {
        begin_long(conn);
    } else {
        pd_document_clear(&conn->out);
        refuse(conn, 429, "too many long answers are being sent: try again", request->head);
    }
}

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
    answer_request(conn, &request);
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

/* Reads and discards what the peer still sends, until the peer ends its side. */
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

/* Returns the oldest connection with an incomplete request of the address that has most of them. NULL: there is
 * none. */
static pd_http_conn *find_victim(const pd_http *http)
{
    pd_http_conn *conn, *victim = NULL;

    DL_FOREACH(http->reading, conn)
    {
        if (victim == NULL || http->heads[conn->origin] > http->heads[victim->origin]) victim = conn;
    }
    return victim;
}

/* Refuses an incomplete request. First receives what has arrived meanwhile: if that completes the request, it is
 * answered. */
static void give_way(pd_http_conn *conn)
{
    receive(conn);
    if (conn->state == READING) refuse(conn, 429, "too many requests are incomplete: try again", false);
}

/* Makes room for one more connection: closes the oldest one whose answer is sent, or else refuses an incomplete
 * request. Returns false if all connections are being answered. */
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

/* Returns the index of the counters for an address. The hash is keyed, so that no peer can choose an address that
 * shares the counters of another. */
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
    DL_APPEND(http->reading, conn); /* zeroed memory has the state READING */
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
