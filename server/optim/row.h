/* row.h - the row contract: the data and functions that define an optimizer, as one row of the table of optimizers.
 *
 * A row is pure data and pure functions. `plan` defines the state that a parameter needs. `phases` are the work of
 * one step. A phase is divided into units, which threads compute in parallel, and ends with a barrier. `task` is the
 * expensive part, which runs on the root pool. `adopt` stores a task's result. The callers of a row do all the rest:
 * threads, memory, rounds, files and the network. They treat all rows alike and never compare a row's name.
 *
 * One step of one parameter, with root delay d:
 *
 *     count += 1
 *     for phase = 0 .. n:
 *         if phase == capture_phase: capture the tasks due at this count (private copies of their input slots)
 *         if phase == adopt_phase:   wait for and adopt the tasks that are due for adoption
 *         if phase < n:              run phases[phase]
 *
 * A task that was captured in step c is due for adoption in step c + d. The parameter may have no step of that
 * number, if its group counts steps together: then the task is due in its next step. With PD_ROOT_READY a task is
 * due as soon as it is back, and no step waits.
 *
 * There are two kinds of rows:
 *
 *   - capture_phase <= adopt_phase: statistics, roots, new weights. With d = 0 a step uses the roots of its own
 *     statistics. Tasks do not see the changes of phases between the two. Most rows have capture_phase == adopt_phase.
 *   - capture_phase > adopt_phase: roots are computed after the weights, as in SOAP (capture_phase may be n). A step
 *     cannot adopt a task that it captures later, so d is at least 1 or PD_ROOT_READY. With d = 1 the results have the
 *     same bits as with roots computed at the end of the step, but the tasks run while workers compute the next
 *     gradient.
 *
 * The caller of a row (the step thread, a test, another program) runs each phase over all units in one parallel
 * region. A unit runs on one thread, and BLAS has one thread. A phase opens no parallel region, computes no root and
 * allocates nothing, and its result does not depend on which thread runs which unit.
 *
 * A unit of a PD_BLOCKS phase, and `adopt`, may have products so large that one thread would take long: those of
 * block_products.h and kron_factor.h. They are cut into stripes by their sizes (stripes.h). Threads that have no unit
 * left compute stripes of the units that still run. The plan of such a parameter says so (plan->large_products).
 *
 * A phase of kind PD_STRIPES is for an iteration on one large matrix, which needs more than products. It has
 * plan->stripes units for each block, and is repeated (`rounds`), with a barrier after each round. The number of
 * stripes is set by the plan and not by the number of threads, so the bits do not depend on threads. */
#ifndef PD_ROW_H
#define PD_ROW_H

#include "paramd/optim.h"
#include "plan.h"
#include "random.h"

#define PD_MAX_PHASES 12
#define PD_MAX_PARTIALS 8 /* most numbers that a unit can report from a phase (pd_unit.partial) */
#define PD_MAX_FACTS 8    /* most facts that an optimizer can have (pd_fact) */

/* ---- facts: numbers about all parameters of a job, needed before one of them is planned ---- */

/* How several values become one: the largest, or the sum. The values are taken in order; without values the result
 * is 0. A NaN stays. */
typedef enum pd_fold { PD_FOLD_MAX, PD_FOLD_SUM } pd_fold;

typedef struct pd_fact {
    const char *name; /* "largest_block" */
    pd_fold fold;     /* how the values of all parameters, in declaration order, become the job's value */
} pd_fact;

/* ---- phases ---- */

typedef enum pd_unit_kind {
    PD_RANGES,  /* units are ranges of the parameter's elements: for element-wise work */
    PD_BLOCKS,  /* plan->blocks */
    PD_STRIPES, /* plan->stripes units for each block; the plan must have no blockwise slot */
    PD_WHOLE,   /* a single unit */
} pd_unit_kind;

