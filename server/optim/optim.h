/* optim.h - one parameter's optimizer state, and steps as pieces that a scheduler can run in batches.
 *
 * Life of a step (single owner thread: the step thread, or whoever calls):
 *
 *     pd_optim_begin(optim, io)               nothing has run yet; count advanced
 *     do {
 *         pd_batch_run(list, n, threads)      runs each step's phases as far as they go, all under shared parallel regions
 *         while ((task = pd_optim_capture(optim)) != NULL) hand it to the root pool   (pd_task_run, then ...)
 *         pd_optim_deliver(optim, task)       when it is back
 *     } while (!pd_optim_done(optim))         a step whose due task is out is parked: pd_optim_waits
 *
 * Steps of different parameters are independent unless they are bound (pd_optim_bind) and may be batched in any company: the bits are the same. */
#ifndef PD_OPTIM_H
#define PD_OPTIM_H

#include "plan.h"

typedef struct pd_optim pd_optim;
typedef struct pd_task  pd_task;

/* Folds `survey` of n declarations that share a row into fact[PD_MAX_FACTS], in the order given. Parameters with
 * another row are passed over. */
void pd_optim_survey(const pd_row *row, const pd_declaration *params, size_t n, double *fact);
/* Surveys one more declaration, for callers that spread the survey over several turns. Call it for each in order; `fact` and `any` begin zeroed. */
void pd_optim_survey_one(const pd_row *row, const pd_declaration *param, bool *any, double *fact);

/* Plans and allocates initial state. Copies what it needs of `declaration`. Gives *out.
 * PD_INVALID_ARGUMENT: refused by the row. PD_NO_MEMORY. */
int  pd_optim_new(pd_optim **out, const pd_declaration *declaration, const double *fact, pd_error *err);
/* The same of a plan that was made of just these; takes what is in it, and leaves it empty. PD_NO_MEMORY. */
int  pd_optim_planned(pd_optim **out, const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);
/* Does the same but writes no initial values, which takes long where there is much state: call pd_optim_fill until it returns true. */
int  pd_optim_bare(pd_optim **out, const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);
/* Writes initial values until they are complete or *budget_ns is used up, and subtracts the time that it took (estimated).
 * *at says where to go on; it begins zeroed. A quantized slot is written whole. True: all values are written. False with
 * PD_NO_MEMORY in *rc: nothing has changed. */
typedef struct pd_fill { size_t slot; int64_t element; } pd_fill;
bool pd_optim_fill(pd_optim *optim, pd_fill *at, double *budget_ns, int *rc);
void pd_optim_free(pd_optim *optim);                        /* accepts NULL; also in the midst of a step */

const pd_plan   *pd_optim_plan(const pd_optim *optim);
const pd_hypers *pd_optim_hypers(const pd_optim *optim);
int64_t          pd_optim_count(const pd_optim *optim);     /* of the step begun last; 0: none yet */
int64_t          pd_optim_elements(const pd_optim *optim);
int64_t          pd_optim_state_bytes(const pd_optim *optim);
/* Borrowed view of slot i, for tests; 0 <= i < plan->n_slots. A temporary one, or one coded in fewer bits, has memory only during a step; of a float64
 * one the pointer is to be cast. */
pd_tensor        pd_optim_slot(const pd_optim *optim, size_t i);
/* Copies slot i to `out` in float32, whole and with both halves, however it is stored. Between two steps. */
void             pd_optim_read_slot(const pd_optim *optim, size_t i, float *out);
/* A part of the state by its names: slot "momentum", number -1. `block` >= 0: of a slot of that block ("block_3.factor_matrices.1" is factor_matrices, 1, 3),
 * or that block's item of a slot that has one for each (PD_SHARE_ITEM), or, where the slot is the whole parameter's, what lies in the box of that block;
 * -1: the slot as it is. */
typedef struct pd_part {
    size_t          slot;                   /* index in plan->slots */
    const pd_block *box;                    /* in the plan's shape; NULL: elements that lie together, */
    int64_t         first;                  /* from here on: 0 of the whole slot */
    pd_shape        shape;
} pd_part;
/* False: the optimizer keeps no such part. */
bool             pd_plan_part(const pd_plan *plan, const char *slot, int number, int block, pd_part *part);
/* Copies it out in float64, whatever it is stored as, or in: rounded to float32, and then to how it is stored. A symmetric slot is read with both
 * halves, and of what is written the lower one counts. Between two steps. PD_NO_MEMORY, for slots coded in fewer bits alone: nothing has changed. */
void             pd_optim_read_part(const pd_optim *optim, const pd_part *part, double *out);
int              pd_optim_write_part(pd_optim *optim, const pd_part *part, const double *in);
/* Estimated work of one step in bytes moved and operations, in nanoseconds of one core: for bounded batches. */
double           pd_optim_cost_ns(const pd_optim *optim);

