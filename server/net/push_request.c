/* push_request.c - Initialise, Push and PushPull: checks their pieces, and turns them into requests
 * to the store. */
#include "push_request.h"

#include "option_copy.h"
#include "piece_wait.h"
#include "mutant.h"
#include "pieces.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- turning the pieces of a frame into the pieces of a request to the store ---- */

static int check_pieces(const pd_conn *conn, const pd_prefix *prefix, Paramd__Piece *const *pieces, size_t n,
                        bool may_be_none, pd_error *err)
{
    const pd_daemon_config *config = &conn->daemon->config;

    if (n == 0 && !may_be_none)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s without pieces", pd_method_name(prefix->method));
    if (n > config->max_pieces)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%s of %zu pieces: at most %u are allowed in a frame "
                       "(limits.max_pieces)",
                       pd_method_name(prefix->method), n, config->max_pieces);
    return pd_pieces_check(pieces, n, conn->handles.facts, conn->handles.n, config->chunk_elements,
                           prefix->payload_bytes, err);
}

/* Makes the request to the store for a push or initial weights. Until the payload has arrived, the field `at` of each
 * piece is the offset of its data in the payload. */
static int fill_request(pd_conn *conn, const pd_prefix *prefix, pd_request_kind kind, Paramd__Piece *const *pieces,
                        size_t n, pd_error *err)
{
    pd_request *request = pd_request_new(kind, pd_conn_ticket(conn, conn->incoming.pending));

    if (request == NULL) return pd_conn_no_memory(prefix, err);
    conn->incoming.request = request;
    request->job = conn->job;
    request->rank = conn->rank;
    request->u.data.pieces = calloc(n + 1, sizeof *request->u.data.pieces);
    if (request->u.data.pieces == NULL) return pd_conn_no_memory(prefix, err);
    request->u.data.n = n;
    for (size_t i = 0; i < n; i++) {
        const Paramd__Piece *from = pieces[i];
        request->u.data.pieces[i] = (pd_piece){
            .param = conn->handles.params[from->handle],
            .dtype = (pd_dtype)from->dtype,
            .absent = from->absent,
            .first = (int64_t)from->first,
            .count = (int64_t)from->count,
            .at = (const void *)(uintptr_t)from->offset,
        };
    }
    return PD_OK;
}

/* Replaces the offset of each piece's data by its address, when the payload is complete. */
static void settle(pd_incoming *incoming)
{
    pd_request *request = incoming->request;
    uint8_t *base = incoming->buffer != NULL ? incoming->buffer->at : NULL;

    for (size_t i = 0; i < request->u.data.n; i++) {
        pd_piece *piece = &request->u.data.pieces[i];
        piece->at = piece->count > 0 ? base + (uintptr_t)piece->at : NULL;
    }
    request->u.data.buffer = incoming->buffer;
    incoming->buffer = NULL;
}

static void post(pd_conn *conn)
{
    pd_request *request = conn->incoming.request;

    settle(&conn->incoming);
    conn->incoming.request = NULL;
    pd_loop_post(conn->daemon, request);
}

/* ---- Initialise ---- */

static int check_init(Paramd__Piece *const *pieces, size_t n, pd_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (pieces[i]->absent)
            return pd_fail(err, PD_INVALID_ARGUMENT, "Initialise: piece %zu is absent: initial weights must be there",
                           i);
    return PD_OK;
}

int pd_prepare_init(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__InitRequest *init = message;
    int rc = check_pieces(conn, prefix, init->pieces, init->n_pieces, false, err);

    if (rc == PD_OK) rc = check_init(init->pieces, init->n_pieces, err);
    if (rc == PD_OK && (init->replaces == 0) != (init->whole == 0))
        rc = pd_fail(err, PD_INVALID_ARGUMENT,
                     "Initialise: weights that replace others come with the number of their change (replaces) and that "
                     "of their parameters (whole), initial weights without both");
    if (rc != PD_OK) return rc;
    conn->incoming.mark = init->mark;
    conn->incoming.pending = pd_pending_new(&conn->pendings, conn, prefix, 0);
    if (conn->incoming.pending == NULL) return pd_conn_no_memory(prefix, err);
    if ((rc = fill_request(conn, prefix, PD_REQ_INIT, init->pieces, init->n_pieces, err)) != PD_OK) return rc;
    conn->incoming.request->u.data.replaces = init->replaces;
    conn->incoming.request->u.data.step = init->step;
    conn->incoming.request->u.data.whole = init->whole;
    return PD_OK;
}

void pd_finish_init(pd_conn *conn)
{
    pd_pendings_add(&conn->pendings, conn->incoming.pending);
    conn->incoming.pending = NULL;
    post(conn);
}

/* ---- Push and PushPull ---- */

static int check_push(const Paramd__PushRequest *push, pd_error *err)
{
    if (push->step == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "push for step 0: the first step is 1");
    if (!(push->weight >= 0 && push->weight <= PD_WEIGHT_MOST))
        return pd_fail(err, PD_INVALID_ARGUMENT, "push with weight %g: expected a number of examples, 0 to %.0f",
                       push->weight, PD_WEIGHT_MOST);
    if (push->zero_weight && push->weight != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "push with weight %g and zero_weight: give one of them", push->weight);
    if (push->n_hypers > PD_MAX_OPTIONS)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "push with %zu hyperparameters: at most %d", push->n_hypers,
                       PD_MAX_OPTIONS);
    return PD_OK;
}

/* Checks the scalars of a push (values such as the loss, which the server averages), after its pieces were checked. The
 * scalars belong to the round of the first piece's parameter. It is an error if this rank has no elements of that
 * parameter, because the round does not wait for the rank. */
