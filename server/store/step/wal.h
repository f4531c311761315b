/* wal.h - collects in memory the decisions and inputs of a job's steps for its WAL, and repeats steps with those that
 * were read back. Step thread.
 *
 * After a restart a job continues from a checkpoint, and takes the steps after it again. They must get the same
 * bits. Two streams of records see to that (base/wal_record.h); image/wal_records.h makes records and hands them to
 * the disk, image/wal_replay.h reads them back.
 *
 * The stream of decisions is for every job with checkpoints. Workers send the contributions after the checkpoint
 * again, so only choices are recorded:
 *
 *   - which preconditioner tasks a step took with root_delay = ready;
 *   - which ranks counted in a step, if not all did (fragment.h): answers wait until the disk has that (withheld.h);
 *   - when ranks began and ceased to have leases (leases.h): answers wait for that, too;
 *   - values that operators set, with the step from which they hold;
 *   - which ranks have left for good: their workers are answered when the disk has that (job/ranks.h).
 *
 * When a step is repeated, it takes the roots of its decision, its round counts the ranks of its decision, and the
 * overrides of its decisions are put in force before it. Leases change again after the set that they had changed after.
 *
 * The stream of steps is for jobs with durability = log, in addition: a record for each step, with the aggregates,
 * the hyperparameters and the roots that the optimizers read. Such a job needs no contributions to repeat a step. Its
 * decisions are overrides and leases alone, since roots are in the record of the step.
 *
 * The stream of steps holds parameters back. No parameter begins step s + 1 before the record of step s is complete,
 * so that all state that belongs to no parameter is of one step. If the job has several fragments, each step of a
 * fragment has a record of its own, with the place of the step as its number (pd_steps.place): one fragment takes a
 * step at a time, and begins when all its parameters can. And while PD_WAL_MOST records are under way to the disk,
 * no parameter begins another step: the job runs at the speed of the disk. */
#ifndef PD_WAL_H
#define PD_WAL_H

#include "override.h"
#include "shares.h"
#include "steps.h"
#include "task.h"

/* ---- decisions ---- */

typedef enum pd_decision_kind {
    PD_DECISION_ROOTS, /* `taken`: the preconditioner tasks that the step took, possibly none although some were due */
    /* `counted`: the ranks that counted in the step of a fragment; `param` is the first parameter of the fragment */
    PD_DECISION_ROUND,
    /* An operator's command that sets values. Its decision has two forms. The form for the disk has the command as
     * bytes (job/override_command.h), and `step` is the step of the last copy of the job's state before the command.
     * After that form is read back, there is one decision for each parameter that the command matches: `override` holds
     * from step `from` on, and `step` is the first step that the parameter had not begun when the command came. */
    PD_DECISION_SET,
    /* `lease`: a change of leases that does not follow from a set (leases.h). `step` is the last step whose set was
     * fixed before the change; `param` is the number of the fragment */
    PD_DECISION_LEASE,
} pd_decision_kind;

/* A decision. pd_decision_kind says which members it has; the others are 0 or NULL. */
typedef struct pd_decision {
    struct pd_decision *next;
    pd_decision_kind kind;
    uint32_t param;        /* index of the parameter; not used if there is a command */
    uint64_t step;         /* the step that made the decision; PD_DECISION_SET: as described there */
    pd_taken_roots taken;  /* its list lies in memory directly after this struct */
    pd_counted *counted;   /* a reference to the ranks */
    pd_override *override; /* a reference to the override */
    uint64_t from;         /* first step to which the override applies */
    uint8_t *command;      /* a command as bytes */
    size_t command_bytes;
    pd_lease_change lease;
} pd_decision;

/* Decisions in the order in which they were made, linked by `next`. */
typedef struct pd_decision_list {
    pd_decision *first, *last;
} pd_decision_list;

/* The decisions of a job: those for the next record, and the number of those that were read back. */
typedef struct pd_decisions {
    bool on;       /* decisions are recorded */
    bool overflow; /* a decision was not recorded, because there was no room or memory for it */
    bool differs;  /* a repeated step has made another decision than before the restart */
    /* The next record begins the stream anew, and replaces all earlier records. So it also needs the decisions that
     * were read back. A decision whose step is repeated before the record is made is moved to `made`. */
    bool renews;
    pd_decision_list made; /* decisions for the next record */
    uint64_t bytes, most;  /* bytes of `made`; most bytes that it may have */
    uint64_t n_read;       /* number of decisions that were read back and are not repeated yet, of all parameters */
    uint64_t read_bytes;   /* bytes of these decisions, which are charged to the job's account */
} pd_decisions;

/* ---- the inputs of a step ---- */

