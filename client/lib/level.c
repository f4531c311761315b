/* level.c - pulls items again whose answers do not fit together: weights of several steps, or of several versions. */
#include "call.h"

#include "bucket.h"

enum { MOST_LEVELS = 4 };

int pd_core_pull_fragment(pd_core *core, pd_op *op, uint32_t fragment, uint64_t min_step)
{
    pd_bucket bucket;
    int rc = PD_OK;

    pd_bucket_init(&bucket, core, op, PD_PULL);
    bucket.pull.min_step = min_step;
    for (size_t i = 0; rc == PD_OK && i < op->n; i++)
        if (core->params[op->items[i].param].fragment == fragment) rc = pd_bucket_item(&bucket, i);
    return rc == PD_OK ? pd_bucket_post(&bucket) : rc;
}

/* Pulls the torn items of an operation again. All ranks count, so few rounds can close while this one waits. */
static int pull_torn(pd_core *core, pd_op *op, pd_error *err)
{
    int rc = PD_OK;

    if (op->levels == MOST_LEVELS)
        return pd_fail(err, PD_ABORTED, "the weights have changed each of %d times that they were pulled: pull again",
                       1 + MOST_LEVELS);
    op->torn = false;
    op->levels++;
    for (size_t i = 0; rc == PD_OK && i < op->n; i++) {
        pd_bucket bucket;
        if (op->items[i].version != PD_TORN) continue;
        op->items[i].version = PD_UNANSWERED;
        pd_bucket_init(&bucket, core, op, PD_PULL);
        bucket.pull.min_step = op->items[i].step;
        if ((rc = pd_bucket_item(&bucket, i)) == PD_OK) rc = pd_bucket_post(&bucket);
    }
    return rc == PD_OK ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

/* Mends the torn items of an operation. Returns whether it waits for answers now. */
static bool mend(pd_core *core, pd_op *op)
{
    pd_error error;

    if (!op->torn || op->error.code != PD_OK || core->end.error.code != PD_OK) return false;
    if (pull_torn(core, op, &error) != PD_OK) pd_op_fail(op, &error);
    return op->waits > 0;
}

bool pd_core_level(pd_core *core, pd_op *op)
{
    bool pulls = false;
    int rc = PD_OK;

    if (!core->open_sets) return mend(core, op);
    if ((op->method != PD_PUSH_PULL && op->method != PD_PULL) || op->error.code != PD_OK ||
        core->end.error.code != PD_OK || op->levels == MOST_LEVELS)
        return false;
    for (uint32_t f = 0; rc == PD_OK && f < core->n_fragments; f++) {
        pd_step_span *span = pd_op_span(op, f);
        if (span->least == span->most) continue;
        op->level = span->most;
        *span = (pd_step_span){ 0 };
        pulls = true;
        rc = pd_core_pull_fragment(core, op, f, op->level);
    }
    op->levels += pulls;
    return pulls && rc == PD_OK && op->waits > 0;
}
