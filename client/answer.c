/* What the server says: welcomes, declarations, outcomes with weights, errors. */
#include "scalars.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"

/* The server breaks the protocol: there is no use in asking it again. */
static int broken(pd_core *core, const pd_prefix *prefix, const char *what)
{
    pd_error error;

    pd_fail(&error, PD_INTERNAL, "the server's answer to %s (request %" PRIu64 "): %s", pd_method_name(prefix->method), prefix->request, what);
    pd_core_end(core, &error);
    return PD_INTERNAL;
}

/* Unpacks a reply into the arena. Without memory the connection ends, and what it owes is asked again. */
static int unpack(pd_core *core, const pd_prefix *prefix, const uint8_t *header, void **reply)
{
    pd_error error;
    int rc;

    pd_arena_reset(core->arena);
    rc = pd_reply_unpack(core->arena, prefix->method, header, prefix->header_bytes, reply, &error);
    if (rc == PD_NO_MEMORY) pd_core_drop(core, error.text);
    return rc == PD_OK || rc == PD_NO_MEMORY ? rc : broken(core, prefix, error.text);
}

static bool has_weights(unsigned method)
{
    return method == PD_PULL || method == PD_PUSH_PULL;
}

static bool has_outcomes(unsigned method)
{
    return has_weights(method) || method == PD_PUSH;
}

/* ---- before the payload: where it lands ---- */

/* Nobody waits for it: read and thrown away. */
static int discard(pd_core *core, const pd_prefix *prefix, struct iovec **spans, size_t *n)
{
    core->bench->landing[0] = (struct iovec){ NULL, prefix->payload_bytes };
    *spans = core->bench->landing;
    *n = prefix->payload_bytes > 0 ? 1 : 0;
    return PD_OK;
}

static pd_known *known_of(const pd_core *core, const pd_parcel *parcel, size_t part)
{
    return &core->params[parcel->op->items[parcel->parts[part].item].param];
}

/* What the server sends of a part: weights, or an update of them. */
static size_t sent_bytes(const pd_core *core, const pd_parcel *parcel, size_t part)
{
    size_t bytes = parcel->parts[part].bytes;

    if (bytes == 0 || !core->reply->outcomes[part]->update) return bytes;
    return bytes / sizeof(float) * pd_dtype_size(known_of(core, parcel, part)->update);
}

/* Room for the answer's updates; whether they were asked for. */
static int take_updates(pd_core *core, const pd_prefix *prefix, const pd_parcel *parcel, uint64_t *payload)
{
    uint64_t room = 0;

    *payload = 0;
    for (size_t i = 0; i < parcel->n_parts; i++) {
        bool update = core->reply->outcomes[i]->update;
        if (update && (parcel->parts[i].bytes == 0 || known_of(core, parcel, i)->update == 0)) return broken(core, prefix, "an update that was not asked for");
        if (sent_bytes(core, parcel, i) > 0) *payload = pd_piece_end(*payload, 0) + sent_bytes(core, parcel, i);
        if (update) room += sent_bytes(core, parcel, i);
    }
    if (room > core->updates_room) {
        uint8_t *more = realloc(core->updates, room);
        if (more == NULL) {
            pd_core_drop(core, "out of memory");
            return PD_NO_MEMORY;
        }
        core->updates = more;
        core->updates_room = room;
    }
    return PD_OK;
}

/* Weights and updates, each at the next multiple of 64; what lies between, and after the last one, is of no use. */
static size_t land(pd_core *core, const pd_parcel *parcel, uint64_t payload_bytes)
{
    struct iovec *iov = core->bench->landing;
    uint64_t offset = 0;
    size_t n = 0, used = 0;

    for (size_t i = 0; i < parcel->n_parts; i++) {
        uint64_t start = pd_piece_end(offset, 0);
        size_t bytes = sent_bytes(core, parcel, i);
        bool update = core->reply->outcomes[i]->update;

        if (bytes == 0) continue;
        if (start > offset) iov[n++] = (struct iovec){ NULL, start - offset };
        iov[n++] = (struct iovec){ update ? core->updates + used : parcel->parts[i].land, bytes };
        offset = start + bytes;
        if (update) used += bytes;
    }
    if (payload_bytes > offset) iov[n++] = (struct iovec){ NULL, payload_bytes - offset };
    return n;
}

