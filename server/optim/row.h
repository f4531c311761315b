/* row.h - the row contract: what an optimizer gives, as one row of the table of optimizers.
 *
 * A row is pure data and pure functions. It says what state a parameter needs (`plan`), what one step does
 * (`phases` over units, with a barrier between two phases), what is expensive and goes to the root pool (`task`),
 * and how a task's result comes back (`adopt`). Threads, memory, rounds, files and the wire belong to others: they
 * read the row and never ask its name.
 *
 * One step of one parameter, with root delay d:
 *
 *     count += 1
 *     for phase = 0 .. n:
 *         if phase == capture_phase: capture the tasks due at this count (private copies of their input slots)
 *         if phase == adopt_phase:   wait for and adopt the tasks that are due for adoption
 *         if phase < n:              run phases[phase]
 *
 * A task that was captured in step c is due for adoption in step c + d (a later one where the counter of a group
 * passes that step while this parameter takes none); with PD_ROOT_READY it is due as soon as it is back, and no
 * step waits. There are two kinds of rows:
 *
 *   - capture_phase <= adopt_phase: statistics, roots, move. With d = 0 a step uses the roots of its own statistics.
 *     What phases between the two change does not reach the tasks. Most rows have capture_phase == adopt_phase.
 *   - capture_phase > adopt_phase: the refresh comes after the move, as in SOAP (capture_phase may be n). A step
 *     cannot adopt what it captures later, so d is at least 1 or PD_ROOT_READY. d = 1 gives the bits of a refresh at
 *     the end of the step, but the weights are complete before: tasks run while workers compute the next gradient.
 *
 * Whoever runs a row (the step thread, a test, another program) runs each phase over all units in one parallel
 * region. A unit runs on one thread with one BLAS thread. A phase opens no parallel region, computes no root and
 * allocates nothing, and its result does not depend on which thread runs which unit.
 *
 * A large matrix is shared by the threads in stripes: a phase of kind PD_STRIPES has plan->stripes units for each
 * block. An iteration repeats such a phase (`rounds`), with a barrier after each round. The number of stripes is
 * the plan's and not the number of threads, so the bits do not depend on threads. */
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
    PD_RANGES,              /* ranges of elements of the parameter: for element-wise work */
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
    float         *after;               /* and after it: some phase must write every element; may be `before` */
    float         *update;              /* NULL, or gets what is added to the weights (a row with update_dtype) */
    float *const  *slot;                /* slot[i] is the tensor of plan->slots[i] */
    float         *scratch;             /* scratch_floats of this thread, 64-byte aligned */
    pd_random      random;              /* the parameter's stream: random.h. Draws of a step take `count` as key */
    pd_random      random_of_all;       /* the job's stream: for decisions that all parameters take alike */
    const pd_draws *draws;              /* NULL, or recorded numbers to use instead, which came with this step */
    double        *partial;             /* out: this unit's numbers, zero on entry */
    /* total[phase][k]: partials of earlier phases, and of this phase's last round, folded over the units in index
     * order; 0 of a skipped phase. */
    const double (*total)[PD_MAX_PARTIALS];
} pd_unit;

typedef struct pd_phase {
    const char  *name;                          /* "move" */
    pd_unit_kind kind;
    void       (*run)(const pd_unit *unit);
    pd_fold      fold[PD_MAX_PARTIALS];         /* how partial k becomes total[phase][k] */
    /* true: not in this step; NULL: never */
    bool       (*skip)(const pd_plan *plan, const double *hyper, int64_t count);
    int64_t    (*rounds)(const pd_plan *plan, const double *hyper);     /* how often it runs, at least 1; NULL: once */
} pd_phase;

/* Returns where a unit's stripe of n rows begins, or with `end` = 1 where it ends: stripes differ by at most one
 * row. */
static inline int64_t pd_stripe_row(const pd_unit *unit, int64_t n, int end)
{
    return n * (unit->stripe + end) / unit->plan->stripes;
}

/* ---- tasks ---- */

/* Why a task's inputs have no root. A NaN counts before infinities. */
typedef enum pd_unfit { PD_FIT, PD_UNFIT_NAN, PD_UNFIT_INF } pd_unfit;

typedef struct pd_task_view {
    const pd_plan      *plan;
    const pd_task_spec *spec;
    const double       *hyper;              /* values in force when the task was captured */
    const double       *fact;
    pd_random           random, random_of_all;  /* as a unit's */
    const pd_draws     *draws;
    int64_t             count;              /* step in which the task was captured */
    float *const       *input;              /* the task's own copies, by spec->input: it may use them as workspace */
    float       *const *output;             /* to be filled, by spec->output */
    /* out, also of a refused result: a measure of its error, as the row likes */
    double              error;
    double              condition;          /* out: estimated condition number of the inverted matrix; 0: not known */
    pd_unfit            unfit;              /* why the inputs have no root; set by the framework, or by the row */
    int                 status;             /* for `note`: PD_OK, the result was adopted; else why it was refused */
} pd_task_view;

