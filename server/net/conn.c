#include "loop.h"

#include "printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#define END_TEXT "closed by the peer"

enum { LINGER_MS = 2000, READ_SPANS = 8, WRITE_SPANS = 1024 };

static uint64_t now_ms(const pd_conn *conn)
{
    return pd_daemon_now_ms(conn->daemon);
}

bool pd_conn_live(const pd_conn *conn)
{
    return conn->state != PD_ENDING && conn->state != PD_CLOSED;
}

/* ---- watching the transport ---- */

static bool wants_to_read(const pd_conn *conn)
{
    if (conn->state == PD_ENDING) return conn->shut;
    return !conn->ended && !pd_framer_stalled(conn->framer) && conn->output.held < PD_HIGH_WATER;
}

/* A connection that is not read from still tells, once, when its peer has ended its side. */
static void watch(pd_conn *conn)
{
    unsigned events = wants_to_read(conn) ? PD_ON_READ : conn->ended || conn->hung ? 0 : PD_ON_GONE;

    if (conn->state == PD_CLOSED) return;
    if (!pd_output_empty(&conn->output)) events |= PD_ON_WRITE;
    if (events == conn->watched) return;
    if ((events & ~conn->watched & PD_ON_READ) != 0) conn->read_ms = conn->frame_ms = now_ms(conn);      /* it was silent because we did not listen */
    conn->watched = events;
    conn->transport->ops->watch(conn->transport, events);
}

void pd_conn_touch(pd_conn *conn)
{
    if (conn->dirty || conn->state == PD_CLOSED) return;
    conn->dirty = true;
    conn->next_dirty = conn->daemon->dirty;
    conn->daemon->dirty = conn;
}

/* ---- opening and closing ---- */

void pd_conn_free(pd_conn *conn)
{
    pd_handles_free(&conn->handles);
    pd_pendings_free(&conn->pendings);
    pd_framer_free(conn->framer);
    free(conn);
}

static void on_ready(void *arg, unsigned events);

pd_conn *pd_conn_new(pd_daemon *daemon, pd_transport *transport, const char *peer)
{
    pd_conn *conn = calloc(1, sizeof *conn);

    if (conn == NULL) return NULL;
    conn->daemon = daemon;
    snprintf(conn->peer, sizeof conn->peer, "%s", peer);
    conn->pendings.key = daemon->key;
    conn->opened_ms = conn->read_ms = conn->frame_ms = conn->write_ms = pd_daemon_now_ms(daemon);
    conn->farewell = pd_request_new(PD_REQ_LOST, (pd_ticket){ 0, 0 });
    pd_framer_user user = pd_dispatch;
    user.arg = conn;
    conn->framer = pd_framer_new(&user, daemon->config.max_payload);
    if (conn->farewell == NULL || conn->framer == NULL || pd_daemon_place(daemon, conn) != PD_OK) goto fail;
    transport->ready = on_ready;
    transport->arg = conn;
    conn->transport = transport;
    watch(conn);
    return conn;

fail:
    pd_framer_free(conn->framer);
    pd_request_free(conn->farewell);
    free(conn);
    return NULL;
}

/* The store hears of a connection that it had welcomed, exactly once; of one that it is about to welcome when it has. */
static void say_farewell(pd_conn *conn, const char *reason)
{
    pd_request *farewell = conn->farewell;

    conn->farewell = NULL;
    if (farewell == NULL) return;
    if (!conn->joined) {
        pd_request_free(farewell);
        return;
    }
    farewell->ticket.conn = conn->number;
    farewell->job = conn->job;
    farewell->rank = conn->rank;
    pd_text_print(farewell->u.lost.reason, sizeof farewell->u.lost.reason, reason);
    if (conn->state == PD_WELCOMING) pd_daemon_keep_farewell(conn->daemon, farewell);
    else pd_daemon_post(conn->daemon, farewell);
}

static void drop_output(pd_conn *conn)
{
    pd_pending *reply = pd_output_clear(&conn->output);

    while (reply != NULL) {
        pd_pending *next = reply->next_reply;
        pd_board_forget(conn->daemon->board, &reply->wait);
        pd_pending_free(reply);
        reply = next;
    }
}

static void drop_pendings(pd_conn *conn)
{
    pd_pending *pending;

    while ((pending = pd_pendings_any(&conn->pendings)) != NULL) {
        pd_pendings_remove(&conn->pendings, pending);
        pd_board_forget(conn->daemon->board, &pending->wait);
        pd_pending_free(pending);
    }
}

