/* conn_io.c - reads frames from a connection's transport, writes answers to it, and checks its timeouts. */
#include "conn.h"

#include "mutant.h"

enum { READ_SPANS = 8, WRITE_SPANS = 1024 };

#define END_TEXT "closed by the peer"
/* Most bytes of one read: they stay in the CPU cache until their checksum is computed. */
#define SLICE (256 * 1024)

static uint64_t now_ms(const pd_conn *conn)
{
    return pd_loop_now_ms(conn->daemon);
}

void pd_conn_sent(pd_conn *conn, size_t n)
{
    pd_pending *done;
    uint64_t shared = pd_output_shared_bytes(&conn->output, n);

    conn->daemon->counters.bytes_out += n + shared;
    pd_traffic_count(conn->daemon->traffic, conn->job, 0, n + shared);
    if (pd_output_sent(&conn->output, conn->daemon->versions, n, now_ms(conn), &done)) conn->times.write = now_ms(conn);
    pd_pending_free(done);
}

/* Sends queued bytes with one call of the transport. PD_UNAVAILABLE: the transport takes no more bytes now.
 * PD_CANCELLED: the transport is broken. */
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
    pd_conn_sent(conn, *n);
    return PD_OK;
}

/* Ends the sending side of an ENDING connection, whose last frame is sent. From now on, received bytes are discarded.
 * */
static void shut(pd_conn *conn)
{
    conn->end.shut = true;
    conn->transport->ops->shut(conn->transport);
}

/* Ends a connection whose peer has ended its sending side. Requests that have arrived are still executed and answered.
 *
 * If the store knows the connection, tells it at once that the connection has ended, so that a killed worker is lost at
 * once, and ends the connection's reserve in the ingest budget. If no answer is left to send, closes the connection and
 * returns false. */
static bool settle_up(pd_conn *conn)
{
    if (conn->state == PD_OPEN && conn->end.notice != NULL && !conn->params.declaring) {
        pd_conn_notify_store(conn, END_TEXT);
        pd_conn_undeclare(conn);
    }
    if (conn->pendings.n > 0 || !pd_conn_has_sent(conn)) return true;
    pd_conn_close(conn, END_TEXT);
    return false;
}

void pd_conn_write(pd_conn *conn)
{
    size_t quota = pd_loop_quota(conn->daemon), n;
    int rc = PD_OK;

    if (conn->state == PD_CLOSED || (pd_conn_is_lent(conn, PD_ON_WRITE) && !PD_MUTANT(lent_written))) return;
    if (!pd_output_empty(&conn->output) && (conn->watched & PD_ON_WRITE) == 0) conn->times.write = now_ms(conn);
    while (rc == PD_OK && quota > 0 && !pd_output_empty(&conn->output) && !pd_conn_lend_output(conn)) {
        rc = write_some(conn, quota, &n);
        quota -= n;
    }
    if (rc != PD_OK && rc != PD_UNAVAILABLE) {
        pd_conn_close(conn, rc == PD_CANCELLED ? "its socket is broken" : pd_code_text(rc));
        return;
    }
    if (conn->state == PD_ENDING && pd_output_empty(&conn->output) && !conn->end.shut) shut(conn);
    if (conn->end.peer && !settle_up(conn)) return;
    pd_conn_watch(conn);
}

static ssize_t read_slice(pd_conn *conn, size_t slice, size_t *offered, pd_error *err)
{
    struct iovec iov[READ_SPANS];
    int spans = pd_framer_space(conn->framer, iov, READ_SPANS, slice);

    *offered = 0;
    for (int i = 0; i < spans; i++) *offered += iov[i].iov_len;
    return conn->transport->ops->receive(conn->transport, iov, spans, err);
}

/* Sends an unsolicited heartbeat. */
static void beat(pd_conn *conn, uint64_t now)
{
    static const pd_prefix nobody = { .method = PD_HEARTBEAT };
    Paramd__Ok ok = PARAMD__OK__INIT;

    conn->times.beat = now;
    pd_conn_reply(conn, &nobody, &ok.base);
}

static void tell(pd_conn *conn, const pd_remark *remark)
{
    static const pd_prefix nobody = { .method = PD_HEARTBEAT };
    char *texts[1] = { remark->text };
    Paramd__Ok ok = PARAMD__OK__INIT;

    ok.remarks = texts;
    ok.n_remarks = 1;
    pd_conn_reply(conn, &nobody, &ok.base);
}

