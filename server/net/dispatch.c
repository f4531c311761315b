/* dispatch.c - the table of methods: checks each message and turns it into a request. */
#include "info.h"
#include "loop.h"
#include "optimizers.h"
#include "plant.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The methods in the order of paramd.proto. A method without payload is run when its frame is complete. One with a payload is prepared when
 * its header is there, before any memory for the payload is asked for, and finished when the payload is. */
enum { WORKER = 1, DECLARED = 2, OPERATOR = 4 };

typedef struct method {
    const char *name;
    unsigned    needs;
    pd_pending_kind kind;
    int  (*run)(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
    int  (*prepare)(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
    void (*finish)(pd_conn *conn);
} method;

static int run_barrier(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_heartbeat(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_leave(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_status(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_list(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_optimizers(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_drop(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_drain(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_shutdown(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
static int run_set(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);

static const method methods[PD_METHODS] = {
    [PD_HELLO]      = { "Hello",      0,                 .run = pd_run_hello },
    [PD_DECLARE]    = { "Declare",    WORKER,            .run = pd_run_declare },
    [PD_INIT]       = { "Initialise", WORKER | DECLARED, .prepare = pd_prepare_init, .finish = pd_finish_init },
    [PD_PUSH]       = { "Push",       WORKER | DECLARED, .prepare = pd_prepare_push, .finish = pd_finish_push },
    [PD_PULL]       = { "Pull",       WORKER | DECLARED, .run = pd_run_pull },
    [PD_PUSH_PULL]  = { "PushPull",   WORKER | DECLARED, .prepare = pd_prepare_push, .finish = pd_finish_push },
    [PD_BARRIER]    = { "Barrier",    WORKER,            PD_AWAITS_OTHERS, .run = run_barrier },
    [PD_HEARTBEAT]  = { "Heartbeat",  0,                 .run = run_heartbeat },
    [PD_LEAVE]      = { "Leave",      WORKER,            PD_AWAITS_STORE, .run = run_leave },
    [PD_STATUS]     = { "Status",     0,                 PD_AWAITS_STORE, .run = run_status },
    [PD_LIST]       = { "List",       0,                 PD_AWAITS_STORE, .run = run_list },
    [PD_OPTIMIZERS] = { "Optimizers", 0,                 .run = run_optimizers },
    [PD_DROP]       = { "Drop",       OPERATOR,          PD_AWAITS_STORE, .run = run_drop },
    [PD_DRAIN]      = { "Drain",      OPERATOR,          PD_AWAITS_OTHERS, .run = run_drain },
    [PD_SHUTDOWN]   = { "Shutdown",   OPERATOR,          PD_AWAITS_OTHERS, .run = run_shutdown },
    [PD_SET]        = { "Set",        OPERATOR,          PD_AWAITS_STORE, .run = run_set },
    [PD_IMPORT]     = { "Import",     OPERATOR,          PD_AWAITS_STORE, .prepare = pd_prepare_import, .finish = pd_finish_import },
};

void pd_dispatch_check(void)
{
    assert(paramd__paramd__descriptor.n_methods == PD_METHODS);
    for (unsigned i = 0; i < PD_METHODS; i++) {
        assert(strcmp(methods[i].name, paramd__paramd__descriptor.methods[i].name) == 0);
        assert((methods[i].run != NULL) != (methods[i].prepare != NULL && methods[i].finish != NULL));
    }
}

/* ---- what a frame must be before its method looks at it ---- */

/* Does not end with an answer: the stream makes no sense, or the peer is nobody yet. */
static int check_stream(pd_conn *conn, const pd_prefix *prefix)
{
    const pd_daemon_config *config = &conn->daemon->config;

    if ((prefix->flags & (PD_FLAG_REPLY | PD_FLAG_ERROR)) != 0)
        return pd_fail(&conn->why, PD_INVALID_ARGUMENT, "expected a request, got a frame that is marked as an answer");
    if (prefix->request == 0 && !PD_PLANTED(request_zero))
        return pd_fail(&conn->why, PD_INVALID_ARGUMENT, "a request with id 0, which stands for no request: ids begin with 1");
    if (conn->state == PD_GREETING && prefix->method != PD_HELLO)
        return pd_fail(&conn->why, PD_FAILED_PRECONDITION, "expected Hello as the first request, got %s", pd_method_name(prefix->method));
    if (conn->state == PD_GREETING && (prefix->header_bytes > config->hello_bytes || prefix->payload_bytes > 0))
        return pd_fail(&conn->why, PD_RESOURCE_EXHAUSTED, "Hello has a header of %u bytes and a payload of %llu: at most %u bytes of "
                       "header (limits.hello_bytes) and no payload are allowed. The job's rules and options travel in the header: "
                       "shorten them, or raise limits.hello_bytes in the server's configuration",
                       prefix->header_bytes, (unsigned long long)prefix->payload_bytes, config->hello_bytes);
    if (pd_pendings_find(&conn->pendings, prefix->request) != NULL)
        return pd_fail(&conn->why, PD_INVALID_ARGUMENT, "request id %llu is still under way: an id may be used again when it is answered",
                       (unsigned long long)prefix->request);
    return PD_OK;
}

static int check_needs(const pd_conn *conn, unsigned needs, const char *name, pd_error *err)
{
    if ((needs & WORKER) != 0 && conn->job == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, conn->operates ? "%s is for workers: this connection's Hello named no job"
                       : conn->has_left ? "%s: this worker has left the job: connect anew to join it again"
                       : "%s: the job has ended: connect anew to begin another", name);
    if ((needs & DECLARED) != 0 && !conn->declared) return pd_fail(err, PD_FAILED_PRECONDITION, "%s before the parameters are declared", name);
    if ((needs & OPERATOR) != 0 && !conn->operates)
        return pd_fail(err, PD_PERMISSION_DENIED, "%s is for operators: connect without naming a job", name);
    return PD_OK;
}

static int check_frame(const pd_conn *conn, const pd_prefix *prefix, pd_error *err)
{
    const pd_daemon_config *config = &conn->daemon->config;
    const method *m = methods + (prefix->method < PD_METHODS ? prefix->method : 0);
    int rc;

    if (prefix->method >= PD_METHODS) return pd_fail(err, PD_UNIMPLEMENTED, "method %u: only 0 to %d are known", prefix->method, PD_METHODS - 1);
    if ((rc = check_needs(conn, m->needs, m->name, err)) != PD_OK) return rc;
    if (prefix->header_bytes > config->max_header)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%s: a header of %u bytes, at most %u are allowed (limits.max_header)", m->name,
                       prefix->header_bytes, config->max_header);
    if (m->run != NULL && prefix->payload_bytes > 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s has no payload, this one has %llu bytes", m->name, (unsigned long long)prefix->payload_bytes);
    if (conn->pendings.n >= PD_MAX_PENDING + 2 * conn->pieces || conn->pendings.pieces >= PD_MAX_WAITING + 2 * conn->pieces)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%s: %zu requests with %zu pieces are under way on this connection: wait for answers", m->name,
                       conn->pendings.n, conn->pendings.pieces);
    if (m->kind == PD_AWAITS_OTHERS && conn->pendings.of_kind[PD_AWAITS_OTHERS] >= PD_MAX_CONTROL)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%s: %d requests of this connection wait for other connections: wait for answers", m->name, PD_MAX_CONTROL);
    return PD_OK;
}

/* The connection is read on when the step thread has answered one of its requests, which it does without anybody else. A request that waits
 * for other connections never stops the reading: the answer may depend on what this connection sends next. */
static bool must_wait(const pd_conn *conn, const pd_prefix *prefix)
{
    return prefix->method < PD_METHODS && methods[prefix->method].kind == PD_AWAITS_STORE && conn->pendings.of_kind[PD_AWAITS_STORE] >= PD_MAX_CONTROL;
}

/* ---- the framer's callbacks ---- */

static void begin(pd_conn *conn, const pd_prefix *prefix, const uint8_t *header)
{
    pd_incoming *incoming = &conn->incoming;
    pd_error *err = &incoming->refusal;
    void *message;

    incoming->begun = true;
    err->code = PD_OK;
    if (check_frame(conn, prefix, err) != PD_OK || methods[prefix->method].prepare == NULL) return;
    pd_arena_reset(conn->daemon->arena);
    if (pd_request_unpack(conn->daemon->arena, prefix->method, header, prefix->header_bytes, &message, err) != PD_OK) return;
    methods[prefix->method].prepare(conn, prefix, message, err);
}

/* Tells the step thread that this connection waits for ingest memory, so that it sums early what the rank holds. Where
 * there is no memory for the message itself, the next tick looks at the frame again and tells it then. */
static void tell_stalled(pd_conn *conn, bool budget)
{
    pd_daemon *daemon = conn->daemon;
    pd_request *request;

    daemon->short_of_budget = daemon->short_of_budget || budget;
    if (PD_PLANTED(stale_look) || PD_PLANTED(wake_own_only)) return;
    request = pd_request_new(PD_REQ_STALLED, (pd_ticket){ conn->number, 0 });
    if (request == NULL) {
        daemon->stall_untold = true;
        return;
    }
    request->job = conn->job;
    request->rank = conn->rank;
    request->u.stalled.budget = budget;
    pd_daemon_post(daemon, request);
}

bool pd_conn_is_late(const pd_conn *conn)
{
    const pd_incoming *incoming = &conn->incoming;

    return incoming->pending != NULL && incoming->mark < conn->overdue.since && incoming->pending->wait.step <= conn->overdue.step;
}

/* Memory for the payload, once the rank's share allows. PD_UNAVAILABLE: it does not yet, or the memory is still being made. */
static int land(pd_conn *conn, uint64_t bytes)
{
    pd_incoming *incoming = &conn->incoming;
    pd_daemon *daemon = conn->daemon;
    int rc;

    incoming->span = (struct iovec){ NULL, bytes };
    if (incoming->refusal.code != PD_OK || incoming->request == NULL) return PD_OK;
    if (!pd_admission_take(&daemon->admission, &conn->share, bytes)) {
        if (pd_conn_is_late(conn)) {
            incoming->refusal = conn->overdue.error;
            return PD_OK;
        }
        tell_stalled(conn, daemon->admission.used + bytes > daemon->admission.budget);
        return PD_UNAVAILABLE;
    }
    rc = pd_pool_get(daemon->pool, bytes, conn->number, incoming->asked, &incoming->buffer);
    if (rc == PD_OK) {
        incoming->span.iov_base = incoming->buffer->at;
        return PD_OK;
    }
    pd_admission_give(&daemon->admission, &conn->share, bytes);
    incoming->asked = true;
    if (rc == PD_UNAVAILABLE) return rc;
    pd_fail(&incoming->refusal, rc, "no memory for a payload of %llu bytes: try again later", (unsigned long long)bytes);
    return PD_OK;
}

/* Before any memory for the header is asked for. */
static int on_prefix(void *arg, const pd_prefix *prefix)
{
    pd_conn *conn = arg;

    return pd_conn_live(conn) ? check_stream(conn, prefix) : PD_CANCELLED;
}

static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    pd_conn *conn = arg;
    int rc;

    if (!pd_conn_live(conn)) return PD_CANCELLED;
    if (conn->state == PD_WELCOMING || conn->declaring) return PD_UNAVAILABLE;
    if (!conn->incoming.begun) {
        if (must_wait(conn, prefix)) return PD_UNAVAILABLE;
        begin(conn, prefix, header);
    }
    if (prefix->payload_bytes == 0) return PD_OK;
    if ((rc = land(conn, prefix->payload_bytes)) != PD_OK) return rc;
    *spans = &conn->incoming.span;
    *n = 1;
    return PD_OK;
}

/* Answers a request with an error. A Hello that is refused ends the connection as well. The error comes by value: the end of the connection clears
 * the incoming frame, which may hold it. */
static void refuse(pd_conn *conn, const pd_prefix *prefix, pd_error err)
{
    if (prefix->method == PD_HELLO) pd_conn_end(conn, prefix, &err);
    else pd_conn_refuse(conn, prefix, &err);
}

static void run(pd_conn *conn, const pd_prefix *prefix, const uint8_t *header)
{
    const method *m = &methods[prefix->method];
    void *message;
    pd_error err;
    int rc;

    conn->daemon->calls[prefix->method]++;
    if (m->finish != NULL) {
        m->finish(conn);
        return;
    }
    pd_arena_reset(conn->daemon->arena);
    rc = pd_request_unpack(conn->daemon->arena, prefix->method, header, prefix->header_bytes, &message, &err);
    if (rc == PD_OK) rc = m->run(conn, prefix, message, &err);
    if (rc != PD_OK) refuse(conn, prefix, err);
}

/* A push that is refused here is unknown to the store, where a push behind it may end the step and count its gradients as absent. Memory is
 * short for a moment: the connection is closed, and the worker sends both again. Else it ends no step before the worker has read of it. */
static void refuse_incoming(pd_conn *conn, const pd_prefix *prefix)
{
    const pd_error *err = &conn->incoming.refusal;
    bool spoils = pd_method_pushes(prefix->method) && conn->job != 0 && !PD_PLANTED(close_counts_refused);

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
    conn->frame_ms = pd_daemon_now_ms(conn->daemon);
    conn->daemon->frames_in++;
    if (conn->incoming.refusal.code != PD_OK) refuse_incoming(conn, prefix);
    else run(conn, prefix, header);
    pd_incoming_drop(conn);
    return pd_conn_live(conn) ? PD_OK : PD_CANCELLED;
}

const pd_framer_user pd_dispatch = { .prefix = on_prefix, .header = on_header, .frame = on_frame };

void pd_incoming_drop(pd_conn *conn)
{
    pd_incoming *incoming = &conn->incoming;

    if (incoming->buffer != NULL) pd_daemon_home(conn->daemon, incoming->buffer);
    if (incoming->pending != NULL) pd_board_forget(conn->daemon->board, &incoming->pending->wait);
    pd_pending_free(incoming->pending);
    pd_request_free(incoming->request);
    memset(incoming, 0, sizeof *incoming);
}

/* ---- requests without a payload that go to the store as they are ---- */

/* Makes the record of a request without pieces. NULL: out of memory. */
static pd_pending *new_pending(pd_conn *conn, const pd_prefix *prefix)
{
    pd_pending *pending = pd_pending_new(&conn->pendings, conn, prefix, 0);

    if (pending != NULL) pending->kind = (uint16_t)methods[prefix->method].kind;
    return pending;
}

/* A request of its own kind for the store, answered through the pending table. NULL: out of memory, *err says so. */
static pd_request *ask(pd_conn *conn, pd_request_kind kind, const pd_prefix *prefix, pd_error *err)
{
    pd_pending *pending = new_pending(conn, prefix);
    pd_request *request = pending != NULL ? pd_request_new(kind, pd_conn_ticket(conn, pending)) : NULL;

    if (request == NULL) {
        pd_pending_free(pending);
        pd_fail(err, PD_NO_MEMORY, "%s: out of memory, try again later", pd_method_name(prefix->method));
        return NULL;
    }
    request->job = conn->job;
    request->rank = conn->rank;
    pd_pendings_add(&conn->pendings, pending);
    pd_daemon_post(conn->daemon, request);
    return request;
}

static int run_barrier(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__BarrierRequest *barrier = message;
    pd_request *request = ask(conn, PD_REQ_BARRIER, prefix, err);

    if (request == NULL) return PD_NO_MEMORY;
    request->u.barrier.sequence = barrier->sequence;
    return PD_OK;
}

static int run_heartbeat(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    Paramd__Ok ok = PARAMD__OK__INIT;

    (void)message, (void)err;
    if (pd_output_beat(&conn->output, prefix)) pd_conn_touch(conn);
    else pd_conn_reply(conn, prefix, &ok.base);
    return PD_OK;
}

static int run_leave(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    (void)message;
    return ask(conn, PD_REQ_LEAVE, prefix, err) != NULL ? PD_OK : PD_NO_MEMORY;
}

static int ask_info(pd_conn *conn, const pd_prefix *prefix, const Paramd__ListRequest *list, pd_error *err)
{
    char *name = strdup(list->job), *pattern = strdup(list->param);
    pd_request *request = name != NULL && pattern != NULL ? ask(conn, PD_REQ_INFO, prefix, err) : NULL;

    if (request == NULL) {
        free(name);
        free(pattern);
        return pd_fail(err, PD_NO_MEMORY, "out of memory, try again later");
    }
    request->u.info.what = (int)list->what;
    request->u.info.job_name = name;
    request->u.info.pattern = pattern;
    request->u.info.start = list->start;
    return PD_OK;
}

static int run_status(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;

    (void)message;
    list.what = PD_INFO_STATUS;
    return ask_info(conn, prefix, &list, err);
}

static int run_list(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__ListRequest *list = message;
    const pd_info_list *other;
    char all[256] = "";

    if (list->what != PD_INFO_STATUS && pd_info_list_of(list->what) != NULL) return ask_info(conn, prefix, list, err);
    for (uint32_t i = 1; (other = pd_info_list_of(i)) != NULL; i++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%u%s %s", i > 1 ? ", " : "", i, i > 1 ? "" : " is", other->about);
    }
    return pd_fail(err, PD_INVALID_ARGUMENT, "List of %u: %s", list->what, all);
}

static int run_optimizers(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__OptimizersRequest *asked = message;
    Paramd__OptimizersReply *reply;
    int rc = pd_optimizers_page(&reply, pd_optim_at, asked->start, asked->name, err);

    if (rc != PD_OK) return rc;
    pd_conn_reply(conn, prefix, &reply->base);
    pd_optimizers_free(reply);
    return PD_OK;
}

static int run_drop(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__DropRequest *drop = message;
    char *name = strdup(drop->job);
    pd_request *request;

    if (drop->job[0] == '\0') {
        free(name);
        return pd_fail(err, PD_INVALID_ARGUMENT, "Drop names no job");
    }
    request = name != NULL ? ask(conn, PD_REQ_DROP, prefix, err) : NULL;
    if (request == NULL) {
        free(name);
        return pd_fail(err, PD_NO_MEMORY, "out of memory, try again later");
    }
    request->u.info.job_name = name;
    return PD_OK;
}

static int run_drain(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__DrainRequest *drain = message;
    uint32_t ms = drain->timeout_ms > 0 ? drain->timeout_ms : conn->daemon->config.drain_ms;
    pd_request *request = ask(conn, PD_REQ_DRAIN, prefix, err);

    if (request == NULL) return PD_NO_MEMORY;
    request->u.drain.deadline_ns = ms * (uint64_t)1000000;
    return PD_OK;
}

/* Answered when the daemon is about to end. */
static int run_shutdown(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    pd_pending *pending = new_pending(conn, prefix);

    (void)message;
    if (pending == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory, try again later");
    pd_pendings_add(&conn->pendings, pending);
    pd_daemon_drain(conn->daemon, true, conn->daemon->config.drain_ms);
    return PD_OK;
}

static int copy_set(pd_request *request, const pd_conn *conn, const Paramd__SetRequest *set)
{
    request->u.set.job_name = strdup(set->job);
    request->u.set.pattern = strdup(set->pattern);
    request->u.set.by = strdup(conn->label);
    request->u.set.from_step = set->from_step;
    if (request->u.set.job_name == NULL || request->u.set.pattern == NULL || request->u.set.by == NULL) return PD_NO_MEMORY;
    return pd_options_copy(&request->u.set.options, &request->u.set.n, set->options, set->n_options);
}

static int run_set(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__SetRequest *set = message;
    pd_pending *pending = new_pending(conn, prefix);
    pd_request *request = pending != NULL ? pd_request_new(PD_REQ_SET, pd_conn_ticket(conn, pending)) : NULL;

    if (request == NULL || copy_set(request, conn, set) != PD_OK) {
        pd_request_free(request);
        pd_pending_free(pending);
        return pd_fail(err, PD_NO_MEMORY, "%s: out of memory, try again later", pd_method_name(prefix->method));
    }
    pd_pendings_add(&conn->pendings, pending);
    pd_daemon_post(conn->daemon, request);
    return PD_OK;
}