static void let_go(pd_conn *conn, const char *reason)
{
    say_farewell(conn, reason);
    pd_incoming_drop(conn);
    drop_pendings(conn);
    pd_undeclare(conn);
}

void pd_conn_close(pd_conn *conn, const char *reason)
{
    pd_daemon *daemon = conn->daemon;

    if (conn->state == PD_CLOSED) return;
    if (conn->joined && conn->farewell != NULL)
        daemon->config.log(LOG_DEBUG, "%s (%s, rank %u): connection closed: %s", conn->peer, conn->label, conn->rank, reason);
    let_go(conn, reason);
    drop_output(conn);
    conn->state = PD_CLOSED;
    pd_daemon_gone(daemon, conn);
    conn->transport->ops->close(conn->transport);
    conn->transport = NULL;
    conn->next_closed = daemon->closed;
    daemon->closed = conn;
}

void pd_conn_end(pd_conn *conn, const pd_prefix *asked, const pd_error *err)
{
    static const pd_prefix nothing;

    if (!pd_conn_live(conn)) return;
    conn->daemon->config.log(LOG_WARNING, "%s%s%s: connection ended: %s", conn->peer, conn->label[0] != '\0' ? " " : "", conn->label, err->text);
    let_go(conn, err->text);
    pd_conn_refuse(conn, asked != NULL ? asked : &nothing, err);
    if (conn->state == PD_CLOSED) return;
    conn->state = PD_ENDING;
    conn->end_ms = now_ms(conn) + LINGER_MS;
    watch(conn);
}

/* ---- answers ---- */

static void queue_frame(pd_conn *conn, int rc, uint8_t *at, size_t bytes)
{
    if (rc == PD_OK && (rc = pd_output_frame(&conn->output, at, bytes)) != PD_OK) free(at);
    if (rc == PD_OK) pd_conn_touch(conn);
    else pd_conn_close(conn, pd_code_text(rc));
}

void pd_conn_refuse(pd_conn *conn, const pd_prefix *asked, const pd_error *err)
{
    uint8_t *at = NULL;
    size_t bytes = 0;
    uint64_t mark = 0;
    int rc;

    if (!pd_conn_live(conn)) return;
    conn->daemon->frames_refused++;
    if (pd_method_pushes(asked->method) || asked->method == PD_INIT) mark = conn->daemon->mark;
    rc = pd_frame_pack_error(&at, &bytes, asked->method, asked->flags & PD_FLAG_CHECKSUM, asked->request, err->code, err->text, mark);
    queue_frame(conn, rc, at, bytes);
}

void pd_conn_reply(pd_conn *conn, const pd_prefix *asked, const ProtobufCMessage *message)
{
    uint8_t *at = NULL;
    size_t bytes = 0;
    int rc;
    pd_error err;

    if (!pd_conn_live(conn)) return;
    rc = pd_frame_pack(&at, &bytes, asked->method, PD_FLAG_REPLY | (asked->flags & PD_FLAG_CHECKSUM), asked->request, message, NULL, 0, 0);
    if (rc != PD_OUT_OF_RANGE) {
        queue_frame(conn, rc, at, bytes);
        return;
    }
    pd_fail(&err, PD_RESOURCE_EXHAUSTED, "the answer to %s does not fit the %d bytes of a frame's header", pd_method_name(asked->method), PD_MAX_HEADER_BYTES);
    pd_conn_refuse(conn, asked, &err);
}

void pd_conn_data_reply(pd_conn *conn, pd_pending *pending)
{
    pd_output_reply(&conn->output, pending);
    pd_conn_touch(conn);
}

/* A frame of the connection may have been held back because there were too many requests like this one. */
static void remove_pending(pd_conn *conn, pd_pending *pending)
{
    if (pending->kind == PD_AWAITS_STORE && pd_framer_stalled(conn->framer)) pd_daemon_wake(conn->daemon, conn);
    pd_pendings_remove(&conn->pendings, pending);
    pd_board_forget(conn->daemon->board, &pending->wait);
    pd_pending_free(pending);
}

void pd_conn_answer(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message)
{
    pd_prefix asked = pd_pending_asked(pending);

    pd_conn_reply(conn, &asked, message);
    if (conn->state != PD_CLOSED) remove_pending(conn, pending);
}

void pd_conn_fail(pd_conn *conn, pd_pending *pending, const pd_error *err)
{
    pd_prefix asked = pd_pending_asked(pending);

    pd_conn_refuse(conn, &asked, err);
    if (conn->state != PD_CLOSED) remove_pending(conn, pending);
}

void pd_conn_fail_all(pd_conn *conn, const pd_error *err)
{
    pd_pending *pending;

    while ((pending = pd_pendings_any(&conn->pendings)) != NULL) pd_conn_fail(conn, pending, err);
}

