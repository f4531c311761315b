/* state_request.c - handles the requests about a job's state: Export and Import of an operator, Checkpoint, and those
 * for the worker state. */
#include "handlers.h"

#include "mutant.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME_BYTES = 1 << 20, WAIT_MS = 30000, MOST_WAIT_MS = 600000 };

/* Returns the most payload bytes of an Import, and of the answer to an Export. These frames are small because no bytes
 * of the ingest budget are reserved for operators: such a frame waits until the budget has room for it. */
static uint64_t most_bytes(const pd_conn *conn)
{
    return conn->daemon->config.max_payload < FRAME_BYTES ? conn->daemon->config.max_payload : FRAME_BYTES;
}

static uint64_t wait_ns(uint32_t wait_ms)
{
    return (uint64_t)(wait_ms > 0 ? wait_ms : WAIT_MS) * 1000000;
}

static int check_export(pd_conn *conn, const Paramd__ExportRequest *export, pd_error *err)
{
    int rc = PD_OK;

    if (export->act < PD_EXPORT_BEGIN || export->act > PD_EXPORT_END)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Export: unknown act %u: expected 1 (begin), 2 (piece), 3 (counter) or 4 (end)", export->act);
    if (export->wait_ms > MOST_WAIT_MS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Export: wait_ms %u: at most %d", export->wait_ms, MOST_WAIT_MS);
    if (export->first > INT64_MAX || export->count > most_bytes(conn) / sizeof(float))
        return pd_fail(
            err, PD_INVALID_ARGUMENT, "Export: a piece of %llu elements from %llu: an answer has at most %llu bytes",
            (unsigned long long)export->count, (unsigned long long)export->first, (unsigned long long)most_bytes(conn));
    if (pd_pendings_of_method(&conn->pendings, PD_EXPORT) != NULL)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "Export: another Export of this connection is under way: wait for its answer");
    if (export->act != PD_EXPORT_BEGIN) return PD_OK;
    if (export->form > PD_FORM_EVAL || (export->form == PD_FORM_EVAL && export->state))
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "Export: form %u%s: expected 0 (train) or 1 (eval), and 0 with optimizer state, which belongs to "
            "the weights that are trained",
            export->form, export->state ? " with state" : "");
    if (export->state) rc = pd_access_check_job(conn, "Export with optimizer state", PD_ROLE_PUSH, export->job, err);
    if (rc == PD_OK && export->replace)
        rc = pd_access_check_job(conn, "Export that ends another one", PD_ROLE_ADMIN, export->job, err);
    return rc;
}

int pd_fill_export(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__ExportRequest *export = message;
    int rc = check_export(conn, export, err);

    (void)prefix;
    if (rc != PD_OK) return rc;
    request->u.export.act = (pd_export_act) export->act;
    request->u.export.state = export->state;
    request->u.export.evaluates = export->form == PD_FORM_EVAL;
    request->u.export.may_stop = pd_access_has_job(conn, PD_ROLE_PUSH, export->job);
    request->u.export.replaces = export->replace;
    request->u.export.step = export->step;
    request->u.export.wait_ns = wait_ns(export->wait_ms);
    request->u.export.number = export->number;
    request->u.export.block = export->block;
    request->u.export.first = (int64_t) export->first;
    request->u.export.count = (int64_t) export->count;
    request->u.export.most = most_bytes(conn);
    request->u.export.job_name = strdup(export->job);
    request->u.export.by = strdup(conn->peer.label);
    request->u.export.param = strdup(export->param);
    request->u.export.slot = strdup(export->slot);
    if (request->u.export.job_name == NULL || request->u.export.by == NULL || request->u.export.param == NULL ||
        request->u.export.slot == NULL)
        return PD_NO_MEMORY;
    conn->exports = true;
    if (export->act == PD_EXPORT_BEGIN)
        pd_conn_log_command(conn, export->job, export->state ? "export with optimizer state" : "export");
    return PD_OK;
}

void pd_reply_export(pd_conn *conn, pd_pending *pending, pd_effect *effect)
{
    const pd_exported *exported = &effect->u.exported;
    Paramd__ExportReply reply = PARAMD__EXPORT_REPLY__INIT;

    reply.step = exported->step;
    reply.roots = exported->roots;
    reply.value = (uint64_t)exported->count;
    reply.wide = exported->wide;
    reply.elements = exported->elements;
    pd_conn_answer_with(conn, pending, &reply.base, exported->at, exported->bytes);
}

