/* answer.c - handles the server's answers: stores results and weights in the memory of the user's calls, and ends
 * these calls. */
#include "answer.h"

#include "command_address.h"
#include "convert.h"
#include "core_end.h"
#include "landing.h"
#include "op.h"
#include "parts.h"
#include "push_scalars.h"
#include "refusal.h"
#include "core_remarks.h"
#include "reply.h"
#include "resend.h"
#include "sharing.h"
#include "welcome.h"
#include "window.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Notes in the user's operation that the optimizer refused this parameter's step,
 * so the round closed without a step. The operation reports the error when all its answers are there. */
static void note_refused_step(pd_op *op, const pd_param_record *known, const Paramd__Outcome *outcome)
{
    pd_error error;

    if (outcome->why[0] != '\0')
        pd_fail(&error, PD_FAILED_PRECONDITION, "%s", outcome->why);
    else
        pd_fail(&error, PD_FAILED_PRECONDITION, "parameter %.160s: its optimizer has refused step %" PRIu64,
                known->name, outcome->step);
    pd_op_fail(op, &error);
}

/* Adds an update (the change of the weights in the last step) to the weights in the caller's buffer. The server
 * adds the same numbers with the same single rounding, so both have the same weights. */
static void add_update(float *weights, const uint8_t *update, pd_dtype dtype, size_t n)
{
    float some[1024];

    for (size_t first = 0; first < n; first += sizeof some / sizeof *some) {
        size_t count = n - first < sizeof some / sizeof *some ? n - first : sizeof some / sizeof *some;
        pd_convert(some, PD_F32, update + first * pd_dtype_size(dtype), dtype, (int64_t)count);
        for (size_t i = 0; i < count; i++) weights[first + i] += some[i];
    }
}

/* Notes which version of the weights of a chunk (section of a tensor) is in the caller's buffer, since the server may
 * send only the change since that version. If memory for the note is missing, the server sends whole weights. */
static void note_held(pd_core *core, pd_param_record *known, const pd_part *part, const void *buffer, uint64_t version)
{
    uint64_t chunk = core->welcome.chunk_elements;
    uint64_t first = (uint64_t)known->start + (uint64_t)((const float *)part->land - (const float *)buffer);

    if (known->holds == NULL) known->holds = calloc((uint64_t)known->end / chunk + 1, sizeof *known->holds);
    if (known->holds != NULL) known->holds[first / chunk] = 1 + version;
}

static void take_weights(pd_core *core, const pd_outgoing_frame *frame)
{
    size_t used = 0;

    for (size_t i = 0; i < frame->n_parts; i++) {
        const pd_part *part = &frame->parts[i];
        pd_param_record *known = pd_part_known(core, frame, i);
        if (part->bytes == 0 || known->update == 0) continue;
        if (core->reply->outcomes[i]->update) {
            add_update(part->land, core->updates + used, known->update, part->bytes / sizeof(float));
            used += pd_part_bytes(core, frame, i);
        }
        note_held(core, known, part, frame->op->items[part->item].weights, core->reply->outcomes[i]->version);
    }
}

/* Stores the results of an answer (outcome, step and version of each parameter) in the caller's items. An item is
 * one parameter of a call.
 *
 * In a push_pull, an item without a gradient is in two frames: a push and a pull. It gets the outcome of the push. */
static void note_outcomes(pd_core *core, const pd_outgoing_frame *frame)
{
    pd_item *items = frame->op->items;

    if (core->durable != core->reply->durable_step) {
        core->durable = core->reply->durable_step;
        pd_window_trim(core);
    }
    for (size_t i = 0; i < frame->n_parts; i++) {
        const Paramd__Outcome *outcome = core->reply->outcomes[i];
        pd_item *item = &items[frame->parts[i].item];
        pd_param_record *known = &core->params[item->param];

        if (item->outcome >= 0 && frame->method == frame->op->method) item->outcome = (int)outcome->outcome;
        if (outcome->outcome == PD_OUTCOME_REFUSED) note_refused_step(frame->op, known, outcome);
        item->step = outcome->step;
        item->version = outcome->version;
        if (outcome->step > known->step) known->step = outcome->step;
        if (outcome->step > known->there) known->there = outcome->step;
        known->initialised = true;
        if (frame->parts[i].item == frame->op->bearer && outcome->step == known->pushed)
            pd_scalars_note(frame->op, outcome);
        core->stats.payload_in += pd_part_bytes(core, frame, i);
    }
}

/* Notes in every parameter that its round of this step is closed. Parameters that this rank did not push are
 * included. */
static void note_closed(pd_core *core, uint64_t step)
{
    for (size_t i = 0; i < core->n_params; i++) {
        if (core->params[i].step < step) core->params[i].step = step;
        if (core->params[i].there < step) core->params[i].there = step;
    }
}

/* Notes for each parameter of an answered Init frame that the server has initial weights from this rank. The server
 * may still refuse frames with other chunks of these parameters. */
static void note_given(pd_core *core, const pd_outgoing_frame *frame)
{
    for (size_t i = 0; i < frame->n_parts; i++) pd_part_known(core, frame, i)->given = true;
}

