/* worker_states.c - stores and returns the last worker states of each rank, sorted by step. */
#include "worker_states.h"

#include "param_set.h"
#include "ranks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const pd_worker_state *pd_worker_states_find(const pd_rank *rank, uint64_t step)
{
    const pd_worker_state *found = NULL;

    for (uint32_t i = 0; i < rank->n_worker_states && rank->worker_states[i].step <= step; i++)
        found = &rank->worker_states[i];
    return found;
}

static void drop(pd_job *job, pd_rank *rank, uint32_t i)
{
    pd_account_give(&job->steps.account, rank->worker_states[i].bytes);
    free(rank->worker_states[i].at);
    rank->n_worker_states--;
    memmove(&rank->worker_states[i], &rank->worker_states[i + 1],
            (rank->n_worker_states - i) * sizeof rank->worker_states[0]);
}

/* Makes room for a worker state of step `step`: drops the rank's worker state of the same step, or else the oldest one
 * if PD_WORKER_STATES are stored. Does not drop the worker state that the checkpoint being made needs. */
static void make_room(pd_job *job, pd_rank *rank, uint64_t step)
{
    const pd_worker_state *needed =
        job->checkpointing.making != NULL ? pd_worker_states_find(rank, job->checkpointing.cut.least) : NULL;

    for (uint32_t i = 0; i < rank->n_worker_states; i++)
        if (rank->worker_states[i].step == step) {
            drop(job, rank, i);
            return;
        }
    if (rank->n_worker_states == PD_WORKER_STATES) drop(job, rank, needed == &rank->worker_states[0] ? 1 : 0);
}

void pd_worker_states_forget(pd_job *job, pd_rank *rank)
{
    while (rank->n_worker_states > 0) drop(job, rank, rank->n_worker_states - 1);
}

static void insert(pd_rank *rank, pd_worker_state state)
{
    uint32_t i = rank->n_worker_states++;

    assert(i < PD_WORKER_STATES);
    for (; i > 0 && rank->worker_states[i - 1].step > state.step; i--)
        rank->worker_states[i] = rank->worker_states[i - 1];
    rank->worker_states[i] = state;
}

int pd_worker_states_put(pd_job *job, pd_rank *rank, uint64_t step, const void *at, size_t bytes, pd_error *err)
{
    pd_worker_state state = { .step = step, .bytes = bytes };
    int rc = pd_job_check_total(job, bytes, err);

    if (rc != PD_OK) return rc;
    if (bytes > 0 && (state.at = malloc(bytes)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for a worker state of %zu bytes", job->steps.name,
                       bytes);
    if (bytes > 0) memcpy(state.at, at, bytes);
    make_room(job, rank, step);
    insert(rank, state);
    pd_account_take(&job->steps.account, bytes);
    return PD_OK;
}

static int take(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_rank *rank = pd_rank_speaker(job, request, err);
    const pd_buffer *buffer = request->u.worker_state.buffer;

    if (rank == NULL) return err->code;
    if (request->u.worker_state.step == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "worker state: expected a step from 1 on, got 0");
    if (request->u.worker_state.bytes > PD_WORKER_STATE_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "worker state: expected at most %u bytes, got %zu",
                       PD_WORKER_STATE_MAX, request->u.worker_state.bytes);
    return pd_worker_states_put(job, rank, request->u.worker_state.step, buffer != NULL ? buffer->at : NULL,
                                buffer != NULL ? request->u.worker_state.bytes : 0, err);
}

void pd_worker_states_take(pd_job *job, pd_request *request)
{
    pd_error err;

    if (take(job, request, &err) != PD_OK) {
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    pd_answer_ok(job->steps.outbox, request);
    pd_request_done(job->steps.outbox, request);
}

void pd_worker_states_answer(pd_job *job, pd_request *request)
{
    pd_error err;
    const pd_rank *rank = pd_rank_speaker(job, request, &err);
    const pd_worker_state *state = rank != NULL ? pd_worker_states_find(rank, pd_steps_least(&job->steps)) : NULL;
    uint8_t *copy = state != NULL && state->bytes > 0 ? malloc(state->bytes) : NULL;
    pd_effect *effect;

    if (rank != NULL && state != NULL && state->bytes > 0 && copy == NULL) {
        pd_fail(&err, PD_NO_MEMORY, "job %.100s: out of memory for a worker state of %zu bytes: ask again",
                job->steps.name, state->bytes);
        rank = NULL;
    }
    if (rank == NULL) {
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    effect = pd_answer(request, PD_EFF_WORKER_STATE);
    if (copy != NULL) memcpy(copy, state->at, state->bytes);
    effect->u.worker_state.step = state != NULL ? state->step : 0;
    effect->u.worker_state.at = copy;
    effect->u.worker_state.bytes = state != NULL ? state->bytes : 0;
    pd_effects_add(job->steps.outbox, effect);
    pd_request_free(request);
}
