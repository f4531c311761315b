/* methods.c - the table of the protocol's methods, and the handlers of methods that have no other file. */
#include "handlers.h"

#include "lifecycle.h"
#include "optimizers.h"
#include "text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pd_name_check(const char *what, const char *name, pd_error *err)
{
    size_t n = strlen(name);
    char text[32];

    if (n == 0 || n > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s name of %zu bytes: expected 1 to %d", what, n, PD_NAME_MAX);
    snprintf(text, sizeof text, "%s name", what);
    return pd_text_check(text, name, err);
}

int pd_options_copy(pd_option **out, size_t *n_out, Paramd__Option *const *from, size_t n)
{
    pd_option *to;

    if (n == 0) return PD_OK;
    if ((to = calloc(n, sizeof *to)) == NULL) return PD_NO_MEMORY;
    *out = to;
    *n_out = n;
    for (size_t i = 0; i < n; i++)
        if ((to[i].name = strdup(from[i]->name)) == NULL || (to[i].value = strdup(from[i]->value)) == NULL)
            return PD_NO_MEMORY;
    return PD_OK;
}

/* Fills in nothing: the request to the store needs only the connection's job and rank, which the caller has set. */
static int fill_nothing(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    (void)conn, (void)request, (void)prefix, (void)message, (void)err;
    return PD_OK;
}

static int fill_barrier(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    (void)conn, (void)prefix, (void)err;
    request->u.barrier.sequence = ((const Paramd__BarrierRequest *)message)->sequence;
    return PD_OK;
}

static int fill_drop(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__DropRequest *drop = message;

    (void)prefix;
    if (drop->job[0] == '\0') return pd_fail(err, PD_INVALID_ARGUMENT, "Drop names no job");
    if ((request->u.info.job_name = strdup(drop->job)) == NULL) return PD_NO_MEMORY;
    pd_conn_log_command(conn, drop->job, "drop");
    return PD_OK;
}

static int fill_kick(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__KickRequest *kick = message;

    (void)prefix;
    if (kick->job[0] == '\0') return pd_fail(err, PD_INVALID_ARGUMENT, "Kick names no job");
    request->u.kick.rank = kick->rank;
    if ((request->u.kick.job_name = strdup(kick->job)) == NULL) return PD_NO_MEMORY;
    if ((request->u.kick.by = strdup(conn->peer.label)) == NULL) return PD_NO_MEMORY;
    pd_conn_log_command(conn, kick->job, "kick of rank %u", kick->rank);
    return PD_OK;
}

static int fill_drain(pd_conn *conn, pd_request *request, const pd_prefix *prefix, const void *message, pd_error *err)
{
    const Paramd__DrainRequest *drain = message;
    uint32_t ms = drain->timeout_ms > 0 ? drain->timeout_ms : conn->daemon->config.times.drain_ms;

    (void)prefix, (void)err;
    request->u.drain.deadline_ns = ms * (uint64_t)1000000;
    request->u.drain.keep_ns = conn->daemon->config.times.keep_ms * (uint64_t)1000000;
    conn->daemon->shutdown.drains = true;
    pd_conn_log_command(conn, "", "drain");
    return PD_OK;
}

static int run_heartbeat(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    Paramd__Ok ok = PARAMD__OK__INIT;

    (void)message, (void)err;
    if (pd_output_beat(&conn->output, prefix))
        pd_conn_touch(conn);
    else
        pd_conn_reply(conn, prefix, &ok.base);
    return PD_OK;
}

static int run_optimizers(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__OptimizersRequest *asked = message;
    Paramd__OptimizersReply reply;
    int rc = pd_optimizers_packed_page(&reply, conn->daemon->optimizers, asked->start, asked->name, err);

    if (rc == PD_OK) pd_conn_reply(conn, prefix, &reply.base);
    return rc;
}

/* Handles a Shutdown request, which is answered when the store has drained. */
static int run_shutdown(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    pd_pending *pending = pd_pending_new(&conn->pendings, conn, prefix, 0);

    (void)message;
    if (pending == NULL) return pd_conn_no_memory(prefix, err);
    pending->kind = PD_AWAITS_OTHERS;
    pd_pendings_add(&conn->pendings, pending);
    pd_conn_log_command(conn, "", "shutdown");
    pd_shutdown_begin(conn->daemon);
    return PD_OK;
}

/* Initialises pd_method_entry.may: the request needs `role` for the job that it names. */
#define NAMED(role, request)                                                                                           \
    {                                                                                                                  \
        .named = PD_ROLE_##role, .job_at = offsetof(Paramd__##request##Request, job)                                   \
    }
#define ADMIN_OF_SERVER                                                                                                \
    {                                                                                                                  \
        .server = PD_ROLE_ADMIN                                                                                        \
    }
#define WORKER PD_NEEDS_WORKER
#define DECLARED (PD_NEEDS_WORKER | PD_NEEDS_DECLARED)
#define OPERATOR PD_NEEDS_OPERATOR
/* A row for a method that posts a request to the store. `wait` is STORE if the step thread answers at once, OTHERS if
 * the answer depends on other connections. */
#define ASK(wait, request, fill_function) .kind = PD_AWAITS_##wait, .asks = PD_REQ_##request, .fill = fill_function

const pd_method_entry pd_methods[PD_METHODS] = {
    [PD_HELLO] = { "Hello", 0, NAMED(PUSH, Hello), .may.joins = true, .run = pd_run_hello },
    [PD_DECLARE] = { "Declare", WORKER, .run = pd_run_declare },
    [PD_INIT] = { "Initialise", DECLARED, .prepare = pd_prepare_init, .finish = pd_finish_init },
    [PD_PUSH] = { "Push", DECLARED, .prepare = pd_prepare_push, .finish = pd_finish_push },
    [PD_PULL] = { "Pull", DECLARED, .run = pd_run_pull },
    [PD_PUSH_PULL] = { "PushPull", DECLARED, .prepare = pd_prepare_push, .finish = pd_finish_push },
    [PD_BARRIER] = { "Barrier", WORKER, ASK(OTHERS, BARRIER, fill_barrier) },
    [PD_HEARTBEAT] = { "Heartbeat", 0, .run = run_heartbeat },
    [PD_LEAVE] = { "Leave", WORKER, ASK(STORE, LEAVE, fill_nothing) },
    [PD_STATUS] = { "Status", 0, ASK(STORE, INFO, pd_fill_status) },
    [PD_LIST] = { "List", 0, NAMED(READ, List), ASK(STORE, INFO, pd_fill_list) },
    [PD_OPTIMIZERS] = { "Optimizers", 0, .run = run_optimizers },
    [PD_DROP] = { "Drop", OPERATOR, NAMED(ADMIN, Drop), ASK(STORE, DROP, fill_drop) },
    [PD_DRAIN] = { "Drain", OPERATOR, ADMIN_OF_SERVER, ASK(OTHERS, DRAIN, fill_drain) },
    [PD_SHUTDOWN] = { "Shutdown", OPERATOR, ADMIN_OF_SERVER, .kind = PD_AWAITS_OTHERS, .run = run_shutdown },
    [PD_SET] = { "Set", OPERATOR, NAMED(ADMIN, Set), ASK(STORE, SET, pd_fill_set) },
    [PD_IMPORT] = { "Import", OPERATOR, NAMED(PUSH, Import), ASK(STORE, IMPORT, pd_fill_import),
                    .land = pd_land_import },
    [PD_EXPORT] = { "Export", OPERATOR, NAMED(READ, Export), ASK(OTHERS, EXPORT, pd_fill_export) },
    [PD_SHARE] = { "Share", DECLARED, ASK(STORE, SHARE, pd_fill_share) },
    [PD_RELEASE] = { "Release", 0, .run = pd_run_release },
    [PD_NOTE] = { "Note", WORKER, ASK(STORE, WORKER_STATE, pd_fill_worker_state), .land = pd_land_worker_state },
    [PD_RECALL] = { "Recall", WORKER, ASK(STORE, GET_WORKER_STATE, fill_nothing) },
    [PD_CHECKPOINT] = { "Checkpoint", 0, NAMED(ADMIN, Checkpoint), ASK(OTHERS, CHECKPOINT, pd_fill_checkpoint) },
    [PD_KICK] = { "Kick", OPERATOR, NAMED(ADMIN, Kick), ASK(STORE, KICK, fill_kick) },
    [PD_SETTLE] = { "Settle", DECLARED, ASK(OTHERS, SETTLE, pd_fill_settle) },
    [PD_GO_BACK] = { "GoBack", 0, NAMED(ADMIN, GoBack), ASK(OTHERS, GO_BACK, pd_fill_go_back) },
    [PD_SHARDS] = { "Shards", 0, .run = pd_answer_shards },
};

bool pd_method_takes_payload(const pd_method_entry *m)
{
    return m->prepare != NULL || m->land != NULL;
}

void pd_methods_check(void)
{
    assert(paramd__paramd__descriptor.n_methods == PD_METHODS);
    for (unsigned i = 0; i < PD_METHODS; i++) {
        const pd_method_entry *m = &pd_methods[i];
        assert(strcmp(m->name, paramd__paramd__descriptor.methods[i].name) == 0);
        assert((m->run != NULL) + (m->fill != NULL) + (m->prepare != NULL && m->finish != NULL) == 1);
    }
}
