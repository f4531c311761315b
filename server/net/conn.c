/* conn.c - opens connections, sends answers on them, and ends them. */
#include "conn.h"

#include "grow.h"
#include "mutant.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <utlist.h>

/* The arrays of pd_handles grow by doubling, so up to half of their memory may be unused: hence the factor 2. */
_Static_assert(2 * (sizeof(pd_handle_facts) + sizeof(pd_param_decl) + sizeof(uint32_t)) <= PD_LOOP_DECL_BYTES,
               "Declare counts what a connection has of a declaration");

enum { LEAST_HANDLES = 16 };
_Static_assert(LEAST_HANDLES *(sizeof(pd_handle_facts) + sizeof(pd_param_decl) + sizeof(uint32_t)) + 48 <=
                   PD_LOOP_RANK_BYTES,
               "Declare counts what a connection has of a small set");

static int make_room_for_handle(pd_handles *handles)
{
    size_t want = handles->n < LEAST_HANDLES ? LEAST_HANDLES : handles->n + 1;
    size_t rooms[3] = { handles->capacity, handles->capacity, handles->capacity };

    if (pd_grow((void **)&handles->facts, &rooms[0], want, sizeof *handles->facts) != PD_OK ||
        pd_grow((void **)&handles->decls, &rooms[1], want, sizeof *handles->decls) != PD_OK ||
        pd_grow((void **)&handles->params, &rooms[2], want, sizeof *handles->params) != PD_OK)
        return PD_NO_MEMORY;
    handles->capacity = rooms[0];
    return PD_OK;
}

int pd_handles_add(pd_handles *handles, const pd_param_decl *decl, int64_t elements)
{
    pd_param_decl *copy;

    if (make_room_for_handle(handles) != PD_OK) return PD_NO_MEMORY;
    copy = &handles->decls[handles->n];
    if (pd_decl_copy(copy, decl) != PD_OK) return PD_NO_MEMORY;
    if (!copy->ranged) copy->end = elements;
    handles->facts[handles->n] = (pd_handle_facts){ copy->start, copy->end, copy->name };
    handles->params[handles->n] = UINT32_MAX;
    handles->n++;
    return PD_OK;
}

void pd_handles_cut(pd_handles *handles, size_t n)
{
    while (handles->n > n) {
        free(handles->decls[--handles->n].name);
        free(handles->decls[handles->n].axes);
    }
}

void pd_handles_free(pd_handles *handles)
{
    pd_handles_cut(handles, 0);
    free(handles->facts);
    free(handles->decls);
    free(handles->params);
    memset(handles, 0, sizeof *handles);
}

enum { LINGER_MS = 2000 };

bool pd_conn_live(const pd_conn *conn)
{
    return conn->state != PD_ENDING && conn->state != PD_CLOSED;
}

bool pd_conn_wants_to_read(const pd_conn *conn)
{
    if (conn->state == PD_ENDING) return conn->end.shut;
    return !conn->end.peer && !pd_framer_stalled(conn->framer) && conn->output.held < PD_HIGH_WATER;
}

bool pd_conn_has_sent(const pd_conn *conn)
{
    return pd_output_empty(&conn->output) && !pd_transport_owes(conn->transport);
}

/* While the server does not read from a connection, this asks the transport to report once if the peer ends the
 * connection. */
void pd_conn_watch(pd_conn *conn)
{
    unsigned events = pd_conn_wants_to_read(conn) ? PD_ON_READ : conn->end.peer || conn->end.hung ? 0 : PD_ON_GONE;

    if (conn->state == PD_CLOSED) return;
    if (!pd_output_empty(&conn->output) || (conn->end.peer && !pd_conn_has_sent(conn))) events |= PD_ON_WRITE;
    if (events == conn->watched) return;
    if ((events & ~conn->watched & PD_ON_READ) != 0) /* restart the timeouts: the connection was silent only because the
                                                      * server did not read from it */
        conn->times.read = conn->times.frame = pd_loop_now_ms(conn->daemon);
    conn->watched = events;
    conn->transport->ops->watch(conn->transport, events);
}

void pd_conn_touch(pd_conn *conn)
{
    if (conn->links.dirty || conn->state == PD_CLOSED) return;
    conn->links.dirty = true;
    conn->links.next_dirty = conn->daemon->table.dirty;
    conn->daemon->table.dirty = conn;
}

/* Puts the connection into the list of connections whose held-back frame is tried again at the end of this turn. */
static void wake(pd_conn *conn)
{
    if (conn->links.waking || conn->state == PD_CLOSED) return;
    conn->links.waking = true;
    conn->links.next_waking = conn->daemon->table.waking;
    conn->daemon->table.waking = conn;
}

