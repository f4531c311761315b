/* answer.c - receives answers: chooses the memory for their payload, stores results and weights, and ends calls. */
#include "answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "notice.h"
#include "convert.h"
#include "pages.h"
#include "core.h"
#include "call.h"
#include "pieces.h"
#include "follow.h"
#include "recoveries.h"
#include "leased.h"
#include "settle_relay.h"
#include "sharing.h"
#include "join.h"
#include "window.h"

/* Bytes that are hashed and copied at a time. */
enum { COPY_SLICE = 256 * 1024 };

/* Returns whether answers to this method carry the outcomes of rounds, for instance "step taken" or "skipped". */
static bool has_outcomes(unsigned method)
{
    return method == PD_PUSH || method == PD_PULL || method == PD_PUSH_PULL;
}

/* Returns how many payload bytes the answer that is being received has for tensor or chunk number `piece` of the sent
 * frame: the bytes of its weights, or of their update. */
static size_t piece_bytes(const pd_core *core, const pd_outgoing_frame *frame, size_t piece)
{
    size_t bytes = frame->pieces[piece].bytes;

    if (bytes == 0 || !core->receive.message->outcomes[piece]->update) return bytes;
    return bytes / sizeof(float) * pd_dtype_size(pd_piece_record(core, frame, piece)->update);
}

/* Returns whether the answer's bytes for piece number `piece` are received in the core's buffer: updates, and all
 * weights for a frame that was sent again from the window. Other weights are received in the caller's memory. */
static bool is_buffered(const pd_core *core, const pd_outgoing_frame *frame, size_t piece)
{
    return core->receive.message->outcomes[piece]->update || frame->source != NULL;
}

/* Makes the framer read the payload of an answer and discard it, because no call of the user waits for this answer. */
static int discard(pd_core *core, const pd_prefix *prefix, struct iovec **spans, size_t *n)
{
    core->scratch->landing[0] = (struct iovec){ NULL, prefix->payload_bytes };
    *spans = core->scratch->landing;
    *n = prefix->payload_bytes > 0 && (prefix->flags & PD_FLAG_SHARED) == 0 ? 1 : 0;
    return PD_OK;
}

/* Makes the core's buffer for received bytes at least `bytes` bytes large. */
static int make_room(pd_core *core, uint64_t bytes)
{
    uint8_t *more;

    if (bytes <= core->receive.room) return PD_OK;
    if ((more = realloc(core->receive.buffer, bytes)) == NULL) {
        pd_core_drop(core, "out of memory");
        return PD_NO_MEMORY;
    }
    core->receive.buffer = more;
    core->receive.room = bytes;
    return PD_OK;
}

/* Checks the updates in an answer. The answer breaks the protocol if the client did not ask for the update. Makes room
 * for what is buffered, and sets *payload to the number of payload bytes that the answer must have. */
static int take_updates(pd_core *core, const pd_prefix *prefix, const pd_outgoing_frame *frame, uint64_t *payload)
{
    uint64_t room = 0;

    *payload = 0;
    for (size_t i = 0; i < frame->n_pieces; i++) {
        bool update = core->receive.message->outcomes[i]->update;
        size_t bytes = piece_bytes(core, frame, i);
        if (update && (frame->pieces[i].bytes == 0 || pd_piece_record(core, frame, i)->update == 0))
            return pd_reply_broken(core, prefix, "an update that was not requested");
        if (bytes > 0) *payload = pd_piece_end(*payload, 0) + bytes;
        if (is_buffered(core, frame, i)) room += bytes;
    }
    return make_room(core, room);
}

/* Lists the memory that receives the answer's payload. Weights go to the caller's buffers, updates and weights that
 * nobody waits for to the core's buffer. In the payload each tensor or chunk begins at a multiple of 64 bytes; the
 * padding between them is discarded. Returns the number of list entries. */
