/* restamp.c - adapts queued requests, which were made for an earlier connection, to the present connection. */
#include "recoveries.h"

#include "leased.h"

#include <stdlib.h>

static bool has_mark(const pd_outgoing_frame *frame)
{
    return pd_method_pushes(frame->method) || frame->method == PD_INIT;
}

static bool may_hold(const pd_core *core, const pd_outgoing_frame *frame)
{
    if (frame->method != PD_PULL && frame->method != PD_PUSH_PULL) return false;
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].update != 0) return true;
    return false;
}

/* Changes the fields of an unpacked request that belong to one connection or server (pd_restamp). */
static void change(const pd_core *core, const pd_outgoing_frame *frame, void *message, bool forget)
{
    unsigned method = frame->method;
    Paramd__PushRequest *push = message;
    Paramd__PullRequest *pull = message;

    if (method == PD_INIT) ((Paramd__InitRequest *)message)->mark = core->link.mark;
    if (pd_method_pushes(method)) {
        push->mark = core->link.mark;
        push->share = pd_leased_restamp(core, frame->id, push->share);
    }
    for (size_t i = 0; forget && method == PD_PUSH_PULL && i < push->n_pieces; i++) push->pieces[i]->holds = 0;
    for (size_t i = 0; forget && method == PD_PULL && i < pull->n_wants; i++) pull->wants[i]->holds = 0;
}

int pd_restamp(pd_core *core, pd_outgoing_frame *frame, bool forget)
{
    void *message;
    uint8_t *head;
    size_t bytes;
    int rc;

    pd_arena_reset(core->arena);
    rc = pd_request_unpack(core->arena, frame->method, frame->head + PD_PREFIX_BYTES,
                           frame->head_bytes - PD_PREFIX_BYTES, &message, NULL);
    if (rc != PD_OK) return rc;
    change(core, frame, message, forget);
    rc = pd_frame_pack(&head, &bytes, frame->method, core->setup.flags, frame->id, message, frame->iov, frame->n_iov,
                       frame->payload_bytes);
    if (rc != PD_OK) return rc;
    free(frame->head);
    frame->head = head;
    frame->head_bytes = bytes;
    frame->mark = core->link.mark;
    return PD_OK;
}

int pd_restamp_all(pd_core *core, bool forget)
{
    int rc = PD_OK;

    for (pd_outgoing_frame *frame = pd_outgoing_first(&core->out); rc == PD_OK && frame != NULL;
         frame = pd_outgoing_after(&core->out, frame)) {
        bool forgets = forget && frame->op != NULL && may_hold(core, frame);
        bool lost = pd_method_pushes(frame->method) && frame->id <= core->shares.lost;
        if (forgets || lost || (has_mark(frame) && frame->mark != core->link.mark))
            rc = pd_restamp(core, frame, forgets);
    }
    return rc;
}