void pd_conn_return_buffer(pd_daemon *daemon, pd_buffer *buffer)
{
    pd_conn *conn = pd_loop_find(daemon, buffer->conn);

    if (buffer->lender != NULL) {
        pd_loan_return(buffer, &daemon->platform);
        return;
    }
    if (PD_MUTANT(buffer_lost) && buffer->size % 101 == 0) return;
    pd_admission_give(&daemon->ingest.admission, conn != NULL ? &conn->params.quota : NULL, buffer->charged);
    pd_pool_put(daemon->ingest.pool, buffer);
    if (conn == NULL || (daemon->ingest.short_of_budget && !PD_MUTANT(wake_own_only)))
        daemon->ingest.stall_over = true;
    else if (pd_framer_stalled(conn->framer))
        wake(conn);
}

void pd_conn_drop_incoming(pd_conn *conn)
{
    pd_incoming *incoming = &conn->incoming;

    if (incoming->buffer != NULL && conn->lent.in != 0 && !PD_MUTANT(lent_buffer_returned))
        conn->lent.buffer = incoming->buffer;
    else if (incoming->buffer != NULL)
        pd_conn_return_buffer(conn->daemon, incoming->buffer);
    if (incoming->pending != NULL) pd_version_table_forget(conn->daemon->versions, &incoming->pending->wait);
    pd_pending_free(incoming->pending);
    pd_request_free(incoming->request);
    memset(incoming, 0, sizeof *incoming);
}

bool pd_conn_is_late(const pd_conn *conn)
{
    const pd_incoming *incoming = &conn->incoming;
    const pd_pending *pending = incoming->pending;

    if (pending == NULL || !(pd_method_pushes(pending->method) || pending->method == PD_INIT)) return false;
    return incoming->mark < conn->overdue.since && pending->wait.step <= conn->overdue.step;
}

pd_conn *pd_conn_new(pd_daemon *daemon, const pd_framer_user *frames, const char *peer)
{
    pd_conn *conn = calloc(1, sizeof *conn);
    pd_framer_user user = *frames;

    if (conn == NULL) return NULL;
    conn->daemon = daemon;
    snprintf(conn->peer.address, sizeof conn->peer.address, "%s", peer);
    conn->pendings.key = daemon->key;
    conn->times.opened = conn->times.read = conn->times.frame = pd_loop_now_ms(daemon);
    conn->times.write = conn->times.beat = conn->times.opened;
    conn->end.notice = pd_request_new(PD_REQ_LOST, (pd_ticket){ 0, 0 });
    user.arg = conn;
    conn->framer = pd_framer_new(&user, daemon->config.max_payload);
    if (conn->end.notice == NULL || conn->framer == NULL || pd_loop_place(daemon, conn, &conn->number) != PD_OK)
        goto fail;
    return conn;

fail:
    pd_framer_free(conn->framer);
    pd_request_free(conn->end.notice);
    free(conn);
    return NULL;
}

void pd_conn_free(pd_conn *conn)
{
    pd_handles_free(&conn->params.handles);
    pd_pendings_free(&conn->pendings);
    pd_framer_free(conn->framer);
    free(conn->job_name);
    free(conn);
}

void pd_conn_notify_store(pd_conn *conn, const char *reason)
{
    pd_request *notice = conn->end.notice;

    conn->end.notice = NULL;
    if (notice == NULL) return;
    if (!conn->joined && !conn->exports) {
        pd_request_free(notice);
        return;
    }
    notice->ticket.conn = conn->number;
    notice->job = conn->job;
    notice->rank = conn->rank;
    pd_text_print(notice->u.lost.reason, sizeof notice->u.lost.reason, reason);
    if (conn->state == PD_WELCOMING)
        pd_loop_keep_notice(conn->daemon, notice);
    else
        pd_loop_post(conn->daemon, notice);
}

static void drop_output(pd_conn *conn)
{
    pd_pending *reply = pd_output_clear(&conn->output);

    while (reply != NULL) {
        pd_pending *next = reply->next_reply;
        pd_version_table_forget(conn->daemon->versions, &reply->wait);
        pd_pending_free(reply);
        reply = next;
    }
}

static void drop_pendings(pd_conn *conn)
{
    pd_pending *pending;

    while ((pending = pd_pendings_any(&conn->pendings)) != NULL) {
        pd_pendings_remove(&conn->pendings, pending);
        pd_version_table_forget(conn->daemon->versions, &pending->wait);
        pd_pending_free(pending);
    }
}

