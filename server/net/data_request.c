/* data_request.c - handles the requests for tensors: turns Initialise, Push and PushPull into requests to the store,
 * and puts Pull on the version table, which answers it when weights are new enough. */
#include "handlers.h"

#include "mutant.h"
#include "pieces.h"
#include "portion_handles.h"
#include "zeroed.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fills in the waiter of one piece of a request, except its fields `pulls` and `holds`. */
static void fill_waiter(const pd_conn *conn, pd_waiter *waiter, uint32_t handle, uint64_t first, uint64_t count)
{
    const pd_handles *handles = &conn->params.handles;

    waiter->param = handles->params[handle];
    waiter->dtype = handles->decls[handle].pull_dtype;
    waiter->update = handles->decls[handle].update_dtype;
    waiter->idle = handles->facts[handle].start == handles->facts[handle].end;
    waiter->first = (int64_t)first;
    waiter->count = (int64_t)count;
}

/* Checks that the answer to a push or pull fits into one frame. PD_RESOURCE_EXHAUSTED: its weights have more than
 * max_payload bytes. */
static int check_payload(const pd_conn *conn, const pd_pending *pending, pd_error *err)
{
    uint64_t bytes = pd_reply_payload_bytes(&pending->wait), most = conn->daemon->config.max_payload;

    if (bytes <= most) return PD_OK;
    return pd_fail(
        err, PD_RESOURCE_EXHAUSTED,
        "%s: the answer would have a payload of %llu bytes, at most %llu are allowed: ask for less in one frame",
        pd_method_name(pending->method), (unsigned long long)bytes, (unsigned long long)most);
}

static int check_pieces(const pd_conn *conn, const pd_prefix *prefix, Paramd__Piece *const *pieces, size_t n,
                        bool may_be_none, pd_error *err)
{
    const pd_daemon_config *config = &conn->daemon->config;

    if (n == 0 && !may_be_none)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s without pieces", pd_method_name(prefix->method));
    if (n > config->max_pieces)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%s of %zu pieces: at most %u are allowed in a frame (limits.max_pieces)",
                       pd_method_name(prefix->method), n, config->max_pieces);
    for (size_t i = 0; conn->params.shards > 1 && i < n; i++)
        if (pd_handle_check(conn, pieces[i]->handle, "piece", i, err) != PD_OK) return PD_INVALID_ARGUMENT;
    return pd_pieces_check(pieces, n, conn->params.handles.facts, conn->params.handles.n, config->chunk_elements,
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
    request->u.data.pieces = pd_zeroed((n + 1) * sizeof *request->u.data.pieces);
    if (request->u.data.pieces == NULL) return pd_conn_no_memory(prefix, err);
    request->u.data.n = n;
    for (size_t i = 0; i < n; i++) {
        const Paramd__Piece *from = pieces[i];
        request->u.data.pieces[i] = (pd_piece){
            .param = conn->params.handles.params[from->handle],
            .dtype = (pd_dtype)from->dtype,
            .absent = from->absent,
            .first = (int64_t)from->first,
            .count = (int64_t)from->count,
            .at = (const void *)(uintptr_t)from->offset,
        };
    }
    return PD_OK;
}

/* Replaces the offset of each piece's data by its address. Called when the payload is complete. */
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

/* Checks that pieces are absent only in a change of weights, and that `whole` fits: it counts the parameters of a
 * change that are not absent. */
static int check_init(const Paramd__InitRequest *init, pd_error *err)
{
    bool some = false; /* a piece has weights */

    for (size_t i = 0; i < init->n_pieces; i++) {
        if (init->pieces[i]->absent && init->replaces == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "Initialise: piece %zu is absent: initial weights are required",
                           i);
        some = some || !init->pieces[i]->absent;
    }
    if (init->replaces != 0 ? !some || init->whole != 0 : init->whole == 0) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "Initialise: expected both `replaces` and `whole` (weights that replace others), or neither "
                   "(initial weights)");
}