/* ---- writing ---- */

static void sent(pd_conn *conn, size_t n)
{
    pd_pending *done;

    conn->daemon->bytes_out += n;
    if (pd_output_sent(&conn->output, conn->daemon->board, n, &done)) conn->write_ms = now_ms(conn);
    pd_pending_free(done);
}

/* Sends once. PD_UNAVAILABLE: the transport takes no more now. PD_CANCELLED: it is broken. */
static int write_some(pd_conn *conn, size_t most, size_t *n)
{
    struct iovec iov[WRITE_SPANS];
    int spans, rc = pd_output_next(&conn->output, &conn->daemon->scratch, iov, WRITE_SPANS, most, &spans);
    pd_error err;
    ssize_t written;

    *n = 0;
    if (rc != PD_OK) return rc;
    if (spans == 0) return PD_UNAVAILABLE;
    written = conn->transport->ops->send(conn->transport, iov, spans, &err);
    if (written <= 0) return written == 0 ? PD_UNAVAILABLE : PD_CANCELLED;
    *n = (size_t)written;
    sent(conn, *n);
    return PD_OK;
}

/* ENDING: the last frame is out; the peer sees the end of the stream and we read away what it still sends. */
static void shut(pd_conn *conn)
{
    conn->shut = true;
    conn->transport->ops->shut(conn->transport);
}

/* The peer has ended its side. The store is told as soon as it knows the connection, so that a process that was killed is known as lost at once:
 * what its requests have done stands. False: everything is answered, and the connection is closed. */
static bool settle_up(pd_conn *conn)
{
    if (conn->state == PD_OPEN && conn->farewell != NULL && !conn->declaring) {
        say_farewell(conn, END_TEXT);
        pd_undeclare(conn);
    }
    if (conn->pendings.n > 0 || !pd_output_empty(&conn->output)) return true;
    pd_conn_close(conn, END_TEXT);
    return false;
}

void pd_conn_write(pd_conn *conn)
{
    size_t quota = pd_daemon_quota(conn->daemon), n;
    int rc = PD_OK;

    if (conn->state == PD_CLOSED) return;
    if (!pd_output_empty(&conn->output) && (conn->watched & PD_ON_WRITE) == 0) conn->write_ms = now_ms(conn);
    while (rc == PD_OK && quota > 0 && !pd_output_empty(&conn->output)) {
        rc = write_some(conn, quota, &n);
        quota -= n;
    }
    if (rc != PD_OK && rc != PD_UNAVAILABLE) {
        pd_conn_close(conn, rc == PD_CANCELLED ? "its socket is broken" : pd_code_text(rc));
        return;
    }
    if (conn->state == PD_ENDING && pd_output_empty(&conn->output) && !conn->shut) shut(conn);
    if (conn->ended && !settle_up(conn)) return;
    watch(conn);
}

/* ---- reading ---- */

static ssize_t read_slice(pd_conn *conn, size_t slice, size_t *offered, pd_error *err)
{
    struct iovec iov[READ_SPANS];
    int spans = pd_framer_space(conn->framer, iov, READ_SPANS, slice);

    *offered = 0;
    for (int i = 0; i < spans; i++) *offered += iov[i].iov_len;
    return conn->transport->ops->receive(conn->transport, iov, spans, err);
}

/* A worker whose share is used hears no answers to its heartbeats, which are not read: it is told that we live. */
static void beat(pd_conn *conn, uint64_t now)
{
    static const pd_prefix nobody = { .method = PD_HEARTBEAT };
    Paramd__Ok ok = PARAMD__OK__INIT;

    conn->beat_ms = now;
    pd_conn_reply(conn, &nobody, &ok.base);
}

/* What the framer's callbacks found is said in conn->why; what the framer itself found, by the framer. */
static void stream_broke(pd_conn *conn)
{
    pd_error why = conn->why.code != PD_OK ? conn->why : *pd_framer_error(conn->framer);
    pd_conn_end(conn, NULL, &why);
}

static void after_fed(pd_conn *conn, int rc)
{
    if (rc != PD_OK && pd_conn_live(conn)) stream_broke(conn);
    watch(conn);
}

/* A worker that does not read is told that we live; a process that has ended answers so that the transport breaks. */
static void probe(pd_conn *conn)
{
    if (conn->state == PD_OPEN && conn->joined && pd_output_empty(&conn->output)) beat(conn, now_ms(conn));
    pd_conn_touch(conn);
}