/* Keeps the answer to a request of paramctl, header and payload, until pd_core_finish hands it to the caller. */
static int keep_reply(const pd_core *core, pd_op *op, const pd_prefix *prefix, const uint8_t *header)
{
    static const pd_error no_memory = { PD_NO_MEMORY, "out of memory" };

    if ((op->reply = malloc(prefix->header_bytes + op->payload_bytes + 1)) == NULL) {
        pd_op_fail(op, &no_memory);
        return PD_OK;
    }
    memcpy(op->reply, header, prefix->header_bytes);
    op->reply_bytes = prefix->header_bytes;
    if (op->payload_bytes > 0) memcpy(op->reply + op->reply_bytes, core->updates, op->payload_bytes);
    return PD_OK;
}

static void left(pd_core *core)
{
    pd_error error;

    pd_fail(&error, PD_FAILED_PRECONDITION, "this worker has left the job");
    pd_core_end(core, &error);
}

/* Keeps a request in the queue that the server refused because it is shutting down. The client sends the request
 * again when it is connected to the next server. */
static void later(pd_core *core, const pd_error *error)
{
    snprintf(core->reason, sizeof core->reason, "%s", error->text);
}

/* Returns whether the request is one of a worker which waits for the next server if this one is shutting down. */
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
    if (reply->step > core->durable) core->durable = reply->step;
    pd_window_trim(core);
}

/* Takes an answer that is no error: stores its results. */
static void take_answer(pd_core *core, const pd_outgoing_frame *frame, const pd_prefix *prefix, const uint8_t *header)
{
    if (pd_landing_has_outcomes(frame->method)) {
        take_weights(core, frame);
        note_outcomes(core, frame);
    } else if (frame->method == PD_INIT)
        note_given(core, frame);
    else if (frame->method == PD_BARRIER)
        core->passed++;
    else if (frame->method >= PD_STATUS && frame->method != PD_NOTE)
        keep_reply(core, frame->op, prefix, header);
    if (frame->method == PD_CHECKPOINT) note_checkpoint(core, prefix, header);
    note_closed(core, frame->op->closes);
    pd_window_take(core, frame);
}

static void answered(pd_core *core, pd_outgoing_frame *frame, const pd_prefix *prefix, const uint8_t *header,
                     const pd_error *error)
{
    pd_op *op = frame->op;
    unsigned method = frame->method;

    if (op == NULL) return;
    if (error != NULL && error->code == PD_UNAVAILABLE && outlives_server(method)) {
        later(core, error);
        return;
    }
    if (error != NULL && pd_resend_repeats(core, frame)) {
        pd_resend_refused(core, frame, error);
        return;
    }
    if (error != NULL)
        pd_refusal_note(core, frame, error);
    else
        take_answer(core, frame, prefix, header);
    pd_op_retire(core, frame);
    if (error != NULL && method != PD_NOTE) /* a push goes on without its note, and its ticket has the error */
        pd_refusal_settle(core, op, error);
    else if (error == NULL && method == PD_LEAVE)
        left(core);
}

/* Handles an error that the server reports about the connection as a whole, not about a request. A passing error drops
 * the connection, so that the client connects again. Other errors end the client handle (the user's pd_client). */
static int about_connection(pd_core *core, const pd_error *error)
{
    bool passing = error->code == PD_UNAVAILABLE || error->code == PD_DATA_LOSS ||
                   error->code == PD_DEADLINE_EXCEEDED || (core->greeted && error->code == PD_RESOURCE_EXHAUSTED);

    if (passing)
        pd_core_drop(core, error->text);
    else
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
        pd_message_marked_error(core->arena, header, prefix->header_bytes, &error, &core->mark);
        pd_command_address(error.text, sizeof error.text, core->addresses != NULL ? &core->addresses[core->url] : NULL);
        refusal = &error;
    }
    if ((prefix->flags & PD_FLAG_SHARED) != 0) core->sharing.read++;
    /* After a refusal the contribution may still count, and be read: a round that is overdue stays open. */
    if (frame != NULL && refusal == NULL) frame->exposed = false;
    /* An answered frame that is still in the queue: another answer to it came before, or its operation (the user's
     * call) no longer waits. */
    if (frame != NULL && frame->answered) return PD_OK;
    if (frame != NULL && frame->lane == PD_LANE_HELD)
        return pd_reply_broken(core, prefix, "the request was not sent on this connection");
    if (prefix->method == PD_HEARTBEAT && refusal == NULL) pd_core_note_remarks(core, prefix, header);
    /* No frame has the number in this answer: it reports an error of the connection, or answers a heartbeat. */
    if (frame == NULL) return refusal != NULL && prefix->request == 0 ? about_connection(core, refusal) : PD_OK;
    if (frame->lane == PD_LANE_LASTING) {
        if (frame->past != NULL)
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
    if (method == PD_RELEASE) core->sharing.releasing = false;
    if (method != PD_DECLARE) return PD_OK;
    if (refusal != NULL) return pd_declare_refused(core, refusal);
    return pd_declare_taken(core, first, count, prefix, header);
}
