/* declare_request.c - Declare: collects the parameters that a worker declares on a connection, and sends the whole set
 * to the store. */
#include "declare_request.h"

#include "conn_io.h"
#include "name_check.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that a note adds to the packed reply besides its text: its tag and length, and growth of the length of the
 * message around it. */
enum { NOTE_FORM = 4 };

/* Reads the range of the parameter's elements that this connection pushes and pulls. */
static int read_range(pd_param_decl *decl, const Paramd__Parameter *parameter, int64_t elements, pd_error *err)
{
    if (!parameter->ranged && (parameter->range_start | parameter->range_end) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: range_start %llu and range_end %llu count only with "
                       "`ranged`",
                       parameter->name, (unsigned long long)parameter->range_start,
                       (unsigned long long)parameter->range_end);
    if (!parameter->ranged) return PD_OK;
    if (parameter->range_start > parameter->range_end || parameter->range_end > (uint64_t)elements)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: range of elements %llu to %llu: expected start <= end "
                       "<= %lld, the elements it has",
                       parameter->name, (unsigned long long)parameter->range_start,
                       (unsigned long long)parameter->range_end, (long long)elements);
    decl->ranged = true;
    decl->start = (int64_t)parameter->range_start;
    decl->end = (int64_t)parameter->range_end;
    return PD_OK;
}

static int read_shape(pd_param_decl *decl, const Paramd__Parameter *parameter, int64_t *elements, pd_error *err)
{
    pd_shape *shape = &decl->shape;
    pd_error why;

    if (parameter->n_shape > PD_MAX_RANK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s has %zu dimensions: at most %d", parameter->name,
                       parameter->n_shape, PD_MAX_RANK);
    shape->rank = (int)parameter->n_shape;
    for (int i = 0; i < shape->rank; i++)
        shape->dim[i] = parameter->shape[i] <= INT64_MAX ? (int64_t)parameter->shape[i] : -1;
    if (pd_shape_elements(shape, elements) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s: its shape's elements cannot be counted in 63 bits",
                       parameter->name);
    if (pd_axes_check(parameter->axes, shape->rank, &why) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: axes: %.300s", parameter->name, why.text);
    return PD_OK;
}

static int read_types(pd_param_decl *decl, const Paramd__Parameter *parameter, pd_error *err)
{
    decl->pull_dtype = parameter->pull_dtype == 0 ? PD_F32 : (pd_dtype)parameter->pull_dtype;
    decl->update_dtype = (pd_dtype)parameter->update_dtype;
    if (pd_dtype_size(decl->pull_dtype) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: element type %u is not known: 1 float32, 2 float16, 3 "
                       "bfloat16",
                       parameter->name, parameter->pull_dtype);
    if (parameter->update_dtype != 0 && (pd_dtype_size(decl->update_dtype) == 0 || decl->pull_dtype != PD_F32))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: updates of element type %u beside weights of type %u: "
                       "1 float32, 2 float16, 3 bfloat16, and weights beside updates are float32",
                       parameter->name, parameter->update_dtype, parameter->pull_dtype);
    return PD_OK;
}

static int declare_one(pd_conn *conn, const Paramd__Parameter *parameter, pd_error *err)
{
    pd_param_decl decl = { .name = parameter->name,
                           .axes = parameter->axes[0] != '\0' ? parameter->axes : NULL,
                           .model_state = parameter->model_state };
    int64_t elements;
    int rc = pd_name_check("parameter", parameter->name, err);

    if (rc != PD_OK) return rc;
    if (conn->handles.n >= conn->daemon->config.max_params)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "parameter %s: a job may have %u parameters (limits.max_params)",
                       parameter->name, conn->daemon->config.max_params);
    if ((rc = read_shape(&decl, parameter, &elements, err)) != PD_OK) return rc;
    if ((rc = read_types(&decl, parameter, err)) != PD_OK) return rc;
    if ((rc = read_range(&decl, parameter, elements, err)) != PD_OK) return rc;
    if (pd_handles_add(&conn->handles, &decl, elements) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "parameter %s: out of memory, try again later", parameter->name);
    return PD_OK;
}

static pd_request *declare_request(const pd_conn *conn, const pd_pending *pending)
{
    const pd_handles *handles = &conn->handles;
    pd_request *request = pd_request_new(PD_REQ_DECLARE, pd_conn_ticket(conn, pending));

    if (request == NULL) return NULL;
    request->job = conn->job;
    request->rank = conn->rank;
    request->u.declare.params = calloc(handles->n, sizeof *request->u.declare.params);
    if (request->u.declare.params == NULL) goto fail;
    request->u.declare.n = handles->n;
    for (size_t i = 0; i < handles->n; i++)
        if (pd_decl_copy(&request->u.declare.params[i], &handles->decls[i]) != PD_OK) goto fail;
    return request;

fail:
    pd_request_free(request);
    return NULL;
}

/* Sends the parameters of all the connection's Declare requests to the store, as one set. Called for the last of these
 * requests. */