int pd_prepare_init(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__InitRequest *init = message;
    int rc = check_pieces(conn, prefix, init->pieces, init->n_pieces, false, err);

    if (rc == PD_OK) rc = check_init(init, err);
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

static int check_push(const Paramd__PushRequest *push, pd_error *err)
{
    if (push->step == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "push for step 0: the first step is 1");
    if (!(push->weight >= 0 && push->weight <= PD_WEIGHT_MOST))
        return pd_fail(err, PD_INVALID_ARGUMENT, "push with weight %g: expected a number of examples, 0 to %.0f",
                       push->weight, PD_WEIGHT_MOST);
    if (push->zero_weight && push->weight != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "push with weight %g and zero_weight: give one of them", push->weight);
    if (!(push->speed >= 0) || isinf(push->speed))
        return pd_fail(err, PD_INVALID_ARGUMENT, "push with speed %g: expected local steps per second, 0: not known",
                       push->speed);
    if (push->n_hypers > PD_MAX_OPTIONS)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "push with %zu hyperparameters: at most %d", push->n_hypers,
                       PD_MAX_OPTIONS);
    return PD_OK;
}

/* Checks the scalars of a push, after its pieces were checked. The scalars belong to the round of the first piece's
 * parameter. It is an error if this rank has no elements of that parameter, because the round does not wait for the
 * rank. */
static int check_scalars(const pd_conn *conn, const Paramd__PushRequest *push, pd_error *err)
{
    const pd_handle_facts *facts;

    if (push->n_scalars == 0) return PD_OK;
    if (push->n_pieces == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "push with scalars and without pieces: they belong to the parameter of the first piece");
    facts = &conn->params.handles.facts[push->pieces[0]->handle];
    if (facts->start == facts->end)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "push with scalars for the round of %.160s: this rank has no elements of it, so the round does "
                       "not wait for the rank. Put a parameter with elements of this rank first",
                       facts->name);
    return pd_scalars_check(push->scalars, push->n_scalars, err);
}

_Static_assert((int)PD_PUSH_SCALARS == PD_MAX_SCALARS && (int)PD_PUSH_SCALAR_NAME == PD_SCALAR_NAME_MAX,
               "the wire and the store have the same limits of scalars");

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
    request->u.data.patience_ns = push->patience_ms * UINT64_C(1000000);
    request->u.data.carried = push->carried;
    request->u.data.common = push->common;
    request->u.data.wants = push->wants;
    request->u.data.share = push->share;
    rc = pd_options_copy(&request->u.data.hypers, &request->u.data.n_hypers, push->hypers, push->n_hypers);
    if (rc == PD_OK) rc = copy_scalars(request, push);
    return rc == PD_OK ? PD_OK : pd_conn_no_memory(prefix, err);
}

/* Refuses a push that ends a step if the worker has not yet read the error of an earlier refused push. Otherwise the
 * gradients of the refused push would count as absent, and the worker would not know. */
static int check_close_step(const pd_conn *conn, const Paramd__PushRequest *push, pd_error *err)
{
    if (!push->last || push->mark >= conn->refused) return PD_OK;
    if (push->step <= conn->overdue.step) {
        *err = conn->overdue.error;
        return err->code;
    }
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "cannot end step %llu: a push of this connection was refused, and its gradients would count as "
                   "absent. Read the error, push again, then end the step",
                   (unsigned long long)push->step);
}

/* Notes which weights the pulls of a request get. */
static int choose_form(pd_pending *pending, const pd_prefix *prefix, uint32_t form, pd_error *err)
{
    pending->wait.evaluates = form == PD_FORM_EVAL;
    if (form <= PD_FORM_EVAL) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: unknown form %u: expected 0 (train) or 1 (eval)",
                   pd_method_name(prefix->method), form);
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
    if (push->speed > 0) conn->speed = push->speed;
    pending = conn->incoming.pending = pd_pending_new(&conn->pendings, conn, prefix, push->n_pieces);
    if (pending == NULL) return pd_conn_no_memory(prefix, err);
    pending->wait.step = pending->wait.pushed = push->step;
    pending->wait.pushes = true;
    pending->wait.unfiled = conn->files;
    pending->wait.rank = conn->rank;
    pending->wait.all = push->last;
    for (size_t i = 0; i < push->n_pieces; i++) {
        const Paramd__Piece *piece = push->pieces[i];
        pd_waiter *waiter = &pending->wait.at[i];
        fill_waiter(conn, waiter, piece->handle, piece->first, piece->count);
        waiter->holds = piece->holds;
        waiter->pulls = prefix->method == PD_PUSH_PULL && !piece->absent;
    }
    if ((rc = check_payload(conn, pending, err)) != PD_OK) return rc;
    if ((rc = choose_form(pending, prefix, push->form, err)) != PD_OK) return rc;
    /* If the rounds of all pieces are closed, the push was sent again: the version table answers it, and its payload is
     * discarded. */
    if (pd_version_table_would_answer(conn->daemon->versions, conn->job, &pending->wait) &&
        !PD_MUTANT(duplicate_counted))
        return PD_OK;
    return fill_push(conn, prefix, push, err);
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
    pd_pendings_add(&conn->pendings, pending);
    if (conn->incoming.request != NULL)
        post(conn);
    else
        assert(pending->wait.evaluates); /* the push was sent again, and waits only for the weights to evaluate with */
}

