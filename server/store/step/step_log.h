/* step_log.h - what a step of a job has read, for the job's log: how each parameter's round ended, the aggregate, the
 * hyperparameters and the roots that its optimizer took. Step thread.
 *
 * A job with durability = log writes an entry for each step that all its parameters have closed (base/wal_record.h). An
 * optimizer that gets the same inputs again makes the same bits, so entries and the checkpoint before them bring the
 * job back. Entries are made by image/logging.h.
 *
 * The log also holds parameters back (stage PD_STOPPED). No parameter begins step s + 1 before the entry of step s is
 * complete, so all state that belongs to no parameter is as of one step, as at a cut. And if PD_WAL_MOST entries are
 * on their way to the disk, no parameter begins another step: then the job runs at the speed of the disk. The rounds of
 * parameters that are held back may collect contributions meanwhile. A pause (image/pause.h) holds them back, too. */
#ifndef PD_STEP_LOG_H
#define PD_STEP_LOG_H

#include "steps.h"
#include "task.h"

/* What one parameter has read in a step. */
typedef struct pd_step_input {
    uint32_t outcome;     /* how the round ended (pd_outcome) */
    bool began;           /* the optimizer has run; it may have refused the step */
    int64_t count;        /* the optimizer's count of steps before this one */
    uint64_t hypers_mask; /* bit h: hyperparameter h had a value for this step alone */
    double hypers[PD_MAX_HYPERS];
    pd_taken_roots taken; /* the preconditioner tasks that the step took */
    float *aggregate;     /* the buffer that the optimizer has read; NULL: the round ended without a step */
} pd_step_input;

typedef struct pd_step_log {
    bool on;                /* entries are made */
    uint64_t base;          /* step of the checkpoint that the entries follow */
    uint64_t step;          /* the step whose inputs are being collected */
    uint32_t missing;       /* number of parameters that have not closed it */
    uint32_t under_way;     /* number of entries that are on their way to the disk; also those of earlier bases */
    pd_taken_root *roots;   /* memory of the lists inputs[].taken */
    pd_step_input inputs[]; /* one for each parameter */
} pd_step_log;

/* Returns the bytes that the log takes of a parameter with so many preconditioner tasks, without aggregates. */
uint64_t pd_step_log_bytes(size_t n_tasks);
/* Makes the log of the job, which is off at first. Does nothing if the job has one. PD_NO_MEMORY. */
int pd_step_log_make(pd_steps *steps);
/* Switches the log on: entries begin after step `step`, and follow the checkpoint of step `base`. All parameters must
 * have closed step `step`, and none may have begun the next one. */
void pd_step_log_begin(pd_steps *steps, uint64_t base, uint64_t step);
/* Switches the log off: gives the aggregates of the incomplete step back. The caller lets parameters go on
 * (pd_riders_release). */
void pd_step_log_end(pd_steps *steps);
/* Begins to collect the next step, after the aggregates of the present one have been taken. */
void pd_step_log_next(pd_steps *steps);
/* Frees the log. The parameters must still have their pools. */
void pd_step_log_free(pd_steps *steps);
/* Returns whether the job's log is on. */
static inline bool pd_step_log_is_on(const pd_steps *steps)
{
    return steps->log != NULL && steps->log->on;
}

/* Returns whether the job is paused, because the disk fails: image/pause.h. */
static inline bool pd_step_log_is_paused(const pd_steps *steps)
{
    return steps->queue.limit != UINT64_MAX;
}

/* ---- for riders.c ---- */

/* Returns whether the parameter, whose next step could begin, is held back by the log or a pause. */
bool pd_step_log_stops(const pd_steps *steps, const pd_param *param);
/* Notes what a step reads that its optimizer has just begun. `count` is the optimizer's count before it. */
void pd_step_log_begun(pd_steps *steps, pd_param *param, const pd_step_io *io, int64_t count);
/* Takes the aggregate of a parameter that has just closed the step: param->buffers.accumulator becomes NULL. */
void pd_step_log_closed(pd_steps *steps, pd_param *param);
/* Returns a parameter that this held-back parameter waits for, since it has not closed the step before. NULL: the
 * parameter waits for the disk. */
const pd_param *pd_step_log_awaited(const pd_steps *steps, const pd_param *param);

#endif
