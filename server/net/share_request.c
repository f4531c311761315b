/* share_request.c - takes the segment that a worker lends, gives it the segment of its job's weights, and takes back
 * weights that the worker has read. */
#include "share_request.h"

#include <unistd.h>

#include "mutant.h"

#define UNITS_A_PIECE 8          /* a worker's segment may have so many units of 64 bytes for each piece besides */
#define ROOM ((uint64_t)1 << 20) /* and so many bytes, whatever was declared */
#define TIMES_THE_GRADIENTS ((uint64_t)3) /* and so many times the gradients in float32 */

/* Returns the most bytes of a segment that the worker may lend: enough for its gradients, in place and copied. Pages
 * that the daemon reads count as its memory, too, so a worker may not make it map any number of them. */
static uint64_t most_bytes(const pd_conn *conn)
{
    uint64_t bytes = ROOM + conn->pieces * UNITS_A_PIECE * PD_PAYLOAD_ALIGN;

    for (size_t i = 0; i < conn->handles.n; i++)
        bytes +=
            TIMES_THE_GRADIENTS * sizeof(float) * (uint64_t)(conn->handles.facts[i].end - conn->handles.facts[i].start);
    return bytes;
}

static int check_share(const pd_conn *conn, uint64_t bytes, pd_error *err)
{
    if (!conn->daemon->config.shared_memory)
        return pd_fail(err, PD_FAILED_PRECONDITION, "Share: the server shares no memory (server.shared_memory)");
    if (conn->transport->ops->take == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "Share: only a Unix socket can pass shared memory (unix:///path)");
    if (conn->loan != NULL) return pd_fail(err, PD_FAILED_PRECONDITION, "a second Share on one connection");
    if (bytes > most_bytes(conn))
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "Share of %llu bytes: at most %llu are allowed for the parameters of this worker",
                       (unsigned long long)bytes, (unsigned long long)most_bytes(conn));
    return PD_OK;
}

/* Takes the descriptor that came with a Share, also with one that is refused: a later Share must not find it. Returns
 * -1 if there is none. */
static int take_descriptor(const pd_conn *conn)
{
    return conn->transport->ops->take != NULL ? conn->transport->ops->take(conn->transport) : -1;
}

/* Asks the step thread for the segment of the job's weights. */
static int ask(pd_conn *conn, const pd_prefix *prefix, pd_error *err)
{
    pd_pending *pending = pd_pending_new(&conn->pendings, conn, prefix, 0);
    pd_request *request = pending != NULL ? pd_request_new(PD_REQ_SHARE, pd_conn_ticket(conn, pending)) : NULL;

    if (request == NULL) {
        pd_pending_free(pending);
        return pd_conn_no_memory(prefix, err);
    }
    pending->kind = PD_AWAITS_STORE;
    request->job = conn->job;
    request->rank = conn->rank;
    pd_pendings_add(&conn->pendings, pending);
    pd_loop_post(conn->daemon, request);
    return PD_OK;
}

int pd_run_share(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__ShareRequest *share = message;
    int fd = take_descriptor(conn), rc = check_share(conn, share->bytes, err);

    if (rc != PD_OK) {
        if (fd >= 0 && !PD_MUTANT(refused_share_leaks)) close(fd);
        return rc;
    }
    rc = pd_loan_new(&conn->loan, fd, share->bytes, err);
    if (rc == PD_OK && (rc = ask(conn, prefix, err)) != PD_OK) {
        pd_loan_unref(conn->loan, &conn->daemon->platform);
        conn->loan = NULL;
    }
    return rc;
}

void pd_reply_share(pd_conn *conn, pd_pending *pending, pd_effect *effect)
{
    Paramd__ShareReply reply = PARAMD__SHARE_REPLY__INIT;

    if (effect->u.share.fd >= 0 && conn->loan != NULL) {
        reply.bytes = effect->u.share.bytes;
        conn->output.least_shared = conn->daemon->config.least_shared;
        conn->output.weights =
            (pd_segment){ .at = (uint8_t *)effect->u.share.at, .bytes = effect->u.share.bytes, .fd = -1 };
        conn->transport->ops->attach(conn->transport, effect->u.share.fd);
        effect->u.share.fd = -1;
    }
    pd_conn_answer(conn, pending, &reply.base);
}

int pd_run_release(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__ReleaseRequest *release = message;
    pd_outstanding *lent = &conn->output.lent;
    bool more = PD_MUTANT(release_one_more) && release->answers < lent->n;
    Paramd__Ok ok = PARAMD__OK__INIT;
    pd_pending *answer;

    if (release->answers > lent->n)
        return pd_fail(err, PD_OUT_OF_RANGE, "Release of %llu answers: %llu are lent",
                       (unsigned long long)release->answers, (unsigned long long)lent->n);
    answer = pd_outstanding_take(lent, release->answers + more, pd_loop_now_ms(conn->daemon));
    while (answer != NULL) {
        pd_pending *next = answer->next_reply;
        pd_version_table_forget(conn->daemon->versions, &answer->wait);
        pd_pending_free(answer);
        answer = next;
    }
    pd_conn_reply(conn, prefix, &ok.base);
    return PD_OK;
}
