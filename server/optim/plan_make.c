/* plan_make.c - lets an optimizer plan the state and the preconditioner tasks of a declared parameter, and checks the
 * plan against the rules for optimizers (optimizer_ops.h). */
#include "plan_make.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optimizer_ops.h"

double pd_folded(pd_fold fold, double sofar, double value)
{
    if (fold == PD_FOLD_SUM) return sofar + value;
    return isnan(sofar) || value <= sofar ? sofar : value;
}

void pd_model_stats_add(const pd_optimizer_ops *ops, const pd_declaration *param, bool *any, double *stats)
{
    double value[PD_MAX_MODEL_STATS] = { 0 };

    if (ops->stats == NULL || param->hypers.row != ops) return;
    ops->prepass(param, value);
    for (int k = 0; ops->stats[k].name != NULL; k++)
        stats[k] = *any ? pd_folded(ops->stats[k].fold, stats[k], value[k]) : value[k];
    *any = true;
}

void pd_model_stats_of(const pd_optimizer_ops *ops, const pd_declaration *params, size_t n, double *stats)
{
    bool any = false;

    memset(stats, 0, PD_MAX_MODEL_STATS * sizeof *stats);
    for (size_t i = 0; ops->stats != NULL && i < n; i++) pd_model_stats_add(ops, &params[i], &any, stats);
}

static bool share_is_sound(const pd_plan *plan, const pd_slot_spec *spec)
{
    if (spec->share == PD_SHARE_WHOLE) return true;
    if (spec->storage == PD_STORE_F64 || spec->blockwise || spec->symmetric || spec->of_block) return false;
    if (spec->share == PD_SHARE_BOX) return pd_slot_elements(spec) == plan->elements;
    return spec->shape.rank >= 1 && spec->shape.dim[0] == (int64_t)plan->n_blocks;
}

/* Checks a slot against the rules that all optimizers must keep (optimizer_ops.h). */
static bool is_sound(const pd_plan *plan, const pd_slot_spec *spec)
{
    bool has_block = spec->block >= 0 && (size_t)spec->block < plan->n_blocks;
    int64_t elements = -1;

    if ((spec->blockwise || spec->of_block) && !has_block) return false;
    if (spec->storage == PD_STORE_F64 && (spec->blockwise || spec->in_after || spec->diagonal_apart)) return false;
    if (spec->in_after &&
        (!spec->temporary || pd_shape_elements(&spec->shape, &elements) != PD_OK || elements != plan->elements))
        return false;
    if (spec->identity && spec->shape.rank < 2) return false;
    return (!spec->symmetric || spec->shape.rank == 2) && share_is_sound(plan, spec);
}

/* Checks a task: if it uses one block's share of a slot, it must name a valid block. */
static bool task_is_sound(const pd_plan *plan, const pd_task_spec *task)
{
    bool shares = false;

    for (int k = 0; k < task->n_inputs; k++) shares = shares || plan->slots[task->input[k]].share != PD_SHARE_WHOLE;
    for (int k = 0; k < task->n_outputs; k++) shares = shares || plan->slots[task->output[k]].share != PD_SHARE_WHOLE;
    return !shares || (task->block >= 0 && (size_t)task->block < plan->n_blocks);
}

static bool stripes_are_sound(const pd_plan *plan, const pd_optimizer_ops *ops)
{
    bool striped = false, blockwise = false;

    for (int i = 0; i < PD_MAX_PHASES && ops->phases[i].run != NULL; i++) striped |= ops->phases[i].kind == PD_STRIPES;
    for (size_t i = 0; i < plan->n_slots; i++) blockwise |= plan->slots[i].blockwise;
    return plan->stripes >= 1 && !(striped && blockwise);
}

static bool all_sound(const pd_plan *plan)
{
    size_t n_lasting = 0;

    for (size_t i = 0; i < plan->n_slots; i++) {
        if (!is_sound(plan, &plan->slots[i])) return false;
        n_lasting += !plan->slots[i].temporary;
    }
    if (n_lasting != plan->n_lasting) return false;
    for (size_t t = 0; t < plan->n_tasks; t++)
        if (!task_is_sound(plan, &plan->tasks[t])) return false;
    return plan->errors_slot < 0 ||
           ((size_t)plan->errors_slot < plan->n_slots && plan->slots[plan->errors_slot].storage == PD_STORE_F32);
}

static int fill(pd_plan *plan, const pd_declaration *declaration, const double *stats, pd_error *err)
{
    const pd_optimizer_ops *ops = declaration->hypers.row;
    const pd_shape *shape = &declaration->shape;
    char text[192];
    int rc;

    if (ops->check != NULL && (rc = ops->check(&declaration->hypers, &declaration->hypers, err)) != PD_OK) return rc;
    if (pd_shape_elements(shape, &plan->elements) != PD_OK)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "invalid shape %s of %d dimensions: expected at most 8, none negative, whose elements fit 64 bits",
            shape->rank < 0 || shape->rank > PD_MAX_RANK ? "" : pd_shape_text(shape, text, sizeof text), shape->rank);
    plan->shape = *shape;
    plan->range_elements = PD_RANGE_ELEMENTS;
    plan->stripes = 1;
    plan->errors_slot = -1;
    plan->own_bytes = ops->own_bytes;
    if (ops->own_bytes > 0 && (plan->own = calloc(1, ops->own_bytes)) == NULL) return PD_NO_MEMORY;
    return ops->plan(declaration, stats, plan, err);
}

/* Sets the member `follows` of slots: for each dimension of the slot, the dimension of the parameter that it
 * corresponds to. Slots for which the optimizer has set `follows` are skipped. A slot with the parameter's shape has
 * the parameter's dimensions. A slot without dimensions has none to set. Slots of a block are skipped, too: they may
 * have the parameter's shape by chance. */
static void find_followers(pd_plan *plan, const pd_shape *declared)
{
    assert(declared->rank <= PD_MAX_RANK);
    for (size_t i = 0; i < plan->n_slots; i++) {
        pd_slot_spec *spec = &plan->slots[i];
        if (spec->shape.rank == 0) spec->follows_known = true;
        if (spec->follows_known || spec->identity || spec->symmetric || spec->blockwise || spec->of_block ||
            !pd_shape_equal(&spec->shape, declared))
            continue;
        spec->follows_known = true;
        for (int d = 0; d < declared->rank; d++) spec->follows[d] = (int8_t)d;
    }
}

int pd_plan_make(pd_plan *plan, const pd_declaration *declaration, const double *stats, pd_error *err)
{
    const pd_optimizer_ops *ops = declaration->hypers.row;
    pd_error why = { 0 };
    int rc;

    memset(plan, 0, sizeof *plan);
    if ((rc = fill(plan, declaration, stats, &why)) != PD_OK) {
        pd_plan_free(plan);
        return pd_fail(err, rc, "parameter %.160s: %.300s", declaration->name,
                       rc == PD_NO_MEMORY ? "out of memory for its plan" : why.text);
    }
    find_followers(plan, &declaration->shape);
    assert(plan->range_elements > 0 && plan->root_delay >= PD_ROOT_READY);
    assert(all_sound(plan) && stripes_are_sound(plan, ops));
    assert(plan->n_tasks == 0 || (ops->task != NULL && ops->due != NULL));
    assert(plan->n_tasks == 0 || ops->capture_phase <= ops->adopt_phase || plan->root_delay != 0);
    return PD_OK;
}
