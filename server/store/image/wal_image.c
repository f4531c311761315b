/* wal_image.c - writes or reads the head of an entry of a job's log, with one table of fields for both
 * directions. */
#include "wal_image.h"

#include "header_image.h"
#include "worker_states.h"
#include "optimizer.h"
#include "param_image.h"
#include "mutant.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- inputs ---- */

static const pd_field input_fields[] = { PD_FIELD_IN(pd_step_input, outcome, 0, PD_REFUSED),
                                         PD_FIELD(pd_step_input, began),
                                         PD_FIELD_IN(pd_step_input, count, 0, INT64_MAX / 2),
                                         PD_FIELD(pd_step_input, hypers_mask),
                                         PD_FIELD(pd_step_input, hypers),
                                         { 0 } };
static const pd_table input_table = { "input", sizeof(pd_step_input), input_fields };

static const pd_field root_fields[] = {
    PD_FIELD(pd_taken_root, task), PD_FIELD(pd_taken_root, count), PD_FIELD(pd_taken_root, status), { 0 }
};
static const pd_table root_table = { "taken root", sizeof(pd_taken_root), root_fields };

static void visit_input(pd_archive *archive, const pd_param *param, pd_step_input *input, pd_taken_roots *taken)
{
    pd_archive_agree(archive, "parameter", param->name);
    pd_archive_fields(archive, &input_table, input);
    if (PD_MUTANT(log_forgets_roots) && !pd_archive_is_reading(archive)) taken->n = 0;
    pd_archive_count(archive, &taken->n, taken->room, 1);
    pd_archive_records(archive, &root_table, taken->at, taken->n);
}

void pd_wal_image_visit_inputs(pd_archive *archive, pd_job *job, uint64_t step)
{
    uint64_t there = step;

    pd_archive_enter(archive, "inputs");
    pd_archive_value(archive, &there);
    if (there != step)
        pd_archive_fail(archive, PD_DATA_LOSS, "the entry is of step %" PRIu64 ", but its head of %" PRIu64, step,
                        there);
    for (uint32_t i = 0; i < job->steps.n_params && pd_archive_status(archive) == PD_OK; i++)
        visit_input(archive, &job->steps.params[i], &job->steps.wal->inputs.at[i], &job->steps.wal->params[i].taken);
    pd_archive_leave(archive);
}

/* ---- what optimizers have computed ---- */

/* Counters of an optimizer after the step, by which a replay sees that it took the same course. */
typedef struct course {
    int64_t count, due, adopted, failed, replaced, dropped;
} course;

static const pd_field course_fields[] = { PD_FIELD(course, count),
                                          PD_FIELD(course, due),
                                          PD_FIELD(course, adopted),
                                          PD_FIELD(course, failed),
                                          PD_FIELD(course, replaced),
                                          PD_FIELD(course, dropped),
                                          { 0 } };
static const pd_table course_table = { "course", sizeof(course), course_fields };

static void visit_course(pd_archive *archive, const pd_param *param)
{
    pd_root_stats stats = pd_optim_root_stats(param->optim);
    course
        here = { pd_optim_count(param->optim), stats.due, stats.adopted, stats.failed, stats.replaced, stats.dropped },
        there = here;

    pd_archive_fields(archive, &course_table, &there);
    if (pd_archive_status(archive) == PD_OK && memcmp(&here, &there, sizeof here) != 0)
        pd_archive_fail(archive, PD_DATA_LOSS,
                        "%.160s takes another course than it took: it has counted %lld steps and adopted %lld roots "
                        "(%lld failed), not %lld and %lld (%lld failed)",
                        param->name, (long long)here.count, (long long)here.adopted, (long long)here.failed,
                        (long long)there.count, (long long)there.adopted, (long long)there.failed);
}

/* ---- notes ---- */

/* Returns the rank's note for the entry of a step: that of the step, or of the step before, if it came after the entry
 * of that step. NULL: there is none. */
static const pd_worker_state *note_for(const pd_rank *rank, uint64_t step)
{
    const pd_worker_state *note = pd_worker_states_find(rank, step);

    return note != NULL && note->step + 1 >= step ? note : NULL;
}

static void write_note(pd_archive *archive, const pd_rank *rank, uint64_t step)
{
    const pd_worker_state *note = note_for(rank, step);
    uint64_t of = note != NULL ? note->step : 0;
    size_t bytes = note != NULL ? note->bytes : 0;

    pd_archive_value(archive, &of);
    pd_archive_count(archive, &bytes, PD_WORKER_STATE_MAX, 1);
    if (bytes > 0) pd_archive_bytes(archive, note->at, bytes);
}

static void read_note(pd_archive *archive, pd_job *job, pd_rank *rank)
{
    uint64_t of = 0;
    size_t bytes = 0;
    uint8_t *at;
    pd_error err;

    pd_archive_value(archive, &of);
    pd_archive_count(archive, &bytes, PD_WORKER_STATE_MAX, 1);
    if (pd_archive_status(archive) != PD_OK || of == 0) return;
    if ((at = malloc(bytes + 1)) == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for a note of %zu bytes", bytes);
        return;
    }
    pd_archive_bytes(archive, at, bytes);
    if (pd_archive_status(archive) == PD_OK && pd_worker_states_put(job, rank, of, at, bytes, &err) != PD_OK)
        pd_archive_fail(archive, err.code, "%s", err.text);
    free(at);
}

static void visit_notes(pd_archive *archive, pd_job *job, uint64_t step)
{
    pd_archive_enter(archive, "notes");
    for (uint32_t r = 0; r < job->steps.members.ranks && pd_archive_status(archive) == PD_OK; r++) {
        if (pd_archive_is_reading(archive))
            read_note(archive, job, &job->ranks[r]);
        else
            write_note(archive, &job->ranks[r], step);
    }
    pd_archive_leave(archive);
}

/* ---- the rest ---- */

void pd_wal_image_visit_rest(pd_archive *archive, pd_job *job, uint64_t step)
{
    pd_archive_enter(archive, "rest");
    for (uint32_t i = 0; i < job->steps.n_params && pd_archive_status(archive) == PD_OK; i++) {
        pd_param *param = &job->steps.params[i];
        visit_course(archive, param);
        pd_param_image_visit_record(archive, &job->steps, param);
        if (pd_archive_status(archive) == PD_OK && param->saved.step != step)
            pd_archive_fail(archive, PD_DATA_LOSS, "%.160s is at step %" PRIu64 ", but the entry is of step %" PRIu64,
                            param->name, param->saved.step, step);
    }
    if (pd_archive_status(archive) == PD_OK) pd_header_image_visit_state(archive, job);
    visit_notes(archive, job, step);
    pd_archive_leave(archive);
}
