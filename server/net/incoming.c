/* incoming.c - receives the frames of a connection: checks each frame, gets memory for its payload, and runs the
 * handler of its method. */
#include "handlers.h"

#include "mutant.h"

/* Checks that a frame fits the state of the connection. After an error the connection ends: its bytes cannot be trusted
 * to be frames, or the peer has sent no Hello. */
static int check_stream(pd_conn *conn, const pd_prefix *prefix)
{
    const pd_daemon_config *config = &conn->daemon->config;

    if ((prefix->flags & (PD_FLAG_REPLY | PD_FLAG_ERROR)) != 0)
        return pd_fail(&conn->why, PD_INVALID_ARGUMENT, "expected a request, got an answer");
    if (prefix->request == 0 && !PD_MUTANT(request_zero))
        return pd_fail(&conn->why, PD_INVALID_ARGUMENT, "request id 0: ids begin with 1");
    if (conn->state == PD_GREETING && prefix->method != PD_HELLO)
        return pd_fail(&conn->why, PD_FAILED_PRECONDITION, "expected Hello as the first request, got %s",
                       pd_method_name(prefix->method));
    if (conn->state == PD_GREETING && (prefix->header_bytes > config->hello_bytes || prefix->payload_bytes > 0))
        return pd_fail(&conn->why, PD_RESOURCE_EXHAUSTED,
                       "Hello has a header of %u bytes and a payload of %llu: at most %u bytes of header "
                       "(limits.hello_bytes) and no payload are allowed. The job's rules and options travel in the "
                       "header: shorten them, or raise limits.hello_bytes in the server's configuration",
                       prefix->header_bytes, (unsigned long long)prefix->payload_bytes, config->hello_bytes);
    if (pd_pendings_find(&conn->pendings, prefix->request) != NULL)
        return pd_fail(&conn->why, PD_INVALID_ARGUMENT,
                       "duplicate request id %llu: an id may be used again after its answer",
                       (unsigned long long)prefix->request);
    return conn->state != PD_GREETING ? pd_access_check_peer(conn, &conn->why) : PD_OK;
}

static int check_needs(const pd_conn *conn, unsigned needs, const char *name, pd_error *err)
{
    if ((needs & PD_NEEDS_WORKER) != 0 && conn->job == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       conn->operates   ? "%s is for workers: this connection's Hello named no job"
                       : conn->has_left ? "%s: this worker has left the job: reconnect to join it again"
                                        : "%s: the job has ended: reconnect to begin another",
                       name);
    if ((needs & PD_NEEDS_DECLARED) != 0 && !conn->params.declared)
        return pd_fail(err, PD_FAILED_PRECONDITION, "%s before the parameters are declared", name);
    if ((needs & PD_NEEDS_OPERATOR) != 0 && !conn->operates)
        return pd_fail(err, PD_PERMISSION_DENIED, "%s is for operators: connect without naming a job", name);
    return PD_OK;
}

/* Checks that a payload in shared memory lies in the segment that the worker has lent. */
static int check_place(const pd_conn *conn, const pd_prefix *prefix, const char *name, pd_error *err)
{
    if ((prefix->flags & PD_FLAG_SHARED) == 0) return PD_OK;
    if (conn->params.loan == NULL)
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "%s with a payload in shared memory, but this connection has no shared segment: send Share first", name);
    if (pd_loan_has(conn->params.loan, prefix->place, prefix->payload_bytes)) return PD_OK;
    return pd_fail(err, PD_OUT_OF_RANGE,
                   "%s: a payload of %llu bytes at unit %u of %d bytes is outside the shared segment", name,
                   (unsigned long long)prefix->payload_bytes, prefix->place, PD_PAYLOAD_ALIGN);
}