static size_t land(pd_core *core, const pd_outgoing_frame *frame, uint64_t payload_bytes)
{
    struct iovec *iov = core->scratch->landing;
    uint64_t offset = 0;
    size_t n = 0, used = 0;

    for (size_t i = 0; i < frame->n_pieces; i++) {
        uint64_t start = pd_piece_end(offset, 0);
        size_t bytes = piece_bytes(core, frame, i);
        bool buffered = is_buffered(core, frame, i);

        if (bytes == 0) continue;
        if (start > offset) iov[n++] = (struct iovec){ NULL, start - offset };
        iov[n++] = (struct iovec){ buffered ? core->receive.buffer + used : frame->pieces[i].land, bytes };
        if (!buffered) pd_piece_record(core, frame, i)->landed = true;
        offset = start + bytes;
        if (buffered) used += bytes;
    }
    if (payload_bytes > offset) iov[n++] = (struct iovec){ NULL, payload_bytes - offset };
    return n;
}

/* Lists the weights and updates that the answer has in shared memory, and where they are copied. PD_INTERNAL: one of
 * them does not lie in the server's segment. */
static int land_shared(pd_core *core, const pd_prefix *prefix, const pd_outgoing_frame *frame)
{
    const pd_segment *weights = &core->sharing.weights;
    size_t used = 0;

    for (size_t i = 0; i < frame->n_pieces; i++) {
        const Paramd__Outcome *outcome = core->receive.message->outcomes[i];
        size_t bytes = piece_bytes(core, frame, i);

        if (bytes == 0) continue;
        if (outcome->place >= weights->bytes || bytes > weights->bytes - outcome->place)
            return pd_reply_broken(core, prefix, "its weights are outside the shared memory");
        core->scratch->copy[core->receive.n_copies++] = (pd_copy){
            .to = is_buffered(core, frame, i) ? core->receive.buffer + used : frame->pieces[i].land,
            .from = weights->at + outcome->place,
            .bytes = bytes,
        };
        core->stats.shared_in += bytes;
        if (!is_buffered(core, frame, i)) pd_piece_record(core, frame, i)->landed = true;
        if (is_buffered(core, frame, i)) used += bytes;
    }
    return PD_OK;
}

/* Copies one piece, COPY_SLICE bytes at a time, and hashes these bytes while they are in the cache. The copy bypasses
 * the cache, so to hash the copy afterwards would read it from memory. */
static void copy_and_hash(pd_core *core, const pd_copy *copy)
{
    for (size_t at = 0, n; at < copy->bytes; at += n) {
        const uint8_t *from = (const uint8_t *)copy->from + at;

        n = copy->bytes - at < COPY_SLICE ? copy->bytes - at : COPY_SLICE;
        pd_core_digest(core, from, n);
        pd_copy_bytes((uint8_t *)copy->to + at, from, n);
    }
}

void pd_core_copy(pd_core *core)
{
    for (size_t i = 0; i < core->receive.n_copies; i++) copy_and_hash(core, &core->scratch->copy[i]);
}

static int has_length(pd_core *core, const pd_prefix *prefix, uint64_t expected)
{
    if (prefix->payload_bytes == expected || prefix->payload_bytes == pd_piece_end(expected, 0)) return PD_OK;
    return pd_reply_broken(core, prefix, "its payload length does not match the request");
}

/* Receives the payload of the answer to an operator's request in the core's buffer. Answers to other methods must have
 * no payload. */
static int land_whole(pd_core *core, const pd_prefix *prefix, const pd_outgoing_frame *frame, struct iovec **spans,
                      size_t *n)
{
    int rc = has_length(core, prefix, frame->op != NULL ? frame->op->payload_bytes : 0);

    if (rc == PD_OK && prefix->payload_bytes > 0 && (prefix->flags & PD_FLAG_SHARED) != 0)
        rc = pd_reply_broken(core, prefix, "a payload in shared memory without weights");
    if (rc == PD_OK) rc = make_room(core, prefix->payload_bytes);
    if (rc != PD_OK || prefix->payload_bytes == 0) return rc;
    core->scratch->landing[0] = (struct iovec){ core->receive.buffer, prefix->payload_bytes };
    *spans = core->scratch->landing;
    *n = 1;
    return PD_OK;
}

