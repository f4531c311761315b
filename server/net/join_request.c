/* join_request.c - handles the requests with which a worker joins its job: Hello, Declare, and Share, which exchanges
 * segments of shared memory. */
#include "handlers.h"

#include "conn.h"
#include "most_shards.h"
#include "portion_handles.h"
#include "mutant.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int check_hello(const pd_conn *conn, const Paramd__HelloRequest *hello, pd_error *err)
{
    if (conn->state != PD_GREETING) return pd_fail(err, PD_FAILED_PRECONDITION, "a second Hello on one connection");
    if (hello->protocol == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Hello of protocol 0: this server speaks 1 to %d",
                       PD_PROTOCOL_VERSION);
    if (hello->job[0] == '\0') return PD_OK;
    if (!hello->any_rank && (hello->world_size == 0 || hello->rank >= hello->world_size))
        return pd_fail(err, PD_INVALID_ARGUMENT, "rank %u of a world of %u: ranks go from 0 to world_size - 1",
                       hello->rank, hello->world_size);
    if (hello->n_options > PD_MAX_OPTIONS || hello->n_rules > PD_MAX_RULES)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "Hello with %zu options and %zu rules: at most %d and %d",
                       hello->n_options, hello->n_rules, PD_MAX_OPTIONS, PD_MAX_RULES);
    if (hello->resume > PD_INTENT_ANEW)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Hello with resume = %u: expected 0 (the server decides), 1 or 2",
                       hello->resume);
    return pd_name_check("job", hello->job, err);
}

/* Checks which daemon of the worker's list this one is meant to be. A job is created with the cluster number of shard
 * 0, so only shard 0 may be asked without it. */
static int check_shard(const Paramd__HelloRequest *hello, pd_error *err)
{
    uint32_t shards = hello->shards > 0 ? hello->shards : 1;

    if (shards > PD_MAX_SHARDS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Hello for one of %u shards: at most %d", shards, PD_MAX_SHARDS);
    if (hello->shard >= shards)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Hello for shard %u of %u: shards go from 0 to %u", hello->shard,
                       shards, shards - 1);
    if (shards == 1 && hello->cluster != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Hello with a cluster number for a server that is alone");
    if (hello->shard == 0 || hello->cluster != 0 || hello->job[0] == '\0') return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "Hello for shard %u of %u without a cluster number: say Hello to shard 0 first, whose answer has it",
                   hello->shard, shards);
}

static int copy_rules(pd_request *request, char *const *from, size_t n)
{
    if (n > 0 && (request->u.hello.rules = calloc(n, sizeof *request->u.hello.rules)) == NULL) return PD_NO_MEMORY;
    request->u.hello.n_rules = n;
    for (size_t i = 0; i < n; i++)
        if ((request->u.hello.rules[i] = strdup(from[i])) == NULL) return PD_NO_MEMORY;
    return PD_OK;
}

static int copy_steps(pd_request *request, const uint64_t *from, size_t n)
{
    if (n == 0) return PD_OK;
    if ((request->u.hello.fragment_steps = calloc(n, sizeof *from)) == NULL) return PD_NO_MEMORY;
    request->u.hello.n_fragment_steps = n;
    memcpy(request->u.hello.fragment_steps, from, n * sizeof *from);
    return PD_OK;
}