/* What the optimizer of one parameter has read in a step, besides the roots that it took. */
typedef struct pd_step_input {
    uint32_t outcome;     /* how the round ended (pd_outcome) */
    bool began;           /* the optimizer has run; it may have refused the step */
    int64_t count;        /* the optimizer's count of steps before this one */
    uint64_t hypers_mask; /* bit h: hyperparameter h had a value for this step alone */
    double hypers[PD_MAX_HYPERS];
    float *aggregate; /* the buffer that the optimizer has read; NULL: the round ended without a step */
} pd_step_input;

/* The inputs for the next record of the stream of steps. */
typedef struct pd_step_inputs {
    bool on;        /* steps are recorded */
    uint64_t base;  /* place of the checkpoint that the records follow */
    uint64_t place; /* place of the step whose inputs are being collected; with one fragment: its number */
    /* the fragment that takes this step; NULL: the job has several, and none has begun */
    const struct pd_fragment *fragment;
    uint64_t step;      /* the number of this step in its fragment, if there is a fragment */
    uint32_t missing;   /* number of parameters of the fragment that have not closed it */
    uint32_t under_way; /* number of records on their way to the disk, also of those that follow earlier checkpoints */
    pd_step_input *at;  /* one for each parameter; NULL: the job has no stream of steps */
} pd_step_inputs;

/* ---- the WAL ---- */

/* The WAL's data of one parameter. */
typedef struct pd_wal_param {
    /* decisions that were read back, oldest first: of steps that the parameter has not closed, and overrides */
    pd_decision_list read;
    /* the preconditioner tasks that the present step takes; room 0: the parameter's tasks need not be recorded */
    pd_taken_roots taken;
    bool repeats; /* the present step takes the roots of a decision that was read back */
} pd_wal_param;

typedef struct pd_wal {
    pd_decisions decisions;
    pd_step_inputs inputs;
    pd_taken_root *roots; /* memory of the lists params[].taken */
    pd_wal_param params[];
} pd_wal;

/* Return the bytes that the WAL takes in memory, without aggregates: for a parameter with this plan, and for the job
 * itself. `logged`: the job has a stream of steps; `slots`: number of ranks if the job's sets are open, otherwise 0;
 * `fragments`: their number. */
uint64_t pd_wal_param_bytes(const pd_plan *plan, bool logged);
uint64_t pd_wal_own_bytes(uint32_t slots, uint32_t fragments);

/* Makes the WAL of a job with checkpoints, whose parameters are known. Both streams are off. PD_NO_MEMORY: nothing has
 * changed. */
int pd_wal_make(pd_steps *steps);
/* Frees the WAL. The parameters must still have their pools. */
void pd_wal_free(pd_steps *steps);

/* ---- for riders.c ---- */

/* Returns whether the parameter, whose next step could begin, is held back by the stream of steps or by a pause. */
bool pd_wal_stops(const pd_steps *steps, const pd_param *param);
/* Puts those overrides in force that were read back and had come before the parameter's next step began. PD_NO_MEMORY:
 * the caller tries again later. */
int pd_wal_before(pd_steps *steps, pd_param *param);
/* Records the inputs of a step that the optimizer has just begun, or lets the step take the roots of a decision that
 * was read back. `count` is the optimizer's step count before the step. */
void pd_wal_begun(pd_steps *steps, pd_param *param, const pd_step_io *io, int64_t count);
/* Records the decisions of a round that has just closed, and drops the decisions of its step that were read back. Takes
 * the aggregate for the stream of steps: param->buffers.accumulator becomes NULL. Call it when param->saved.step is the
 * round's step, before the round is reset. */
void pd_wal_closed(pd_steps *steps, pd_param *param);

/* ---- the stream of steps ---- */

/* Begins to record steps after the one at `place`; the records follow the checkpoint at place `base`. All parameters
 * must have closed the last step of their fragment, and none may have begun the next one. */
void pd_wal_begin_steps(pd_steps *steps, uint64_t base, uint64_t place);
/* Stops recording steps, and returns the aggregates of the incomplete step to their pools. The caller releases stopped
 * parameters (pd_riders_release). */
void pd_wal_end_steps(pd_steps *steps);
/* Begins to collect the inputs of the next step, after the aggregates of the present step were taken. */
void pd_wal_next_step(pd_steps *steps);
/* Lets the fragment take the next step whose inputs are collected. Call it before a parameter of the fragment begins
 * the step. Does nothing if it has this step already, or if no steps are recorded. */