static int check_frame(const pd_conn *conn, const pd_prefix *prefix, pd_error *err)
{
    const pd_daemon_config *config = &conn->daemon->config;
    const pd_method_entry *m = pd_methods + (prefix->method < PD_METHODS ? prefix->method : 0);
    int rc;

    if (prefix->method >= PD_METHODS)
        return pd_fail(err, PD_UNIMPLEMENTED, "method %u: only 0 to %d are known", prefix->method, PD_METHODS - 1);
    if ((rc = check_needs(conn, m->needs, m->name, err)) != PD_OK) return rc;
    if (prefix->header_bytes > config->max_header)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%s: a header of %u bytes, at most %u are allowed (limits.max_header)", m->name,
                       prefix->header_bytes, config->max_header);
    if (!pd_method_takes_payload(m) && prefix->payload_bytes > 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s has no payload, got one of %llu bytes", m->name,
                       (unsigned long long)prefix->payload_bytes);
    if ((rc = check_place(conn, prefix, m->name, err)) != PD_OK) return rc;
    if (conn->pendings.n >= PD_MAX_PENDING + 2 * conn->params.pieces ||
        conn->pendings.pieces >= PD_MAX_WAITING + 2 * conn->params.pieces)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%s: %zu requests with %zu pieces are under way on this connection: wait for answers", m->name,
                       conn->pendings.n, conn->pendings.pieces);
    if (m->kind == PD_AWAITS_OTHERS && conn->pendings.of_kind[PD_AWAITS_OTHERS] >= PD_MAX_CONTROL)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%s: %d requests of this connection wait for other connections: wait for answers", m->name,
                       PD_MAX_CONTROL);
    return pd_access_check_quota(conn, m->name, err);
}

/* Returns whether the frame is held back because too many requests of this connection have no answer of the step thread
 * yet.
 *
 * Only requests that the step thread answers at once are counted. A request whose answer depends on other connections,
 * such as a barrier, never holds a frame back: its answer may depend on the frames that this connection sends next. A
 * Recall is held back until all counted requests are answered: its answer may have a worker state of 1 MiB, which no
 * budget counts. */
static bool must_wait(const pd_conn *conn, const pd_prefix *prefix)
{
    size_t most = prefix->method == PD_RECALL ? 1 : PD_MAX_CONTROL;

    return prefix->method < PD_METHODS && pd_methods[prefix->method].kind == PD_AWAITS_STORE &&
           conn->pendings.of_kind[PD_AWAITS_STORE] >= most;
}

/* Returns whether the method is one of which a connection sends many frames: those with payloads, Release and
 * Heartbeat. */
static bool is_cheap(const pd_prefix *prefix)
{
    return prefix->method >= PD_METHODS || pd_method_takes_payload(&pd_methods[prefix->method]) ||
           prefix->method == PD_RELEASE || prefix->method == PD_HEARTBEAT;
}

/* Makes the open request, and the request to the store, which the method's `fill` fills in. conn->incoming owns both,
 * also after an error. */
static int begin_asking(pd_conn *conn, const pd_method_entry *m, const pd_prefix *prefix, const void *message,
                        pd_error *err)
{
    pd_incoming *incoming = &conn->incoming;
    int rc = PD_NO_MEMORY;

    if ((incoming->pending = pd_pending_new(&conn->pendings, conn, prefix, 0)) != NULL) {
        incoming->pending->kind = (uint16_t)m->kind;
        incoming->request = pd_request_new(m->asks, pd_conn_ticket(conn, incoming->pending));
    }
    if (incoming->request != NULL) {
        incoming->request->job = conn->job;
        incoming->request->rank = conn->rank;
        rc = m->fill(conn, incoming->request, prefix, message, err);
    }
    return rc == PD_NO_MEMORY ? pd_conn_no_memory(prefix, err) : rc;
}

/* Posts the request to the store, with the payload if the method has one. */
static void finish_asking(pd_conn *conn, const pd_method_entry *m)
{
    pd_incoming *incoming = &conn->incoming;
    pd_request *request = incoming->request;

    pd_pendings_add(&conn->pendings, incoming->pending);
    incoming->pending = NULL;
    incoming->request = NULL;
    if (m->land != NULL) {
        m->land(conn, request, incoming->buffer);
        incoming->buffer = NULL;
    }
    pd_loop_post(conn->daemon, request);
}