static pd_request *hello_request(const pd_conn *conn, const pd_pending *pending, const Paramd__HelloRequest *hello)
{
    pd_request *request = pd_request_new(PD_REQ_HELLO, pd_conn_ticket(conn, pending));

    if (request == NULL) return NULL;
    /* Shard 0 of a cluster chooses the rank, and the worker tells it to the others. */
    request->rank = hello->any_rank && hello->shard == 0 ? 0 : hello->rank;
    request->u.hello.world_size = hello->world_size;
    request->u.hello.nonce = hello->nonce;
    request->u.hello.shares = hello->shares && conn->daemon->config.shared_memory && conn->transport->ops->take != NULL;
    request->u.hello.window = hello->window;
    request->u.hello.barriers = hello->barriers;
    request->u.hello.steps = hello->steps;
    request->u.hello.course = hello->course;
    request->u.hello.rejoins = hello->rejoins;
    request->u.hello.creator = hello->creator;
    request->u.hello.intent = (pd_intent)hello->resume;
    request->u.hello.joins = hello->joins;
    request->u.hello.unsure = !pd_owner_is_sure(conn->daemon) && !PD_MUTANT(creates_without_lease);
    request->u.hello.any_rank = hello->any_rank;
    request->u.hello.grouped = hello->group > 0;
    request->u.hello.group = hello->group > 0 ? hello->group - 1 : 0;
    request->u.hello.generation = hello->generation;
    request->u.hello.shard = hello->shard;
    request->u.hello.shards = hello->shards > 0 ? hello->shards : 1;
    request->u.hello.cluster = hello->cluster;
    request->u.hello.run = hello->run[0] != '\0' ? strdup(hello->run) : NULL;
    request->u.hello.job_name = strdup(hello->job);
    request->u.hello.label = strdup(conn->peer.label);
    request->u.hello.identity = strdup(conn->peer.identity.text);
    if (request->u.hello.job_name != NULL && request->u.hello.label != NULL && request->u.hello.identity != NULL &&
        (hello->run[0] == '\0' || request->u.hello.run != NULL) &&
        pd_options_copy(&request->u.hello.options, &request->u.hello.n_options, hello->options, hello->n_options) ==
            PD_OK &&
        copy_rules(request, hello->rules, hello->n_rules) == PD_OK &&
        copy_steps(request, hello->fragment_steps, hello->n_fragment_steps) == PD_OK)
        return request;
    pd_request_free(request);
    return NULL;
}

static int join(pd_conn *conn, const pd_prefix *prefix, const Paramd__HelloRequest *hello, pd_error *err)
{
    pd_pending *pending = pd_pending_new(&conn->pendings, conn, prefix, 0);
    pd_request *request = pending != NULL ? hello_request(conn, pending, hello) : NULL;

    if (request == NULL || (conn->job_name = strdup(hello->job)) == NULL) {
        pd_request_free(request);
        pd_pending_free(pending);
        return pd_conn_no_memory(prefix, err);
    }
    conn->peer.access = (pd_conn_access){ 0 };
    conn->rank = hello->rank;
    conn->remarks = hello->remarks;
    conn->follows = hello->follows;
    conn->state = PD_WELCOMING;
    pd_brief_leave(&conn->daemon->peers.brief, &conn->links.brief);
    conn->joined = true;
    conn->daemon->counters.worker_ms = pd_loop_now_ms(conn->daemon);
    pd_pendings_add(&conn->pendings, pending);
    pd_loop_post(conn->daemon, request);
    return PD_OK;
}

static void welcome(pd_conn *conn, const pd_prefix *asked, const pd_effect *effect)
{
    const pd_daemon_config *config = &conn->daemon->config;
    Paramd__HelloReply reply = PARAMD__HELLO_REPLY__INIT;

    reply.protocol = PD_PROTOCOL_VERSION;
    reply.server = "paramd " PD_VERSION;
    reply.blas_core = (char *)config->blas_core;
    reply.chunk_elements = config->chunk_elements;
    reply.max_payload = config->max_payload;
    reply.max_pieces = config->max_pieces;
    reply.heartbeat_ms = config->times.heartbeat_ms;
    reply.timeout_ms = config->times.silence_ms;
    reply.seed = effect != NULL ? effect->u.hello.seed : 0;
    reply.created = effect != NULL && effect->u.hello.created;
    reply.creator = effect != NULL ? effect->u.hello.creator : 0;
    reply.step = effect != NULL ? effect->u.hello.step : 0;
    reply.linger_ms = effect != NULL ? effect->u.hello.linger_ms : 0;
    if (effect != NULL) {
        reply.rank = effect->u.hello.rank;
        reply.slots = effect->u.hello.slots;
        reply.epoch = effect->u.hello.epoch;
        reply.generation = effect->u.hello.generation;
        reply.course = effect->u.hello.greeted;
        reply.cluster = effect->u.hello.cluster;
        reply.life = effect->u.hello.life;
    }
    pd_owner_fill(&reply, conn->daemon);
    pd_conn_reply(conn, asked, &reply.base);
}

