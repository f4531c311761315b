/* checkpoint_request.c - Checkpoint: checks the requests with which an operator or a worker asks for a checkpoint, and
 * sends the answers. */
#include "checkpoint_request.h"

#include "name_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 30000, MOST_WAIT_MS = 600000 };

static int check_checkpoint(const pd_conn *conn, const Paramd__CheckpointRequest *asked, pd_error *err)
{
    if (asked->wait_ms > MOST_WAIT_MS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "Checkpoint: wait_ms of %u, at most %d are possible", asked->wait_ms,
                       MOST_WAIT_MS);
    if (conn->operates) return pd_name_check("job", asked->job, err);
    if (conn->job == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, "Checkpoint: this worker has no job any more: connect anew");
    if (asked->job[0] != '\0')
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Checkpoint of job %.200s: a worker asks for its own job, and names none", asked->job);
    return PD_OK;
}

static pd_request *checkpoint_request(const pd_conn *conn, const pd_pending *pending,
                                      const Paramd__CheckpointRequest *asked)
{
    pd_request *request = pd_request_new(PD_REQ_CHECKPOINT, pd_conn_ticket(conn, pending));

    if (request == NULL) return NULL;
    request->job = conn->job;
    request->rank = conn->rank;
    request->u.checkpoint.step = asked->step;
    request->u.checkpoint.wait_ns = (uint64_t)(asked->wait_ms > 0 ? asked->wait_ms : WAIT_MS) * 1000000;
    if (!conn->operates || (request->u.checkpoint.job_name = strdup(asked->job)) != NULL) return request;
    pd_request_free(request);
    return NULL;
}

static void log_checkpoint(const pd_conn *conn, const Paramd__CheckpointRequest *asked)
{
    if (!conn->operates) return;
    if (asked->step > 0)
        pd_conn_log_command(conn, asked->job, "checkpoint of step %llu or later", (unsigned long long)asked->step);
    else
        pd_conn_log_command(conn, asked->job, "checkpoint");
}

int pd_run_checkpoint(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__CheckpointRequest *asked = message;
    pd_pending *pending;
    pd_request *request;
    int rc = check_checkpoint(conn, asked, err);

    if (rc != PD_OK) return rc;
    pending = pd_pending_new(&conn->pendings, conn, prefix, 0);
    request = pending != NULL ? checkpoint_request(conn, pending, asked) : NULL;
    if (request == NULL) {
        pd_pending_free(pending);
        return pd_conn_no_memory(prefix, err);
    }
    pending->kind = PD_AWAITS_OTHERS;
    pd_pendings_add(&conn->pendings, pending);
    pd_loop_post(conn->daemon, request);
    log_checkpoint(conn, asked);
    return PD_OK;
}

void pd_reply_checkpoint(pd_conn *conn, pd_pending *pending, const pd_effect *effect)
{
    Paramd__CheckpointReply reply = PARAMD__CHECKPOINT_REPLY__INIT;

    reply.step = effect->u.checkpoint.step;
    reply.bytes = effect->u.checkpoint.bytes;
    reply.ms = effect->u.checkpoint.ns / 1000000;
    pd_conn_answer(conn, pending, &reply.base);
}