/* ---- the row ---- */

struct pd_row {
    const char      *name;                  /* as users write it */
    const char      *about;                 /* one line */
    const pd_hyper  *hypers;                /* ends with a NULL name */
    const pd_fact   *facts;                 /* ends with a NULL name; NULL: none */

    /* Checks what concerns several hyperparameters, and whether the state of a parameter `declared` so provides for the
     * values `now` of one step. Texts are read from `declared`: `now` may be values alone. NULL: nothing to check. */
    int  (*check)(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
    bool words_ranges;                      /* `check` also refuses numbers outside their ranges, in upstream's words */
    /* Returns a warning about values that are valid but doubtful, or NULL: static text without a newline. Logged once
     * per rule of a job. NULL: no warnings. */
    const char *(*warning)(const pd_hypers *declared);
    /* Gives this parameter's value of each fact. `plan` may refuse the shape later. NULL where facts is NULL. */
    void (*survey)(const pd_declaration *declaration, double *fact);
    /* Fills *plan, which the caller frees also after an error. `fact`: the job's. */
    int  (*plan)(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);

    pd_phase phases[PD_MAX_PHASES];         /* ends with a NULL run */
    /* tasks are captured, and adopted, before these phases; n: after the last */
    int      capture_phase, adopt_phase;
    size_t   own_bytes;                     /* size of the struct that plan->own points to; 0: none */

    /* Returns whether tasks are captured in this step. `slot`: as the phases before capture_phase left them. NULL:
     * for a forecast, or before any phase has run (in a row with a `refusal`, whose answer must not depend on
     * slots). `due`, and those that follow up to `refusal`, are NULL in rows without tasks. */
    bool (*due)(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot);
    /* Computes a result. Pure: reads inputs (all finite), writes outputs. After an error, or where an output is not
     * finite, the result is thrown away and counted, and the last good one stays. May allocate work memory. */
    int  (*task)(pd_task_view *task);
    /* Puts a finished result into its slots. The tasks of one step are adopted at the same time: no two of them
     * write the same element, and two have a slot in common only by their shares (pd_slot_spec.share). A row whose
     * roots change what several of them need makes one task of these. slot[i] is the whole slot: item b begins at
     * slot[i] + b * pd_slot_item_elements(&plan->slots[i]), and pd_block_scatter with plan->shape and
     * &plan->blocks[b] stores a box. NULL: each output is stored in the slot whose shape it has, or in its share
     * of it. A row with blockwise slots leaves `adopt` NULL. */
    void (*adopt)(const pd_task_view *task, float *const *slot);
    /* Records in float32 slots what is known of a task that has run, adopted (before this) or refused: its error, say.
     * Writes no element that another task of that step writes. NULL: nothing. */
    void (*note)(const pd_task_view *task, float *const *slot);
    /* Decides whether the step fails because this task did (status is not PD_OK). Called when the task would be
     * adopted, in the order of the plan, on the owner's thread. PD_OK: the last good root stays. A code and a
     * text: the step ends before the phases from adopt_phase on, so `after` is not written and nothing more is
     * captured. What phases before did stays, as do count and the roots of tasks before this one. The framework
     * puts the parameter's name before the text. NULL: nothing fails. */
    int  (*refusal)(const pd_task_view *task, pd_error *err);

    /* The counter belongs to a group of parameters (those with this row and the same pd_declaration.group). It
     * advances in every step in which a parameter of the group has a gradient. If one parameter's step is refused,
     * the steps of the group fail together (in a pd_model, and in a job that steps as a whole; elsewhere that step
     * fails alone). Otherwise each parameter counts its own steps. */
    bool counts_by_group;
    /* Contributions are values, not gradients: their mean is taken whatever the job's aggregate is (weighted under
     * weighted_mean), and clipping by the global norm leaves them alone. */
    bool takes_values;
    /* Returns the limit of the norm of all gradients of the parameters of one rule (pd_declaration.group), which
     * then step together: 1e-30 to 1e30, or 0: none. Depends on declared values only, none of them per_step. NULL:
     * none. Applied by whoever runs the steps: rows see the scaled gradients. */
    double (*clip_norm)(const double *hyper);
    /* Returns how many normal numbers a step of the parameter takes from pd_draws. NULL: none. */
    int64_t (*normals)(const pd_plan *plan);
    /* Returns the element type that holds unit->update exactly; 0: none with these values. NULL: the row gives no
     * updates. */
    pd_dtype (*update_dtype)(const double *hyper);
};

#endif