/* The arguments of one call of a phase, for one unit of its work. All pointers are borrowed for the call. */
typedef struct pd_unit {
    const pd_plan *plan;
    const double *hyper; /* the step's hyperparameters, in the order of the table pd_row.hypers */
    const double
        *fact; /* numbers about all parameters of the job (survey.h), in the order of the optimizer's table of them */
    int64_t count; /* number of the step, from 1; skipped rounds do not count */
    int64_t index; /* index of this unit among the phase's units */
    int64_t n_units;
    int64_t first, n;        /* PD_RANGES: the unit's elements are [first, first + n) */
    const pd_block *block;   /* PD_BLOCKS, PD_STRIPES */
    int64_t stripe;          /* PD_STRIPES: number of the unit's stripe in its block, 0 ... plan->stripes - 1 */
    int64_t round;           /* number of the round, from 0, in a phase with rounds */
    const float *gradient;   /* the whole parameter's aggregated gradient, in the declared shape */
    const float *before;     /* the whole parameter's weights before the step */
    float *after;            /* the whole parameter's weights after the step: some phase must write every element;
                              * may be `before` */
    float *update;           /* NULL, or receives the change of the weights (only rows with update_dtype) */
    float *const *slot;      /* slot[i] points to the tensor of plan->slots[i] */
    float *scratch;          /* plan->scratch_floats of memory for this thread, 64-byte aligned */
    pd_random random;        /* the parameter's random stream (random.h); a step passes `count` as key */
    pd_random random_of_all; /* the job's random stream: for decisions that are the same for all parameters */
    const pd_draws *draws;   /* NULL, or recorded random numbers to use in this step instead */
    double *partial;         /* output: the numbers that this unit reports; zeros at first */
    /* total[phase][k]: number k of `partial`, combined over the units in index order: the sum or the largest
     * (pd_phase.fold). Given for earlier phases, and in a phase with rounds for its last round. 0 for a phase that
     * was skipped. */
    const double (*total)[PD_MAX_PARTIALS];
} pd_unit;

typedef struct pd_phase {
    const char *name; /* "move" */
    pd_unit_kind kind;
    void (*run)(const pd_unit *unit);
    pd_fold fold[PD_MAX_PARTIALS]; /* how partial[k] of all units becomes total[phase][k] */
    /* returns true if this step skips the phase; NULL: it is never skipped */
    bool (*skip)(const pd_plan *plan, const double *hyper, int64_t count);
    int64_t (*rounds)(const pd_plan *plan, const double *hyper); /* returns how often the phase runs, at least 1;
                                                                  * NULL: once */
} pd_phase;

/* Returns the first of n rows that belong to a unit's stripe, or with `end` = 1 the row behind the last one. The
 * sizes of stripes differ by at most one row. */
static inline int64_t pd_stripe_row(const pd_unit *unit, int64_t n, int end)
{
    return n * (unit->stripe + end) / unit->plan->stripes;
}

/* ---- tasks ---- */

/* Why no root can be computed from a task's inputs: they have a NaN, or infinities but no NaN. */
typedef enum pd_unfit { PD_FIT, PD_UNFIT_NAN, PD_UNFIT_INF } pd_unfit;

typedef struct pd_task_view {
    const pd_plan *plan;
    const pd_task_spec *spec;
    const double *hyper; /* hyperparameters at the time when the task was captured */
    const double *fact;
    pd_random random, random_of_all; /* as a unit's */
    const pd_draws *draws;
    int64_t count;        /* number of the step in which the task was captured */
    float *const *input;  /* the task's own copies of the slots spec->input; it may use them as workspace */
    float *const *output; /* memory for the results, which belong to the slots spec->output */
    /* output, also if the result is refused: the error of the root, in a measure that the optimizer defines */
    double error;
    double condition; /* output: estimated condition number of the inverted matrix; 0: not known */
    pd_unfit unfit;   /* why the inputs have no root; set by the caller or by the optimizer */
    int status;       /* input of `note`: PD_OK if the result was adopted, else why it was refused */
} pd_task_view;

/* ---- the row ---- */

struct pd_row {
    const char *name;       /* the optimizer's name, as users write it */
    const char *about;      /* one line */
    const pd_hyper *hypers; /* table of hyperparameters; the last entry has no name */
    const pd_fact *facts;   /* table of facts; the last entry has no name; NULL: there are none */

