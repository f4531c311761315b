/* optimizer_ops.h - the contract of an optimizer: the data and functions that define it.
 *
 * An optimizer is pure data and pure functions. `plan` defines the state that a parameter needs. `phases` are the work
 * of one step. A phase is divided into units, which threads compute in parallel, and ends with a barrier. `task`
 * computes a preconditioner task on the preconditioner pool: the expensive part, such as the root of a matrix. `adopt`
 * stores a task's result. The caller does all the rest: threads, memory, files and the network. It treats all
 * optimizers alike and never compares names.
 *
 * One step of one parameter, with root delay d:
 *
 *     count += 1
 *     for phase = 0 .. n:
 *         if phase == capture_phase: capture the tasks due at this count (copy the state that they read)
 *         if phase == adopt_phase:   wait for and adopt the tasks that are due for adoption
 *         if phase < n:              run phases[phase]
 *
 * With plan->adopts_first and d other than 0 the second and third lines change places.
 *
 * A task that was captured in step c is due for adoption in step c + d. The parameter may have no step of that number,
 * if its group counts steps together: then the task is due in its next step. With PD_ROOT_READY a task is due as soon
 * as it is back, and no step waits.
 *
 * There are two kinds of optimizers:
 *
 *   - capture_phase <= adopt_phase: statistics, roots, new weights. With d = 0 a step uses the roots of its own
 *     statistics. Tasks do not see what phases between capture_phase and adopt_phase change. Most optimizers have
 *     capture_phase == adopt_phase.
 *   - capture_phase > adopt_phase: roots are computed after the weights, as in SOAP (capture_phase may be n). A step
 *     cannot adopt a task that it captures later, so d is at least 1 or PD_ROOT_READY. With d = 1 the results have the
 *     same bits as with roots computed at the end of the step, but the tasks run while workers compute the next
 *     gradient.
 *
 * The caller (the step thread, a test, another program) runs each phase over all units in one parallel region. A unit
 * runs on one thread with one BLAS thread. A phase opens no parallel region, computes no root and allocates nothing,
 * and its result does not depend on which thread runs which unit.
 *
 * A unit of a PD_BLOCKS or PD_WHOLE phase, and `adopt`, may have products so large that one thread would take long: the
 * products of block_products.h, kron_factor.h and polar.h. Such a product is cut into stripes, whose number depends on
 * its size alone (stripes.h). Threads that have no unit left compute stripes of the units that still run. The plan of a
 * parameter with such products has plan->large_products set.
 *
 * If there are phases of kind PD_RANGES, the last one of them writes the new weights.
 *
 * A phase of kind PD_STRIPES is for an iteration on one large matrix, which needs more than products. It has
 * plan->stripes units for each block, and is repeated (`rounds`), with a barrier after each round. The number of
 * stripes is set by the plan and not by the number of threads, so the bits do not depend on threads. */
#ifndef PD_OPTIMIZER_OPS_H
#define PD_OPTIMIZER_OPS_H

#include "paramd/optim.h"
#include "plan.h"
#include "random.h"

#define PD_MAX_PHASES 12
#define PD_MAX_PARTIALS 8 /* most numbers that a unit can report (pd_unit.partial) */
#define PD_MAX_MODEL_STATS 8

/* Values of pd_optimizer_ops.gradient_most. The square of PD_SQUARE_MOST is the largest float32 number, up to rounding.
 * Sums of 3e8 products of numbers up to PD_PRODUCT_MOST are finite. */
#define PD_SQUARE_MOST 0x1.fffffep63f
#define PD_PRODUCT_MOST 1e15f

/* How the values of several units or parameters are combined: the result is the largest value, or the sum. The values
 * are taken in order; without values the result is 0. If one value is NaN, so is the result. */
typedef enum pd_fold { PD_FOLD_MAX, PD_FOLD_SUM } pd_fold;

/* A model statistic: a number over all parameters of a job. The pre-pass computes it before any of them is planned. */
typedef struct pd_model_stat {
    const char *name; /* for example "largest_block" */
    pd_fold fold;     /* how the values of all parameters, in declaration order, are combined */
} pd_model_stat;

