/* step_log.c - notes what the present step of a job has read, and holds parameters back that would begin the next one
 * too early. */
#include "step_log.h"

#include "optimizer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- the life of a log ---- */

uint64_t pd_step_log_bytes(size_t n_tasks)
{
    return sizeof(pd_step_input) + 4 * n_tasks * sizeof(pd_taken_root);
}

static size_t count_roots(const pd_steps *steps)
{
    size_t n = 0;

    for (uint32_t i = 0; i < steps->n_params; i++) n += pd_optim_most_taken(steps->params[i].optim);
    return n;
}

static void lay_out_roots(pd_step_log *log, const pd_steps *steps)
{
    pd_taken_root *at = log->roots;

    for (uint32_t i = 0; i < steps->n_params; i++) {
        log->inputs[i].taken.at = at;
        log->inputs[i].taken.room = pd_optim_most_taken(steps->params[i].optim);
        at += log->inputs[i].taken.room;
    }
}

int pd_step_log_make(pd_steps *steps)
{
    pd_step_log *log;

    if (steps->log != NULL) return PD_OK;
    if ((log = calloc(1, sizeof *log + steps->n_params * sizeof log->inputs[0])) == NULL) return PD_NO_MEMORY;
    if ((log->roots = calloc(count_roots(steps) + 1, sizeof *log->roots)) == NULL) {
        free(log);
        return PD_NO_MEMORY;
    }
    lay_out_roots(log, steps);
    steps->log = log;
    return PD_OK;
}

static void clear(pd_step_input *input)
{
    input->outcome = 0;
    input->began = false;
    input->hypers_mask = 0;
    input->taken.n = 0;
    input->taken.missed = false;
    input->aggregate = NULL;
}

void pd_step_log_next(pd_steps *steps)
{
    steps->log->step++;
    steps->log->missing = steps->n_params;
    for (uint32_t i = 0; i < steps->n_params; i++) clear(&steps->log->inputs[i]);
}

void pd_step_log_begin(pd_steps *steps, uint64_t base, uint64_t step)
{
    steps->log->on = true;
    steps->log->base = base;
    steps->log->step = step;
    pd_step_log_next(steps);
}

static void give_back(const pd_param *param, pd_step_input *input)
{
    if (input->aggregate != NULL) pd_buffer_pool_give(param->buffers.pool[PD_F32], input->aggregate);
    input->aggregate = NULL;
}

void pd_step_log_end(pd_steps *steps)
{
    steps->log->on = false;
    for (uint32_t i = 0; i < steps->n_params; i++) {
        give_back(&steps->params[i], &steps->log->inputs[i]);
        /* A step that is under way must not write into the list any more. */
        pd_optim_note_taken(steps->params[i].optim, NULL);
    }
}

void pd_step_log_free(pd_steps *steps)
{
    if (steps->log == NULL) return;
    pd_step_log_end(steps);
    free(steps->log->roots);
    free(steps->log);
    steps->log = NULL;
}

/* ---- holding parameters back ---- */

bool pd_step_log_stops(const pd_steps *steps, const pd_param *param)
{
    if (param->saved.step >= steps->queue.limit) return true;
    if (!pd_step_log_is_on(steps)) return false;
    return param->saved.step >= steps->log->step || steps->log->under_way >= PD_WAL_MOST;
}

const pd_param *pd_step_log_awaited(const pd_steps *steps, const pd_param *param)
{
    if (!pd_step_log_is_on(steps) || param->saved.step < steps->log->step) return NULL;
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (steps->params[i].saved.step < steps->log->step) return &steps->params[i];
    return NULL;
}

/* ---- notes of the present step ---- */

void pd_step_log_begun(pd_steps *steps, pd_param *param, const pd_step_io *io, int64_t count)
{
    pd_step_input *input;

    if (!pd_step_log_is_on(steps)) return;
    assert(param->saved.step + 1 == steps->log->step);
    input = &steps->log->inputs[param->index];
    input->began = true;
    input->count = count;
    input->hypers_mask = io->hypers_mask;
    memcpy(input->hypers, io->hypers, sizeof input->hypers);
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if ((io->hypers_mask >> h & 1) == 0) input->hypers[h] = 0;
    pd_optim_note_taken(param->optim, &input->taken);
}

void pd_step_log_closed(pd_steps *steps, pd_param *param)
{
    pd_step_input *input;

    if (!pd_step_log_is_on(steps)) return;
    assert(param->saved.step == steps->log->step && steps->log->missing > 0);
    input = &steps->log->inputs[param->index];
    input->outcome = (uint32_t)param->end.outcome;
    steps->log->missing--;
    if (!input->began) return;
    input->aggregate = param->buffers.accumulator;
    param->buffers.accumulator = NULL;
}