int pd_run_hello(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__HelloRequest *hello = message;
    bool looks = false;
    int rc = check_hello(conn, hello, err);

    if (rc == PD_OK) rc = check_shard(hello, err);
    if (rc == PD_OK) rc = pd_owner_check(conn, hello, &looks, err);
    if (rc != PD_OK) return rc;
    pd_text_print(conn->peer.label, sizeof conn->peer.label,
                  hello->label[0] != '\0' ? hello->label : conn->peer.address);
    if (hello->job[0] != '\0' && !looks) return join(conn, prefix, hello, err);
    conn->operates = true;
    conn->state = PD_OPEN;
    pd_brief_leave(&conn->daemon->peers.brief, &conn->links.brief);
    welcome(conn, prefix, NULL);
    return PD_OK;
}

void pd_reply_hello(pd_conn *conn, pd_pending *pending, const pd_effect *effect)
{
    pd_prefix asked = pd_pending_asked(pending);

    pd_pendings_remove(&conn->pendings, pending);
    pd_pending_free(pending);
    conn->job = effect->job;
    pd_traffic_add(&conn->daemon->traffic, conn->job);
    if (effect->u.hello.course > 0)
        pd_version_table_note_members(conn->daemon->versions, conn->job, NULL, 0, effect->u.hello.epoch,
                                      effect->u.hello.course);
    conn->state = PD_OPEN;
    if (effect->u.hello.created) pd_remarks_begin(&conn->daemon->remarks, conn->job_name);
    welcome(conn, &asked, effect);
    pd_conn_tell_remarks(conn);
    pd_conn_resume(conn);
}

/* Most bytes that a warning adds to the packed reply besides its text: the tag and length of the text, and more bytes
 * for the length of the message that contains it. */
enum { WARNING_FORM = 4 };

/* Checks the range in the message `parameter`, which says what elements this connection pushes and pulls, and copies it
 * to *decl. */
static int read_range(pd_param_decl *decl, const Paramd__Parameter *parameter, int64_t elements, pd_error *err)
{
    if (!parameter->ranged && (parameter->range_start | parameter->range_end) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s: range_start %llu and range_end %llu need `ranged`",
                       parameter->name, (unsigned long long)parameter->range_start,
                       (unsigned long long)parameter->range_end);
    if (!parameter->ranged) return PD_OK;
    if (parameter->range_start > parameter->range_end || parameter->range_end > (uint64_t)elements)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "parameter %s: range of elements %llu to %llu: expected start <= end <= %lld, the elements it has",
            parameter->name, (unsigned long long)parameter->range_start, (unsigned long long)parameter->range_end,
            (long long)elements);
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
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s: the shape has more than 2^63 - 1 elements",
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
                       "parameter %s: unsupported pull dtype %u: expected 1 (float32), 2 (float16) or 3 (bfloat16)",
                       parameter->name, parameter->pull_dtype);
    if (parameter->update_dtype != 0 && (pd_dtype_size(decl->update_dtype) == 0 || decl->pull_dtype != PD_F32))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: unsupported update dtype %u with pull dtype %u: updates are float32 (1), float16 "
                       "(2) or bfloat16 (3), and the weights then float32",
                       parameter->name, parameter->update_dtype, parameter->pull_dtype);
    decl->push_dtype = (pd_dtype)parameter->push_dtype;
    if (parameter->push_dtype == 0 || pd_dtype_bytes(decl->push_dtype, 1) > 0) return PD_OK;
    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "parameter %s: unsupported push dtype %u: expected 1 (float32), 2 (float16), 3 (bfloat16), 4 (int8), 5 "
        "(int4), or 0 (any)",
        parameter->name, parameter->push_dtype);
}

static int declare_one(pd_conn *conn, const Paramd__Parameter *parameter, pd_error *err)
{
    pd_param_decl decl = { .name = parameter->name,
                           .axes = parameter->axes[0] != '\0' ? parameter->axes : NULL,
                           .model_state = parameter->model_state,
                           .fragment = parameter->fragment };
    int64_t elements;
    int rc = pd_name_check("parameter", parameter->name, err);

    if (rc != PD_OK) return rc;
    if (conn->params.handles.n >= conn->daemon->config.max_params)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "parameter %s: a job may have %u parameters (limits.max_params)",
                       parameter->name, conn->daemon->config.max_params);
    if ((rc = read_shape(&decl, parameter, &elements, err)) != PD_OK) return rc;
    if ((rc = read_types(&decl, parameter, err)) != PD_OK) return rc;
    if ((rc = read_range(&decl, parameter, elements, err)) != PD_OK) return rc;
    if (pd_handles_add(&conn->params.handles, &decl, elements) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "parameter %s: out of memory, try again later", parameter->name);
    return PD_OK;
}

