/* model_state - the "optimizer" of tensors that belong to a model and are not trained, such as a batch norm's running
 * mean and variance. Ranks (workers) push values g in place of gradients, and the mean of the values becomes the
 * weights w:
 *
 *     w <- g
 *
 * It has no state and no hyperparameters. Values are float32: a counter (num_batches_tracked) is exact up to 2^24 =
 * 16777216. */
#include <string.h>

#include "optimizer_ops.h"

static const pd_hyper no_hypers[] = { { .name = NULL } };

static int no_state(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)fact, (void)plan, (void)err;
    return PD_OK;
}

static void take(const pd_unit *unit)
{
    memcpy(unit->after + unit->first, unit->gradient + unit->first, (size_t)unit->n * sizeof *unit->after);
}

const pd_optimizer_ops pd_model_state = {
    .name = "model_state",
    .about = "not trained: becomes the mean of what the ranks push (a batch norm's statistics)",
    .hypers = no_hypers,
    .plan = no_state,
    .phases = { { .name = "take", .kind = PD_RANGES, .run = take } },
    .takes_values = true,
};