static int has_length(pd_core *core, const pd_prefix *prefix, uint64_t expected)
{
    if (prefix->payload_bytes == expected || prefix->payload_bytes == pd_piece_end(expected, 0)) return PD_OK;
    return broken(core, prefix, "its payload has not the length of what was asked");
}

int pd_core_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    pd_core *core = arg;
    pd_parcel *parcel = pd_outgoing_find(&core->out, prefix->request);
    uint64_t payload;
    void *reply;
    int rc;

    core->reply = NULL;
    if (core->ended.code != PD_OK) return core->ended.code;
    if (core->stage == STAGE_DROP) return PD_CANCELLED;         /* what comes now may be about a job that was started anew meanwhile */
    if ((prefix->flags & PD_FLAG_REPLY) == 0 && (prefix->flags & PD_FLAG_ERROR) == 0) return broken(core, prefix, "not marked as an answer");
    if (parcel == NULL || parcel->answered || (prefix->flags & PD_FLAG_ERROR) != 0) return discard(core, prefix, spans, n);
    if (parcel->method != prefix->method) return broken(core, prefix, "another method than was asked");
    if (!has_outcomes(parcel->method)) return has_length(core, prefix, parcel->reply_bytes);
    if (parcel->op == NULL) return discard(core, prefix, spans, n);
    if ((rc = unpack(core, prefix, header, &reply)) != PD_OK) return rc;
    core->reply = reply;
    if (core->reply->n_outcomes != parcel->n_parts) return broken(core, prefix, "not one outcome for each piece");
    if ((rc = take_updates(core, prefix, parcel, &payload)) != PD_OK) return rc;
    if ((rc = has_length(core, prefix, payload)) != PD_OK) return rc;
    *spans = core->bench->landing;
    *n = land(core, parcel, prefix->payload_bytes);
    return PD_OK;
}

/* ---- welcome ---- */

/* Once a welcome was had, a server that is full or going away is waited for; before, only one that is going away. */
static bool worth_waiting(const pd_core *core, int code)
{
    if (code == PD_UNAVAILABLE) return true;
    return core->greeted && (code == PD_RESOURCE_EXHAUSTED || code == PD_INTERNAL || code == PD_UNKNOWN || code == PD_DEADLINE_EXCEEDED);
}

/* Handles "no such job". A process that restarts the job tries again: rank 0 may not have created it yet. */
static void no_job(pd_core *core)
{
    char reason[PD_ERROR_TEXT];

    snprintf(reason, sizeof reason, "the server has no job %.200s yet: rank 0 starts it anew with pd_client_restart", core->job);
    if (core->restarting) pd_core_drop(core, reason);
    else pd_core_lose_job(core);
}

static int refused(pd_core *core, const pd_error *error)
{
    if (error->code == PD_NOT_FOUND && core->rejoins) no_job(core);
    else if (worth_waiting(core, error->code)) pd_core_drop(core, error->text);
    else pd_core_end(core, error);
    return PD_OK;
}

static int settle(pd_core *core, pd_ticket_id ticket, const pd_error *error)
{
    pd_op *op = pd_op_find(core, ticket);

    if (op == NULL || op->done) return PD_OK;
    if (error != NULL) pd_op_fail(op, error);
    op->done = true;
    return PD_OK;
}

static void note_welcome(pd_core *core, const Paramd__HelloReply *reply)
{
    pd_welcome *welcome = &core->welcome;

    welcome->seed = reply->seed;
    welcome->created = reply->created;
    welcome->rank = (int)core->rank;
    welcome->world_size = (int)core->world_size;
    welcome->chunk_elements = reply->chunk_elements;
    welcome->max_payload = reply->max_payload;
    strncpy(welcome->server, reply->server, sizeof welcome->server - 1);
    strncpy(welcome->blas_core, reply->blas_core, sizeof welcome->blas_core - 1);
    core->max_pieces = reply->max_pieces < MAX_PIECES ? reply->max_pieces : MAX_PIECES;
    core->creator = reply->creator;
    core->greeted = true;
}