static pd_request *declare_request(const pd_conn *conn, const pd_pending *pending, uint32_t wants)
{
    const pd_handles *handles = &conn->params.handles;
    pd_request *request = pd_request_new(PD_REQ_DECLARE, pd_conn_ticket(conn, pending));

    if (request == NULL) return NULL;
    request->job = conn->job;
    request->rank = conn->rank;
    request->u.declare.params = calloc(handles->n, sizeof *request->u.declare.params);
    if (request->u.declare.params == NULL) goto fail;
    request->u.declare.n = handles->n;
    request->u.declare.wants = wants;
    for (size_t i = 0; i < handles->n; i++)
        if (pd_decl_copy(&request->u.declare.params[i], &handles->decls[i]) != PD_OK) goto fail;
    return request;

fail:
    pd_request_free(request);
    return NULL;
}

/* Returns the number of fragments that the connection declares. The store refuses more than 256. */
static uint32_t count_fragments(const pd_conn *conn)
{
    uint32_t n = 1;

    for (size_t i = 0; i < conn->params.handles.n; i++) {
        uint32_t fragment = conn->params.handles.decls[i].fragment;
        if (fragment >= n && fragment < conn->params.handles.n) n = fragment + 1;
    }
    return n;
}

/* Sends the parameters of all the connection's Declare requests to the store, as one set. Called for the last of these
 * requests. */
static int declare_all(pd_conn *conn, const pd_pending *pending, uint32_t wants, pd_error *err)
{
    pd_daemon *daemon = conn->daemon;
    pd_request *request;

    if (conn->params.handles.n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "Declare without parameters");
    request = declare_request(conn, pending, wants);
    if (request == NULL || pd_version_table_reserve(daemon->versions, conn->job, conn->params.handles.n) != PD_OK ||
        pd_version_table_reserve_fragments(daemon->versions, conn->job, count_fragments(conn)) != PD_OK) {
        pd_request_free(request);
        return pd_fail(err, PD_NO_MEMORY, "Declare: out of memory, try again later");
    }
    conn->params.declaring = true;
    pd_loop_post(daemon, request);
    return PD_OK;
}

static int declare_some(pd_conn *conn, const pd_pending *pending, const Paramd__DeclareRequest *declare, pd_error *err)
{
    size_t before = conn->params.handles.n;
    int rc = PD_OK;

    for (size_t i = 0; i < declare->n_parameters && rc == PD_OK; i++)
        rc = declare_one(conn, declare->parameters[i], err);
    if (rc == PD_OK && declare->last) rc = declare_all(conn, pending, declare->wants, err);
    if (rc != PD_OK) pd_handles_cut(&conn->params.handles, before);
    return rc;
}

