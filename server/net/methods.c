/* methods.c - the table of the protocol's methods, and the handlers of methods that have no file of their own. */
#include "methods.h"

#include "checkpoint_request.h"
#include "declare_request.h"
#include "export_request.h"
#include "hello_request.h"
#include "info.h"
#include "import_request.h"
#include "note_request.h"
#include "option_copy.h"
#include "optimizers.h"
#include "pull_request.h"
#include "push_request.h"
#include "share_request.h"
#include "shutdown.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a job's name from which on less of a command is logged. */
enum { LONG_NAME = 100 };

/* Makes an open request (one that is not answered yet) for a method without tensors. Returns NULL if out of memory. */
static pd_pending *new_pending(pd_conn *conn, const pd_prefix *prefix)
{
    pd_pending *pending = pd_pending_new(&conn->pendings, conn, prefix, 0);

    if (pending != NULL) pending->kind = (uint16_t)pd_methods[prefix->method].kind;
    return pending;
}

/* Posts a request of the given kind to the store, and adds it to the connection's open requests (not answered yet). The
 * caller fills in the other fields before the turn of the loop ends. Returns NULL, and sets the error, if memory is
 * out. */
static pd_request *ask(pd_conn *conn, pd_request_kind kind, const pd_prefix *prefix, pd_error *err)
{
    pd_pending *pending = new_pending(conn, prefix);
    pd_request *request = pending != NULL ? pd_request_new(kind, pd_conn_ticket(conn, pending)) : NULL;

    if (request == NULL) {
        pd_pending_free(pending);
        pd_conn_no_memory(prefix, err);
        return NULL;
    }
    request->job = conn->job;
    request->rank = conn->rank;
    pd_pendings_add(&conn->pendings, pending);
    pd_loop_post(conn->daemon, request);
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
    if (pd_output_beat(&conn->output, prefix))
        pd_conn_touch(conn);
    else
        pd_conn_reply(conn, prefix, &ok.base);
    return PD_OK;
}

static int run_leave(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    (void)message;
    return ask(conn, PD_REQ_LEAVE, prefix, err) != NULL ? PD_OK : PD_NO_MEMORY;
}