static void begin(pd_conn *conn, const pd_prefix *prefix, const uint8_t *header)
{
    pd_incoming *incoming = &conn->incoming;
    pd_error *err = &incoming->refusal;
    const pd_method_entry *m;
    void *message;

    incoming->begun = true;
    err->code = PD_OK;
    if (check_frame(conn, prefix, err) != PD_OK || !pd_method_takes_payload(&pd_methods[prefix->method])) return;
    pd_arena_reset(conn->daemon->arena);
    if (pd_request_unpack(conn->daemon->arena, prefix->method, header, prefix->header_bytes, &message, err) != PD_OK)
        return;
    m = &pd_methods[prefix->method];
    if (pd_access_check(conn, m->name, &m->may, message, err) != PD_OK) return;
    if (m->prepare != NULL)
        m->prepare(conn, prefix, message, err);
    else
        begin_asking(conn, m, prefix, message, err);
}

/* Tells the step thread that this connection waits for memory for a payload. The store then sums the rank's
 * contributions early, which frees their buffers. `budget`: all ranks together use up the ingest budget. Without memory
 * for this message, the frame is tried again at the next tick of the timer. */
static void report_stalled(pd_conn *conn, bool budget)
{
    pd_daemon *daemon = conn->daemon;
    pd_request *request;

    daemon->ingest.short_of_budget = daemon->ingest.short_of_budget || budget;
    if (PD_MUTANT(stale_look) || PD_MUTANT(wake_own_only)) return;
    request = pd_request_new(PD_REQ_STALLED, (pd_ticket){ conn->number, 0 });
    if (request == NULL) {
        daemon->ingest.unreported = true;
        return;
    }
    request->job = conn->job;
    request->rank = conn->rank;
    request->u.stalled.budget = budget;
    pd_loop_post(daemon, request);
}

/* Gets memory for a payload of `bytes` bytes, if the rank's share of the ingest budget has room. The payload of a
 * refused frame gets no memory, and is discarded. PD_UNAVAILABLE: the share has no room yet, or the memory is still
 * being allocated. */
static int land(pd_conn *conn, uint64_t bytes)
{
    pd_incoming *incoming = &conn->incoming;
    pd_daemon *daemon = conn->daemon;
    int rc;

    incoming->span = (struct iovec){ NULL, bytes };
    if (incoming->refusal.code != PD_OK || incoming->request == NULL) return PD_OK;
    if (!pd_admission_take(&daemon->ingest.admission, &conn->params.quota, bytes)) {
        if (pd_conn_is_late(conn)) {
            incoming->refusal = conn->overdue.error;
            return PD_OK;
        }
        report_stalled(conn, daemon->ingest.admission.used + bytes > daemon->ingest.admission.budget);
        return PD_UNAVAILABLE;
    }
    rc = pd_pool_get(daemon->ingest.pool, bytes, conn->number, incoming->asked, &incoming->buffer);
    if (rc == PD_OK) {
        incoming->span.iov_base = incoming->buffer->at;
        return PD_OK;
    }
    pd_admission_give(&daemon->ingest.admission, &conn->params.quota, bytes);
    incoming->asked = true;
    if (rc == PD_UNAVAILABLE) return rc;
    pd_fail(&incoming->refusal, rc, "out of memory for a payload of %llu bytes: try again later",
            (unsigned long long)bytes);
    return PD_OK;
}

/* Makes a buffer of a payload that lies in the worker's segment. It takes nothing from the ingest budget, so it never
 * waits. */
static void borrow(pd_conn *conn, const pd_prefix *prefix)
{
    pd_incoming *incoming = &conn->incoming;

    if (incoming->refusal.code != PD_OK || incoming->request == NULL) return;
    incoming->buffer = pd_loan_buffer(conn->params.loan, conn->number, prefix->place, prefix->payload_bytes);
    if (incoming->buffer == NULL) {
        pd_conn_no_memory(prefix, &incoming->refusal);
        return;
    }
    conn->daemon->counters.bytes_in += prefix->payload_bytes;
    pd_traffic_count(conn->daemon->traffic, conn->job, prefix->payload_bytes, 0);
}

/* Checks the prefix of a frame, before memory for the frame's header is allocated. */
static int on_prefix(void *arg, const pd_prefix *prefix)
{
    pd_conn *conn = arg;

    return pd_conn_live(conn) ? check_stream(conn, prefix) : PD_CANCELLED;
}

/* Returns whether this turn has time for the connection's next frame; if not, the frame is held back until a later
 * turn. One frame of each turn is always handled, so there is progress. */
