/* resend.c - sends the frames of the window again after the server has gone back to an earlier step. */
#include "recoveries.h"

#include "answer.h"
#include "core.h"
#include "mutant.h"
#include "window.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether the server has closed this step of all parameters of which this rank has elements. */
static bool all_closed(const pd_core *core, uint64_t step)
{
    for (size_t i = 0; i < core->n_params; i++)
        if (pd_has_elements(&core->params[i]) && core->params[i].server_step < step) return false;
    return true;
}

/* Returns whether the server has closed again all rounds that this process has seen closed. */
static bool has_caught_up(const pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++)
        if (pd_has_elements(&core->params[i]) && core->params[i].server_step < core->params[i].step) return false;
    return true;
}

static bool closes(const pd_outgoing_frame *frame)
{
    return frame->source != NULL ? frame->source->closes : frame->op != NULL && frame->op->closes > 0;
}

/* Returns whether the server can take a frame now: it has closed the step before the frame's step. */
static bool is_due(const pd_core *core, const pd_outgoing_frame *frame)
{
    bool is_state = frame->source == NULL &&
                    frame->method == PD_NOTE; /* a worker state belongs to the first parameter of its push */
    size_t n = frame->source != NULL ? frame->source->n : is_state ? 1 : frame->n_pieces;

    if (closes(frame)) return all_closed(core, frame->step - 1);
    for (size_t i = 0; i < n; i++) {
        const pd_param_record *record =
            is_state ? &core->params[frame->op->items[0].param] : pd_piece_record(core, frame, i);
        if (pd_has_elements(record) && record->server_step + 1 < frame->step) return false;
    }
    return true;
}

static bool may_go(const pd_core *core, const pd_outgoing_frame *frame)
{
    if (frame->op == NULL && frame->source == NULL) return true; /* no call waits for the frame any more */
    if (frame->step > 0) return is_due(core, frame);
    if (frame->method == PD_BARRIER) return true;
    if (frame->method == PD_INIT && frame->op != NULL && frame->op->replaces == 0) return true;
    return has_caught_up(core);
}

void pd_resend_hold(pd_core *core)
{
    for (pd_outgoing_frame *frame = core->out.queue[PD_QUEUE_LASTING].first, *next;
         core->recovery.resending && frame != NULL; frame = next) {
        next = frame->next;
        if (!frame->sent && !frame->answered && !may_go(core, frame))
            pd_outgoing_move(&core->out, frame, PD_QUEUE_HELD);
    }
}

/* Holds all frames that belong to a step, and all that the server cannot take yet. Held frames are released in the
 * order of their ids, which is the order in which they were made: the frame that closes a step comes after the step's
 * pushes. */
static void hold_all(pd_core *core)
{
    for (pd_outgoing_frame *frame = core->out.queue[PD_QUEUE_LASTING].first, *next; frame != NULL; frame = next) {
        next = frame->next;
        if (frame->step > 0 || !may_go(core, frame)) pd_outgoing_move(&core->out, frame, PD_QUEUE_HELD);
    }
}

/* Counts a frame that is sent again: with a window in pd_client_stats.replayed. Without a window the frame is a worker
 * state, and counts in pd_client_stats.resent, like the push to which it belongs. */
static void count(pd_core *core)
{
    if (core->window.steps > 0)
        core->stats.replayed++;
    else
        core->stats.resent++;
}

/* Returns the fragment that a frame of a step belongs to. UINT32_MAX: it has no pieces, and belongs to all. */
static uint32_t fragment_of(const pd_core *core, const pd_outgoing_frame *frame)
{
    bool is_state = frame->source == NULL && frame->method == PD_NOTE;

    if (closes(frame) || (frame->op == NULL && frame->source == NULL)) return UINT32_MAX;
    if (is_state) return core->params[frame->op->items[0].param].fragment;
    if (frame->source != NULL)
        return frame->source->n > 0 ? core->params[frame->source->pieces[0].param].fragment : UINT32_MAX;
    return frame->n_pieces > 0 ? pd_piece_record(core, frame, 0)->fragment : UINT32_MAX;
}

/* Finds a step that the server must close before this client can go on, and the parameter. Returns false if it need not
 * wait for one. */
