/* steps.c - what all files of step/ use: queues of parameters, frames that have contributions, and the times of
 * steps. */
#include "steps.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

bool pd_steps_are_over_quota(const pd_steps *steps)
{
    for (uint32_t r = 0; r < steps->members.ranks; r++)
        if (pd_rank_is_over_quota(steps, r)) return true;
    return false;
}

uint64_t pd_steps_least(pd_steps *steps)
{
    if (steps->progress.n_least > 0) return steps->progress.least;
    steps->progress.least = steps->n_params > 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < steps->n_params; i++) {
        uint64_t step = steps->params[i].saved.step;
        if (step < steps->progress.least) {
            steps->progress.least = step;
            steps->progress.n_least = 0;
        }
        steps->progress.n_least += step == steps->progress.least;
    }
    return steps->progress.least;
}

void pd_steps_closed(pd_steps *steps, const pd_param *param)
{
    if (steps->progress.n_least > 0 && param->saved.step == steps->progress.least + 1) steps->progress.n_least--;
}

void pd_steps_ready(pd_steps *steps, pd_param *param, pd_stage stage)
{
    param->stage = stage;
    DL_APPEND2(steps->queue.ready, param, links.prev_ready, links.next_ready);
}

pd_published *pd_steps_new_version(const pd_steps *steps, const pd_param *param, uint64_t version)
{
    pd_published *next = pd_published_new(param->buffers.pool, param->elements);

    if (next == NULL) return NULL;
    next->job = steps->number;
    next->param = param->index;
    next->version = version;
    return next;
}

static void return_buffer(pd_steps *steps, pd_request *frame)
{
    pd_buffer *buffer = frame->u.data.buffer;
    pd_effect *effect = pd_request_become(frame, PD_EFF_BUFFER, (pd_ticket){ buffer->conn, 0 }, steps->number);

    effect->u.buffer = buffer;
    pd_effects_add(steps->outbox, effect);
}

/* Returns the answer to the rank's Declare if it has not left yet; NULL: it has. */
static pd_effect *answer_of(const pd_steps *steps, const pd_quota *quota)
{
    return quota->answer != NULL ? quota->answer : pd_withheld_declared(&steps->withheld, quota->conn);
}

/* Lets a buffer return to the connection that is charged for the rank's frames now: the one on which the rank has
 * declared, which is charged for those of earlier connections when the answer to its Declare comes. Until then it is
 * not charged for them, and the answer charges it for less. */
static void address(const pd_steps *steps, const pd_quota *quota, pd_buffer *buffer)
{
    pd_effect *answer = buffer->conn != quota->conn ? answer_of(steps, quota) : NULL;

    if (answer == NULL) {
        buffer->conn = quota->conn;
        return;
    }
    assert(answer->u.declared.held >= buffer->charged);
    answer->u.declared.held -= buffer->charged;
}

void pd_frame_let_go(pd_steps *steps, pd_request *frame)
{
    pd_buffer *buffer = frame->u.data.buffer;
    pd_quota *quota = &steps->quotas[frame->rank];

    assert(buffer->refs > 0);
    if (--buffer->refs > 0) return;
    if (quota->declared) address(steps, quota, buffer);
    steps->held -= buffer->charged;
    pd_quota_let_go(steps->ingest, quota, buffer->charged);
    return_buffer(steps, frame);
}

void pd_frame_finish(pd_steps *steps, pd_request *frame)
{
    if (frame->u.data.buffer != NULL)
        return_buffer(steps, frame);
    else
        pd_request_free(frame);
}

void pd_frame_keep(pd_steps *steps, pd_request *frame)
{
    steps->chunks.look = true;
    if (frame->u.data.buffer != NULL && frame->u.data.buffer->refs > 0) {
        pd_quota_hold(steps->ingest, &steps->quotas[frame->rank], frame->u.data.buffer->charged);
        steps->held += frame->u.data.buffer->charged;
        pd_request_slim(frame);
    } else {
        pd_frame_finish(steps, frame);
    }
}

int pd_step_times_make(pd_step_times *times, uint32_t ranks)
{
    times->total.n_ranks = ranks;
    times->total.rank = calloc(ranks, sizeof *times->total.rank);
    times->memory = calloc((size_t)ranks * PD_OPEN_STEPS, sizeof *times->memory);
    if (times->total.rank == NULL || times->memory == NULL) return PD_NO_MEMORY;
    for (uint32_t i = 0; i < PD_OPEN_STEPS; i++) times->open[i].at = times->memory + (size_t)i * ranks;
    return PD_OK;
}

void pd_step_times_free(pd_step_times *times)
{
    free(times->total.rank);
    free(times->memory);
}

static void open_step(pd_step_times *times, pd_open_step *open, uint64_t step, uint64_t now_ns)
{
    uint64_t *at = open->at;

    memset(at, 0, times->total.n_ranks * sizeof *at);
    *open = (pd_open_step){ .step = step, .first_ns = now_ns, .at = at };
}

void pd_step_times_arrived(pd_step_times *times, uint64_t step, uint32_t rank, uint64_t now_ns)
{
    pd_open_step *open = &times->open[step % PD_OPEN_STEPS];

    if (step < open->step) return; /* later steps have overtaken this one */
    if (step > open->step) open_step(times, open, step, now_ns);
    open->at[rank] = open->last_ns = now_ns;
    open->last_rank = rank;
}

/* Returns the time at which the next to last rank had contributed everything; 0: only one rank has contributed. */
static uint64_t second_last_ns(const pd_open_step *open, uint32_t ranks)
{
    uint64_t second = 0;

    for (uint32_t rank = 0; rank < ranks; rank++)
        if (rank != open->last_rank && open->at[rank] > second) second = open->at[rank];
    return second;
}

static void count_last(pd_job_times *total, const pd_open_step *open)
{
    uint64_t second = second_last_ns(open, total->n_ranks);

    if (second == 0) return;
    total->rank[open->last_rank].last++;
    total->rank[open->last_rank].late_ns += open->last_ns - second;
}

void pd_step_times_closed(pd_step_times *times, uint64_t step, uint32_t n_params)
{
    pd_open_step *open = &times->open[step % PD_OPEN_STEPS];

    if (open->step != step || ++open->closed < n_params) return;
    pd_histogram_add(&times->total.phase[PD_PHASE_WAIT], open->last_ns - open->first_ns);
    count_last(&times->total, open);
    times->finished++;
}

void pd_step_times_spend(pd_step_times *times, pd_step_phase phase, uint64_t now_ns)
{
    if (now_ns > times->mark_ns) times->spent[phase] += now_ns - times->mark_ns;
    times->mark_ns = now_ns;
}

void pd_step_times_end(pd_step_times *times)
{
    if (times->finished == 0) return;
    for (int phase = PD_PHASE_SUM; phase < PD_PHASES; phase++) {
        for (uint32_t i = 0; i < times->finished; i++)
            pd_histogram_add(&times->total.phase[phase], times->spent[phase] / times->finished);
        times->spent[phase] = 0;
    }
    times->finished = 0;
}