static bool has_time(pd_conn *conn, bool cheap)
{
    pd_pace *pace = &conn->daemon->peers.pace;
    uint64_t now = pd_pace_note(pace, cheap) ? pd_loop_clock_ns(conn->daemon) : 0;

    if (pace->until_ns == 0) pace->until_ns = now + PD_PACE_TURN_NS;
    pace->spent = pace->spent || now > pace->until_ns;
    if (!pace->spent || pace->frames == 1) return true;
    if (!PD_MUTANT(deferred_forever)) pd_pace_defer(pace, &conn->peer.usage->pace, &conn->links.pace);
    return false;
}

static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    pd_conn *conn = arg;
    int rc;

    if (!pd_conn_live(conn)) return PD_CANCELLED;
    if (conn->state == PD_WELCOMING || conn->params.declaring) return PD_UNAVAILABLE;
    if (!conn->incoming.begun) {
        if (must_wait(conn, prefix) || !has_time(conn, is_cheap(prefix))) return PD_UNAVAILABLE;
        begin(conn, prefix, header);
    }
    if (prefix->payload_bytes == 0) return PD_OK;
    if ((prefix->flags & PD_FLAG_SHARED) != 0) {
        borrow(conn, prefix);
        return PD_OK;
    }
    if ((rc = land(conn, prefix->payload_bytes)) != PD_OK) return rc;
    *spans = &conn->incoming.span;
    *n = 1;
    return PD_OK;
}

/* Answers a request with an error. A refused Hello also ends the connection. The error is passed by value, because it
 * may be in conn->incoming, which is cleared when the connection ends. */
static void refuse(pd_conn *conn, const pd_prefix *prefix, pd_error err)
{
    if (prefix->method == PD_HELLO)
        pd_conn_end(conn, prefix, &err);
    else
        pd_conn_refuse(conn, prefix, &err);
}

static void run(pd_conn *conn, const pd_prefix *prefix, const uint8_t *header)
{
    const pd_method_entry *m = &pd_methods[prefix->method];
    void *message;
    pd_error err;
    int rc;

    if (pd_method_takes_payload(m)) {
        conn->daemon->counters.calls[prefix->method]++;
        if (m->finish != NULL)
            m->finish(conn);
        else
            finish_asking(conn, m);
        return;
    }
    pd_arena_reset(conn->daemon->arena);
    rc = pd_request_unpack(conn->daemon->arena, prefix->method, header, prefix->header_bytes, &message, &err);
    if (rc == PD_OK) rc = pd_access_check(conn, m->name, &m->may, message, &err);
    if (rc == PD_OK) {
        conn->daemon->counters.calls[prefix->method]++;
        rc = m->run != NULL ? m->run(conn, prefix, message, &err) : begin_asking(conn, m, prefix, message, &err);
    }
    if (rc != PD_OK)
        refuse(conn, prefix, err);
    else if (m->fill != NULL)
        finish_asking(conn, m);
}

/* Refuses a frame. The store does not learn of a push that is refused here. If a later push of the connection ended the
 * step, the gradients of the refused push would count as absent, and the worker would not know.
 *
 * Two rules prevent this. After a push was refused, the connection may end no step until the worker has read the error.
 * If there is no memory for a push, the connection is closed, and the worker sends its pushes again. */
static void refuse_incoming(pd_conn *conn, const pd_prefix *prefix)
{
    const pd_error *err = &conn->incoming.refusal;
    bool spoils = pd_method_pushes(prefix->method) && conn->job != 0 && !PD_MUTANT(close_counts_refused);

    if (spoils && err->code == PD_NO_MEMORY) {
        pd_conn_close(conn, "out of memory for a push");
        return;
    }
    if (spoils) conn->refused = ++conn->daemon->mark;
    refuse(conn, prefix, *err);
}

static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    pd_conn *conn = arg;

    if (!pd_conn_live(conn)) return PD_CANCELLED;
    conn->times.frame = pd_loop_now_ms(conn->daemon);
    conn->daemon->counters.frames_in++;
    if (conn->incoming.refusal.code != PD_OK)
        refuse_incoming(conn, prefix);
    else
        run(conn, prefix, header);
    pd_conn_drop_incoming(conn);
    return pd_conn_live(conn) ? PD_OK : PD_CANCELLED;
}

const pd_framer_user pd_incoming_frames = { .prefix = on_prefix, .header = on_header, .frame = on_frame };