static bool find_awaited(const pd_core *core, uint32_t *param, uint64_t *step)
{
    const pd_outgoing_frame *held = core->out.queue[PD_QUEUE_HELD].first;
    uint32_t only = held != NULL && held->step > 0 ? fragment_of(core, held) : UINT32_MAX;

    for (size_t i = 0; i < core->n_params; i++) {
        const pd_param_record *record = &core->params[i];
        if (only != UINT32_MAX && record->fragment != only) continue;
        *step = held != NULL && held->step > 0 ? held->step - 1 : record->step;
        *param = (uint32_t)i;
        if (pd_has_elements(record) && record->server_step < *step) return true;
    }
    return false;
}

/* Returns whether a frame is under way whose answer tells that the server has closed a step of the fragment up to
 * `step`. Answers to frames of later steps may wait for the held frames. */
static bool will_be_told(const pd_core *core, uint32_t fragment, uint64_t step)
{
    for (const pd_outgoing_frame *frame = core->out.queue[PD_QUEUE_LASTING].first; frame != NULL; frame = frame->next) {
        uint32_t of;
        if (frame->answered || frame->step == 0 || frame->step > step) continue;
        of = core->n_fragments > 1 ? fragment_of(core, frame) : UINT32_MAX;
        if (of == UINT32_MAX || of == fragment) return true;
    }
    return false;
}

/* In a job with open sets this process has no frames of steps in which it did not count, and so no answers from which
 * it would learn that the server has closed them again. If no answer will tell it, it pulls a chunk of a parameter from
 * such a step on. Out of memory: the connection is dropped. */
static void probe(pd_core *core)
{
    Paramd__PullRequest request = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want };
    const pd_param_record *record;

    if (!core->open_sets || core->recovery.probing || !find_awaited(core, &want.handle, &request.min_step) ||
        will_be_told(core, core->params[want.handle].fragment, request.min_step))
        return;
    record = &core->params[want.handle];
    want.first = (uint64_t)record->start;
    want.count = (uint64_t)pd_range_piece(record->start, record->end, core->welcome.chunk_elements, want.first);
    request.wants = wants;
    request.n_wants = 1;
    core->recovery.probed = want.handle;
    core->recovery.probing = pd_core_post(core, PD_PULL, &request.base, PD_QUEUE_CONNECTION, NULL) == PD_OK;
    if (!core->recovery.probing) pd_core_drop(core, "out of memory");
}

int pd_resend_probed(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal)
{
    pd_param_record *record = &core->params[core->recovery.probed];
    Paramd__DataReply *message;
    void *reply;
    int rc;

    core->recovery.probing = false;
    if (refusal != NULL) {
        pd_core_drop(core, refusal->text);
        return PD_OK;
    }
    if ((rc = pd_reply_take(core, prefix, header, &reply)) != PD_OK) return rc;
    message = reply;
    if (message->n_outcomes != 1)
        return pd_reply_broken(core, prefix, "the number of outcomes differs from the number of pieces");
    if (pd_core_changes_course(core, message->course)) return PD_OK;
    if (record->server_step < message->outcomes[0]->step) record->server_step = message->outcomes[0]->step;
    pd_resend_advance(core);
    return PD_OK;
}

void pd_resend_advance(pd_core *core)
{
    if (!core->recovery.resending) return;
    for (pd_outgoing_frame *frame = core->out.queue[PD_QUEUE_HELD].first, *next; frame != NULL; frame = next) {
        next = frame->next;
        if (!may_go(core, frame)) continue;
        if (frame->source != NULL) count(core);
        pd_outgoing_move(&core->out, frame, PD_QUEUE_LASTING);
    }
    if (!has_caught_up(core) || core->out.queue[PD_QUEUE_HELD].first != NULL) {
        probe(core);
        return;
    }
    core->recovery.resending = false;
    core->link.reason[0] = '\0';
}

/* Returns whether the server lacks the step in which a frame of the window has counted. */
static bool is_needed(const pd_core *core, const pd_sent_frame *sent)
{
    if (sent->closes) return !all_closed(core, sent->settled);
    for (size_t i = 0; i < sent->n; i++)
        if (core->params[sent->pieces[i].param].server_step < sent->settled) return true;
    return false;
}