/* Checks that an answer with this prefix may come now. PD_CANCELLED: the connection is being dropped. */
static int check_prefix(pd_core *core, const pd_prefix *prefix)
{

    if (core->end.error.code != PD_OK) return core->end.error.code;
    /* The core is dropping this connection. Its answers are not used: they may belong to a job that is lost. */
    if (core->link.stage == STAGE_DROP) return PD_CANCELLED;
    if ((prefix->flags & PD_FLAG_REPLY) == 0 && (prefix->flags & PD_FLAG_ERROR) == 0)
        return pd_reply_broken(core, prefix, "not marked as a reply");
    if ((prefix->flags & PD_FLAG_SHARED) != 0 && core->sharing.weights.at == NULL)
        return pd_reply_broken(core, prefix, "in shared memory, but none is shared on this connection");
    return PD_OK;
}

/* Takes the header of an answer with the outcomes of rounds, and lists the memory for its payload. */
static int land_outcomes(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_outgoing_frame *frame,
                         struct iovec **spans, size_t *n)
{
    uint64_t payload;
    void *reply;
    int rc;

    if ((rc = pd_reply_take(core, prefix, header, &reply)) != PD_OK) return rc;
    core->receive.message = reply;
    if (core->receive.message->n_outcomes != frame->n_pieces)
        return pd_reply_broken(core, prefix, "the number of outcomes differs from the number of pieces");
    if ((rc = take_updates(core, prefix, frame, &payload)) != PD_OK) return rc;
    if ((rc = has_length(core, prefix, payload)) != PD_OK) return rc;
    if ((prefix->flags & PD_FLAG_SHARED) != 0) return land_shared(core, prefix, frame);
    *spans = core->scratch->landing;
    *n = land(core, frame, prefix->payload_bytes);
    return PD_OK;
}

int pd_core_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    pd_core *core = arg;
    pd_outgoing_frame *frame = pd_outgoing_find(&core->out, prefix->request);
    int rc;

    core->receive.message = NULL;
    core->receive.n_copies = 0;
    pd_window_forget(core);
    if ((rc = check_prefix(core, prefix)) != PD_OK) return rc;
    if (frame == NULL || frame->answered || (prefix->flags & PD_FLAG_ERROR) != 0)
        return discard(core, prefix, spans, n);
    if (frame->method != prefix->method) return pd_reply_broken(core, prefix, "another method than the request");
    if (frame->method == PD_RECALL && (rc = pd_worker_state_expect(core, frame, prefix, header)) != PD_OK) return rc;
    if (!has_outcomes(frame->method))
        rc = land_whole(core, prefix, frame, spans, n);
    else if (frame->op == NULL && frame->source == NULL)
        return discard(core, prefix, spans, n);
    else
        rc = land_outcomes(core, prefix, header, frame, spans, n);
    if (rc == PD_OK) pd_window_expect(core, frame);
    return rc;
}

/* Notes in a frame's operation and in its parameters that the server refused the frame. */
static void note_refusal(pd_core *core, pd_outgoing_frame *frame, const pd_error *error)
{
    bool pushed = pd_method_pushes(frame->op->method);

    if (frame->method == PD_BARRIER) core->progress.barriers--; /* a refused barrier is not counted */
    if (frame->method == PD_GO_BACK && error->code == PD_ABORTED) pd_follow_moved(core);
    pd_op_fail(frame->op, error);
    if (!pushed || frame->n_pieces == 0)
        frame->op->gap = true; /* otherwise the outcomes tell which parameters lack it */
    for (size_t i = 0; i < frame->n_pieces; i++) {
        frame->op->items[frame->pieces[i].item].outcome = error->code;
        if (pushed) pd_piece_record(core, frame, i)->refused = pd_piece_record(core, frame, i)->pushed;
    }
}

/* Returns whether the server refused a gradient of the step that this rank is closing (pd_client_close_step). If the
 * step were closed now, the server would take it without this gradient. */
static bool closes_refused(const pd_core *core)
{
    for (size_t i = 0; core->progress.closing > 0 && i < core->n_params; i++)
        if (core->params[i].refused == core->progress.closing) return true;
    return false;
}

/* Withdraws the request to close a step if the server refused a gradient of that step. Otherwise the request would be
 * sent again after a reconnect. On a new connection the server does not know the refusal, and would take the step
 * without the refused gradient. */
static void withdraw_closing(pd_core *core, const pd_error *error)
{
    pd_outgoing_frame *frame = pd_outgoing_first(&core->out);

    if (!closes_refused(core)) return;
    while (frame != NULL && (frame->op == NULL || frame->answered || frame->op->closes == 0))
        frame = pd_outgoing_after(&core->out, frame);
    if (frame == NULL) return;
    pd_op_fail(frame->op, error);
    pd_op_retire(core, frame);
}

