/* control.h - records of the course that a job's steps have taken, as far as it does not follow from the contributions.
 * Step thread.
 *
 * After a restart workers send the contributions again that came after the last checkpoint, and the steps are taken
 * once more. They get the same bits only if they take the same course. Three things do not follow from contributions:
 *
 *   - which preconditioner tasks a step took with root_delay = ready;
 *   - which ranks counted in a round that its policy (round/round.h) closed without all expected ranks;
 *   - values that operators set, with the step from which they hold.
 *
 * For each of these a record is made. Steps and rounds without such a choice make none. image/control_log.h writes the
 * records to the disk, in entries of the job's control log, and reads them back at the start: a step with a record then
 * takes the roots of the record, a round counts its ranks, an override is put in force before its step.
 *
 * A job with a log of steps (step_log.h) has roots in that log, so its control log has overrides alone. */
#ifndef PD_CONTROL_H
#define PD_CONTROL_H

#include "override.h"
#include "steps.h"
#include "task.h"

typedef enum pd_control_kind {
    PD_CONTROL_ROOTS, /* `taken`: the preconditioner tasks that the step took; maybe none, though some were back */
    PD_CONTROL_ROUND, /* `counted`: the ranks that counted in the round of the step */
    /* An operator's command that sets values. Two kinds of record are of it. The one that goes to the disk has the
     * command as bytes (job/set_record.h); `step` is that of the last copy of the job's state before it. When that is
     * read back, it becomes one record for each parameter that the command matches: `override` holds from step `from`
     * on, and `step` is the first step that the parameter had not begun when the command came. */
    PD_CONTROL_SET,
} pd_control_kind;

typedef struct pd_control_record {
    struct pd_control_record *next;
    pd_control_kind kind;
    uint32_t param; /* index of the parameter; not used by a command that was made */
    uint64_t step;
    pd_taken_roots taken;  /* its list lies in memory behind this struct */
    pd_counted *counted;   /* NULL: none */
    pd_override *override; /* NULL: none */
    uint64_t from;
    uint8_t *command; /* NULL: none */
    size_t command_bytes;
} pd_control_record;

/* Records in the order in which they were made, linked by `next`. */
typedef struct pd_control_list {
    pd_control_record *first, *last;
} pd_control_list;

/* What is known of one parameter. */
typedef struct pd_control_param {
    /* records that were read back, of steps that the parameter has not closed, the oldest first */
    pd_control_list noted;
    /* the preconditioner tasks that the present step takes; room 0: steps of this parameter have no choice of roots */
    pd_taken_roots taken;
    bool repeats; /* the present step takes the roots of a record that was read back */
} pd_control_param;

typedef struct pd_control {
    bool on;       /* records are made */
    bool overflow; /* a record was not made, since there was no room or memory for it */
    bool differs;  /* a step has taken another course than the record that was read back */
    /* The next entry has the records that were read back, too, since no entry before it will count any more. Records of
     * steps that are repeated before that are put among those that were made. */
    bool renews;
    pd_control_list made; /* records for the next entry */
    uint64_t bytes, most; /* bytes of `made`, and the most that it may have */
    uint64_t n_noted;     /* number of records that were read back, of all parameters */
    uint64_t noted_bytes; /* bytes of these, which the job's account counts */
    pd_taken_root *roots; /* memory of the lists params[].taken */
    pd_control_param params[];
} pd_control;

/* Returns the bytes that records of a job take: for each parameter with this plan, and for the job itself. */
uint64_t pd_control_param_bytes(const pd_plan *plan);
uint64_t pd_control_own_bytes(void);

/* Makes the control records of a job, whose parameters are known. No record is made before the member `on` is true.
 * PD_NO_MEMORY. */
int pd_control_make(pd_steps *steps);
void pd_control_free(pd_steps *steps);

/* ---- making records ---- */

/* Makes a record of a command that sets values, which came after the state of step `copied` was copied. Takes ownership
 * of the bytes. Returns false if no record was made. */
bool pd_control_note_command(pd_steps *steps, uint8_t *command, size_t bytes, uint64_t copied);
/* Drops all records that were made. */
void pd_control_drop_made(pd_control *control);

/* ---- records that were read back ---- */

/* Makes a record with room for n preconditioner tasks. NULL: out of memory. */
pd_control_record *pd_control_record_new(pd_control_kind kind, uint32_t param, uint64_t step, size_t n);
void pd_control_record_free(pd_control_record *record); /* accepts NULL */
/* Adds a record that was read back; call it in the order in which the records were made. One of a step that the
 * parameter has closed is dropped. Takes ownership of it. */
void pd_control_add(pd_steps *steps, pd_control_record *record);
/* Drops the records that were read back of all parameters; with `overrides` false only those of roots, and of rounds
 * that are not open yet. */
void pd_control_drop_noted(pd_steps *steps, bool overrides);
/* Puts all overrides that were read back in force now, each from its step on, instead of just before that step. Call it
 * before the state of the job is copied, so that the copy has them. No step may be under way. PD_NO_MEMORY;
 * PD_RESOURCE_EXHAUSTED: they are more than a parameter may have at once. After an error those that are left are put in
 * force before the next step. */
int pd_control_put_overrides(pd_steps *steps, pd_error *err);
/* Returns whether the job repeats steps of which there are records. */
bool pd_control_repeats(const pd_steps *steps);

/* ---- for the files that run rounds and steps ---- */

/* Puts overrides in force that hold from the parameter's next step on. PD_NO_MEMORY: try again. */
int pd_control_before(pd_steps *steps, pd_param *param);
/* Lets the step that has just begun note which roots it takes, or take those of its record. */
void pd_control_begun(pd_steps *steps, pd_param *param);
/* Makes the records of a round that has just closed, and drops those that were read back. Call it before the round is
 * reset, when param->saved.step is its step. */
void pd_control_closed(pd_steps *steps, pd_param *param);
/* Returns whether all contributions have come to the parameter's open round that its record counts. */
bool pd_control_round_is_full(const pd_param *param);

#endif
