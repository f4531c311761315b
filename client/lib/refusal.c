/* refusal.c - ends the user's call after the server has refused one of its frames. */
#include "refusal.h"

#include "landing.h"
#include "op.h"
#include "parts.h"

void pd_refusal_note(pd_core *core, pd_outgoing_frame *frame, const pd_error *error)
{
    bool pushed = pd_method_pushes(frame->op->method);

    if (frame->method == PD_BARRIER) core->barriers--; /* a refused barrier is not counted */
    pd_op_fail(frame->op, error);
    if (!pushed || frame->n_parts == 0)
        frame->op->gap = true; /* otherwise the outcomes tell which parameters lack it */
    for (size_t i = 0; i < frame->n_parts; i++) {
        frame->op->items[frame->parts[i].item].outcome = error->code;
        if (pushed) pd_part_known(core, frame, i)->refused = pd_part_known(core, frame, i)->pushed;
    }
}

/* Returns whether the server refused a gradient of the step that this rank is closing (pd_client_close_step). If
 * the step were closed now, the server would take it without this gradient. */
static bool closes_refused(const pd_core *core)
{
    for (size_t i = 0; core->closing > 0 && i < core->n_params; i++)
        if (core->params[i].refused == core->closing) return true;
    return false;
}

/* Withdraws the request to close a step if the server refused a gradient of that step. Otherwise the request would
 * be sent again after a reconnect. The new connection has no record of the refusal, so the server would take the
 * step without the refused gradient. */
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
    for (size_t i = 0; i < frame->n_parts; i++)
        if (frame->op->items[frame->parts[i].item].outcome >= 0) return false;
    return frame->n_parts > 0;
}

/* Retires (takes out of the queue) the unanswered frames of an operation in which the server has refused every item.
 * The server refused one chunk of a tensor, and such a frame has the tensor's other chunks. Its answer would come only
 * after the user has pushed the tensor again. */
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
        pd_refusal_note(core, frame, &error);
        pd_op_retire(core, frame);
    }
    withdraw_closing(core, &error);
}

void pd_refusal_settle(pd_core *core, pd_op *op, const pd_error *error)
{
    abandon_refused(core, op);
    withdraw_closing(core, error);
    if (op->done || op->hopeless) return;
    op->hopeless = true;
    core->give_up_ns = 0;
}