static bool all_refused(const pd_outgoing_frame *frame)
{
    for (size_t i = 0; i < frame->n_pieces; i++)
        if (frame->op->items[frame->pieces[i].item].outcome >= 0) return false;
    return frame->n_pieces > 0;
}

/* Retires those unanswered frames of an operation whose items the server has all refused. Such a frame has other chunks
 * of a tensor of which the server refused one chunk. Its answer would come only after the user has pushed the tensor
 * again. */
static void abandon_refused(pd_core *core, pd_op *op)
{
    for (pd_outgoing_frame *frame = pd_outgoing_first(&core->out), *next; frame != NULL; frame = next) {
        next = pd_outgoing_after(&core->out, frame);
        if (frame->op == op && !frame->answered && all_refused(frame)) pd_op_retire(core, frame);
    }
}

void pd_core_abandon(pd_core *core, pd_op *op)
{
    pd_error error = op->error;

    for (pd_outgoing_frame *frame = pd_outgoing_first(&core->out), *next; frame != NULL; frame = next) {
        next = pd_outgoing_after(&core->out, frame);
        if (frame->op != op || frame->answered) continue;
        note_refusal(core, frame, &error);
        pd_op_retire(core, frame);
    }
    withdraw_closing(core, &error);
}

/* Handles a refused frame of an operation: removes the operation's frames that will get no answer from the queue. The
 * operation then waits for its other answers for a short time only (REST_NS in core.c). */
static void settle_refusal(pd_core *core, pd_op *op, const pd_error *error)
{
    abandon_refused(core, op);
    withdraw_closing(core, error);
    if (op->done || op->hopeless) return;
    op->hopeless = true;
    core->calls.give_up_ns = 0;
}

/* Notes in the user's operation that the optimizer refused this parameter's step, so the round closed without a step.
 * The operation reports the error when all its answers are there. */
static void note_refused_step(pd_op *op, const pd_param_record *record, const Paramd__Outcome *outcome)
{
    pd_error error;

    if (outcome->why[0] != '\0')
        pd_fail(&error, PD_FAILED_PRECONDITION, "%s", outcome->why);
    else
        pd_fail(&error, PD_FAILED_PRECONDITION, "parameter %.160s: the optimizer refused step %" PRIu64, record->name,
                outcome->step);
    pd_op_fail(op, &error);
}

/* Adds an update to the weights in the caller's buffer. The server adds the same numbers with the same single rounding,
 * so both have the same weights. */
static void add_update(float *weights, const uint8_t *update, pd_dtype dtype, size_t n)
{
    float some[1024];

    for (size_t first = 0; first < n; first += sizeof some / sizeof *some) {
        size_t count = n - first < sizeof some / sizeof *some ? n - first : sizeof some / sizeof *some;
        pd_convert(some, PD_F32, update + first * pd_dtype_size(dtype), dtype, (int64_t)count);
        for (size_t i = 0; i < count; i++) weights[first + i] += some[i];
    }
}

/* Remembers which version of a chunk's weights is in the caller's buffer, since the server may send only the change
 * since that version. If out of memory, remembers nothing, and the server sends whole weights. */
static void note_held(pd_core *core, pd_param_record *record, const pd_frame_piece *piece, const void *buffer,
                      uint64_t version)
{
    uint64_t chunk = core->welcome.chunk_elements;
    uint64_t first = (uint64_t)record->start + (uint64_t)((const float *)piece->land - (const float *)buffer);

    if (record->holds == NULL) record->holds = calloc((uint64_t)record->end / chunk + 1, sizeof *record->holds);
    if (record->holds != NULL) record->holds[first / chunk] = 1 + version;
}

static void take_weights(pd_core *core, const pd_outgoing_frame *frame)
{
    size_t used = 0;

    for (size_t i = 0; i < frame->n_pieces; i++) {
        const pd_frame_piece *piece = &frame->pieces[i];
        pd_param_record *record = pd_piece_record(core, frame, i);
        if (piece->bytes == 0 || record->update == 0) continue;
        if (core->receive.message->outcomes[i]->update) {
            add_update(piece->land, core->receive.buffer + used, record->update, piece->bytes / sizeof(float));
            used += piece_bytes(core, frame, i);
        }
        if (frame->op->form == PD_FORM_TRAIN)
            note_held(core, record, piece, frame->op->items[piece->item].weights,
                      core->receive.message->outcomes[i]->version);
        else
            pd_core_forget_versions(record);
    }
}