int pd_run_declare(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__DeclareRequest *declare = message;
    size_t first = conn->params.handles.n;
    pd_pending *pending;
    int rc;

    if (conn->params.declared)
        return pd_fail(err, PD_FAILED_PRECONDITION, "the parameters of this connection are already declared");
    if (declare->n_parameters > PD_MAX_DECLARE)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "Declare of %zu parameters: at most %d in one Declare: split them",
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

/* Adds the optimizer's warnings about parameters to the reply, as many as fit into the frame's header. */
static void add_warnings(Paramd__DeclareReply *reply, const char *const *notes)
{
    size_t bytes = protobuf_c_message_get_packed_size(&reply->base);

    for (size_t i = 0; i < reply->n_parameters; i++) {
        size_t more = notes[i] != NULL ? strlen(notes[i]) + WARNING_FORM : 0;
        if (more == 0 || bytes + more > PD_MAX_HEADER_BYTES) continue;
        reply->parameters[i]->note = (char *)(uintptr_t)notes[i];
        bytes += more;
    }
}

/* Refuses a Declare whose answer is too long, because its parameters have many portions. */
static void refuse_long(pd_conn *conn, pd_pending *pending)
{
    pd_prefix asked = pd_pending_asked(pending);
    pd_error err;

    pd_fail(&err, PD_RESOURCE_EXHAUSTED,
            "Declare of %u parameters: the answer, which lists their portions, has more than %d bytes: declare fewer "
            "parameters in one request, or raise the job's split_bytes",
            pending->count, PD_MAX_HEADER_BYTES);
    pd_pendings_remove(&conn->pendings, pending);
    pd_pending_free(pending);
    pd_conn_refuse(conn, &asked, &err);
}

/* Answers one of the connection's Declare requests. A worker may declare its parameters in several requests; each
 * answer has only the parameters of its own request. */
static void reply_declared(pd_conn *conn, pd_pending *pending, const pd_effect *effect, const pd_declared_list *list)
{
    Paramd__DeclareReply reply = PARAMD__DECLARE_REPLY__INIT;
    pd_kept_steps kept = effect->u.declared.kept;
    pd_lease_list leases;

    reply.parameters = list->list + pending->start;
    reply.n_parameters = pending->count;
    reply.must_init = effect->u.declared.must_init;
    reply.averages_init = effect->u.declared.averages_init;
    reply.sends_whole = effect->u.declared.sends_whole;
    reply.durable_step = pd_version_table_durable(conn->daemon->versions, conn->job);
    reply.mirrored = pd_version_table_mirrored(conn->daemon->versions, conn->job);
    reply.kept = kept.at;
    reply.n_kept = kept.n;
    reply.replays = effect->u.declared.replays;
    reply.first = effect->u.declared.first;
    reply.last = effect->u.declared.last < UINT64_MAX ? effect->u.declared.last : 0;
    reply.fresh = effect->u.declared.fresh;
    reply.open_sets = effect->u.declared.files;
    reply.leases = pd_lease_list_fill(&leases, &conn->leases);
    reply.n_leases = conn->leases.n;
    reply.least_unused = conn->leases.least_unused;
    reply.map = effect->u.declared.map;
    reply.settles = effect->u.declared.settles;
    add_warnings(&reply, list->notes + pending->start);
    if (protobuf_c_message_get_packed_size(&reply.base) > PD_MAX_HEADER_BYTES)
        refuse_long(conn, pending);
    else
        pd_conn_answer(conn, pending, &reply.base);
}

static void reply_all(pd_conn *conn, const pd_effect *effect, const pd_declared_list *list)
{
    pd_pending *pending;

    while ((pending = pd_pendings_of_method(&conn->pendings, PD_DECLARE)) != NULL)
        reply_declared(conn, pending, effect, list);
}

/* Returns the number of pieces (whole tensors, or their chunks) in which the connection's parameters are pushed and
 * pulled. */
static uint64_t count_pieces(const pd_conn *conn)
{
    uint64_t chunk = conn->daemon->config.chunk_elements, n = 0;

    for (size_t i = 0; i < conn->params.handles.n; i++) {
        const pd_handle_facts *facts = &conn->params.handles.facts[i];
        if (!pd_handle_is_here(facts)) continue;
        n += facts->end == facts->start ? 1 : ((uint64_t)facts->end - 1) / chunk - (uint64_t)facts->start / chunk + 1;
    }
    return n;
}

/* Tells the version table the fragments of the parameters that this shard has. Where all ranks count in each step,
 * they are one fragment. */
static void put_own(pd_conn *conn, const pd_effect *effect)
{
    for (size_t k = 0; k < effect->u.declared.n_places; k++) {
        const pd_declared_place *place = &effect->u.declared.places[k];
        uint32_t fragment = effect->u.declared.files ? conn->params.handles.decls[place->param].fragment : 0;
        if (place->own == UINT32_MAX) continue;
        pd_version_table_put(conn->daemon->versions, conn->job, effect->u.declared.params[place->own].param, fragment);
    }
}

/* Puts the job's parameters on the version table. */
static int put_versions(pd_conn *conn, const pd_effect *effect)
{
    pd_version_table *versions = conn->daemon->versions;
    bool alone = effect->u.declared.places == NULL;
    size_t n = effect->u.declared.n;

    /* A shard may have more portions than the worker has declared parameters. */
    if (!alone && pd_version_table_reserve(versions, conn->job, n) != PD_OK) return PD_NO_MEMORY;
    if (!alone) put_own(conn, effect);
    for (size_t i = 0; alone && i < n; i++)
        pd_version_table_put(versions, conn->job, effect->u.declared.params[i].param,
                             conn->params.handles.decls[i].fragment);
    /* n is the job's number of parameters, because every worker declares all of them. */
    pd_version_table_settle(versions, conn->job, n);
    return PD_OK;
}

void pd_reply_declare(pd_conn *conn, const pd_effect *effect)
{
    pd_declared_list list;
    int rc = pd_declared_list_make(&list, conn->params.handles.n, effect);

    conn->params.declaring = false;
    conn->params.declared = true;
    conn->params.shard = effect->u.declared.shard;
    conn->params.shards = effect->u.declared.shards;
    if (rc == PD_OK) rc = put_versions(conn, effect);
    if (rc == PD_OK) rc = pd_handles_settle(&conn->params.handles, effect);
    conn->params.pieces = count_pieces(conn);
    if (rc == PD_OK)
        reply_all(conn, effect, &list);
    else
        pd_conn_close(conn, pd_code_text(PD_NO_MEMORY));
    pd_declared_list_free(&list);
    pd_conn_resume(conn);
}

/* A worker's segment may have ROOM bytes, UNITS_A_PIECE units of PD_PAYLOAD_ALIGN bytes for each piece, and
 * TIMES_THE_GRADIENTS times the bytes of the worker's gradients in float32. */
#define UNITS_A_PIECE 8
#define ROOM ((uint64_t)1 << 20)
#define TIMES_THE_GRADIENTS ((uint64_t)3)

/* Returns the most bytes of a segment that the worker may lend: enough for its gradients, in place and copied. The
 * number of bytes is limited because pages that the daemon reads count as the daemon's memory, too. */
static uint64_t most_bytes(const pd_conn *conn)
{
    uint64_t bytes = ROOM + conn->params.pieces * UNITS_A_PIECE * PD_PAYLOAD_ALIGN;

    for (size_t i = 0; i < conn->params.handles.n; i++)
        if (pd_handle_is_here(&conn->params.handles.facts[i]))
            bytes += TIMES_THE_GRADIENTS * sizeof(float) *
                     (uint64_t)(conn->params.handles.facts[i].end - conn->params.handles.facts[i].start);
    return bytes;
}

static int check_share(const pd_conn *conn, uint64_t bytes, pd_error *err)
{
    if (!conn->daemon->config.shared_memory)
        return pd_fail(err, PD_FAILED_PRECONDITION, "Share: shared memory is disabled (server.shared_memory)");
    if (conn->transport->ops->take == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "Share: only a Unix socket can pass shared memory (unix:///path)");
    if (conn->params.loan != NULL) return pd_fail(err, PD_FAILED_PRECONDITION, "a second Share on one connection");
    if (bytes > most_bytes(conn))
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "Share of %llu bytes: at most %llu are allowed for the parameters of this worker",
                       (unsigned long long)bytes, (unsigned long long)most_bytes(conn));
    return PD_OK;
}

int pd_fill_share(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__ShareRequest *share = message;
    /* Takes the file descriptor of a refused Share, too: a later Share must not get it. */
    int fd = conn->transport->ops->take != NULL ? conn->transport->ops->take(conn->transport) : -1;
    int rc = check_share(conn, share->bytes, err);

    (void)request, (void)prefix;
    if (rc == PD_OK) return pd_loan_new(&conn->params.loan, fd, share->bytes, err);
    if (fd >= 0 && !PD_MUTANT(refused_share_leaks)) close(fd);
    return rc;
}

void pd_reply_share(pd_conn *conn, pd_pending *pending, pd_effect *effect)
{
    Paramd__ShareReply reply = PARAMD__SHARE_REPLY__INIT;

    if (effect->u.share.fd >= 0 && conn->params.loan != NULL) {
        reply.bytes = effect->u.share.bytes;
        conn->output.least_shared = conn->daemon->config.least_shared;
        conn->output.weights =
            (pd_segment){ .at = (uint8_t *)effect->u.share.at, .bytes = effect->u.share.bytes, .fd = -1 };
        conn->transport->ops->attach(conn->transport, effect->u.share.fd);
        effect->u.share.fd = -1;
    }
    pd_conn_answer(conn, pending, &reply.base);
}
