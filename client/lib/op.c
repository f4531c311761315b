/* op.c - the operations (calls of the user that wait for answers): makes them, finds them by ticket, and ends them. */
#include "op.h"

#include "replaced.h"
#include "window.h"

#include <stdlib.h>

#undef uthash_nonfatal_oom
#define uthash_nonfatal_oom(op) ((op)->hh.tbl = NULL)

pd_op *pd_op_new(pd_core *core, unsigned method)
{
    pd_op *op = calloc(1, sizeof *op);

    if (op == NULL) return NULL;
    op->id = ++core->last_id;
    op->method = method;
    HASH_ADD(hh, core->ops, id, sizeof op->id, op);
    if (op->hh.tbl != NULL) return op;
    free(op);
    return NULL;
}

int pd_op_begin(pd_core *core, unsigned method, pd_op **op, pd_error *err)
{
    if (core->ended.code != PD_OK) {
        if (err != NULL) *err = core->ended;
        return core->ended.code;
    }
    if (HASH_COUNT(core->ops) >= MAX_TICKETS)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%d tickets are under way: wait for some of them "
                       "(" PD_WAIT_CALL ")",
                       MAX_TICKETS);
    if ((*op = pd_op_new(core, method)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return PD_OK;
}

pd_op *pd_op_find(const pd_core *core, pd_ticket_id ticket)
{
    pd_op *op;
    HASH_FIND(hh, core->ops, &ticket, sizeof ticket, op);
    return op;
}

void pd_op_free(pd_core *core, pd_op *op)
{
    HASH_DELETE(hh, core->ops, op);
    if (op->owned) free(op->items);
    free(op->reply);
    free(op);
}

void pd_op_fail(pd_op *op, const pd_error *error)
{
    if (op->error.code == PD_OK) op->error = *error;
}

void pd_op_done(pd_core *core, pd_op *op)
{
    pd_window_note_done(core, op);
    op->done = true;
    core->ended_ops++;
    if (op->closes > 0) core->closing = 0;
    if (op->replaces != 0 && op->error.code == PD_OK)
        pd_replace_done(core, op);
    else if (op->method == PD_INIT && op->error.code == PD_OK)
        for (size_t i = 0; i < op->n; i++)
            core->params[op->items[i].param].initialised |= core->params[op->items[i].param].given;
    if (!pd_method_pushes(op->method)) return;
    for (size_t i = 0; i < op->n; i++) core->params[op->items[i].param].pushing = false;
}

void pd_op_answered(pd_core *core, pd_op *op)
{
    if (--op->waits == 0) pd_op_done(core, op);
}

void pd_op_retire(pd_core *core, pd_outgoing_frame *frame)
{
    pd_op *op = frame->op;

    if (pd_outgoing_retire(&core->out, frame)) pd_op_answered(core, op);
}