static void note_count(const pd_op *op, size_t item, const Paramd__DataReply *reply)
{
    if (op->counts == NULL) return;
    op->counts[item].age = reply->staleness;
    op->counts[item].counted = reply->counted;
}

static void note_step(pd_step_span *span, uint64_t step)
{
    if (step > span->most) span->most = step;
    if (span->least == 0 || step < span->least) span->least = step;
}

bool pd_core_note_durable(pd_core *core, uint64_t step, uint64_t unbroken)
{
    pd_core_progress *progress = &core->progress;
    bool news = step > progress->durable;

    if (step >= progress->durable) progress->unbroken = unbroken;
    if (news) progress->durable = step;
    return news;
}

void pd_core_note_mirrored(pd_core *core, const Paramd__DataReply *reply)
{
    /* An owner whose lease has ended tells none until it has told a durable step. */
    if (reply->mirrored > 0) core->progress.mirrored = reply->mirrored;
}

void pd_core_note_members(pd_core *core, const Paramd__DataReply *reply)
{
    core->members = (pd_core_members){
        .members = (int)reply->members, .index = (int)reply->index - 1, .leads = reply->leads, .epoch = reply->epoch
    };
}

/* Notes which shares are leased to this worker after its push, and whether the program takes the same shares again.
 * Only pushes of fragment 0 use shares, and ends of steps. */
static void note_leases(pd_core *core, const pd_outgoing_frame *frame)
{
    const Paramd__DataReply *reply = core->receive.message;
    bool late = reply->n_outcomes > 0 && reply->outcomes[0]->outcome == PD_OUTCOME_LATE;

    if (!pd_method_pushes(frame->method)) return;
    if (late && pd_leased_are_lost(core, frame->id, frame->op->share, reply)) frame->op->lost = true;
    if (frame->n_pieces > 0 && core->params[frame->op->items[frame->pieces[0].item].param].fragment > 0) return;
    pd_leased_answered(core, frame, late, reply);
}

/* Stores the version of a piece in its item. Where sets are open, pd_core_level compares steps, not versions. */
static void note_version(const pd_core *core, pd_op *op, pd_item *item, uint64_t version)
{
    bool torn = !core->open_sets && op->method == PD_PULL && item->version != PD_UNANSWERED && item->version != version;

    item->version = torn ? PD_TORN : version;
    op->torn = op->torn || torn;
}

/* Stores the results of an answer (outcome, step and version of each parameter) in the caller's items. An item is one
 * parameter of a call.
 *
 * In a push_pull, an item without a gradient is in two frames: a push and a pull. It gets the outcome of the push. */
static void note_outcomes(pd_core *core, const pd_outgoing_frame *frame)
{
    pd_item *items = frame->op->items;

    pd_core_note_members(core, core->receive.message);
    if (core->receive.message->fastest > 0) core->fastest = core->receive.message->fastest;
    note_leases(core, frame);
    pd_core_note_mirrored(core, core->receive.message);
    if (pd_core_note_durable(core, core->receive.message->durable_step, core->receive.message->unbroken))
        pd_window_trim(core);
    for (size_t i = 0; i < frame->n_pieces; i++) {
        const Paramd__Outcome *outcome = core->receive.message->outcomes[i];
        pd_item *item = &items[frame->pieces[i].item];
        pd_param_record *record = &core->params[item->param];

        if (item->outcome >= 0 && frame->method == frame->op->method) {
            item->outcome = (int)outcome->outcome;
            note_count(frame->op, frame->pieces[i].item, core->receive.message);
        }
        note_step(pd_op_span(frame->op, record->fragment), outcome->step);
        if (outcome->outcome == PD_OUTCOME_REFUSED) note_refused_step(frame->op, record, outcome);
        item->step = outcome->step;
        note_version(core, frame->op, item, outcome->version);
        if (outcome->step > record->step) record->step = outcome->step;
        if (outcome->step > record->server_step) record->server_step = outcome->step;
        record->initialised = true;
        if (frame->pieces[i].item == frame->op->bearer &&
            outcome->step == record->pushed + core->receive.message->staleness)
            pd_scalars_note(frame->op, outcome);
        core->stats.payload_in += piece_bytes(core, frame, i);
    }
}

