/* row.h - the row contract: what an optimizer gives, as one row of the table of optimizers.
 *
 * A row is pure data and pure functions. It says what state a parameter needs (`plan`), what one step does (`phases` over
 * units, with a barrier between two phases), what is expensive and goes to the root pool (`task`), and how a task's result
 * comes back (`adopt`). Threads, memory, rounds, files and the wire belong to others: they read the row and never ask its
 * name.
 *
 * One step of one parameter, with root delay d:
 *
 *     count += 1
 *     for phase = 0 .. n:
 *         if phase == capture_phase: capture the tasks that are due at this count   (private copies of their input slots)
 *         if phase == adopt_phase:   wait for and adopt the tasks that are due for adoption
 *         if phase < n:              run phases[phase]
 *
 * A task that was captured in step c is due for adoption in step c + d (a later one where the counter of a group passes
 * that step while this parameter takes none); with PD_ROOT_READY it is due as soon as it is back, and no step waits.
 * There are two kinds of rows:
 *
 *   - capture_phase <= adopt_phase: statistics, roots, move. With d = 0 a step uses the roots of its own statistics. What
 *     phases between the two change does not reach the tasks. Most rows have capture_phase == adopt_phase.
 *   - capture_phase > adopt_phase: the refresh comes after the move, as in SOAP (capture_phase may be n). A step cannot
 *     adopt what it captures later, so d is at least 1 or PD_ROOT_READY. d = 1 gives the bits of a refresh at the end of
 *     the step, but the weights are complete before: the tasks run while the workers compute the next gradient.
 *
 * Whoever runs a row (the step thread, a test, another program) runs each phase over all units in one parallel region. A
 * unit runs on one thread with one BLAS thread. A phase opens no parallel region, computes no root and allocates nothing,
 * and its result does not depend on which thread runs which unit.
 *
 * A large matrix is shared by the threads in stripes: a phase of kind PD_STRIPES has plan->stripes units for each block.
 * An iteration repeats such a phase (`rounds`), with a barrier after each round. The number of stripes is the plan's and
 * not the number of threads, so the bits do not depend on threads. */
#ifndef PD_ROW_H
#define PD_ROW_H

#include "paramd/optim.h"
#include "plan.h"
#include "random.h"

#define PD_MAX_PHASES   12
#define PD_MAX_PARTIALS 8       /* numbers that a unit leaves behind in a phase */
#define PD_MAX_FACTS    8       /* facts that couple the parameters of a job */

/* ---- facts: what the parameters of a job must know of each other before they are planned ---- */

/* Folding begins with the first value and takes the others in order; of no values it gives 0. A NaN stays. */
typedef enum pd_fold { PD_FOLD_MAX, PD_FOLD_SUM } pd_fold;

typedef struct pd_fact {
    const char *name;           /* "largest_block" */
    pd_fold     fold;           /* how the parameters' values become the job's value, in declaration order */
} pd_fact;

/* ---- phases ---- */

typedef enum pd_unit_kind {
    PD_RANGES,              /* runs of elements of the parameter: for element-wise work */
    PD_BLOCKS,              /* plan->blocks */
    PD_STRIPES,             /* plan->stripes units for each block; no slot of the plan is blockwise */
    PD_WHOLE,               /* a single unit */
} pd_unit_kind;

/* What one call of a phase sees. All pointers are borrowed for the call. */
typedef struct pd_unit {
    const pd_plan *plan;
    const double  *hyper;               /* values in force in this step, in the row's order */
    const double  *fact;                /* the job's facts, in the row's order */
    int64_t        count;               /* 1 in the first step; does not advance when a round is skipped */
    int64_t        index;               /* of this unit among the phase's units */
    int64_t        n_units;
    int64_t        first, n;            /* PD_RANGES: elements [first, first + n) */
    const pd_block *block;              /* PD_BLOCKS, PD_STRIPES */
    int64_t        stripe;              /* PD_STRIPES: of this block, 0 ... plan->stripes - 1 */
    int64_t        round;               /* of a phase with rounds: 0 ... */
    const float   *gradient;            /* the whole parameter's aggregated gradient (declared layout) */
    const float   *before;              /* the whole parameter's weights before the step */
    float         *after;               /* and after: some phase must write every element; may alias `before` */
    float         *update;              /* NULL, or where a row with update_dtype writes, once, what it adds to the weights */
    float *const  *slot;                /* slot[i] is the tensor of plan->slots[i] */
    float         *scratch;             /* scratch_floats of this thread's own, 64-byte aligned */
    pd_random      random;              /* the parameter's stream: random.h. Draws of a step take `count` as key */
    pd_random      random_of_all;       /* that of the whole job: for decisions which all parameters take alike */
    const pd_draws *draws;              /* NULL, or to be used instead: those that came with this step */
    double        *partial;             /* out: this unit's numbers, zero on entry */
    /* total[phase][k]: partials of earlier phases, and of this phase's last round, folded over the units in index order;
     * 0 of a skipped phase. */
    const double (*total)[PD_MAX_PARTIALS];
} pd_unit;

typedef struct pd_phase {
    const char  *name;                          /* "move" */
    pd_unit_kind kind;
    void       (*run)(const pd_unit *unit);
    pd_fold      fold[PD_MAX_PARTIALS];         /* how partial k becomes total[phase][k] */
    bool       (*skip)(const pd_plan *plan, const double *hyper, int64_t count);   /* true: not in this step; NULL: never */
    int64_t    (*rounds)(const pd_plan *plan, const double *hyper);     /* how often it runs, at least 1; NULL: once */
} pd_phase;

