/* hello_request.c - Hello: asks the store to let a worker into its job, and answers the worker; answers an operator at
 * once. */
#include "hello_request.h"

#include "conn_io.h"
#include "option_copy.h"
#include "text.h"
#include "name_check.h"

#include <stdlib.h>
#include <string.h>

static int check_hello(const pd_conn *conn, const Paramd__HelloRequest *hello, pd_error *err)
{
    if (conn->state != PD_GREETING) return pd_fail(err, PD_FAILED_PRECONDITION, "a second Hello on one connection");
    if (hello->protocol == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Hello of protocol 0: this server speaks 1 to %d",
                       PD_PROTOCOL_VERSION);
    if (hello->job[0] == '\0') return PD_OK;
    if (hello->world_size == 0 || hello->rank >= hello->world_size)
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

static int copy_rules(pd_request *request, char *const *from, size_t n)
{
    if (n > 0 && (request->u.hello.rules = calloc(n, sizeof *request->u.hello.rules)) == NULL) return PD_NO_MEMORY;
    request->u.hello.n_rules = n;
    for (size_t i = 0; i < n; i++)
        if ((request->u.hello.rules[i] = strdup(from[i])) == NULL) return PD_NO_MEMORY;
    return PD_OK;
}

static pd_request *hello_request(const pd_conn *conn, const pd_pending *pending, const Paramd__HelloRequest *hello)
{
    pd_request *request = pd_request_new(PD_REQ_HELLO, pd_conn_ticket(conn, pending));

    if (request == NULL) return NULL;
    request->rank = hello->rank;
    request->u.hello.world_size = hello->world_size;
    request->u.hello.nonce = hello->nonce;
    request->u.hello.shares = hello->shares && conn->daemon->config.shared_memory && conn->transport->ops->take != NULL;
    request->u.hello.window = hello->window;
    request->u.hello.barriers = hello->barriers;
    request->u.hello.steps = hello->steps;
    request->u.hello.rejoins = hello->rejoins;
    request->u.hello.creator = hello->creator;
    request->u.hello.intent = (pd_intent)hello->resume;
    request->u.hello.joins = hello->joins;
    request->u.hello.run = hello->run[0] != '\0' ? strdup(hello->run) : NULL;
    request->u.hello.job_name = strdup(hello->job);
    request->u.hello.label = strdup(conn->label);
    request->u.hello.identity = strdup(conn->identity.text);
    if (request->u.hello.job_name != NULL && request->u.hello.label != NULL && request->u.hello.identity != NULL &&
        (hello->run[0] == '\0' || request->u.hello.run != NULL) &&
        pd_options_copy(&request->u.hello.options, &request->u.hello.n_options, hello->options, hello->n_options) ==
            PD_OK &&
        copy_rules(request, hello->rules, hello->n_rules) == PD_OK)
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
    conn->access = (pd_conn_access){ 0 };
    conn->rank = hello->rank;
    conn->remarks = hello->remarks;
    conn->state = PD_WELCOMING;
    pd_brief_leave(&conn->daemon->brief, &conn->brief);
    conn->joined = true;
    conn->daemon->worker_ms = pd_loop_now_ms(conn->daemon);
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
    reply.heartbeat_ms = config->heartbeat_ms;
    reply.timeout_ms = config->silence_ms;
    reply.seed = effect != NULL ? effect->u.hello.seed : 0;
    reply.created = effect != NULL && effect->u.hello.created;
    reply.creator = effect != NULL ? effect->u.hello.creator : 0;
    reply.step = effect != NULL ? effect->u.hello.step : 0;
    reply.linger_ms = effect != NULL ? effect->u.hello.linger_ms : 0;
    pd_conn_reply(conn, asked, &reply.base);
}

int pd_run_hello(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__HelloRequest *hello = message;
    int rc = check_hello(conn, hello, err);

    if (rc != PD_OK) return rc;
    pd_text_print(conn->label, sizeof conn->label, hello->label[0] != '\0' ? hello->label : conn->peer);
    if (hello->job[0] != '\0') return join(conn, prefix, hello, err);
    conn->operates = true;
    conn->state = PD_OPEN;
    pd_brief_leave(&conn->daemon->brief, &conn->brief);
    welcome(conn, prefix, NULL);
    return PD_OK;
}

void pd_reply_hello(pd_conn *conn, pd_pending *pending, const pd_effect *effect)
{
    pd_prefix asked = pd_pending_asked(pending);
    const pd_remark *remark;
    uint64_t at = 0;

    pd_pendings_remove(&conn->pendings, pending);
    pd_pending_free(pending);
    conn->job = effect->job;
    pd_traffic_add(&conn->daemon->traffic, conn->job);
    conn->state = PD_OPEN;
    if (effect->u.hello.created) pd_remarks_begin(&conn->daemon->remarks, conn->job_name);
    welcome(conn, &asked, effect);
    while ((remark = pd_remarks_next(&conn->daemon->remarks, conn->job_name, &at)) != NULL)
        pd_conn_remark(conn, remark);
    pd_conn_resume(conn);
}
