/* core_end.c - ends a client handle after an error, or drops its connection. */
#include "core_end.h"

#include "op.h"

#include <stdio.h>

/* Counts the frames of each operation that are still in the queue: the operation waits for these
 * alone. They stay because their bytes, which are the caller's memory, are being sent. All other frames are gone. */
static void count_lent(pd_core *core)
{
    for (pd_op *op = core->ops; op != NULL; op = op->hh.next) op->waits = 0;
    for (pd_lane lane = 0; lane < PD_LANES; lane++)
        for (pd_outgoing_frame *frame = core->out.lane[lane].first; frame != NULL; frame = frame->next)
            if (frame->op != NULL) frame->op->waits++;
}

void pd_core_end(pd_core *core, const pd_error *error)
{
    pd_op *op, *next;

    if (core->ended.code != PD_OK) return;
    core->ended = *error;
    core->stage = core->stage == STAGE_DOWN ? STAGE_DOWN : STAGE_DROP;
    pd_outgoing_retire_all(&core->out);
    count_lent(core);
    HASH_ITER(hh, core->ops, op, next)
    {
        if (op->done) continue;
        pd_op_fail(op, error);
        if (op->waits == 0) pd_op_done(core, op);
    }
}

void pd_core_drop(pd_core *core, const char *reason)
{
    if (core->stage == STAGE_DOWN) return;
    core->stage = STAGE_DROP;
    snprintf(core->reason, sizeof core->reason, "%s", reason);
}