/* Frames that are kept were cut to the chunks of the first welcome. */
static int check_welcome(pd_core *core, const pd_prefix *prefix, const Paramd__HelloReply *reply)
{
    pd_error error;

    if (reply->protocol != PD_PROTOCOL_VERSION) {
        pd_fail(&error, PD_FAILED_PRECONDITION, "the server speaks protocol version %u, this library %d", reply->protocol, PD_PROTOCOL_VERSION);
        pd_core_end(core, &error);
        return PD_FAILED_PRECONDITION;
    }
    if (core->job[0] != '\0' && (reply->chunk_elements == 0 || reply->chunk_elements > INT64_MAX / 8 || reply->max_pieces == 0))
        return broken(core, prefix, "it gives no chunk size");
    if (!core->greeted || core->restarting || reply->chunk_elements == core->welcome.chunk_elements) return PD_OK;
    pd_fail(&error, PD_FAILED_PRECONDITION, "the server came back with chunks of %" PRIu64 " elements, before they had %" PRIu64,
            reply->chunk_elements, core->welcome.chunk_elements);
    pd_core_end(core, &error);
    return PD_FAILED_PRECONDITION;
}

/* Returns whether the server has a different job under this name than the one that this process was in. */
static bool is_another_job(const pd_core *core, const Paramd__HelloReply *reply)
{
    return core->rejoins && !core->restarting && core->creator != 0 && reply->creator != core->creator;
}

static int welcomed(pd_core *core, const pd_prefix *prefix, const uint8_t *header)
{
    void *unpacked;
    const Paramd__HelloReply *reply;
    int rc = unpack(core, prefix, header, &unpacked);

    if (rc != PD_OK) return rc;
    reply = unpacked;
    if (is_another_job(core, reply)) {
        pd_core_lose_job(core);
        return PD_OK;
    }
    if ((rc = check_welcome(core, prefix, reply)) != PD_OK) return rc;
    note_welcome(core, reply);
    core->welcomed = true;
    core->attempts = 0;
    core->reason[0] = '\0';
    if (reply->heartbeat_ms > 0) core->heartbeat_ns = reply->heartbeat_ms * UINT64_C(1000000);
    if (reply->timeout_ms > 0) core->timeout_ns = reply->timeout_ms * UINT64_C(1000000);
    core->stage = STAGE_WELCOMED;
    settle(core, core->welcome_ticket, NULL);
    if (core->params != NULL && pd_core_send_declare(core) != PD_OK) {
        pd_core_drop(core, "out of memory");
        return PD_OK;
    }
    core->out.open = core->params == NULL;
    return PD_OK;
}

/* ---- declarations ---- */

/* The first time the user is told, and may declare anew on a fresh connection; after a reconnect the handle is at its end. */
static int declare_refused(pd_core *core, const pd_error *error)
{
    if (core->declared) return refused(core, error);
    if (error->code == PD_UNAVAILABLE) {
        pd_core_drop(core, error->text);
        return PD_OK;
    }
    settle(core, core->declare_ticket, error);
    pd_core_forget_params(core);
    pd_core_drop(core, error->text);
    return PD_OK;
}

static bool all_initialised(const pd_core *core, const pd_parcel *parcel)
{
    for (size_t i = 0; i < parcel->n_parts; i++)
        if (!core->params[parcel->op->items[parcel->parts[i].item].param].initialised) return false;
    return true;
}

/* The frame needs no answer any more. Its operation waits until its bytes have left: they are the caller's memory. */
static void retire(pd_core *core, pd_parcel *parcel)
{
    pd_op *op = parcel->op;

    if (pd_outgoing_retire(&core->out, parcel)) pd_op_answered(core, op);
}

/* Initial weights whose answer was lost with the last connection have arrived: the server would refuse them now. */
static void retire_initialised(pd_core *core)
{
    for (pd_parcel *parcel = core->out.lane[PD_LANE_LASTING].first, *next; parcel != NULL; parcel = next) {
        pd_op *op = parcel->op;

        next = parcel->next;
        if (op == NULL || parcel->answered || parcel->method != PD_INIT || !all_initialised(core, parcel)) continue;
        retire(core, parcel);
    }
}