/* Returns whether warnings about the job go to the worker of this connection now. */
static bool reads_remarks(const pd_conn *conn)
{
    return conn->remarks && conn->state == PD_OPEN && conn->job != 0 &&
           conn->rank == pd_version_table_leader(conn->daemon->versions, conn->job);
}

void pd_conn_tell_remarks(pd_conn *conn)
{
    const pd_remark *remark;

    while (reads_remarks(conn) &&
           (remark = pd_remarks_next(&conn->daemon->remarks, conn->job_name, &conn->remark)) != NULL)
        if (remark->rank != conn->rank) tell(conn, remark);
}

static void after_fed(pd_conn *conn, int rc)
{
    /* The error is in conn->why if a callback of this framer found it, otherwise in the framer. */
    pd_error why = conn->why.code != PD_OK || rc == PD_OK ? conn->why : *pd_framer_error(conn->framer);

    if (rc != PD_OK && pd_conn_live(conn)) pd_conn_end(conn, NULL, &why);
    pd_conn_watch(conn);
}

/* Sends a heartbeat to find out whether the peer still exists: if its process has ended, the transport reports an
 * error. */
static void probe(pd_conn *conn)
{
    if (conn->state == PD_OPEN && conn->joined && pd_output_empty(&conn->output)) beat(conn, now_ms(conn));
    pd_conn_touch(conn);
}

/* Handles the end of the peer's sending side. In the middle of a frame, closes the connection. Otherwise, open requests
 * are still answered, within server.write_timeout. */
static void peer_ended(pd_conn *conn)
{
    if (!pd_framer_idle(conn->framer)) {
        pd_conn_close(conn, END_TEXT " in the middle of a frame");
        return;
    }
    conn->end.peer = true;
    conn->output.weights = (pd_segment)PD_NO_SEGMENT; /* the peer cannot release answers any more */
    conn->times.end = now_ms(conn) + conn->daemon->config.times.write_ms;
    if (!settle_up(conn)) return;
    probe(conn);
    pd_conn_watch(conn);
}

void pd_conn_received(pd_conn *conn, size_t n)
{
    conn->times.read = now_ms(conn);
    if (pd_framer_idle(conn->framer)) conn->times.frame = conn->times.read;
    conn->daemon->counters.bytes_in += n;
    pd_traffic_count(conn->daemon->traffic, conn->job, n, 0);
    after_fed(conn, pd_framer_fed(conn->framer, n));
}

void pd_conn_input_ended(pd_conn *conn, ssize_t rc, const pd_error *err)
{
    if (!pd_conn_live(conn))
        pd_conn_close(conn, "ended");
    else if (rc == PD_CANCELLED)
        peer_ended(conn);
    else
        pd_conn_close(conn, err->text);
}

/* Reads until the quota of the turn is used up, or the transport has no more bytes. Returns the number of bytes. */
static size_t read_turn(pd_conn *conn)
{
    size_t quota = pd_loop_quota(conn->daemon), left = quota, offered;
    pd_error err;

    while (left > 0 && pd_conn_live(conn) && pd_conn_wants_to_read(conn) && !pd_conn_lend_input(conn)) {
        ssize_t n = read_slice(conn, left < SLICE ? left : SLICE, &offered, &err);
        if (n == 0) break;
        if (n < 0) {
            pd_conn_input_ended(conn, n, &err);
            break;
        }
        left -= (size_t)n;
        pd_conn_received(conn, (size_t)n);
        if ((size_t)n < offered) break;
    }
    return quota - left;
}

static void read_frames(pd_conn *conn)
{
    size_t got = read_turn(conn);

    if (conn->transport != NULL) pd_transport_gather(conn->transport, got, pd_framer_left(conn->framer));
}

static void read_away(pd_conn *conn)
{
    uint8_t bin[4096];
    struct iovec span = { bin, sizeof bin };
    ssize_t n = 1;
    pd_error err;

    for (int i = 0; i < 16 && n > 0; i++) n = conn->transport->ops->receive(conn->transport, &span, 1, &err);
    if (n < 0) pd_conn_input_ended(conn, n, &err);
}