typedef enum pd_unit_kind {
    PD_RANGES,  /* a unit is a range of the parameter's elements, for element-wise work */
    PD_BLOCKS,  /* a unit is one of the plan's blocks */
    PD_STRIPES, /* each block is cut into plan->stripes units; the plan must then have no blockwise slot */
    PD_WHOLE,   /* the phase is a single unit */
} pd_unit_kind;

/* The arguments of one call of a phase, for one unit. All pointers are borrowed for the call. */
typedef struct pd_unit {
    const pd_plan *plan;
    const double *hyper; /* the hyperparameters of this step, in the order of the optimizer's table */
    const double *stats; /* the model statistics, in the order of the optimizer's table */
    int64_t count;       /* number of the step, from 1; a round that was skipped does not count */
    int64_t index;       /* index of this unit in the phase */
    int64_t n_units;
    int64_t first, n;      /* for PD_RANGES: the elements [first, first + n) */
    const pd_block *block; /* for PD_BLOCKS and PD_STRIPES: the block that the unit computes, or belongs to */
    int64_t stripe;        /* for PD_STRIPES: index of the stripe in its block */
    /* for a phase that is repeated (pd_phase.rounds): number of times that it has run before in this step */
    int64_t round;
    const float *gradient; /* the whole parameter's aggregated gradient, in the declared shape */
    const float *before;   /* the whole parameter's weights before the step */
    /* the whole parameter's weights after the step: the phases must write every element. May be `before` */
    float *after;
    float *update;           /* receives the change of the weights (update_dtype); NULL: the caller does not need it */
    float *const *slot;      /* slot[i] points to the elements of the slot plan->slots[i] */
    float *scratch;          /* plan->scratch_floats floats of work memory for this thread, 64-byte aligned */
    pd_random random;        /* the parameter's random stream; phases draw from it with `count` as key */
    pd_random random_of_all; /* the job's random stream, for decisions that are the same for all parameters */
    const pd_draws *draws;   /* recorded random numbers to use in this step, to replay a run; NULL: none */
    double *partial;         /* output: numbers that the unit reports, for instance sums; zeros at first */
    /* total[phase][k] is number k of `partial`, combined over all units of an earlier phase in a fixed order
     * (pd_phase.fold); 0 for a phase that was skipped. For a repeated phase they are the numbers of its last run, which
     * its next run can read. */
    const double (*total)[PD_MAX_PARTIALS];
} pd_unit;

/* The arguments of a readout: a range of elements [first, first + n) of a parameter between two steps. All pointers are
 * borrowed for the call. */
typedef struct pd_readout {
    const pd_plan *plan;
    const double *hyper; /* the hyperparameters as declared */
    float *const *slot;  /* slot[i] points to all elements of the slot plan->slots[i]; NULL if the slot is coded */
    int64_t first, n;
    const float *weights; /* the weights of the range, as the last step left them */
    float *out;           /* receives the weights of the range to evaluate with; not `weights` */
} pd_readout;

/* A phase of a step. Static data, part of the optimizer's table. */
typedef struct pd_phase {
    const char *name; /* for example "update" */
    pd_unit_kind kind;
    void (*run)(const pd_unit *unit);
    pd_fold fold[PD_MAX_PARTIALS]; /* how partial[k] of all units are combined */
    /* Returns true if this step skips the phase. NULL: it is never skipped. */
    bool (*skip)(const pd_plan *plan, const double *hyper, int64_t count);
    /* Returns how often the phase runs in a step, at least 1, with a barrier after each time. NULL: once. */
    int64_t (*rounds)(const pd_plan *plan, const double *hyper);
} pd_phase;

/* Returns the first of n matrix rows that belong to a unit's stripe, or with `end` = 1 the row after its last one. The
 * sizes of stripes differ by at most one row. */
static inline int64_t pd_stripe_row(const pd_unit *unit, int64_t n, int end)
{
    return n * (unit->stripe + end) / unit->plan->stripes;
}

/* Why the inputs of a task have no root. PD_UNFIT_NAN: they have a NaN. PD_UNFIT_INF: infinities but no NaN. */
typedef enum pd_unfit { PD_FIT, PD_UNFIT_NAN, PD_UNFIT_INF } pd_unfit;