/* Makes a frame for the queue that sends the window's frame `sent` again. NULL: out of memory. */
static pd_outgoing_frame *make_frame(pd_core *core, pd_sent_frame *sent)
{
    pd_frame_piece *pieces = core->scratch->own;
    size_t n = pd_method_pushes(sent->method) ? sent->n : 0;
    struct iovec payload = { sent->payload, sent->payload_bytes };
    uint8_t *head = malloc(sent->head_bytes);
    pd_outgoing_frame *frame;

    if (head == NULL) return NULL;
    memcpy(head, sent->head, sent->head_bytes);
    for (size_t i = 0; i < n; i++) pieces[i] = (pd_frame_piece){ .item = i, .bytes = sent->pieces[i].bytes };
    frame = pd_outgoing_frame_new(head, sent->head_bytes, pieces, n, &payload, sent->payload_bytes > 0);
    if (frame == NULL) return NULL;
    frame->id = sent->id;
    frame->method = sent->method;
    frame->step = sent->step;
    frame->mark = sent->mark;
    return frame;
}

static int hold_past(pd_core *core, pd_sent_frame *sent)
{
    pd_outgoing_frame *frame = make_frame(core, sent);

    if (frame == NULL) return PD_NO_MEMORY;
    if (!pd_outgoing_add(&core->out, frame, PD_QUEUE_HELD)) {
        pd_outgoing_frame_free(frame);
        return PD_NO_MEMORY;
    }
    frame->source = sent;
    sent->again = frame;
    return PD_OK;
}

/* Removes from the queue the frames that would send again what the server already has. */
static void remove_needless(pd_core *core)
{
    for (pd_outgoing_frame *frame = pd_outgoing_first(&core->out), *next; frame != NULL; frame = next) {
        next = pd_outgoing_after(&core->out, frame);
        if (frame->source != NULL && !is_needed(core, frame->source)) pd_outgoing_remove(&core->out, frame);
    }
}

static void tell_reason(pd_core *core)
{
    const pd_param_record *record = pd_core_is_behind(core) ? pd_core_furthest_behind(core) : NULL;

    if (record == NULL) return; /* only worker states are sent again */
    snprintf(core->link.reason, sizeof core->link.reason,
             "the server has gone back to step %" PRIu64 "; this worker resends its pushes up to step %" PRIu64
             " again",
             record->server_step, record->step);
}

bool pd_resend_is_needed(const pd_core *core)
{
    for (const pd_window_step *list = core->window.oldest; list != NULL; list = list->next)
        for (const pd_sent_frame *sent = list->first; sent != NULL; sent = sent->next)
            if (sent->again == NULL && is_needed(core, sent)) return true;
    return false;
}

int pd_resend_begin(pd_core *core)
{
    int rc = PD_OK;

    core->recovery.resending = true;
    remove_needless(core);
    for (pd_window_step *list = core->window.oldest; list != NULL; list = list->next)
        for (pd_sent_frame *sent = list->first; rc == PD_OK && sent != NULL; sent = sent->next)
            if (sent->again == NULL && is_needed(core, sent) &&
                !(PD_MUTANT(window_forgets) && sent == list->first->prev && sent->n == 1))
                rc = hold_past(core, sent);
    if (rc == PD_OK) rc = pd_restamp_all(core, core->recovery.went_back);
    if (rc != PD_OK) return rc;
    tell_reason(core);
    hold_all(core);
    pd_resend_advance(core);
    return PD_OK;
}

bool pd_resend_repeats(const pd_core *core, const pd_outgoing_frame *frame)
{
    if (!core->recovery.resending || frame->step == 0 || frame->method == PD_NOTE) return false;
    if (closes(frame)) return false;
    for (size_t i = 0; i < frame->n_pieces; i++)
        if (pd_piece_record(core, frame, i)->step >= frame->step) return true;
    return false;
}

