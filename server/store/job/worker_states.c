/* worker_states.c - holds the last notes of each rank, sorted by step. */
#include "worker_states.h"

#include "param_set.h"
#include "ranks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const pd_note *pd_notes_find(const pd_rank *rank, uint64_t step)
{
    const pd_note *found = NULL;

    for (uint32_t i = 0; i < rank->n_notes && rank->notes[i].step <= step; i++) found = &rank->notes[i];
    return found;
}

static void drop(pd_job *job, pd_rank *rank, uint32_t i)
{
    pd_account_give(&job->steps.account, rank->notes[i].bytes);
    free(rank->notes[i].at);
    rank->n_notes--;
    memmove(&rank->notes[i], &rank->notes[i + 1], (rank->n_notes - i) * sizeof rank->notes[0]);
}

/* Makes room for a note of step `step`: drops the note of the same step, or the oldest note if all places are taken.
 * The note that the checkpoint being made needs is not dropped. */
static void make_room(pd_job *job, pd_rank *rank, uint64_t step)
{
    const pd_note *needed = job->checkpointing.making != NULL ? pd_notes_find(rank, job->checkpointing.cut_step) : NULL;

    for (uint32_t i = 0; i < rank->n_notes; i++)
        if (rank->notes[i].step == step) {
            drop(job, rank, i);
            return;
        }
    if (rank->n_notes == PD_NOTES) drop(job, rank, needed == &rank->notes[0] ? 1 : 0);
}

static void insert(pd_rank *rank, pd_note note)
{
    uint32_t i = rank->n_notes++;

    assert(i < PD_NOTES);
    for (; i > 0 && rank->notes[i - 1].step > note.step; i--) rank->notes[i] = rank->notes[i - 1];
    rank->notes[i] = note;
}

int pd_notes_put(pd_job *job, pd_rank *rank, uint64_t step, const void *at, size_t bytes, pd_error *err)
{
    pd_note note = { .step = step, .bytes = bytes };
    int rc = pd_job_check_total(job, bytes, err);

    if (rc != PD_OK) return rc;
    if (bytes > 0 && (note.at = malloc(bytes)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for a note of %zu bytes", job->steps.name, bytes);
    if (bytes > 0) memcpy(note.at, at, bytes);
    make_room(job, rank, step);
    insert(rank, note);
    pd_account_take(&job->steps.account, bytes);
    return PD_OK;
}

static int take(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_rank *rank = pd_rank_speaker(job, request, err);
    const pd_buffer *buffer = request->u.note.buffer;

    if (rank == NULL) return err->code;
    if (request->u.note.step == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a note belongs to a step, the first of which is 1, not to step 0");
    if (request->u.note.bytes > PD_NOTE_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a note has at most %u bytes, not %zu", PD_NOTE_MAX,
                       request->u.note.bytes);
    return pd_notes_put(job, rank, request->u.note.step, buffer != NULL ? buffer->at : NULL,
                        buffer != NULL ? request->u.note.bytes : 0, err);
}

void pd_job_note(pd_job *job, pd_request *request)
{
    pd_error err;

    if (take(job, request, &err) != PD_OK) {
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    pd_answer_ok(job->steps.outbox, request);
    pd_request_done(job->steps.outbox, request);
}

void pd_job_recall(pd_job *job, pd_request *request)
{
    pd_error err;
    const pd_rank *rank = pd_rank_speaker(job, request, &err);
    const pd_note *note = rank != NULL ? pd_notes_find(rank, pd_steps_least(&job->steps)) : NULL;
    uint8_t *copy = note != NULL && note->bytes > 0 ? malloc(note->bytes) : NULL;
    pd_effect *effect;

    if (rank != NULL && note != NULL && note->bytes > 0 && copy == NULL) {
        pd_fail(&err, PD_NO_MEMORY, "job %.100s: out of memory for a note of %zu bytes: ask again", job->steps.name,
                note->bytes);
        rank = NULL;
    }
    if (rank == NULL) {
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    effect = pd_answer(request, PD_EFF_RECALL);
    if (copy != NULL) memcpy(copy, note->at, note->bytes);
    effect->u.recalled.step = note != NULL ? note->step : 0;
    effect->u.recalled.at = copy;
    effect->u.recalled.bytes = note != NULL ? note->bytes : 0;
    pd_effects_add(job->steps.outbox, effect);
    pd_request_free(request);
}