static int check_scalars(const pd_conn *conn, const Paramd__PushRequest *push, pd_error *err)
{
    const pd_handle_facts *facts;

    if (push->n_scalars == 0) return PD_OK;
    if (push->n_pieces == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "push with scalars and without pieces: they belong to the parameter "
                       "of the first piece");
    facts = &conn->handles.facts[push->pieces[0]->handle];
    if (facts->start == facts->end)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "push with scalars for the round of %.160s, of which this rank has no "
                       "elements: the round does not wait for it; begin the push with a parameter of which it has "
                       "some",
                       facts->name);
    return pd_scalars_check(push->scalars, push->n_scalars, err);
}

_Static_assert((int)PD_PUSH_SCALARS == PD_MAX_SCALARS && (int)PD_PUSH_SCALAR_NAME == PD_SCALAR_NAME_MAX,
               "the wire and the store bound scalars alike");

/* Copies the scalars of a push into the request to the store. They were checked before.
 * PD_NO_MEMORY: nothing is copied. */
static int copy_scalars(pd_request *request, const Paramd__PushRequest *push)
{
    if (push->n_scalars == 0) return PD_OK;
    if ((request->u.data.scalars = calloc(push->n_scalars, sizeof *request->u.data.scalars)) == NULL)
        return PD_NO_MEMORY;
    request->u.data.n_scalars = push->n_scalars;
    for (size_t i = 0; i < push->n_scalars; i++) {
        memcpy(request->u.data.scalars[i].name, push->scalars[i]->name, strlen(push->scalars[i]->name));
        request->u.data.scalars[i].value = push->scalars[i]->value;
    }
    return PD_OK;
}

static int fill_push(pd_conn *conn, const pd_prefix *prefix, const Paramd__PushRequest *push, pd_error *err)
{
    pd_request *request;
    int rc = fill_request(conn, prefix, PD_REQ_PUSH, push->pieces, push->n_pieces, err);

    if (rc != PD_OK) return rc;
    request = conn->incoming.request;
    request->u.data.step = push->step;
    request->u.data.weight = push->weight != 0 || push->zero_weight ? push->weight : 1;
    request->u.data.presummed = push->presummed;
    request->u.data.close_step = push->last;
    request->u.data.replaces = push->replaces;
    rc = pd_options_copy(&request->u.data.hypers, &request->u.data.n_hypers, push->hypers, push->n_hypers);
    if (rc == PD_OK) rc = copy_scalars(request, push);
    return rc == PD_OK ? PD_OK : pd_conn_no_memory(prefix, err);
}

/* Refuses a push that ends a step while the worker has not yet read that one of its earlier pushes was refused.
 * Otherwise the gradients of the refused push would count as absent without the worker's knowledge. */
static int check_close_step(const pd_conn *conn, const Paramd__PushRequest *push, pd_error *err)
{
    if (!push->last || push->mark >= conn->refused) return PD_OK;
    if (push->step <= conn->overdue.step) {
        *err = conn->overdue.error;
        return err->code;
    }
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "step %llu cannot be ended: a push of this connection was refused, and "
                   "its gradients would count as absent. Read the error, push it again, and end the step behind it",
                   (unsigned long long)push->step);
}

/* Returns whether the push was sent before and is sent again: the rounds of all its pieces are closed. The version
 * table answers such a push, and its payload is discarded. */
static bool is_retry(const pd_conn *conn, const pd_wait *wait)
{
    return pd_version_table_would_answer(conn->daemon->versions, conn->job, wait) && !PD_MUTANT(duplicate_counted);
}

int pd_prepare_push(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__PushRequest *push = message;
    pd_pending *pending;
    int rc = check_pieces(conn, prefix, push->pieces, push->n_pieces, push->last, err);

    if (rc == PD_OK) rc = check_push(push, err);
    if (rc == PD_OK) rc = check_scalars(conn, push, err);
    if (rc == PD_OK) rc = check_close_step(conn, push, err);
    if (rc != PD_OK) return rc;
    conn->incoming.mark = push->mark;
    pending = conn->incoming.pending = pd_pending_new(&conn->pendings, conn, prefix, push->n_pieces);
    if (pending == NULL) return pd_conn_no_memory(prefix, err);
    pending->wait.step = push->step;
    pending->wait.pushes = true;
    pending->wait.rank = conn->rank;
    pending->wait.all = push->last;
    for (size_t i = 0; i < push->n_pieces; i++) {
        const Paramd__Piece *piece = push->pieces[i];
        pd_piece_wait_fill(conn, &pending->wait.at[i],
                           (pd_piece_wanted){
                               .handle = piece->handle,
                               .first = piece->first,
                               .count = piece->count,
                               .holds = piece->holds,
                               .pulls = prefix->method == PD_PUSH_PULL && !piece->absent,
                           });
    }
    if ((rc = pd_piece_wait_check(conn, pending, err)) != PD_OK) return rc;
    return is_retry(conn, &pending->wait) ? PD_OK : fill_push(conn, prefix, push, err);
}

/* Puts the pieces of the push on the version table to wait for their rounds, then posts the contribution to the store.
 * In this order, no round can close before the version table knows who waits for it. */
void pd_finish_push(pd_conn *conn)
{
    pd_pending *pending = conn->incoming.pending;

    conn->incoming.pending = NULL;
    if (pd_version_table_wait(conn->daemon->versions, conn->job, &pending->wait)) {
        pd_conn_data_reply(conn, pending);
        if (PD_MUTANT(duplicate_counted) && conn->incoming.request != NULL) post(conn);
        return;
    }
    assert(conn->incoming.request != NULL);
    pd_pendings_add(&conn->pendings, pending);
    post(conn);
}