void pd_wal_enter(pd_steps *steps, const struct pd_fragment *fragment);
/* Returns whether all parameters of a fragment must be able to begin their step before one of them does. */
bool pd_wal_gathers(const pd_steps *steps);
/* Returns whether all parameters have closed the step whose inputs are collected. */
bool pd_wal_is_complete(const pd_steps *steps);

/* Returns whether steps are recorded. */
static inline bool pd_wal_records_steps(const pd_steps *steps)
{
    return steps->wal != NULL && steps->wal->inputs.on;
}

/* Returns whether the job is paused, because the disk fails: image/checkpoint_state.h. */
static inline bool pd_steps_are_paused(const pd_steps *steps)
{
    return steps->queue.limit != UINT64_MAX;
}

/* Returns whether answers wait for changes of leases that no record will have: only a checkpoint can bring them. */
static inline bool pd_wal_lacks_leases(const pd_steps *steps)
{
    return steps->wal != NULL && !steps->wal->decisions.on && pd_withheld_lacks_leases(&steps->withheld);
}

/* Returns another parameter for which this stopped parameter waits, because it has not closed the present step. NULL:
 * this parameter waits for the disk. */
const pd_param *pd_wal_awaited(const pd_steps *steps, const pd_param *param);

/* ---- decisions that are made ---- */

/* Records a command that sets values. `copied` is the step of the last copy of the job's state before the command.
 * Takes ownership of the bytes. Returns false if the command was not recorded. */
bool pd_wal_record_command(pd_steps *steps, uint8_t *command, size_t bytes, uint64_t copied);
/* Drops all decisions that were made for the next record. */
void pd_wal_drop_made(pd_wal *wal);

/* ---- decisions that were read back ---- */

/* Makes a decision with room for n preconditioner tasks. NULL: out of memory. */
pd_decision *pd_decision_new(pd_decision_kind kind, uint32_t param, uint64_t step, size_t n);
void pd_decision_free(pd_decision *decision); /* accepts NULL */
/* Adds a decision that was read back. Drops it if the parameter has closed its step. Call it for all decisions in the
 * order in which they were made. Takes ownership of the decision. */
void pd_wal_add_read(pd_steps *steps, pd_decision *decision);
/* Drops the decisions that were read back, of all parameters. If `overrides` is false, keeps overrides, sets of ranks
 * and changes of leases. */
void pd_wal_drop_read(pd_steps *steps, bool overrides);
/* Drops the decisions that were read back, of all parameters, except overrides. */
void pd_wal_forget_course(pd_steps *steps);
/* Puts all overrides that were read back in force now, each from its step on, instead of just before that step. Call it
 * before the state of the job is copied, so that the copy has them. No step may be under way. PD_NO_MEMORY, or
 * PD_RESOURCE_EXHAUSTED if a parameter would have too many: the overrides that are left are put in force before the
 * next steps. */
int pd_wal_put_overrides(pd_steps *steps, pd_error *err);
/* Returns whether there are decisions that were read back and are not repeated yet. */
bool pd_wal_repeats(const pd_steps *steps);
/* Returns whether a step that is repeated later takes the result of this task of the parameter. */
bool pd_wal_needs(const pd_steps *steps, const pd_param *param, const pd_task *task);

/* ---- sets of ranks: for fragment.c ---- */

/* Returns the set of ranks that was decided for this step of the fragment before a restart; borrowed until the step is
 * fixed. NULL: none was. */
const pd_counted *pd_wal_recorded_set(const pd_steps *steps, const struct pd_fragment *fragment, uint64_t step);
/* Returns whether the set has all ranks, each with a contribution to the step itself: such sets are not recorded. */
bool pd_wal_is_whole(const pd_counted *set);
/* Records the set of step fragment->fixed, which has just been fixed, unless it was decided before a restart, or all
 * ranks count with contributions to this step. Withholds the report of the step until the disk has the record. */
void pd_wal_fixed(pd_steps *steps, const struct pd_fragment *fragment, const pd_counted *set);
/* Returns whether sets of fragment 0, from which leases follow, or changes of leases were read back that are not
 * repeated yet. */
bool pd_wal_repeats_sets(const pd_steps *steps);

/* ---- changes of leases: for leases.c ---- */

/* Records a change of leases that was made after the set of step `step` was fixed. Reports of later steps, and answers
 * to Declare, wait until the disk has it. */
void pd_wal_lease_changed(pd_steps *steps, uint64_t step, const pd_lease_change *change);
/* Returns the oldest change of leases that was read back and is not repeated yet; valid until the next call of another
 * function here. NULL: there is none. */
const pd_decision *pd_wal_recorded_lease(const pd_steps *steps);
/* Takes note that this change was repeated. */
void pd_wal_lease_repeated(pd_steps *steps);

#endif
