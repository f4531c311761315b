/* export_request.c - Export: checks the requests with which an operator reads weights and optimizer state, and sends
 * the answers. */
#include "export_request.h"

#include "access.h"

#include <stdlib.h>
#include <string.h>

enum { ANSWER_BYTES = 1 << 20, WAIT_MS = 30000, MOST_WAIT_MS = 600000 };

static uint64_t most_bytes(const pd_conn *conn)
{
    return conn->daemon->config.max_payload < ANSWER_BYTES ? conn->daemon->config.max_payload : ANSWER_BYTES;
}

static int check_export(const pd_conn *conn, const Paramd__ExportRequest *export, pd_error *err)
{
    if (export->act < PD_EXPORT_BEGIN || export->act > PD_EXPORT_END)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Export: act %u; 1 is begin, 2 a piece, 3 a counter, 4 end",
                       export->act);
    if (export->wait_ms > MOST_WAIT_MS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Export: wait_ms of %u, at most %d are possible", export->wait_ms,
                       MOST_WAIT_MS);
    if (export->first > INT64_MAX || export->count > most_bytes(conn) / sizeof(float))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Export: a piece of %llu elements from %llu on; the answer to a piece has at most %llu bytes",
                       (unsigned long long)export->count, (unsigned long long)export->first,
                       (unsigned long long)most_bytes(conn));
    if (pd_pendings_of_method(&conn->pendings, PD_EXPORT) != NULL)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "Export: another Export of this connection is not answered yet: wait for its answer");
    return PD_OK;
}

static bool fill(pd_request *request, const pd_conn *conn, const Paramd__ExportRequest *export)
{
    request->u.export.act = (pd_export_act) export->act;
    request->u.export.state = export->state;
    request->u.export.replaces = export->replace;
    request->u.export.wait_ns = (uint64_t)(export->wait_ms > 0 ? export->wait_ms : WAIT_MS) * 1000000;
    request->u.export.number = export->number;
    request->u.export.block = export->block;
    request->u.export.first = (int64_t) export->first;
    request->u.export.count = (int64_t) export->count;
    request->u.export.most = most_bytes(conn);
    request->u.export.job_name = strdup(export->job);
    request->u.export.by = strdup(conn->label);
    request->u.export.param = strdup(export->param);
    request->u.export.slot = strdup(export->slot);
    return request->u.export.job_name != NULL && request->u.export.by != NULL && request->u.export.param != NULL &&
           request->u.export.slot != NULL;
}

int pd_run_export(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__ExportRequest *export = message;
    pd_pending *pending;
    pd_request *request;
    int rc = check_export(conn, export, err);

    if (rc == PD_OK && export->act == PD_EXPORT_BEGIN && export->state)
        rc = pd_access_check_job(conn, "Export with optimizer state", PD_ROLE_PUSH, export->job, err);
    if (rc == PD_OK && export->act == PD_EXPORT_BEGIN && export->replace)
        rc = pd_access_check_job(conn, "Export that ends another one", PD_ROLE_ADMIN, export->job, err);
    if (rc != PD_OK) return rc;
    pending = pd_pending_new(&conn->pendings, conn, prefix, 0);
    request = pending != NULL ? pd_request_new(PD_REQ_EXPORT, pd_conn_ticket(conn, pending)) : NULL;
    if (request == NULL || !fill(request, conn, export)) {
        pd_request_free(request);
        pd_pending_free(pending);
        return pd_conn_no_memory(prefix, err);
    }
    pending->kind = PD_AWAITS_OTHERS;
    pd_pendings_add(&conn->pendings, pending);
    conn->exports = true;
    pd_loop_post(conn->daemon, request);
    if (export->act == PD_EXPORT_BEGIN)
        pd_conn_log_command(conn, export->job, export->state ? "export with optimizer state" : "export");
    return PD_OK;
}

void pd_reply_export(pd_conn *conn, pd_pending *pending, const pd_exported *exported)
{
    Paramd__ExportReply reply = PARAMD__EXPORT_REPLY__INIT;

    reply.step = exported->step;
    reply.roots = exported->roots;
    reply.value = (uint64_t)exported->count;
    reply.wide = exported->wide;
    reply.elements = exported->elements;
    pd_conn_answer_with(conn, pending, &reply.base, exported->at, exported->bytes);
}