/* Returns where a unit's stripe of n rows begins, or with `end` = 1 where it ends: stripes differ by at most one row. */
static inline int64_t pd_stripe_row(const pd_unit *unit, int64_t n, int end) { return n * (unit->stripe + end) / unit->plan->stripes; }

/* ---- tasks ---- */

/* Why no root can be made of a task's inputs. NaN counts before infinities. */
typedef enum pd_unfit { PD_FIT, PD_UNFIT_NAN, PD_UNFIT_INF } pd_unfit;

typedef struct pd_task_view {
    const pd_plan      *plan;
    const pd_task_spec *spec;
    const double       *hyper;              /* values in force when it was captured */
    const double       *fact;
    pd_random           random, random_of_all;  /* as a unit's */
    const pd_draws     *draws;
    int64_t             count;              /* step of the statistics */
    float *const       *input;              /* copies of its own, in the order of spec->input: the task may use them as workspace */
    float       *const *output;             /* to be filled, in the order of spec->output */
    double              error;              /* out, also of a result that is refused: a measure of its error (row's own meaning) */
    double              condition;          /* out: estimated condition number of what was inverted; 0: not known */
    pd_unfit            unfit;              /* of its inputs: FIT, or it was never run; a row that finds its own reason sets it, too */
    int                 status;             /* for `note`: PD_OK, the result was adopted; else it was refused, and why */
} pd_task_view;

/* ---- the row ---- */

struct pd_row {
    const char      *name;                  /* as users write it */
    const char      *about;                 /* one line */
    const pd_hyper  *hypers;                /* ends with a NULL name */
    const pd_fact   *facts;                 /* ends with a NULL name; NULL: none */

    /* What concerns several hyperparameters, or (`now` of one step against those `declared`) what state there is. Texts are read of `declared`: `now` may be
     * values alone. NULL: nothing. */
    int  (*check)(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
    bool words_ranges;                      /* `check` refuses numbers outside of their ranges, too: then its words are told, which are upstream's */
    /* What whoever set these values, which are in order, should hear all the same: static text without a newline, told in the log once for each rule of a
     * job. NULL, or gives NULL: nothing. */
    const char *(*warning)(const pd_hypers *declared);
    /* This parameter's value of each fact; the shape may be one that `plan` will refuse. NULL where facts is NULL. */
    void (*survey)(const pd_declaration *declaration, double *fact);
    /* Fills *plan (empty on entry; freed by the caller also after an error). `fact`: the job's. */
    int  (*plan)(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

    pd_phase phases[PD_MAX_PHASES];         /* ends with a NULL run */
    int      capture_phase, adopt_phase;    /* tasks are captured, and adopted, before these phases; n: after the last */
    size_t   own_bytes;                     /* size of the struct that plan->own points to; 0: none */

    /* NULL where there are no tasks. */
    /* Returns whether tasks are captured in this step. `slot`: as the phases before capture_phase left them; NULL: for a forecast, or before any phase has run (of a row with a `refusal`, whose answer must
     * not depend on them). */
    bool (*due)(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot);
    /* Pure: reads inputs (all finite), writes outputs. Error, or an output that is not finite: the result is thrown away and counted,
     * the last good one stays. Unlike a phase it may allocate what it works with. */
    int  (*task)(pd_task_view *task);
    /* Puts a finished result into its slots. The tasks of one step are adopted at the same time, so no two of them write the same element, and no two
     * have a slot in common but by their shares (pd_slot_spec.share): a row whose roots change what belongs to several of them makes one task of those.
     * slot[i] is the whole slot: item b begins at slot[i] + b * pd_slot_item_elements(&plan->slots[i]), and a box is put there by pd_block_scatter
     * with plan->shape and &plan->blocks[b]. NULL: each output is copied over (or stored in) the slot it is shaped after, or its share of that; a row with
     * blockwise slots leaves it NULL. */
    void (*adopt)(const pd_task_view *task, float *const *slot);
    /* Keeps what the state records of a task that has run, adopted (before this) or refused: its error, say. Of slots stored as float32, and no
     * element that another task of that step writes. NULL: nothing. */
    void (*note)(const pd_task_view *task, float *const *slot);
    /* Must the step fail because this task did (status is not PD_OK)? Called when the task would be adopted, in the order of the plan, on the thread
     * that owns the optimizer. PD_OK: no, the last good root stays. A code and a text: the step is given up before the phases from adopt_phase on, so
     * `after` is not written, but what the phases before did stays, as do count and the roots of the tasks before this one. The framework puts the
     * parameter's name before the text. NULL: nothing fails. */
    int  (*refusal)(const pd_task_view *task, pd_error *err);

    /* The counter belongs to a group of parameters (those with this row and the same pd_declaration.group): it advances in every step in which any of
     * them has a gradient, and their steps fail together where one is refused (in a pd_model, and in a job that steps as a whole; else a refusal is
     * that parameter's own affair). Otherwise each parameter counts its own steps. */
    bool counts_by_group;
    /* Its contributions are values, not gradients: their mean is taken whatever the job's aggregate is (weighted under weighted_mean), and clipping by the
     * global norm passes over them. */
    bool takes_values;
    /* Limit of the norm of all gradients of the parameters of one rule together (pd_declaration.group), which therefore step together; 0: none. Of the values
     * declared, so it depends on none that is per_step. From 1e-30 to 1e30. NULL: none. Applied by whoever runs the steps: rows see the gradients scaled. */
    double (*clip_norm)(const double *hyper);
    /* How many normal numbers the steps of a parameter take from pd_draws, where these have some. NULL: none. */
    int64_t (*normals)(const pd_plan *plan);
    /* Element type that holds exactly what is written to unit->update; 0: none with these values. NULL: it writes no updates. */
    pd_dtype (*update_dtype)(const double *hyper);
};

#endif