static int check_want(const pd_conn *conn, const Paramd__Want *want, size_t i, pd_error *err)
{
    uint64_t chunk = conn->daemon->config.chunk_elements;
    const pd_handle_facts *facts;
    int64_t count;

    if (want->handle >= conn->params.handles.n)
        return pd_fail(err, PD_INVALID_ARGUMENT, "want %zu: handle %u, but this connection has declared %zu parameters",
                       i, want->handle, conn->params.handles.n);
    if (pd_handle_check(conn, want->handle, "want", i, err) != PD_OK) return PD_INVALID_ARGUMENT;
    facts = &conn->params.handles.facts[want->handle];
    count = pd_range_piece(facts->start, facts->end, chunk, want->first);
    if (count < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "want %zu (%s): first element %llu, expected %lld, or a multiple of %llu between that and %lld",
                       i, facts->name, (unsigned long long)want->first, (long long)facts->start,
                       (unsigned long long)chunk, (long long)facts->end);
    if (want->count != (uint64_t)count)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "want %zu (%s): %llu elements from %llu, expected %lld: the whole chunk, or its part in the range", i,
            facts->name, (unsigned long long)want->count, (unsigned long long)want->first, (long long)count);
    return PD_OK;
}

static int check_wants(const pd_conn *conn, const Paramd__PullRequest *pull, pd_error *err)
{
    int rc = PD_OK;

    if (pull->n_wants == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "Pull without wants");
    if (pull->n_wants > conn->daemon->config.max_pieces)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "Pull of %zu chunks: at most %u are allowed in a frame (limits.max_pieces)", pull->n_wants,
                       conn->daemon->config.max_pieces);
    for (size_t i = 0; i < pull->n_wants && rc == PD_OK; i++) rc = check_want(conn, pull->wants[i], i, err);
    return rc == PD_OK ? pd_wants_check_distinct(pull->wants, pull->n_wants, conn->params.handles.facts, err) : rc;
}

/* Checks that the connection's open pulls do not take too much memory. A step pulls each piece once, so the limit has
 * space for two pulls of every piece.
 *
 * A pull beyond the limit is refused, and not held back: its round may need a push that this connection sends later. */
static int check_waiting(const pd_conn *conn, const pd_wait *wait, pd_error *err)
{
    uint64_t waiting = conn->pendings.pulling + pd_pending_bytes(wait->n);
    uint64_t most = PD_HIGH_WATER + 2 * conn->params.pieces * pd_pending_bytes(1);

    if (waiting <= most || (!wait->evaluates && pd_version_table_would_answer(conn->daemon->versions, conn->job, wait)))
        return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "Pull: the pulls of this connection that wait for rounds already take %llu bytes of memory, at most "
                   "%llu are allowed: wait for answers",
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
    pending->wait.rank = conn->rank;
    for (size_t i = 0; i < pull->n_wants; i++) {
        const Paramd__Want *want = pull->wants[i];
        pd_waiter *waiter = &pending->wait.at[i];
        fill_waiter(conn, waiter, want->handle, want->first, want->count);
        waiter->holds = want->holds;
        waiter->pulls = true;
    }
    if ((rc = check_payload(conn, pending, err)) != PD_OK ||
        (rc = choose_form(pending, prefix, pull->form, err)) != PD_OK ||
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

int pd_run_release(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__ReleaseRequest *release = message;
    pd_outstanding *list = &conn->output.outstanding;
    bool more = PD_MUTANT(release_one_more) && release->answers < list->n;
    Paramd__Ok ok = PARAMD__OK__INIT;
    pd_pending *answer;

    if (release->answers > list->n)
        return pd_fail(err, PD_OUT_OF_RANGE, "Release of %llu answers: %llu are outstanding",
                       (unsigned long long)release->answers, (unsigned long long)list->n);
    answer = pd_outstanding_take(list, release->answers + more, pd_loop_now_ms(conn->daemon));
    while (answer != NULL) {
        pd_pending *next = answer->next_reply;
        pd_version_table_forget(conn->daemon->versions, &answer->wait);
        pd_pending_free(answer);
        answer = next;
    }
    pd_conn_reply(conn, prefix, &ok.base);
    return PD_OK;
}