void pd_conn_undeclare(pd_conn *conn)
{
    conn->params.declaring = conn->params.declared = false;
    pd_handles_cut(&conn->params.handles, 0);
    pd_loan_unref(conn->params.loan, &conn->daemon->platform);
    conn->params.loan = NULL;
    conn->output.weights = (pd_segment)PD_NO_SEGMENT;
    if (conn->params.quota.reserve == 0) return;
    pd_admission_leave(&conn->daemon->ingest.admission, &conn->params.quota);
    conn->daemon->ingest.stall_over = true;
}

static void let_go(pd_conn *conn, const char *reason)
{
    pd_conn_notify_store(conn, reason);
    pd_conn_drop_incoming(conn);
    drop_pendings(conn);
    pd_conn_undeclare(conn);
}

void pd_conn_dispose(pd_conn *conn)
{
    if (conn->lent.out == 0 || PD_MUTANT(lent_reply_freed)) drop_output(conn);
    if (conn->lent.in == 0 && conn->lent.buffer != NULL) {
        pd_conn_return_buffer(conn->daemon, conn->lent.buffer);
        conn->lent.buffer = NULL;
    }
    if (pd_conn_is_lent(conn, PD_ON_READ | PD_ON_WRITE)) return;
    conn->links.next_closed = conn->daemon->table.closed;
    conn->daemon->table.closed = conn;
}

static void leave_lists(pd_conn *conn)
{
    pd_conn_table *table = &conn->daemon->table;

    if (conn->links.dirty) LL_DELETE2(table->dirty, conn, links.next_dirty);
    if (conn->links.waking) LL_DELETE2(table->waking, conn, links.next_waking);
    pd_pace_leave(&conn->daemon->peers.pace, &conn->links.pace);
}

void pd_conn_close(pd_conn *conn, const char *reason)
{
    pd_daemon *daemon = conn->daemon;

    if (conn->state == PD_CLOSED) return;
    if (conn->joined && conn->end.notice != NULL)
        pd_loop_log(daemon, LOG_DEBUG, (pd_log_facts){ .rank = &conn->rank }, "%s (%s, rank %u): connection closed: %s",
                    conn->peer.address, conn->peer.label, conn->rank, reason);
    let_go(conn, reason);
    conn->state = PD_CLOSED;
    pd_brief_leave(&daemon->peers.brief, &conn->links.brief);
    leave_lists(conn);
    if (conn->peer.usage != NULL) pd_usage_leave(&daemon->peers.usages, conn->peer.usage);
    conn->peer.usage = NULL;
    pd_loop_remove(daemon, conn->number);
    conn->transport->ops->close(conn->transport);
    conn->transport = NULL;
    pd_conn_dispose(conn);
}

/* Returns the facts by which the log limits lines about a peer: its identity, or its address if it has proven none. */
static pd_log_facts facts_of(const pd_conn *conn, char host[PD_LOG_PEER])
{
    bool proven = conn->peer.identity.kind != PD_IDENTITY_NONE;

    pd_loop_host(host, conn->peer.address);
    return (pd_log_facts){ .peer = proven ? conn->peer.identity.text : host, .proven = proven };
}

void pd_conn_log_command(const pd_conn *conn, const char *job, const char *format, ...)
{
    char author[sizeof conn->peer.identity.text + sizeof conn->peer.label + sizeof conn->peer.address + 8],
        host[PD_LOG_PEER];
    pd_log_facts facts = facts_of(conn, host);
    pd_log_entry entry;
    va_list args;

    snprintf(author, sizeof author, "%s as %s (%s)", conn->peer.identity.text, conn->peer.label, conn->peer.address);
    facts.job = job[0] != '\0' ? job : NULL;
    facts.author = author;
    va_start(args, format);
    pd_log_entry_make(&entry, LOG_NOTICE, facts, format, args);
    va_end(args);
    conn->daemon->config.hooks.log(&entry);
}

void pd_conn_end(pd_conn *conn, const pd_prefix *asked, const pd_error *err)
{
    static const pd_prefix nothing;

    char host[PD_LOG_PEER];
    pd_log_facts facts = facts_of(conn, host);

    if (!pd_conn_live(conn)) return;
    facts.rank = conn->joined ? &conn->rank : NULL;
    facts.code = err->code;
    pd_loop_log(conn->daemon, LOG_WARNING, facts, "%s%s%s: connection ended: %s", conn->peer.address,
                conn->peer.label[0] != '\0' ? " " : "", conn->peer.label, err->text);
    let_go(conn, err->text);
    pd_conn_refuse(conn, asked != NULL ? asked : &nothing, err);
    if (conn->state == PD_CLOSED) return;
    conn->state = PD_ENDING;
    pd_brief_end(&conn->daemon->peers.brief, &conn->links.brief);
    conn->times.end = pd_loop_now_ms(conn->daemon) + LINGER_MS;
    pd_conn_watch(conn);
}