/* A preconditioner task as the functions of an optimizer see it: its inputs, and where its results go. */
typedef struct pd_task_view {
    const pd_plan *plan;
    const pd_task_spec *spec;
    const double *hyper; /* the hyperparameters of the step in which the task was captured */
    const double *stats;
    pd_random random, random_of_all; /* the random streams of the parameter and of the job */
    const pd_draws *draws;
    int64_t count;        /* number of the step that captured the task */
    float *const *input;  /* the task's own copies of the slots spec->input; it may use them as workspace */
    float *const *output; /* memory for the results, which belong to the slots spec->output */
    double error;     /* output, also if the result is thrown away: the root's error, as the optimizer measures it */
    double condition; /* output: estimated condition number of the matrix; 0: not known */
    pd_unfit unfit;   /* why the inputs have no root; set by the caller or by the optimizer's task function */
    int status;       /* input of `note`: PD_OK if the result was stored, else why it was not */
} pd_task_view;

/* An optimizer: static data and pure functions. */
struct pd_optimizer_ops {
    const char *name;       /* the optimizer's name, as users write it */
    const char *about;      /* what the optimizer is, for users; one line */
    const pd_hyper *hypers; /* table of the optimizer's hyperparameters; the last entry has no name */
    const pd_model_stat
        *stats; /* table of the model statistics that it needs; the last entry has no name; NULL: none */

