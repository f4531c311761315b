/* pull_request.c - Pull: checks which pieces of the weights a worker wants, and lets the version table
 * answer when their weights are new enough. */
#include "pull_request.h"

#include "piece_wait.h"

static int check_want(const pd_conn *conn, const Paramd__Want *want, size_t i, pd_error *err)
{
    uint64_t chunk = conn->daemon->config.chunk_elements;
    const pd_handle_facts *facts;
    int64_t count;

    if (want->handle >= conn->handles.n)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "want %zu: handle %u, but this connection has declared %zu "
                       "parameters",
                       i, want->handle, conn->handles.n);
    facts = &conn->handles.facts[want->handle];
    count = pd_range_piece(facts->start, facts->end, chunk, want->first);
    if (count < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "want %zu (%s): first element %llu, expected %lld, or a multiple of "
                       "%llu between that and %lld",
                       i, facts->name, (unsigned long long)want->first, (long long)facts->start,
                       (unsigned long long)chunk, (long long)facts->end);
    if (want->count != (uint64_t)count)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "want %zu (%s): %llu elements from %llu on, expected the whole chunk "
                       "or what the range has of it, %lld",
                       i, facts->name, (unsigned long long)want->count, (unsigned long long)want->first,
                       (long long)count);
    return PD_OK;
}

static int check_wants(const pd_conn *conn, const Paramd__PullRequest *pull, pd_error *err)
{
    int rc = PD_OK;

    if (pull->n_wants == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "Pull without wants");
    if (pull->n_wants > conn->daemon->config.max_pieces)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "Pull of %zu chunks: at most %u are allowed in a frame "
                       "(limits.max_pieces)",
                       pull->n_wants, conn->daemon->config.max_pieces);
    for (size_t i = 0; i < pull->n_wants && rc == PD_OK; i++) rc = check_want(conn, pull->wants[i], i, err);
    return rc == PD_OK ? pd_wants_check_distinct(pull->wants, pull->n_wants, conn->handles.facts, err) : rc;
}

/* Checks that this connection's pulls that wait for rounds do not take too much memory. A step pulls each piece (tensor
 * or chunk) once, so the limit has space for two pulls of every piece.
 *
 * A pull beyond the limit is refused at once. It must not wait: its round may need a push that this connection sends
 * later. */
static int check_waiting(const pd_conn *conn, const pd_wait *wait, pd_error *err)
{
    uint64_t waiting = conn->pendings.pulling + pd_pending_bytes(wait->n);
    uint64_t most = PD_HIGH_WATER + 2 * conn->pieces * pd_pending_bytes(1);

    if (waiting <= most || pd_version_table_would_answer(conn->daemon->versions, conn->job, wait)) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "Pull: the pulls of this connection that wait for rounds already take "
                   "%llu bytes of memory, at most %llu are allowed: wait for answers",
                   (unsigned long long)conn->pendings.pulling, (unsigned long long)most);
}

int pd_run_pull(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__PullRequest *pull = message;
    pd_pending *pending;
    int rc = check_wants(conn, pull, err);

    if (rc != PD_OK) return rc;
    pending = pd_pending_new(&conn->pendings, conn, prefix, pull->n_wants);
    if (pending == NULL) return pd_conn_no_memory(prefix, err);
    pending->wait.step = pull->min_step;
    for (size_t i = 0; i < pull->n_wants; i++) {
        const Paramd__Want *want = pull->wants[i];
        pd_piece_wait_fill(conn, &pending->wait.at[i],
                           (pd_piece_wanted){
                               .handle = want->handle,
                               .first = want->first,
                               .count = want->count,
                               .holds = want->holds,
                               .pulls = true,
                           });
    }
    if ((rc = pd_piece_wait_check(conn, pending, err)) != PD_OK ||
        (rc = check_waiting(conn, &pending->wait, err)) != PD_OK) {
        pd_pending_free(pending);
        return rc;
    }
    if (pd_version_table_wait(conn->daemon->versions, conn->job, &pending->wait))
        pd_conn_data_reply(conn, pending);
    else
        pd_pendings_add(&conn->pendings, pending);
    return PD_OK;
}
