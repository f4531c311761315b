/* consistent_cut.c - keeps references to the weights that all parameters of a job have at one step, and decides which
 * parameters are quiesced there. */
#include "consistent_cut.h"

#include "fragment_ranks.h"
#include "global_clip.h"
#include "mutant.h"

#include <assert.h>
#include <stdlib.h>

/* Returns the step that the parameter is working on (stage READY or later), or the last one that it has closed. */
static uint64_t step_in_work(const pd_param *param)
{
    return param->saved.step + (param->stage >= PD_READY);
}

/* Returns the lowest step that a cut of the fragment can have now. */
static uint64_t least_step(const pd_steps *steps, const pd_fragment *fragment)
{
    uint64_t step = 0;

    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->params[i].fragment == fragment && step_in_work(&steps->params[i]) > step)
            step = step_in_work(&steps->params[i]);
    step += pd_global_clip_runs(steps) ? 1 : 0;
    return steps->sets.open && fragment->fixed > step ? fragment->fixed : step;
}

uint64_t pd_cut_least_step(const pd_steps *steps)
{
    uint64_t most = 0;

    for (uint32_t f = 0; f < steps->n_fragments; f++) {
        uint64_t step = least_step(steps, &steps->fragments[f]);
        if (step > most) most = step;
    }
    return most;
}

static void take_weights(pd_cut *cut, const pd_param *param)
{
    cut->parts[param->index].weights = param->current;
    param->current->store_refs++;
    cut->behind--;
}

/* Chooses the step of a fragment in the cut. */
static void choose_step(const pd_steps *steps, pd_cut *cut, const pd_fragment *fragment, uint64_t step)
{
    if (steps->n_fragments > 1) step = least_step(steps, fragment);
    if (step > cut->step) cut->step = step;
    cut->place += step;
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->params[i].fragment == fragment) cut->parts[i].step = step;
}

int pd_cut_begin(pd_steps *steps, uint64_t step, bool quiesces)
{
    pd_cut *cut = calloc(1, sizeof *cut + steps->n_params * sizeof cut->parts[0]);

    if (cut == NULL) return PD_NO_MEMORY;
    cut->quiesces = quiesces;
    cut->behind = steps->n_params;
    for (uint32_t f = 0; f < steps->n_fragments; f++) choose_step(steps, cut, &steps->fragments[f], step);
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->params[i].saved.step == cut->parts[i].step) take_weights(cut, &steps->params[i]);
    steps->cut = cut;
    return PD_OK;
}

void pd_cut_pass(pd_steps *steps, pd_param *param)
{
    steps->cut->parts[param->index].passed = true;
}

void pd_cut_take_early(pd_steps *steps)
{
    steps->cut->early = true;
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->cut->parts[i].weights == NULL) take_weights(steps->cut, &steps->params[i]);
}

pd_cut *pd_cut_detach(pd_steps *steps)
{
    pd_cut *cut = steps->cut;

    assert(!cut->quiesces && cut->behind == 0);
    steps->cut = NULL;
    return cut;
}

void pd_cut_free(pd_cut *cut, uint32_t n_params)
{
    for (uint32_t i = 0; cut != NULL && i < n_params; i++) pd_published_unref(cut->parts[i].weights);
    free(cut);
}

void pd_cut_end(pd_steps *steps)
{
    pd_cut_free(steps->cut, steps->n_params);
    steps->cut = NULL;
}

static uint64_t weights_bytes(const pd_param *param)
{
    uint64_t each = 0;

    for (int t = PD_F32; t <= PD_BF16; t++)
        if (param->buffers.pool[t] != NULL) each += pd_dtype_size((pd_dtype)t);
    if (param->buffers.pool[PD_UPDATE] != NULL) each += pd_dtype_size(param->update_dtype);
    return each * (uint64_t)param->elements;
}

uint64_t pd_cut_bytes(const pd_steps *steps)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < steps->n_params; i++) bytes += weights_bytes(&steps->params[i]);
    return bytes;
}

const pd_param *pd_cut_awaited(const pd_steps *steps)
{
    for (uint32_t i = 0; steps->cut->behind > 0 && i < steps->n_params; i++)
        if (steps->cut->parts[i].weights == NULL) return &steps->params[i];
    return NULL;
}

void pd_cut_closed(pd_steps *steps, const pd_param *param)
{
    if (steps->cut != NULL && param->saved.step == steps->cut->parts[param->index].step && !steps->cut->early)
        take_weights(steps->cut, param);
}

void pd_cut_replaced(pd_steps *steps, const pd_param *param)
{
    pd_cut *cut = steps->cut;

    if (cut == NULL || cut->fixed || param->saved.step != cut->parts[param->index].step) return;
    pd_published_unref(cut->parts[param->index].weights);
    cut->parts[param->index].weights = param->current;
    param->current->store_refs++;
}

bool pd_cut_stops(const pd_steps *steps, const pd_param *param)
{
    const pd_cut *cut = steps->cut;

    if (cut == NULL || !cut->quiesces || PD_MUTANT(cut_without_rest) || cut->parts[param->index].passed) return false;
    return cut->early || param->saved.step >= cut->parts[param->index].step;
}

bool pd_cut_is_even(const pd_cut *cut)
{
    return !cut->early;
}
