/* note.c - sends a worker's note of a step before the push of the step, and checks the note that comes back. */
#include "note.h"

#include "post.h"
#include "reply.h"

int pd_note_check(const pd_push_options *options, pd_error *err)
{
    if (options == NULL || options->note_bytes == 0) return PD_OK;
    if (options->note == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a note of %zu bytes, and no place where they are",
                       options->note_bytes);
    if (options->note_bytes <= PD_NOTE_BYTES) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "a note of %zu bytes: at most %d are possible. Keep the rest in a file, and its name in the note",
                   options->note_bytes, PD_NOTE_BYTES);
}

/* Returns the highest step that a push is for. */
static uint64_t step_of(const pd_core *core, const pd_op *op)
{
    uint64_t step = 0;

    for (size_t i = 0; i < op->n; i++)
        if (core->params[op->items[i].param].step >= step) step = core->params[op->items[i].param].step + 1;
    return step;
}

int pd_note_post(pd_core *core, pd_op *op, const pd_push_options *options)
{
    Paramd__NoteRequest request = PARAMD__NOTE_REQUEST__INIT;
    int rc;

    if (options == NULL || options->note == NULL) return PD_OK;
    request.step = step_of(core, op);
    rc = pd_core_post_with(core, PD_NOTE, &request.base, &(struct iovec){ (void *)options->note, options->note_bytes },
                           PD_LANE_LASTING, op);
    if (rc == PD_OK) pd_outgoing_find(&core->out, core->last_id)->step = request.step;
    return rc;
}

int pd_note_expect(pd_core *core, const pd_outgoing_frame *frame, const pd_prefix *prefix, const uint8_t *header)
{
    void *message;
    int rc = pd_reply_take(core, prefix, header, &message);
    const Paramd__RecallReply *reply = message;

    if (rc != PD_OK) return rc;
    if (reply->bytes > PD_NOTE_BYTES) return pd_reply_broken(core, prefix, "a note that is too long");
    if (frame->op != NULL) frame->op->payload_bytes = reply->bytes;
    return PD_OK;
}