/* Sends a frame once more after its round did not close in time: other ranks may not be back yet. */
static void try_again(pd_core *core, pd_outgoing_frame *frame)
{
    if (pd_restamp(core, frame, false) != PD_OK || !pd_outgoing_move(&core->out, frame, PD_QUEUE_LASTING))
        pd_core_drop(core, "a resent push was refused");
}

void pd_resend_refused(pd_core *core, pd_outgoing_frame *frame, const pd_error *refusal)
{
    char why[PD_ERROR_TEXT];

    snprintf(core->link.reason, sizeof core->link.reason, "%s", refusal->text);
    if (refusal->code == PD_UNAVAILABLE) return;
    if (refusal->code == PD_DEADLINE_EXCEEDED && frame->method != PD_NOTE) {
        try_again(core, frame);
        return;
    }
    if (refusal->code == PD_RESOURCE_EXHAUSTED || refusal->code == PD_DEADLINE_EXCEEDED) {
        pd_core_drop(core, refusal->text);
        return;
    }
    snprintf(why, sizeof why, "; it refuses the push of step %" PRIu64 " that was sent again: %.200s", frame->step,
             refusal->text);
    pd_core_go_back(core, why);
}

/* Ends the handle because the same pushes gave other results than the first time. */
static void end_as_different(pd_core *core, const pd_sent_frame *sent, size_t piece, const char *what)
{
    pd_error error;

    pd_fail(&error, PD_FAILED_PRECONDITION,
            "parameter %.160s: step %" PRIu64 ", sent again to the server that had gone back, gave other %s than the "
            "first time. Likely causes: the server runs on another CPU or with other BLAS kernels (now %.32s), or its "
            "configuration was changed. Start the job anew from one of its checkpoints",
            core->params[sent->pieces[piece].param].name, sent->step, what, core->welcome.blas_core);
    pd_core_end(core, &error);
}

/* Compares the answer with the frame's first answer. Compares nothing if the first answer was about a later step
 * (`comparable`), or if only one of both may have weights that were changed by hand. Returns false if the answers
 * differ; the handle has then ended. */
static bool compare(pd_core *core, const pd_sent_frame *sent)
{
    bool same_kind = sent->hashed && core->window.hashed;

    if (!sent->comparable || pd_window_may_change(core, sent)) return true;
    for (size_t i = 0; i < sent->n; i++)
        if (core->receive.message->outcomes[i]->step != sent->step) return true;
    for (size_t i = 0; i < sent->n; i++) {
        const Paramd__Outcome *outcome = core->receive.message->outcomes[i];
        const pd_sent_piece *piece = &sent->pieces[i];

        if (outcome->outcome != piece->outcome || outcome->version != piece->version) {
            end_as_different(core, sent, i, "results");
            return false;
        }
        same_kind = same_kind && (piece->bytes == 0 || outcome->update == piece->update);
    }
    if (!same_kind || core->window.hash == sent->hash) return true;
    end_as_different(core, sent, 0, sent->n > 1 ? "weights (of it, or of a parameter in the same frame)" : "weights");
    return false;
}

static void note_steps(pd_core *core, const pd_sent_frame *sent)
{
    for (size_t i = 0; i < sent->n; i++) {
        pd_param_record *record = &core->params[sent->pieces[i].param];
        uint64_t step = core->receive.message->outcomes[i]->step;
        if (record->server_step < step) record->server_step = step;
    }
    for (size_t i = 0; sent->closes && i < core->n_params; i++)
        if (core->params[i].server_step < sent->step) core->params[i].server_step = sent->step;
}

void pd_resend_answered(pd_core *core, pd_outgoing_frame *frame, const pd_error *refusal)
{
    const pd_sent_frame *sent = frame->source;

    if (refusal != NULL) {
        pd_resend_refused(core, frame, refusal);
        return;
    }
    if (pd_method_pushes(sent->method)) {
        if (pd_core_changes_course(core, core->receive.message->course) || !compare(core, sent)) return;
        pd_core_note_members(core, core->receive.message);
        pd_core_note_mirrored(core, core->receive.message);
        (void)pd_core_note_durable(core, core->receive.message->durable_step, core->receive.message->unbroken);
        note_steps(core, sent);
    }
    pd_outgoing_remove(&core->out, frame);
    pd_window_trim(core);
}