/* Handles the end of a connection, by the peer, while the server does not read from the connection. Frames that the
 * peer sent before are read later, and answered. */
static void gone(pd_conn *conn)
{
    if (!pd_conn_live(conn)) {
        pd_conn_close(conn, END_TEXT);
        return;
    }
    conn->end.hung = true;
    probe(conn);
    pd_conn_watch(conn);
}

static void on_ready(void *arg, unsigned events)
{
    pd_conn *conn = arg;

    conn->daemon->table.active++;
    if ((events & PD_ON_GONE) != 0 && (events & PD_ON_READ) == 0) {
        if ((conn->watched & PD_ON_GONE) != 0)
            gone(conn);
        else
            pd_conn_close(conn, "the connection is broken");
        return;
    }
    if ((events & PD_ON_READ) != 0) {
        if (conn->state == PD_ENDING)
            read_away(conn);
        else
            read_frames(conn);
    }
    if ((events & PD_ON_WRITE) != 0) pd_conn_touch(conn);
}

void pd_conn_attach(pd_conn *conn, pd_transport *transport)
{
    transport->ready = on_ready;
    transport->moved = pd_conn_moved;
    transport->arg = conn;
    conn->transport = transport;
    pd_transport_identify(transport, &conn->peer.identity);
    pd_conn_watch(conn);
}

void pd_conn_resume(pd_conn *conn)
{
    if (!pd_conn_live(conn) || !pd_framer_stalled(conn->framer)) return;
    conn->times.read = conn->times.frame = now_ms(conn);
    after_fed(conn, pd_framer_resume(conn->framer));
}

/* Returns whether a worker needs an unsolicited heartbeat. Its own may go unanswered for long: the server does not read
 * them while the worker has used up its share of the ingest budget, and on a slow link they come behind gradients that
 * the network holds. */
static bool needs_beat(const pd_conn *conn, uint64_t now)
{
    uint64_t sent = conn->times.write > conn->times.beat ? conn->times.write : conn->times.beat;
    bool sends = conn->joined && conn->times.read > sent;

    return (sends || pd_framer_stalled(conn->framer)) && pd_output_empty(&conn->output) &&
           now - sent >= conn->daemon->config.times.heartbeat_ms;
}

/* Ends a connection because a timeout has passed. The error names the timeout. */
static void too_slow(pd_conn *conn, int code, const char *what, uint64_t ms)
{
    pd_error err;

    pd_fail(&err, code, "%s within %.1f s", what, (double)ms / 1e3);
    pd_conn_end(conn, NULL, &err);
}

void pd_conn_tick(pd_conn *conn, uint64_t now)
{
    const pd_daemon_config *config = &conn->daemon->config;
    bool reads = pd_conn_wants_to_read(conn);

    if (conn->transport != NULL && now - conn->times.read >= PD_GATHER_MS) pd_transport_ease(conn->transport);
    if (conn->state == PD_ENDING && now >= conn->times.end) pd_conn_close(conn, "ended");
    if (conn->end.peer && now >= conn->times.end) pd_conn_close(conn, END_TEXT);
    if (!pd_conn_live(conn)) return;
    if (conn->state == PD_GREETING && now - conn->times.opened > config->times.handshake_ms)
        too_slow(conn, PD_DEADLINE_EXCEEDED, "no Hello", config->times.handshake_ms);
    else if (reads && now - conn->times.read > config->times.silence_ms)
        too_slow(conn, PD_DEADLINE_EXCEEDED, "no data from the peer", config->times.silence_ms);
    else if (reads && !pd_framer_idle(conn->framer) && now - conn->times.frame > config->times.read_ms)
        too_slow(conn, PD_DEADLINE_EXCEEDED, "incomplete frame: not received", config->times.read_ms);
    else if (!pd_output_empty(&conn->output) && now - conn->times.write > config->times.write_ms)
        pd_conn_close(conn, "the peer did not read an answer in time");
    else if (conn->output.outstanding.n > 0 && !PD_MUTANT(unreleased_stays) &&
             now - conn->output.outstanding.since_ms > config->times.write_ms)
        pd_conn_close(conn, "the peer did not release an answer in shared memory in time");
    else if (needs_beat(conn, now))
        beat(conn, now);
}