/* Sets the counter, between two steps and never back: the next step counts as count + 1. For a group of parameters that counts together,
 * where it runs on while this one has no gradient; and for state that was saved. */
void pd_optim_set_count(pd_optim *optim, int64_t count);
/* Starts a step. io->gradient must not be NULL; the pointers are borrowed until the step is done, and io->draws until each task that it captured
 * has also run, which may be after the optimizer is freed.
 * PD_NO_MEMORY (temporaries): nothing has changed. */
int  pd_optim_begin(pd_optim *optim, const pd_step_io *io);
bool pd_optim_done(const pd_optim *optim);                  /* no step under way: all phases have run, or the row has refused the step */
/* Why the step that ended last was given up (the row's refusal, with the parameter's name), or NULL: it was not. Until the next begins.
 * Then the step is counted, and what the phases before task_phase did to the slots stays, but the others were not run and `after` was not
 * written. The task that was refused counts as failed and is noted; those before it are adopted, or failed, as in any other step; those behind
 * it are thrown away (pd_root_stats.dropped). Tasks that are not due yet stay out. */
const pd_error *pd_optim_refused(const pd_optim *optim);

/* Steps that stand or fall together: if one is refused, the others are, too, with the same text. Each waits for the others before its tasks are
 * adopted: those of members before the one that refuses are, those of members behind it are thrown away; of several that refuse the first one
 * counts. Wanted of steps of rows with counts_by_group whose parameters are of one group: all begun, none run, in the order of the
 * parameters. The bond is the caller's memory and lives until all are done; if one is freed before, so must be the others, unrun. Where no member
 * has a task to adopt nothing can be refused, and none waits for another.
 * A member that waits for another one (pd_optim_waits) may go on when that has run or a task was delivered to it: look at all members then. */
typedef struct pd_bond {
    size_t   steps, arrived;
    size_t   first;                         /* position of the first member that refuses; steps: none does */
    pd_error why;
} pd_bond;
void pd_optim_bind(pd_optim *const *steps, size_t n, pd_bond *bond);
bool pd_optim_rests(const pd_optim *optim);                 /* no step is under way, and no task is out or kept for a later step */
bool pd_optim_waits(const pd_optim *optim);                 /* parked: a task that is due to be adopted is not back, here or in the bond */

/* Runs the phases of n steps under way as far as they go (to the end or to a wait), with one parallel region per phase
 * over the units of all of them. `threads` >= 1. Parked steps in the list are passed over.
 * PD_NO_MEMORY (scratch): nothing has run. */
int  pd_batch_run(pd_optim *const *steps, size_t n, int threads);

/* The next task captured and not handed out yet, in the order of the plan; NULL: none. Gives: it must come back by pd_optim_deliver, run or
 * not; only after the optim was freed may it be freed instead. A task owns all it reads, so the optim may be freed while it is out.
 * Where there was no memory for a task's copies it counts as failed and never shows. */
pd_task *pd_optim_capture(pd_optim *optim);
/* Any thread; pure. Fills the task's result and status. */
void     pd_task_run(pd_task *task);
/* Whoever ran it: how long that took, where there is a clock. */
void     pd_task_took(pd_task *task, double ms);
/* Takes the task. One that was not run counts as failed. Adopted at its step (count + root_delay), by pd_batch_run. */
void     pd_optim_deliver(pd_optim *optim, pd_task *task);
/* Step thread, as all but pd_task_run: it shares the plan with its optim. Accepts NULL. */
void     pd_task_free(pd_task *task);
double   pd_task_cost(const pd_task *task);                 /* estimated operations: the pool runs the largest first */

/* Which of plan->tasks it is. */
int      pd_task_index(const pd_task *task);
/* PD_ROOT_READY: it may come home unrun when a newer one of its index is there. Elsewhere each is awaited and must be run. */
bool     pd_task_replaceable(const pd_task *task);

typedef struct pd_root_stats {
    int64_t due, adopted, failed, waits;    /* tasks; waits: steps that were parked */
    int64_t replaced;                       /* PD_ROOT_READY: newer statistics came before it had run, or its result after a newer one */
    int64_t dropped;                        /* thrown away because the step was given up before them */
    double  last_error, last_cost_ms;       /* largest among those adopted last */
} pd_root_stats;
pd_root_stats pd_optim_root_stats(const pd_optim *optim);

/* What is known of the root that one task of the plan keeps. */
typedef struct pd_root_state {
    int64_t count;                          /* of the statistics that the root in use was made from; 0: none was adopted yet */
    int64_t adopted, failed;
    double  error, condition, ms;           /* of the task that ran last, adopted or refused; 0: not known */
    bool    failing;                        /* that one was refused, or had no memory */
} pd_root_state;
/* By plan->tasks; 0 <= task < plan->n_tasks. */
pd_root_state pd_optim_root(const pd_optim *optim, size_t task);

#endif