static int check_piece(const pd_conn *conn, const Paramd__ImportRequest *import, const pd_prefix *prefix, pd_error *err)
{
    uint64_t each = import->wide ? sizeof(double) : sizeof(float), most = most_bytes(conn);

    if (import->first > INT64_MAX || import->count > most / each || import->count * each != prefix->payload_bytes)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Import: a piece of %llu elements of %llu bytes with a payload of %llu bytes: the sizes must "
                       "agree, and a piece has at most %llu bytes",
                       (unsigned long long)import->count, (unsigned long long)each,
                       (unsigned long long)prefix->payload_bytes, (unsigned long long)most);
    if (import->n_shape > PD_MAX_RANK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Import: a shape of %zu dimensions: at most %d", import->n_shape,
                       PD_MAX_RANK);
    for (size_t i = 0; i < import->n_shape; i++)
        if (import->shape[i] > INT64_MAX)
            return pd_fail(err, PD_INVALID_ARGUMENT, "Import: invalid dimension %zu: %llu", i,
                           (unsigned long long)import->shape[i]);
    return PD_OK;
}

static int check_import(pd_conn *conn, const Paramd__ImportRequest *import, const pd_prefix *prefix, pd_error *err)
{
    if (import->act < PD_IMPORT_BEGIN || import->act > PD_IMPORT_RESET)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Import: unknown act %u: expected 1 (begin), 2 (piece), 3 (counter), 4 (commit) or 5 (reset)",
                       import->act);
    if (import->act == PD_IMPORT_RESET &&
        pd_access_check_job(conn, "Import that resets state", PD_ROLE_ADMIN, import->job, err) != PD_OK)
        return err->code;
    if (import->act == PD_IMPORT_PIECE) return check_piece(conn, import, prefix, err);
    if (prefix->payload_bytes > 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Import: only a piece has a payload, got one of %llu bytes",
                       (unsigned long long)prefix->payload_bytes);
    if (import->value > INT64_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Import: invalid counter %llu", (unsigned long long)import->value);
    return PD_OK;
}

int pd_fill_import(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__ImportRequest *import = message;
    int rc = check_import(conn, import, prefix, err);

    if (PD_MUTANT(importer_holds_quota) && rc == PD_OK && prefix->payload_bytes > 0 && conn->params.quota.reserve == 0)
        rc = pd_admission_join(&conn->daemon->ingest.admission, &conn->params.quota, most_bytes(conn), err);
    if (rc != PD_OK) return rc;
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
    return request->u.import.job_name != NULL && request->u.import.param != NULL && request->u.import.slot != NULL
               ? PD_OK
               : PD_NO_MEMORY;
}

void pd_land_import(pd_conn *conn, pd_request *request, pd_buffer *buffer)
{
    if (request->u.import.act == PD_IMPORT_RESET) pd_conn_log_command(conn, request->u.import.job_name, "reset-state");
    if (request->u.import.act == PD_IMPORT_BEGIN) pd_conn_log_command(conn, request->u.import.job_name, "import-state");
    request->u.import.buffer = buffer;
}