/* The peer sends no more, but reads on: what it has asked for is answered, for as long as a peer may take to read an answer. */
static void peer_ended(pd_conn *conn)
{
    if (!pd_framer_idle(conn->framer)) {
        pd_conn_close(conn, END_TEXT " in the middle of a frame");
        return;
    }
    conn->ended = true;
    conn->end_ms = now_ms(conn) + conn->daemon->config.write_ms;
    if (!settle_up(conn)) return;
    probe(conn);
    watch(conn);
}

static void read_frames(pd_conn *conn)
{
    size_t quota = pd_daemon_quota(conn->daemon), offered;
    pd_error err;

    while (quota > 0 && pd_conn_live(conn) && wants_to_read(conn)) {
        ssize_t n = read_slice(conn, quota < PD_SLICE ? quota : PD_SLICE, &offered, &err);
        if (n == 0) return;
        if (n < 0) {
            if (n == PD_CANCELLED) peer_ended(conn);
            else pd_conn_close(conn, err.text);
            return;
        }
        conn->read_ms = now_ms(conn);
        if (pd_framer_idle(conn->framer)) conn->frame_ms = conn->read_ms;
        conn->daemon->bytes_in += (size_t)n;
        quota -= (size_t)n;
        after_fed(conn, pd_framer_fed(conn->framer, (size_t)n));
        if ((size_t)n < offered) return;
    }
}

static void read_away(pd_conn *conn)
{
    uint8_t bin[4096];
    struct iovec span = { bin, sizeof bin };
    ssize_t n = 1;
    pd_error err;

    for (int i = 0; i < 16 && n > 0; i++) n = conn->transport->ops->receive(conn->transport, &span, 1, &err);
    if (n < 0) pd_conn_close(conn, "ended");
}

/* Nothing is read from the connection now. What the peer sent before it ended its side is read later, and answered. */
static void gone(pd_conn *conn)
{
    if (!pd_conn_live(conn)) {
        pd_conn_close(conn, END_TEXT);
        return;
    }
    conn->hung = true;
    probe(conn);
    watch(conn);
}

static void on_ready(void *arg, unsigned events)
{
    pd_conn *conn = arg;

    conn->daemon->active++;
    if ((events & PD_ON_GONE) != 0 && (events & PD_ON_READ) == 0) {
        if ((conn->watched & PD_ON_GONE) != 0) gone(conn);
        else pd_conn_close(conn, "the connection is broken");
        return;
    }
    if ((events & PD_ON_READ) != 0) {
        if (conn->state == PD_ENDING) read_away(conn);
        else read_frames(conn);
    }
    if ((events & PD_ON_WRITE) != 0) pd_conn_touch(conn);
}

void pd_conn_resume(pd_conn *conn)
{
    if (!pd_conn_live(conn) || !pd_framer_stalled(conn->framer)) return;
    conn->read_ms = conn->frame_ms = now_ms(conn);
    after_fed(conn, pd_framer_resume(conn->framer));
}

/* ---- deadlines ---- */

/* The peer is told before the connection ends. */
static void too_slow(pd_conn *conn, int code, const char *what, uint64_t ms)
{
    pd_error err;

    pd_fail(&err, code, "%s within %.1f s", what, (double)ms / 1e3);
    pd_conn_end(conn, NULL, &err);
}

void pd_conn_tick(pd_conn *conn, uint64_t now)
{
    const pd_daemon_config *config = &conn->daemon->config;
    bool reads = wants_to_read(conn);

    if (conn->state == PD_ENDING && now >= conn->end_ms) pd_conn_close(conn, "ended");
    if (conn->ended && now >= conn->end_ms) pd_conn_close(conn, END_TEXT);
    if (!pd_conn_live(conn)) return;
    if (conn->state == PD_GREETING && now - conn->opened_ms > config->handshake_ms)
        too_slow(conn, PD_DEADLINE_EXCEEDED, "no Hello", config->handshake_ms);
    else if (reads && now - conn->read_ms > config->silence_ms)
        too_slow(conn, PD_DEADLINE_EXCEEDED, "nothing was heard from it", config->silence_ms);
    else if (reads && !pd_framer_idle(conn->framer) && now - conn->frame_ms > config->read_ms)
        too_slow(conn, PD_DEADLINE_EXCEEDED, "a frame was not complete", config->read_ms);
    else if (!pd_output_empty(&conn->output) && now - conn->write_ms > config->write_ms)
        pd_conn_close(conn, "it did not read an answer in time");
    else if (pd_framer_stalled(conn->framer) && pd_output_empty(&conn->output) && now - conn->beat_ms >= config->heartbeat_ms)
        beat(conn, now);
}