/* Each once: whoever reads a note may keep it. */
static int keep_notes(const pd_core *core, size_t first, const Paramd__DeclareReply *reply)
{
    for (size_t i = 0; i < reply->n_parameters; i++) {
        pd_known *known = &core->params[first + i];
        const char *note = reply->parameters[i]->note;
        if (known->note == NULL && note[0] != '\0' && (known->note = strdup(note)) == NULL) return PD_NO_MEMORY;
    }
    return PD_OK;
}

static void note_declared(pd_core *core, size_t first, const Paramd__DeclareReply *reply)
{
    for (size_t i = 0; i < reply->n_parameters; i++) {
        core->params[first + i].step = reply->parameters[i]->step;
        core->params[first + i].initialised = reply->parameters[i]->initialised;
    }
    core->must_init = reply->must_init;
    core->averages_init = reply->averages_init;
}

static int all_declared(pd_core *core)
{
    core->declared = true;
    core->restarting = false;
    core->stage = STAGE_RUNNING;
    retire_initialised(core);
    core->out.open = true;
    return settle(core, core->declare_ticket, NULL);
}

/* The server knows less of a parameter than this process: it is not the job that it was. */
static bool is_behind(const pd_core *core, size_t first, const Paramd__DeclareReply *reply)
{
    for (size_t i = 0; i < reply->n_parameters; i++) {
        const pd_known *known = &core->params[first + i];
        if (known->initialised && (!reply->parameters[i]->initialised || reply->parameters[i]->step < known->step)) return true;
    }
    return false;
}

/* Of `count` parameters from `first` on. */
static int declared(pd_core *core, size_t first, size_t count, const pd_prefix *prefix, const uint8_t *header)
{
    Paramd__DeclareReply *reply;
    void *message;
    int rc = unpack(core, prefix, header, &message);

    if (rc != PD_OK) return rc;
    reply = message;
    if (reply->n_parameters != count) return broken(core, prefix, "not one entry for each parameter");
    if (is_behind(core, first, reply)) {
        pd_core_lose_job(core);
        return PD_OK;
    }
    if (keep_notes(core, first, reply) != PD_OK) {
        pd_core_drop(core, "out of memory");
        return PD_OK;
    }
    note_declared(core, first, reply);
    return --core->declares_waiting == 0 ? all_declared(core) : PD_OK;
}

/* ---- answers to the user's operations ---- */

/* The round is closed without a step: the ticket tells, once all of it is answered. */
static void note_refused_step(pd_op *op, const pd_known *known, const Paramd__Outcome *outcome)
{
    pd_error error;

    if (outcome->why[0] != '\0') pd_fail(&error, PD_FAILED_PRECONDITION, "%s", outcome->why);
    else pd_fail(&error, PD_FAILED_PRECONDITION, "parameter %.160s: its optimizer has refused step %" PRIu64, known->name, outcome->step);
    pd_op_fail(op, &error);
}

/* Adds an update to the weights that it builds on, rounded once, as the server did. */
static void add_update(float *weights, const uint8_t *update, pd_dtype dtype, size_t n)
{
    float some[1024];

    for (size_t first = 0; first < n; first += sizeof some / sizeof *some) {
        size_t count = n - first < sizeof some / sizeof *some ? n - first : sizeof some / sizeof *some;
        pd_convert(some, PD_F32, update + first * pd_dtype_size(dtype), dtype, (int64_t)count);
        for (size_t i = 0; i < count; i++) weights[first + i] += some[i];
    }
}

/* Which version the caller's buffer has of the part's chunk from now on. Without memory nobody knows: weights come whole. */
static void note_held(pd_core *core, pd_known *known, const pd_part *part, const void *buffer, uint64_t version)
{
    uint64_t chunk = core->welcome.chunk_elements;
    uint64_t first = (uint64_t)known->start + (uint64_t)((const float *)part->land - (const float *)buffer);

    if (known->holds == NULL) known->holds = calloc((uint64_t)known->end / chunk + 1, sizeof *known->holds);
    if (known->holds != NULL) known->holds[first / chunk] = 1 + version;
}