static void queue_frame(pd_conn *conn, int rc, uint8_t *at, size_t bytes)
{
    if (rc == PD_OK && (rc = pd_output_frame(&conn->output, at, bytes)) != PD_OK) free(at);
    if (rc == PD_OK)
        pd_conn_touch(conn);
    else
        pd_conn_close(conn, pd_code_text(rc));
}

void pd_conn_refuse(pd_conn *conn, const pd_prefix *asked, const pd_error *err)
{
    uint8_t *at = NULL;
    size_t bytes = 0;
    uint64_t mark = 0;
    int rc;

    if (!pd_conn_live(conn)) return;
    pd_loop_count_refusal(conn->daemon, err->code);
    if (pd_method_pushes(asked->method) || asked->method == PD_INIT) mark = conn->daemon->mark;
    rc = pd_frame_pack_error(&at, &bytes, asked->method, asked->flags & PD_FLAG_CHECKSUM, asked->request, err->code,
                             err->text, mark);
    queue_frame(conn, rc, at, bytes);
}

static void reply_with(pd_conn *conn, const pd_prefix *asked, const ProtobufCMessage *message,
                       const struct iovec *payload)
{
    uint8_t *at = NULL;
    size_t bytes = 0;
    int rc;
    pd_error err;

    if (!pd_conn_live(conn)) return;
    rc = pd_frame_pack_whole(&at, &bytes, asked->method, PD_FLAG_REPLY | (asked->flags & PD_FLAG_CHECKSUM),
                             asked->request, message, payload);
    if (rc != PD_OUT_OF_RANGE) {
        queue_frame(conn, rc, at, bytes);
        return;
    }
    pd_fail(&err, PD_RESOURCE_EXHAUSTED, "the answer to %s does not fit the %d bytes of a frame's header",
            pd_method_name(asked->method), PD_MAX_HEADER_BYTES);
    pd_conn_refuse(conn, asked, &err);
}

void pd_conn_reply(pd_conn *conn, const pd_prefix *asked, const ProtobufCMessage *message)
{
    reply_with(conn, asked, message, &(struct iovec){ NULL, 0 });
}

int pd_conn_no_memory(const pd_prefix *asked, pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "%s: out of memory, try again later", pd_method_name(asked->method));
}

/* Returns the greatest speed that the workers of the connection's job have told; 0: this one has told none. */
static double fastest(const pd_conn *conn)
{
    const pd_conn_table *table = &conn->daemon->table;
    double most = conn->speed;

    for (size_t i = 0; most > 0 && i < table->capacity; i++)
        if (table->at[i] != NULL && table->at[i]->job == conn->job && table->at[i]->speed > most)
            most = table->at[i]->speed;
    return most;
}

/* Returns whether the answer brings the worker's leases: it is the answer to a push of parameters of fragment 0, whose
 * steps use shares, or to one that ends a step of all fragments; and it is about the step after which they are leased,
 * or a later one. */
static bool brings_leases(const pd_conn *conn, const pd_wait *wait)
{
    if (!wait->pushes || conn->leases.n == 0 || wait->step < conn->leases.step) return false;
    return wait->n == 0 || pd_version_table_fragment(conn->daemon->versions, conn->job, wait->at[0].param) == 0;
}

void pd_conn_data_reply(pd_conn *conn, pd_pending *pending)
{
    pending->fastest = fastest(conn);
    if (brings_leases(conn, &pending->wait)) pending->leases = &conn->leases;
    pd_output_reply(&conn->output, pending);
    pd_conn_touch(conn);
}

/* Removes an answered or failed request from the connection's open requests. If the next frame was held back because
 * too many requests of this connection waited for the store, that frame is tried again. */
static void remove_pending(pd_conn *conn, pd_pending *pending)
{
    if (pending->kind == PD_AWAITS_STORE && pd_framer_stalled(conn->framer)) wake(conn);
    pd_pendings_remove(&conn->pendings, pending);
    pd_version_table_forget(conn->daemon->versions, &pending->wait);
    pd_pending_free(pending);
}

void pd_conn_answer_with(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message, void *payload,
                         size_t bytes)
{
    pd_prefix asked = pd_pending_asked(pending);

    reply_with(conn, &asked, message, &(struct iovec){ payload, bytes });
    if (conn->state != PD_CLOSED) remove_pending(conn, pending);
}

void pd_conn_answer(pd_conn *conn, pd_pending *pending, const ProtobufCMessage *message)
{
    pd_conn_answer_with(conn, pending, message, NULL, 0);
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