    /* Checks conditions on several hyperparameters. Also checks that a parameter which was declared with the values
     * `declared` has the state that a step with the values `now` needs. Texts are read from `declared`, since `now`
     * may have numbers only. NULL: nothing to check. */
    int (*check)(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
    bool words_ranges; /* `check` also tests the ranges of numbers, since the original implementation has its own
                        * error text for them */
    /* Returns a warning about declared values that are valid but doubtful, or NULL. The warning is static text
     * without a newline, and is logged once per rule of a job. NULL in place of the function: no warnings. */
    const char *(*warning)(const pd_hypers *declared);
    /* Computes this parameter's value of each fact. Works for any shape, also one that `plan` will refuse. NULL if
     * `facts` is NULL. */
    void (*survey)(const pd_declaration *declaration, double *fact);
    /* Fills *plan for a declaration. The caller frees the plan, also after an error. `fact` has the job's values. */
    int (*plan)(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

    pd_phase phases[PD_MAX_PHASES]; /* the work of a step; the last entry has no `run` */
    /* Tasks are captured before phases[capture_phase], and adopted before phases[adopt_phase]. The number of phases
     * means: after the last phase. */
    int capture_phase, adopt_phase;
    size_t own_bytes; /* size of the struct that plan->own points to; 0: none */

    /* Returns whether tasks are captured in this step. `slot` has the values that the phases before capture_phase
     * left.
     *
     * `slot` is NULL if the answer is needed before these phases have run. Callers of a row do so only if it has a
     * `refusal`: then the answer must not depend on slots.
     *
     * Rows without tasks have NULL here and in the functions below, up to `refusal`. */
    bool (*due)(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot);
    /* Computes the result of a task. A pure function: it reads the inputs, which are all finite, and writes the
     * outputs. It may allocate work memory. If it returns an error, or an output is not finite, the result is thrown
     * away and counted, and the last good root stays in use. */
    int (*task)(pd_task_view *task);
    /* Stores the result of a task in its slots. The tasks of one step are adopted in parallel, so no two of them may
     * write the same element. They may write the same slot only if each has a share of it (pd_slot_spec.share). If
     * several roots change the same data, one task must compute them all.
     *
     * slot[i] is the whole slot: item b begins at slot[i] + b * pd_slot_item_elements(&plan->slots[i]), and
     * pd_block_scatter with plan->shape and &plan->blocks[b] stores a box.
     *
     * NULL: each output is stored in the slot that it belongs to, or in the task's share of it. A row with blockwise
     * slots must have NULL here. */
    void (*adopt)(const pd_task_view *task, float *const *slot);
    /* Records in float32 slots the facts about a task that has run, for instance its error. Called after a result
     * was adopted or refused. It must not write an element that another task of the same step writes. NULL: nothing
     * is recorded. */
    void (*note)(const pd_task_view *task, float *const *slot);
    /* Decides whether the step fails because this task failed (its status is not PD_OK). Called when the task would
     * be adopted, in the order of the plan, on the thread that owns the optimizer.
     *
     * PD_OK: the step goes on with the last good root.
     *
     * An error: the step ends before adopt_phase, so `after` is not written and no more tasks are captured. The
     * changes of earlier phases stay, as do `count` and the roots of tasks before this one. The caller puts the
     * parameter's name before the error's text.
     *
     * NULL: no task makes a step fail. */
    int (*refusal)(const pd_task_view *task, pd_error *err);

    /* true: the parameters with this optimizer and the same pd_declaration.group count their steps together. The
     * counter advances in every step in which at least one of them has a gradient. If one parameter's step is
     * refused, the steps of the whole group fail (in a pd_model, and in a job that steps as a whole; elsewhere only
     * that step fails).
     *
     * false: each parameter counts its own steps. */
    bool counts_by_group;
    /* Contributions are values, not gradients. The job takes their mean, whatever its option `aggregate` says for
     * gradients (a weighted mean under weighted_mean). Clipping by the global norm does not change them. */
    bool takes_values;
    /* Returns the limit of the norm of all gradients of the parameters of one rule (pd_declaration.group): 1e-30 to
     * 1e30, or 0: no limit. The limit depends only on declared values that are not per_step. If there is a limit,
     * the caller begins the steps of these parameters together, because the norm needs all their gradients. The
     * caller also clips: phases see the scaled gradients. NULL: no limit. */
    double (*clip_norm)(const double *hyper);
    /* Returns how many normally distributed numbers a step of the parameter takes from pd_draws. NULL: none. */
    int64_t (*normals)(const pd_plan *plan);
    /* Returns the element type in which pd_unit.update is exact; 0: with these values no type is exact. NULL: the
     * optimizer gives no updates. */
    pd_dtype (*update_dtype)(const double *hyper);
};

#endif