/* Notes in every parameter, also those that this rank did not push, that its round of this step is closed. */
static void note_closed(pd_core *core, uint64_t step)
{
    for (size_t i = 0; i < core->n_params; i++) {
        if (core->params[i].step < step) core->params[i].step = step;
        if (core->params[i].server_step < step) core->params[i].server_step = step;
    }
}

/* Notes in every parameter that the rounds are closed which this process has seen closed of its fragment. */
static void note_level(pd_core *core)
{
    for (uint32_t f = 0; f < core->n_fragments; f++) {
        uint64_t step = pd_core_highest_step(core, f);
        for (size_t i = 0; i < core->n_params; i++) {
            pd_param_record *record = &core->params[i];
            if (record->fragment != f) continue;
            record->step = step;
            if (record->server_step < step) record->server_step = step;
        }
    }
}

/* Keeps the answer to an operator's request, header and payload, until pd_core_finish hands it to the caller. */
static int keep_reply(const pd_core *core, pd_op *op, const pd_prefix *prefix, const uint8_t *header)
{
    static const pd_error no_memory = { PD_NO_MEMORY, "out of memory" };

    if ((op->reply = malloc(prefix->header_bytes + op->payload_bytes + 1)) == NULL) {
        pd_op_fail(op, &no_memory);
        return PD_OK;
    }
    memcpy(op->reply, header, prefix->header_bytes);
    op->reply_bytes = prefix->header_bytes;
    if (op->payload_bytes > 0) memcpy(op->reply + op->reply_bytes, core->receive.buffer, op->payload_bytes);
    return PD_OK;
}

static void left(pd_core *core)
{
    pd_error error;

    pd_fail(&error, PD_FAILED_PRECONDITION, "this worker has left the job");
    core->end.left = core->end.error.code == PD_OK;
    pd_core_end(core, &error);
    pd_relay_left(core);
}

/* Returns whether a request of this method waits for the next server if this server shuts down: a worker's requests do,
 * an operator's do not. */
static bool outlives_server(unsigned method)
{
    return method < PD_STATUS || method == PD_NOTE || method == PD_RECALL;
}

/* Notes that the steps of a checkpoint that this worker has asked for are durable. */
static void note_checkpoint(pd_core *core, const pd_prefix *prefix, const uint8_t *header)
{
    void *message;
    const Paramd__CheckpointReply *reply;

    pd_arena_reset(core->arena);
    if (pd_reply_unpack(core->arena, prefix->method, header, prefix->header_bytes, &message, NULL) != PD_OK) return;
    reply = message;
    if (pd_core_note_durable(core, reply->step, reply->unbroken)) pd_window_trim(core);
}

/* Stores the results of an answer. */
static void take_answer(pd_core *core, const pd_outgoing_frame *frame, const pd_prefix *prefix, const uint8_t *header)
{
    if (has_outcomes(frame->method)) {
        take_weights(core, frame);
        note_outcomes(core, frame);
    } else if (frame->method == PD_INIT) {
        /* The server may still refuse frames with other chunks of these parameters. */
        for (size_t i = 0; i < frame->n_pieces; i++) pd_piece_record(core, frame, i)->given = true;
    } else if (frame->method == PD_BARRIER)
        core->progress.passed++;
    else if (frame->method >= PD_STATUS && frame->method != PD_NOTE)
        keep_reply(core, frame->op, prefix, header);
    if (frame->method == PD_CHECKPOINT) note_checkpoint(core, prefix, header);
    if (frame->op->closes > 0) {
        if (core->open_sets) note_level(core);
        note_closed(core, frame->op->closes);
    }
    pd_window_take(core, frame);
}