static void take_weights(pd_core *core, const pd_parcel *parcel)
{
    size_t used = 0;

    for (size_t i = 0; i < parcel->n_parts; i++) {
        const pd_part *part = &parcel->parts[i];
        pd_known *known = known_of(core, parcel, i);
        if (part->bytes == 0 || known->update == 0) continue;
        if (core->reply->outcomes[i]->update) {
            add_update(part->land, core->updates + used, known->update, part->bytes / sizeof(float));
            used += sent_bytes(core, parcel, i);
        }
        note_held(core, known, part, parcel->op->items[part->item].weights, core->reply->outcomes[i]->version);
    }
}

/* Outcomes go to the items. A pull beside a push (for an item without gradient) tells no outcome of its own. */
static void note_outcomes(pd_core *core, const pd_parcel *parcel)
{
    pd_item *items = parcel->op->items;

    for (size_t i = 0; i < parcel->n_parts; i++) {
        const Paramd__Outcome *outcome = core->reply->outcomes[i];
        pd_item *item = &items[parcel->parts[i].item];
        pd_known *known = &core->params[item->param];

        if (item->outcome >= 0 && parcel->method == parcel->op->method) item->outcome = (int)outcome->outcome;
        if (outcome->outcome == PD_OUTCOME_REFUSED) note_refused_step(parcel->op, known, outcome);
        item->step = outcome->step;
        item->version = outcome->version;
        if (outcome->step > known->step) known->step = outcome->step;
        known->initialised = true;
        if (parcel->parts[i].item == parcel->op->bearer && outcome->step == known->pushed) pd_scalars_note(parcel->op, outcome);
        core->stats.payload_in += sent_bytes(core, parcel, i);
    }
}

/* This rank's step has ended and its rounds are closed, those of parameters too of which it has sent nothing. */
static void note_closed(pd_core *core, uint64_t step)
{
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].step < step) core->params[i].step = step;
}

/* The server has some initial weights of this rank. Chunks of the same parameters may still be refused. */
static void note_given(pd_core *core, const pd_parcel *parcel)
{
    for (size_t i = 0; i < parcel->n_parts; i++) known_of(core, parcel, i)->given = true;
}

/* Returns whether a gradient of the step that is being closed was refused: it would count as absent. */
static bool closes_unheard(const pd_core *core)
{
    for (size_t i = 0; core->closing > 0 && i < core->n_params; i++)
        if (core->params[i].refused == core->closing) return true;
    return false;
}

/* Withdraws the request that closes a step, where a push of that step was refused. Sent again on a new connection, where the
 * server has no record of the refusal, it would make the refused gradient count as absent. */
static void withdraw_closing(pd_core *core, const pd_error *error)
{
    pd_parcel *parcel = core->out.lane[PD_LANE_LASTING].last;

    if (!closes_unheard(core)) return;
    while (parcel != NULL && (parcel->op == NULL || parcel->answered || parcel->op->closes == 0)) parcel = parcel->prev;
    if (parcel == NULL) return;
    pd_op_fail(parcel->op, error);
    retire(core, parcel);
}

static void note_refusal(pd_core *core, pd_parcel *parcel, const pd_error *error)
{
    bool pushed = pd_method_pushes(parcel->op->method);

    if (parcel->method == PD_BARRIER) core->barriers--;         /* the server has not counted it */
    pd_op_fail(parcel->op, error);
    for (size_t i = 0; i < parcel->n_parts; i++) {
        parcel->op->items[parcel->parts[i].item].outcome = error->code;
        if (pushed) known_of(core, parcel, i)->refused = known_of(core, parcel, i)->pushed;
    }
}

static bool all_refused(const pd_parcel *parcel)
{
    for (size_t i = 0; i < parcel->n_parts; i++)
        if (parcel->op->items[parcel->parts[i].item].outcome >= 0) return false;
    return parcel->n_parts > 0;
}

/* Frames that only concern refused items need no answer: the rest of a tensor one of whose chunks was refused would
 * wait for a round that cannot close before it is pushed again. */
static void abandon_refused(pd_core *core, pd_op *op)
{
    for (pd_parcel *parcel = core->out.lane[PD_LANE_LASTING].first, *next; parcel != NULL; parcel = next) {
        next = parcel->next;
        if (parcel->op == op && !parcel->answered && all_refused(parcel)) retire(core, parcel);
    }
}