static int check_checkpoint(const pd_conn *conn, const Paramd__CheckpointRequest *asked, pd_error *err)
{
    if (asked->wait_ms > MOST_WAIT_MS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Checkpoint: wait_ms %u: at most %d", asked->wait_ms, MOST_WAIT_MS);
    if (conn->operates) return pd_name_check("job", asked->job, err);
    if (conn->job == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, "Checkpoint: the job of this worker has ended: reconnect");
    if (asked->job[0] != '\0')
        return pd_fail(err, PD_INVALID_ARGUMENT, "Checkpoint of job %.200s: a worker must not name a job", asked->job);
    return PD_OK;
}

int pd_fill_checkpoint(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__CheckpointRequest *asked = message;
    int rc = check_checkpoint(conn, asked, err);

    (void)prefix;
    if (rc != PD_OK) return rc;
    request->u.checkpoint.step = asked->step;
    request->u.checkpoint.wait_ns = wait_ns(asked->wait_ms);
    conn->incoming.pending->until_ms = pd_loop_now_ms(conn->daemon) + request->u.checkpoint.wait_ns / 1000000;
    if (!conn->operates) return PD_OK;
    if ((request->u.checkpoint.job_name = strdup(asked->job)) == NULL) return PD_NO_MEMORY;
    if (asked->step > 0)
        pd_conn_log_command(conn, asked->job, "checkpoint of step %llu or later", (unsigned long long)asked->step);
    else
        pd_conn_log_command(conn, asked->job, "checkpoint");
    return PD_OK;
}

void pd_reply_checkpoint(pd_conn *conn, pd_pending *pending, pd_effect *effect)
{
    Paramd__CheckpointReply reply = PARAMD__CHECKPOINT_REPLY__INIT;

    reply.step = effect->u.checkpoint.step;
    reply.bytes = effect->u.checkpoint.bytes;
    reply.ms = effect->u.checkpoint.ns / 1000000;
    reply.unbroken = effect->u.checkpoint.unbroken;
    pd_conn_answer(conn, pending, &reply.base);
}

void pd_tell_checkpoints(pd_conn *conn, uint64_t now_ms)
{
    bool may = pd_owner_is_sure(conn->daemon);
    pd_error err;

    if (conn->pendings.of_kind[PD_AWAITS_OTHERS] == 0) return;
    for (pd_pending *pending = pd_pendings_any(&conn->pendings), *next; pd_conn_live(conn) && pending != NULL;
         pending = next) {
        next = pending->next;
        if (pending->withheld == NULL || (!may && now_ms < pending->until_ms)) continue;
        if (may) {
            pd_reply_checkpoint(conn, pending, pending->withheld);
            continue;
        }
        pd_fail(&err, PD_DEADLINE_EXCEEDED,
                "step %" PRIu64 " is on the disk of this daemon, but the lease of its shard has ended and could not be "
                "renewed (cluster.engine): another daemon may own the shard. Ask again, and wait longer",
                pending->withheld->u.checkpoint.step);
        pd_conn_fail(conn, pending, &err);
    }
}

static int check_go_back(const pd_conn *conn, const Paramd__GoBackRequest *asked, pd_error *err)
{
    if (conn->operates) return pd_name_check("job", asked->job, err);
    if (conn->job == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, "GoBack: the job of this worker has ended: reconnect");
    if (asked->job[0] != '\0')
        return pd_fail(err, PD_INVALID_ARGUMENT, "GoBack of job %.200s: a worker must not name a job", asked->job);
    if (asked->life != 0) return pd_owner_check_tenures(conn, asked, err);
    return pd_fail(err, PD_INVALID_ARGUMENT, "GoBack of a worker: expected the life of the job that is meant");
}

int pd_fill_go_back(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__GoBackRequest *asked = message;
    int rc = check_go_back(conn, asked, err);

    (void)prefix;
    if (rc != PD_OK) return rc;
    request->u.go_back.step = asked->step;
    request->u.go_back.life = asked->life;
    request->u.go_back.durable = asked->durable;
    request->u.go_back.wait_ns = wait_ns(MOST_WAIT_MS);
    if (!conn->operates) return PD_OK;
    if ((request->u.go_back.job_name = strdup(asked->job)) == NULL) return PD_NO_MEMORY;
    pd_conn_log_command(conn, asked->job, "go back to step %llu", (unsigned long long)asked->step);
    return PD_OK;
}

/* Checks the length of a worker state, and makes room for it in the ingest budget. A rank's reserve is as large as its
 * largest gradient frame. If the worker state is larger, the reserve is as large as that until pd_land_worker_state. */
int pd_fill_worker_state(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message,
                         pd_error *err)
{
    request->u.worker_state.step = ((const Paramd__NoteRequest *)message)->step;
    if (prefix->payload_bytes > PD_WORKER_STATE_MAX)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "worker state of %llu bytes: at most %u. Keep the rest in a file, and its path in the worker state",
            (unsigned long long)prefix->payload_bytes, PD_WORKER_STATE_MAX);
    if (conn->params.quota.reserve == 0 || prefix->payload_bytes <= conn->params.quota.reserve) return PD_OK;
    return pd_admission_join(&conn->daemon->ingest.admission, &conn->params.quota, prefix->payload_bytes, err);
}

void pd_land_worker_state(pd_conn *conn, pd_request *request, pd_buffer *buffer)
{
    request->u.worker_state.buffer = buffer;
    request->u.worker_state.bytes = buffer != NULL ? buffer->size : 0;
    if (conn->params.quota.reserve > conn->params.reserve)
        (void)pd_admission_join(&conn->daemon->ingest.admission, &conn->params.quota, conn->params.reserve, NULL);
}

void pd_reply_worker_state(pd_conn *conn, pd_pending *pending, pd_effect *effect)
{
    Paramd__RecallReply reply = PARAMD__RECALL_REPLY__INIT;

    reply.step = effect->u.worker_state.step;
    reply.bytes = effect->u.worker_state.bytes;
    pd_conn_answer_with(conn, pending, &reply.base, effect->u.worker_state.at, effect->u.worker_state.bytes);
}
