/* import_request.c - Import: checks the frames with which an operator loads optimizer state, and turns them into
 * requests to the store. */
#include "import_request.h"

#include "access.h"
#include "mutant.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Returns the most payload bytes that an Import frame may have. The frames are small because no memory is reserved for
 * operators: a frame waits until the ingest budget has room for it. */
static uint64_t most_bytes(const pd_conn *conn)
{
    const uint64_t most = 1 << 20;
    return conn->daemon->config.max_payload < most ? conn->daemon->config.max_payload : most;
}

static int check_piece(const pd_conn *conn, const Paramd__ImportRequest *import, const pd_prefix *prefix, pd_error *err)
{
    uint64_t each = import->wide ? sizeof(double) : sizeof(float), most = most_bytes(conn);

    if (import->first > INT64_MAX || import->count > most / each || import->count * each != prefix->payload_bytes)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Import: a piece of %llu elements of %llu bytes has a payload of %llu "
                       "bytes; a piece may have %llu bytes",
                       (unsigned long long)import->count, (unsigned long long)each,
                       (unsigned long long)prefix->payload_bytes, (unsigned long long)most);
    if (import->n_shape > PD_MAX_RANK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Import: a shape of %zu dimensions, at most %d are possible",
                       import->n_shape, PD_MAX_RANK);
    for (size_t i = 0; i < import->n_shape; i++)
        if (import->shape[i] > INT64_MAX)
            return pd_fail(err, PD_INVALID_ARGUMENT, "Import: dimension %zu is %llu", i,
                           (unsigned long long)import->shape[i]);
    return PD_OK;
}

static int check_import(pd_conn *conn, const Paramd__ImportRequest *import, const pd_prefix *prefix, pd_error *err)
{
    if (import->act < PD_IMPORT_BEGIN || import->act > PD_IMPORT_RESET)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Import: act %u; 1 is begin, 2 a piece, 3 a counter, 4 commit, 5 a reset", import->act);
    if (import->act == PD_IMPORT_RESET &&
        pd_access_check_job(conn, "Import that resets state", PD_ROLE_ADMIN, import->job, err) != PD_OK)
        return err->code;
    if (import->act == PD_IMPORT_PIECE) return check_piece(conn, import, prefix, err);
    if (prefix->payload_bytes > 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Import: only a piece has a payload, this one has %llu bytes",
                       (unsigned long long)prefix->payload_bytes);
    if (import->value > INT64_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Import: a counter of %llu", (unsigned long long)import->value);
    return PD_OK;
}

static bool fill(pd_request *request, const Paramd__ImportRequest *import)
{
    request->u.import.act = (pd_import_act)import->act;
    request->u.import.number = import->number;
    request->u.import.block = import->block;
    request->u.import.shape.rank = (int)import->n_shape;
    for (size_t i = 0; i < import->n_shape; i++) request->u.import.shape.dim[i] = (int64_t)import->shape[i];
    request->u.import.wide = import->wide;
    request->u.import.first = (int64_t)import->first;
    request->u.import.count = (int64_t)import->count;
    request->u.import.value = (int64_t)import->value;
    request->u.import.partial = import->partial;
    request->u.import.job_name = strdup(import->job);
    request->u.import.param = strdup(import->param);
    request->u.import.slot = strdup(import->slot);
    return request->u.import.job_name != NULL && request->u.import.param != NULL && request->u.import.slot != NULL;
}

int pd_prepare_import(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__ImportRequest *import = message;
    int rc = check_import(conn, import, prefix, err);

    if (PD_MUTANT(importer_holds_quota) && rc == PD_OK && prefix->payload_bytes > 0 && conn->quota.reserve == 0)
        rc = pd_admission_join(&conn->daemon->admission, &conn->quota, most_bytes(conn), err);
    if (rc != PD_OK) return rc;
    if ((conn->incoming.pending = pd_pending_new(&conn->pendings, conn, prefix, 0)) != NULL)
        conn->incoming.pending->kind = PD_AWAITS_STORE;
    if (conn->incoming.pending != NULL)
        conn->incoming.request = pd_request_new(PD_REQ_IMPORT, pd_conn_ticket(conn, conn->incoming.pending));
    if (conn->incoming.request != NULL && fill(conn->incoming.request, import)) return PD_OK;
    return pd_conn_no_memory(prefix, err);
}

void pd_finish_import(pd_conn *conn)
{
    pd_request *request = conn->incoming.request;

    if (request->u.import.act == PD_IMPORT_RESET) pd_conn_log_command(conn, request->u.import.job_name, "reset-state");
    if (request->u.import.act == PD_IMPORT_BEGIN) pd_conn_log_command(conn, request->u.import.job_name, "import-state");
    pd_pendings_add(&conn->pendings, conn->incoming.pending);
    conn->incoming.pending = NULL;
    request->u.import.buffer = conn->incoming.buffer;
    conn->incoming.buffer = NULL;
    conn->incoming.request = NULL;
    pd_loop_post(conn->daemon, request);
}