static int declare_all(pd_conn *conn, const pd_pending *pending, pd_error *err)
{
    pd_daemon *daemon = conn->daemon;
    pd_request *request;

    if (conn->handles.n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "Declare of no parameters");
    request = declare_request(conn, pending);
    if (request == NULL || pd_version_table_reserve(daemon->versions, conn->job, conn->handles.n) != PD_OK) {
        pd_request_free(request);
        return pd_fail(err, PD_NO_MEMORY, "Declare: out of memory, try again later");
    }
    conn->declaring = true;
    pd_loop_post(daemon, request);
    return PD_OK;
}

static int declare_some(pd_conn *conn, const pd_pending *pending, const Paramd__DeclareRequest *declare, pd_error *err)
{
    size_t before = conn->handles.n;
    int rc = PD_OK;

    for (size_t i = 0; i < declare->n_parameters && rc == PD_OK; i++)
        rc = declare_one(conn, declare->parameters[i], err);
    if (rc == PD_OK && declare->last) rc = declare_all(conn, pending, err);
    if (rc != PD_OK) pd_handles_cut(&conn->handles, before);
    return rc;
}

int pd_run_declare(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__DeclareRequest *declare = message;
    size_t first = conn->handles.n;
    pd_pending *pending;
    int rc;

    if (conn->declared)
        return pd_fail(err, PD_FAILED_PRECONDITION, "the parameters of this connection are declared already");
    if (declare->n_parameters > PD_MAX_DECLARE)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "Declare of %zu parameters: at most %d in one, the others in "
                       "further ones",
                       declare->n_parameters, PD_MAX_DECLARE);
    if ((pending = pd_pending_new(&conn->pendings, conn, prefix, 0)) == NULL) return pd_conn_no_memory(prefix, err);
    if ((rc = declare_some(conn, pending, declare, err)) != PD_OK) {
        pd_pending_free(pending);
        return rc;
    }
    pending->start = (uint32_t)first;
    pending->count = (uint32_t)declare->n_parameters;
    pd_pendings_add(&conn->pendings, pending);
    return PD_OK;
}

/* ---- the answer ---- */

/* Adds the optimizer's notes on the parameters (such as how it treats them) to the reply, as many as fit into the
 * frame's header. */
static void add_notes(Paramd__DeclareReply *reply, const pd_declared *declared)
{
    size_t bytes = protobuf_c_message_get_packed_size(&reply->base);

    for (size_t i = 0; i < reply->n_parameters; i++) {
        size_t more = declared[i].note != NULL ? strlen(declared[i].note) + NOTE_FORM : 0;
        if (more == 0 || bytes + more > PD_MAX_HEADER_BYTES) continue;
        reply->parameters[i]->note = declared[i].note;
        bytes += more;
    }
}

/* Answers one of the connection's Declare requests. A worker may declare its parameters in several requests; each
 * answer has only the parameters of its own request. */
static void reply_declared(pd_conn *conn, pd_pending *pending, const pd_effect *effect, Paramd__Declared **list)
{
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;

    reply.parameters = list + pending->start;
    reply.n_parameters = pending->count;
    reply.must_init = effect->u.declared.must_init;
    reply.averages_init = effect->u.declared.averages_init;
    reply.durable_step = pd_version_table_durable(conn->daemon->versions, conn->job);
    add_notes(&reply, effect->u.declared.params + pending->start);
    pd_conn_answer(conn, pending, &reply.base);
}

static void reply_all(pd_conn *conn, const pd_effect *effect, Paramd__Declared *declared, Paramd__Declared **list)
{
    pd_pending *pending;

    for (size_t i = 0; i < effect->u.declared.n; i++) {
        paramd__declared__init(&declared[i]);
        declared[i].step = effect->u.declared.params[i].step;
        declared[i].initialised = effect->u.declared.params[i].initialised;
        declared[i].replaces = effect->u.declared.params[i].replaced;
        list[i] = &declared[i];
    }
    while ((pending = pd_pendings_of_method(&conn->pendings, PD_DECLARE)) != NULL)
        reply_declared(conn, pending, effect, list);
}

/* Counts the pieces (whole tensors, or their chunks) in which the connection's parameters are pushed and pulled. */
static uint64_t count_pieces(const pd_conn *conn)
{
    uint64_t chunk = conn->daemon->config.chunk_elements, n = 0;

    for (size_t i = 0; i < conn->handles.n; i++) {
        const pd_handle_facts *facts = &conn->handles.facts[i];
        n += facts->end == facts->start ? 1 : ((uint64_t)facts->end - 1) / chunk - (uint64_t)facts->start / chunk + 1;
    }
    return n;
}

void pd_reply_declare(pd_conn *conn, const pd_effect *effect)
{
    size_t n = effect->u.declared.n;
    Paramd__Declared *declared = calloc(n, sizeof *declared);
    Paramd__Declared **list = calloc(n, sizeof *list);

    conn->declaring = false;
    conn->declared = true;
    pd_version_table_settle(conn->daemon->versions, conn->job,
                            n); /* n is the job's number of parameters, since every worker
                                                         * declares all of them */
    for (size_t i = 0; i < n; i++) conn->handles.params[i] = effect->u.declared.params[i].param;
    conn->pieces = count_pieces(conn);
    if (declared != NULL && list != NULL)
        reply_all(conn, effect, declared, list);
    else
        pd_conn_close(conn, pd_code_text(PD_NO_MEMORY));
    free(declared);
    free(list);
    pd_conn_resume(conn);
}