static int ask_info(pd_conn *conn, const pd_prefix *prefix, const Paramd__ListRequest *list, pd_error *err)
{
    char *name = strdup(list->job), *pattern = strdup(list->param), *identity = strdup(conn->identity.text);
    pd_request *request =
        name != NULL && pattern != NULL && identity != NULL ? ask(conn, PD_REQ_INFO, prefix, err) : NULL;

    if (request == NULL) {
        free(name);
        free(pattern);
        free(identity);
        return pd_fail(err, PD_NO_MEMORY, "out of memory, try again later");
    }
    request->u.info.identity = identity;
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

static int no_such_list(uint32_t what, pd_error *err)
{
    const pd_info_list *list;
    char all[256] = "";

    for (uint32_t i = 1; (list = pd_info_list_of(i)) != NULL; i++) {
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%u%s %s", i > 1 ? ", " : "", i, i > 1 ? "" : " is", list->about);
    }
    return pd_fail(err, PD_INVALID_ARGUMENT, "List of %u: %s", what, all);
}

static int run_list(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__ListRequest *list = message;

    if (list->what == PD_INFO_STATUS || pd_info_list_of(list->what) == NULL) return no_such_list(list->what, err);
    return ask_info(conn, prefix, list, err);
}

static int run_optimizers(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__OptimizersRequest *asked = message;
    Paramd__OptimizersReply reply;
    int rc = pd_optimizers_packed_page(&reply, conn->daemon->optimizers, asked->start, asked->name, err);

    if (rc == PD_OK) pd_conn_reply(conn, prefix, &reply.base);
    return rc;
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
    pd_conn_log_command(conn, name, "drop");
    return PD_OK;
}

static int run_drain(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__DrainRequest *drain = message;
    uint32_t ms = drain->timeout_ms > 0 ? drain->timeout_ms : conn->daemon->config.drain_ms;
    pd_request *request = ask(conn, PD_REQ_DRAIN, prefix, err);

    if (request == NULL) return PD_NO_MEMORY;
    request->u.drain.deadline_ns = ms * (uint64_t)1000000;
    request->u.drain.keep_ns = conn->daemon->config.keep_ms * (uint64_t)1000000;
    conn->daemon->drains = true;
    pd_conn_log_command(conn, "", "drain");
    return PD_OK;
}

/* Handles a Shutdown request. It is answered when the store has drained: all rounds under way have ended. */
static int run_shutdown(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    pd_pending *pending = new_pending(conn, prefix);

    (void)message;
    if (pending == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory, try again later");
    pd_pendings_add(&conn->pendings, pending);
    pd_conn_log_command(conn, "", "shutdown");
    pd_shutdown_begin(conn->daemon);
    return PD_OK;
}

static int copy_set(pd_request *request, const pd_conn *conn, const Paramd__SetRequest *set)
{
    request->u.set.job_name = strdup(set->job);
    request->u.set.pattern = strdup(set->pattern);
    request->u.set.by = strdup(conn->label);
    request->u.set.from_step = set->from_step;
    if (request->u.set.job_name == NULL || request->u.set.pattern == NULL || request->u.set.by == NULL)
        return PD_NO_MEMORY;
    return pd_options_copy(&request->u.set.options, &request->u.set.n, set->options, set->n_options);
}

/* Logs the command "set PATTERN NAME=VALUE... from step N" with the operator's name, cut to the length of a log
 * entry. */
static void log_set(const pd_conn *conn, const Paramd__SetRequest *set)
{
    char text[240];
    size_t most = strlen(set->job) > LONG_NAME ? sizeof text / 2 : sizeof text; /* so that the author fits behind it */
    size_t used = (size_t)snprintf(text, most, "%.100s", set->pattern);

    for (size_t i = 0; i < set->n_options && used < most; i++)
        used += (size_t)snprintf(text + used, most - used, " %s=%s", set->options[i]->name, set->options[i]->value);
    if (set->from_step > 0 && used < most)
        snprintf(text + used, most - used, " from step %llu", (unsigned long long)set->from_step);
    pd_conn_log_command(conn, set->job, "set %s", text);
}

static int run_set(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__SetRequest *set = message;
    pd_pending *pending = new_pending(conn, prefix);
    pd_request *request = pending != NULL ? pd_request_new(PD_REQ_SET, pd_conn_ticket(conn, pending)) : NULL;

    if (request == NULL || copy_set(request, conn, set) != PD_OK) {
        pd_request_free(request);
        pd_pending_free(pending);
        return pd_conn_no_memory(prefix, err);
    }
    pd_pendings_add(&conn->pendings, pending);
    pd_loop_post(conn->daemon, request);
    log_set(conn, set);
    return PD_OK;
}

/* ---- the table of methods ---- */

/* The role that a request needs for the job that it names. */
#define NAMED(role, request)                                                                                           \
    {                                                                                                                  \
        .named = PD_ROLE_##role, .job_at = offsetof(Paramd__##request##Request, job)                                   \
    }

const pd_method_entry pd_methods[PD_METHODS] = {
    [PD_HELLO] = { "Hello", 0, NAMED(PUSH, Hello), .may.joins = true, .run = pd_run_hello },
    [PD_DECLARE] = { "Declare", PD_NEEDS_WORKER, .run = pd_run_declare },
    [PD_INIT] = { "Initialise", PD_NEEDS_WORKER | PD_NEEDS_DECLARED, .prepare = pd_prepare_init,
                  .finish = pd_finish_init },
    [PD_PUSH] = { "Push", PD_NEEDS_WORKER | PD_NEEDS_DECLARED, .prepare = pd_prepare_push, .finish = pd_finish_push },
    [PD_PULL] = { "Pull", PD_NEEDS_WORKER | PD_NEEDS_DECLARED, .run = pd_run_pull },
    [PD_PUSH_PULL] = { "PushPull", PD_NEEDS_WORKER | PD_NEEDS_DECLARED, .prepare = pd_prepare_push,
                       .finish = pd_finish_push },
    [PD_BARRIER] = { "Barrier", PD_NEEDS_WORKER, .kind = PD_AWAITS_OTHERS, .run = run_barrier },
    [PD_HEARTBEAT] = { "Heartbeat", 0, .run = run_heartbeat },
    [PD_LEAVE] = { "Leave", PD_NEEDS_WORKER, .kind = PD_AWAITS_STORE, .run = run_leave },
    [PD_STATUS] = { "Status", 0, .kind = PD_AWAITS_STORE, .run = run_status },
    [PD_LIST] = { "List", 0, NAMED(READ, List), .kind = PD_AWAITS_STORE, .run = run_list },
    [PD_OPTIMIZERS] = { "Optimizers", 0, .run = run_optimizers },
    [PD_DROP] = { "Drop", PD_NEEDS_OPERATOR, NAMED(ADMIN, Drop), .kind = PD_AWAITS_STORE, .run = run_drop },
    [PD_DRAIN] = { "Drain",
                   PD_NEEDS_OPERATOR,
                   { .server = PD_ROLE_ADMIN },
                   .kind = PD_AWAITS_OTHERS,
                   .run = run_drain },
    [PD_SHUTDOWN] = { "Shutdown",
                      PD_NEEDS_OPERATOR,
                      { .server = PD_ROLE_ADMIN },
                      .kind = PD_AWAITS_OTHERS,
                      .run = run_shutdown },
    [PD_SET] = { "Set", PD_NEEDS_OPERATOR, NAMED(ADMIN, Set), .kind = PD_AWAITS_STORE, .run = run_set },
    [PD_IMPORT] = { "Import", PD_NEEDS_OPERATOR, NAMED(PUSH, Import), .kind = PD_AWAITS_STORE,
                    .prepare = pd_prepare_import, .finish = pd_finish_import },
    [PD_EXPORT] = { "Export", PD_NEEDS_OPERATOR, NAMED(READ, Export), .kind = PD_AWAITS_OTHERS, .run = pd_run_export },
    [PD_SHARE] = { "Share", PD_NEEDS_WORKER | PD_NEEDS_DECLARED, .kind = PD_AWAITS_STORE, .run = pd_run_share },
    [PD_RELEASE] = { "Release", 0, .run = pd_run_release },
    [PD_NOTE] = { "Note", PD_NEEDS_WORKER, .kind = PD_AWAITS_STORE, .prepare = pd_prepare_note,
                  .finish = pd_finish_note },
    [PD_RECALL] = { "Recall", PD_NEEDS_WORKER, .kind = PD_AWAITS_STORE, .run = pd_run_recall },
    [PD_CHECKPOINT] = { "Checkpoint", 0, NAMED(ADMIN, Checkpoint), .kind = PD_AWAITS_OTHERS, .run = pd_run_checkpoint },
};

void pd_methods_check(void)
{
    assert(paramd__paramd__descriptor.n_methods == PD_METHODS);
    for (unsigned i = 0; i < PD_METHODS; i++) {
        assert(strcmp(pd_methods[i].name, paramd__paramd__descriptor.methods[i].name) == 0);
        assert((pd_methods[i].run != NULL) != (pd_methods[i].prepare != NULL && pd_methods[i].finish != NULL));
    }
}