void pd_core_abandon(pd_core *core, pd_op *op)
{
    pd_error error = op->error;

    for (pd_parcel *parcel = core->out.lane[PD_LANE_LASTING].first, *next; parcel != NULL; parcel = next) {
        next = parcel->next;
        if (parcel->op != op || parcel->answered) continue;
        note_refusal(core, parcel, &error);
        retire(core, parcel);
    }
    withdraw_closing(core, &error);
}

static void note_error(pd_core *core, pd_op *op, const pd_error *error)
{
    abandon_refused(core, op);
    withdraw_closing(core, error);
    if (op->done || op->hopeless) return;
    op->hopeless = true;
    core->give_up_ns = 0;
}

static int keep_reply(pd_op *op, const pd_prefix *prefix, const uint8_t *header)
{
    static const pd_error no_memory = { PD_NO_MEMORY, "out of memory" };

    if ((op->reply = malloc(prefix->header_bytes + 1)) == NULL) {
        pd_op_fail(op, &no_memory);
        return PD_OK;
    }
    memcpy(op->reply, header, prefix->header_bytes);
    op->reply_bytes = prefix->header_bytes;
    return PD_OK;
}

static void left(pd_core *core)
{
    pd_error error;

    pd_fail(&error, PD_FAILED_PRECONDITION, "this worker has left the job");
    pd_core_end(core, &error);
}

/* A server that drains takes no new step: the request is kept, and goes to the one that comes after. */
static int later(pd_core *core, const pd_error *error)
{
    snprintf(core->reason, sizeof core->reason, "%s", error->text);
    return PD_OK;
}

static int answered(pd_core *core, pd_parcel *parcel, const pd_prefix *prefix, const uint8_t *header, const pd_error *error)
{
    pd_op *op = parcel->op;
    unsigned method = parcel->method;

    if (op == NULL) return PD_OK;
    if (error != NULL && error->code == PD_UNAVAILABLE && method < PD_STATUS) return later(core, error);
    if (error != NULL) note_refusal(core, parcel, error);
    else if (has_outcomes(method)) {
        take_weights(core, parcel);
        note_outcomes(core, parcel);
    }
    else if (method == PD_INIT) note_given(core, parcel);
    else if (method >= PD_STATUS) keep_reply(op, prefix, header);
    if (error == NULL) note_closed(core, op->closes);
    retire(core, parcel);
    if (error != NULL) note_error(core, op, error);
    else if (method == PD_LEAVE) left(core);
    return PD_OK;
}

/* An error that answers no request: about the connection. */
static int about_connection(pd_core *core, const pd_error *error)
{
    bool passing = error->code == PD_UNAVAILABLE || error->code == PD_DATA_LOSS || error->code == PD_DEADLINE_EXCEEDED
                   || (core->greeted && error->code == PD_RESOURCE_EXHAUSTED);

    if (passing) pd_core_drop(core, error->text);
    else pd_core_end(core, error);
    return PD_OK;
}

int pd_core_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    pd_core *core = arg;
    pd_parcel *parcel = pd_outgoing_find(&core->out, prefix->request);
    unsigned method = parcel != NULL ? parcel->method : PD_METHODS;
    pd_error error, *refusal = NULL;
    size_t first, count;

    if ((prefix->flags & PD_FLAG_ERROR) != 0) {
        pd_arena_reset(core->arena);
        pd_message_marked_error(core->arena, header, prefix->header_bytes, &error, &core->mark);
        refusal = &error;
    }
    if (parcel != NULL && parcel->answered) return PD_OK;       /* a second answer, or one that nobody waits for */
    if (parcel == NULL) return refusal != NULL && prefix->request == 0 ? about_connection(core, refusal) : PD_OK;    /* or a sign of life */
    if (parcel->lane == PD_LANE_LASTING) return answered(core, parcel, prefix, header, refusal);
    first = parcel->first;
    count = parcel->count;
    pd_outgoing_remove(&core->out, parcel);
    if (method == PD_HELLO) return refusal != NULL ? refused(core, refusal) : welcomed(core, prefix, header);
    if (method == PD_DECLARE) return refusal != NULL ? declare_refused(core, refusal) : declared(core, first, count, prefix, header);
    return PD_OK;
}