static void answered(pd_core *core, pd_outgoing_frame *frame, const pd_prefix *prefix, const uint8_t *header,
                     const pd_error *error)
{
    pd_op *op = frame->op;
    unsigned method = frame->method;

    if (op == NULL) return;
    if (error != NULL && error->code == PD_UNAVAILABLE && outlives_server(method)) {
        /* The request stays queued: the client sends it again when it is connected to the next server. */
        snprintf(core->link.reason, sizeof core->link.reason, "%s", error->text);
        return;
    }
    if (error != NULL && pd_resend_repeats(core, frame)) {
        pd_resend_refused(core, frame, error);
        return;
    }
    if (error == NULL && has_outcomes(method) && pd_core_changes_course(core, core->receive.message->course)) return;
    if (error != NULL)
        note_refusal(core, frame, error);
    else
        take_answer(core, frame, prefix, header);
    pd_op_retire(core, frame);
    if (error != NULL &&
        method != PD_NOTE) /* a push continues without its worker state, and its ticket has the error */
        settle_refusal(core, op, error);
    else if (error == NULL && method == PD_LEAVE)
        left(core);
}

/* Handles an error that the server reports about the connection as a whole, not about a request. A passing error drops
 * the connection, so that the client connects again. Other errors end the client handle. */
static int about_connection(pd_core *core, const pd_error *error)
{
    bool passing = error->code == PD_UNAVAILABLE || error->code == PD_DATA_LOSS ||
                   error->code == PD_DEADLINE_EXCEEDED || (core->greeted && error->code == PD_RESOURCE_EXHAUSTED);

    if (passing)
        pd_core_drop(core, error->text);
    else if (!pd_core_loses_rank(core, error))
        pd_core_end(core, error);
    return PD_OK;
}

int pd_core_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    pd_core *core = arg;
    pd_outgoing_frame *frame = pd_outgoing_find(&core->out, prefix->request);
    unsigned method = frame != NULL ? frame->method : PD_METHODS;
    pd_error error, *refusal = NULL;
    size_t first, count;

    if ((prefix->flags & PD_FLAG_ERROR) != 0) {
        pd_arena_reset(core->arena);
        pd_message_error(core->arena, header, prefix->header_bytes, &error, &core->link.mark);
        pd_command_address(error.text, sizeof error.text,
                           core->setup.addresses != NULL ? &core->setup.addresses[core->link.url] : NULL);
        refusal = &error;
    }
    if ((prefix->flags & PD_FLAG_SHARED) != 0) core->sharing.read++;
    /* After a refusal the server may still read and count the contribution: an overdue round stays open. */
    if (frame != NULL && refusal == NULL) frame->exposed = false;
    /* The frame has an answer already, or its operation no longer waits. It is still in the queue because its bytes are
     * being sent. */
    if (frame != NULL && frame->answered) return PD_OK;
    if (frame != NULL && frame->queue == PD_QUEUE_HELD)
        return pd_reply_broken(core, prefix, "the request was not sent on this connection");
    if (prefix->method == PD_HEARTBEAT && refusal == NULL) pd_core_note_remarks(core, prefix, header);
    /* The queue has no frame with the answer's id: the answer is to a heartbeat, or reports an error of the
     * connection. */
    if (frame == NULL) return refusal != NULL && prefix->request == 0 ? about_connection(core, refusal) : PD_OK;
    if (frame->queue == PD_QUEUE_LASTING) {
        if (frame->source != NULL)
            pd_resend_answered(core, frame, refusal);
        else
            answered(core, frame, prefix, header, refusal);
        pd_window_forget(core);
        pd_resend_advance(core);
        return PD_OK;
    }
    first = frame->first;
    count = frame->count;
    pd_outgoing_remove(&core->out, frame);
    if (method == PD_HELLO)
        return refusal != NULL ? pd_welcome_refused(core, refusal) : pd_welcome_taken(core, prefix, header);
    if (method == PD_SHARE) return pd_sharing_answered(core, prefix, header, refusal);
    if (method == PD_SHARDS) return pd_follow_answered(core, prefix, header, refusal);
    if (method == PD_SETTLE) return pd_relay_answered(core, prefix, header, refusal);
    if (method == PD_PULL) return pd_resend_probed(core, prefix, header, refusal);
    if (method == PD_RELEASE) core->sharing.releasing = false;
    if (method != PD_DECLARE) return PD_OK;
    if (refusal != NULL) return pd_declare_refused(core, refusal);
    return pd_declare_taken(core, first, count, prefix, header);
}