    /* Checks conditions on several hyperparameters. Also checks that the values `now` of one step suit the state of a
     * parameter that was declared with the values `declared`. Hyperparameters that are texts are read from `declared`,
     * since `now` may have numbers only. NULL: nothing to check. */
    int (*check)(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
    bool words_ranges; /* `check` also tests the ranges of numbers, so that error texts are the original program's */
    /* Returns a warning about declared values that are valid but doubtful, or NULL. The warning is static text without
     * a newline, and is logged once per rule. NULL in place of the function: no warnings. */
    const char *(*warning)(const pd_hypers *declared);
    /* The pre-pass: computes what a parameter contributes to each model statistic. Works for any shape, even one that
     * `plan` will refuse. NULL if `stats` is NULL. */
    void (*prepass)(const pd_declaration *declaration, double *stats);
    /* Fills *plan for a declared parameter: lists its slots and tasks. `stats` has the model statistics. The caller
     * frees the plan, also after an error. */
    int (*plan)(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err);

    pd_phase phases[PD_MAX_PHASES]; /* the phases of a step, in order; the entry after the last one has no `run` */
    /* Index of the phase before which tasks are captured, and of the phase before which results are adopted; the number
     * of phases means: after the last phase. */
    int capture_phase, adopt_phase;
    size_t own_bytes; /* size of the optimizer's own struct, to which plan->own points; 0: it has none */

    /* Returns whether tasks are captured in this step. `slot` has the values that the phases before capture_phase left.
     * It is NULL if the answer is needed before these phases have run: only for an optimizer with a `refusal`, whose
     * answer must then not depend on the state.
     *
     * An optimizer without tasks has NULL here and in the functions below, up to `refusal`. */
    bool (*due)(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot);
    /* Computes the result of a task. A pure function: it reads the inputs, which are all finite, and writes the
     * outputs. It may allocate work memory. If it returns an error, or an output is not finite, the task has failed:
     * the result is thrown away, and the last good root stays in use. */
    int (*task)(pd_task_view *task);
    /* Adopts a task: stores its result in the state. The results of one step are stored in parallel, so no two tasks
     * may write the same element. They may write the same slot only if each has its own share of it
     * (pd_slot_spec.share). If several roots change the same data, one task must compute them all.
     *
     * slot[i] is the whole slot. With PD_SHARE_ITEM, item b begins at slot[i] + b *
     * pd_slot_item_elements(&plan->slots[i]). With PD_SHARE_BOX, pd_block_scatter with plan->shape and &plan->blocks[b]
     * stores the elements.
     *
     * NULL: each output is stored in the slot that it belongs to, or in the task's share of it. An optimizer with a
     * blockwise slot must have NULL here. */
    void (*adopt)(const pd_task_view *task, float *const *slot);
    /* Writes numbers about a task that has run, for instance its error, to float32 slots. Called after the task was
     * adopted or thrown away. It must not write an element that another task of the same step writes. NULL: the
     * optimizer has no such numbers. */
    void (*note)(const pd_task_view *task, float *const *slot);
    /* Decides whether the step fails because this task failed. Called when the task would be adopted, in the order of
     * the plan, on the thread that owns the optimizer. PD_OK: the step continues with the last good root.
     *
     * After an error the step ends before adopt_phase, so the new weights are not written and no more tasks are
     * started. The changes of earlier phases stay, as do the step counter and the roots of tasks before this one. The
     * caller puts the parameter's name before the error's text.
     *
     * NULL: no task makes a step fail. */
    int (*refusal)(const pd_task_view *task, pd_error *err);

    /* Whether all parameters that have this optimizer and the same pd_declaration.group count their steps together: the
     * counter advances in every step in which at least one of them has a gradient. If one parameter's step is refused,
     * the steps of the whole group fail. (This holds in a pd_model, and in a job that steps all its parameters
     * together; elsewhere only that one step fails.) */
    bool counts_by_group;
    /* With counts_by_group: returns whether the counter advances as well in a step in which none of the parameters has
     * a gradient. A step that is skipped, because a gradient is not finite, never counts. NULL: it does not advance. */
    bool (*counts_empty)(const double *hyper);
    /* Whether workers push values of the parameter, for instance running means, and not gradients. The job takes the
     * mean of these values, whatever its option `aggregate` says (with weighted_mean: a weighted mean). Clipping by the
     * global norm does not change them. */
    bool takes_values;
    /* Largest magnitude of a gradient's element with which the state stays finite in float32, since phases square it
     * (PD_SQUARE_MOST) or sum its products (PD_PRODUCT_MOST). Callers skip a step whose gradient has a larger element,
     * or one that is not finite: otherwise the state would not be finite in all later steps. 0: every finite gradient
     * is accepted. */
    float gradient_most;
    /* Returns the limit of the common norm of the gradients of all parameters that have this optimizer and the same
     * pd_declaration.group: 1e-30 to 1e30. 0, or NULL in place of the function: no limit. It depends only on
     * hyperparameters that cannot change from step to step. With a limit the caller begins the steps of these
     * parameters together, and scales the gradients before the phases see them. */
    double (*clip_norm)(const double *hyper);
    /* Returns at multiples of how many rows (indices of its first dimension) a parameter with this plan may be cut, so
     * that the portions together, each with a plan of its own, do what the parameter does. 0, or NULL in place of the
     * function: it may not be cut. */
    int64_t (*grain)(const pd_plan *plan);
    /* Returns how many normally distributed random numbers a step takes from pd_draws. NULL: none. */
    int64_t (*normals)(const pd_plan *plan);
    /* Returns an element type in which the change of the weights (pd_unit.update) can be given without rounding; 0:
     * with these hyperparameters there is none. NULL: the optimizer does not give the change of the weights. */
    pd_dtype (*update_dtype)(const double *hyper);
    /* Computes the weights to evaluate with, for an optimizer whose weights between two steps are others. NULL: they
     * are the same. */
    void (*readout)(const pd_readout *readout);
    /* Returns whether these hyperparameters make the readout others than the weights. NULL: all do. */
    bool (*reads_out)(const double *hyper);
};

/* Writes the values of the optimizer's hyperparameters for one step, as pd_hypers_at does, but leaves alone what
 * follows them in value[PD_MAX_HYPERS]. So a step reads and writes a cache line or two, not sixteen. */
void pd_hypers_put(const pd_hypers *hypers, int64_t count, double *value);
/* Returns 1, the grain of optimizers that are element-wise. */
int64_t pd_grain_of_elements(const pd_plan *plan);

extern const pd_optimizer_ops *const pd_optimizer_table[]; /* the known optimizers; NULL after the last one */
/* the optimizer of parameters that are declared as model state; no rule may name it */
extern const pd_optimizer_ops pd_model_state;

#endif
