/* paramd/optim.h - optimizers as a library: the arithmetic of the daemon, usable without it.
 *
 *     pd_declaration params[2] = { { .name = "w", .shape = shape_w }, { .name = "b", .shape = shape_b } };
 *     pd_model *model;
 *
 *     for (i = 0; i < 2; i++) pd_hypers_init(&params[i].hypers, pd_optim_find("adam"));
 *     pd_model_new(&model, params, 2, threads, &err);
 *     for each step:
 *         pd_model_step(model, io, &err);              one step of both parameters
 *     pd_model_free(model);
 *
 * Threads: use an object from one thread at a time. Nothing is global. Results do not depend on the number of threads.
 *
 * PARAMD_CPU in the environment chooses an older instruction set than the newest of the CPU: generic, avx2, avx512 or
 * auto. It is read when the library is loaded. The optimizers' own loops give the same bits with every set.
 *
 * Tensors are float32, dense and row-major, and belong to the caller. The structs of this file stay as they are in
 * every libparamd_optim.so.0. The daemon calls the same optimizers through server/optim/optimizer.h. */
#ifndef PARAMD_OPTIM_H
#define PARAMD_OPTIM_H

#include "paramd/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the table of optimizers ---- */

/* An optimizer: one entry of the table of optimizers. pd_row is the older name. */
typedef struct pd_optimizer_ops pd_optimizer_ops;
typedef struct pd_optimizer_ops pd_row;

/* Returns the optimizer at this place in the table of optimizers, counted from 0; NULL past the last one. */
PD_API const pd_optimizer_ops *pd_optim_at(size_t index);
/* Returns an optimizer by its name, for instance "sgd"; NULL if there is none. */
PD_API const pd_optimizer_ops *pd_optim_find(const char *name);
/* Returns the optimizer's name. */
PD_API const char *pd_optimizer_name(const pd_optimizer_ops *ops);
/* Returns a description of the optimizer, one line. */
PD_API const char *pd_optimizer_about(const pd_optimizer_ops *ops);

/* ---- hyperparameters ---- */

typedef enum pd_hyper_type {
    PD_REAL,
    PD_INT,
    PD_FLAG,
    PD_CHOICE,
    /* The hyperparameter is a text, for instance a list of rules. The optimizer reads it when it plans. The text
     * cannot change while a job runs. As a number its value is 1 if the text is set, else 0. */
    PD_TEXT
} pd_hyper_type;

/* The description of one hyperparameter of an optimizer. A list has one entry for each of its numbers: "betas[0]",
 * "betas[1]". An option that belongs to a choice has an entry of its own: "grafting_config.beta2". */
typedef struct pd_hyper {
    /* The hyperparameter's name in the optimizer's original implementation. */
    const char *name;
    pd_hyper_type type;
    /* Default value. For PD_CHOICE it is the index of the word, for PD_FLAG 0 or 1. */
    double preset;
    /* Least and largest value of a PD_REAL or PD_INT, both included. Values outside this range are refused. */
    double least, most;
    /* For PD_CHOICE: the words of the choice, "none|sgd|adam". For PD_REAL and PD_INT: a word that stands for the
     * value `least` ("ready"), or NULL. */
    const char *choices;
    /* A description of the hyperparameter, one line. */
    const char *help;
    /* The value may come with a push, or change while the job runs. Set for lr, for instance, but not for block
     * sizes. */
    bool per_step;
    /* Set on the first entry of a list that may be given in part: one number sets all entries, and a list that is
     * too short leaves the other entries at their defaults. */
    bool spreads;
} pd_hyper;

/* Returns the table of the optimizer's hyperparameters, and their number in *count. */
PD_API const pd_hyper *pd_optimizer_hypers(const pd_optimizer_ops *ops, size_t *count);

/* The older names of pd_optimizer_name, pd_optimizer_about and pd_optimizer_hypers. */
PD_API const char *pd_row_name(const pd_optimizer_ops *ops);
PD_API const char *pd_row_about(const pd_optimizer_ops *ops);
PD_API const pd_hyper *pd_row_hypers(const pd_optimizer_ops *ops, size_t *count);

#define PD_MAX_HYPERS 64
/* Most bytes of a hyperparameter that is a text (PD_TEXT). */
#define PD_MAX_TEXT 4096

/* A hyperparameter's value as a function of the step. Immutable. */
typedef struct pd_schedule pd_schedule;
/* The text of a hyperparameter of type PD_TEXT. Immutable. */
typedef struct pd_hyper_text pd_hyper_text;

/* An optimizer with values for all its hyperparameters. It may be copied by assignment. The copy borrows schedules and
 * texts from the original, which must live longer than the copy. Setting a value in the copy does not change the
 * original. */
typedef struct pd_hypers {
    /* The optimizer. */
    const pd_optimizer_ops *row;
    /* The values, in the order of pd_optimizer_hypers. For a scheduled hyperparameter it is the value of the first
     * step. */
    double value[PD_MAX_HYPERS];
    /* Bit i is set if hyperparameter i follows a schedule. That schedule is the first one with index i in the list
     * `schedules`. */
    uint64_t scheduled;
    const pd_schedule *schedules;
    const pd_hyper_text *texts;
} pd_hypers;

/* Sets all hyperparameters to their defaults, without schedules. */
PD_API void pd_hypers_init(pd_hypers *hypers, const pd_optimizer_ops *ops);
/* Sets one hyperparameter from text, for instance "lr" to "0.05". The text depends on the hyperparameter's type:
 *   flag     yes/no, true/false or 1/0
 *   list     all its numbers: "0.9,0.999", also in () or []
 *   choice   a word; its options, if any, follow in brackets: "Adam(beta2=0.999,epsilon=1e-8)";
 *            upper and lower case are the same
 *   PD_TEXT  any text of at most PD_MAX_TEXT bytes; "" removes the text
 *
 * A hyperparameter that is per_step and not a choice also takes a schedule, for instance
 * "linear_warmup(peak=0.1,warmup_steps=2000)". All values of the schedule must lie in the range. They are rounded
 * for PD_INT and PD_FLAG.
 *
 * Schedules and texts belong to the struct `hypers` at its present address, until pd_hypers_free. After an error
 * nothing is set:
 *   PD_NOT_FOUND         the optimizer has no such hyperparameter (the error lists those that it has)
 *   PD_INVALID_ARGUMENT  `value` is not a value of that type, or not a schedule
 *   PD_OUT_OF_RANGE      `value` is outside the range, or too long
 *   PD_NO_MEMORY         there is no memory for a schedule or text */
PD_API int pd_hypers_set(pd_hypers *hypers, const char *name, const char *value, pd_error *err);
/* Sets one hyperparameter as pd_hypers_set does, and sets in *mask the bits of the values that were set: bit i for
 * value i. */
PD_API int pd_hypers_set_which(pd_hypers *hypers, const char *name, const char *value, uint64_t *mask, pd_error *err);
/* Frees the schedules and texts that were set in `hypers` itself, but not those borrowed from an original. Copies of
 * `hypers` must no longer use them. Afterwards `hypers` has plain numbers only. Call it before the struct is freed,
 * moved, assigned to or initialised again. */
PD_API void pd_hypers_free(pd_hypers *hypers);
/* Fills value[PD_MAX_HYPERS] with the values of all hyperparameters for one step, schedules included. `count` is the
 * number of steps before it; 0: the first step. */
PD_API void pd_hypers_at(const pd_hypers *hypers, int64_t count, double *value);
/* Returns the index of a named hyperparameter in pd_optimizer_hypers; -1: the optimizer has none of that name. */
PD_API int pd_hypers_find(const pd_optimizer_ops *ops, const char *name);
/* Returns, as bits, the hyperparameters that a name stands for. The name of a list stands for all its numbers. 0:
 * the optimizer has no such hyperparameter. */
PD_API uint64_t pd_hypers_bits(const pd_optimizer_ops *ops, const char *name);
/* Checks the conditions that tie several hyperparameters together (sgd: nesterov needs momentum > 0 and dampening
 * 0). They must also hold at every step where a schedule changes a value. PD_INVALID_ARGUMENT: a condition is
 * broken. */
PD_API int pd_hypers_check(const pd_hypers *hypers, pd_error *err);
/* Returns the text of a hyperparameter of type PD_TEXT; "" if none is set. The text lives as long as it is set in
 * `hypers`. */
PD_API const char *pd_hypers_given_text(const pd_hypers *hypers, int index);
/* Checks whether the values now->value may be used for one step of a parameter. The parameter was declared with
 * `declared`, which has the same optimizer as `now`.
 *
 * PD_INVALID_ARGUMENT: a value or text that is not per_step would change, or the parameter's state does not allow
 * the values (sgd: momentum in a step, although none was declared). A text that `now` does not have is not compared. */
PD_API int pd_hypers_check_step(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
/* Returns a hyperparameter's value as text, from which pd_hypers_set reads the same bits. A number is written into
 * `text` (64 bytes are enough). For a schedule or PD_TEXT the function returns the stored text, which may be longer
 * and lives as long as it is set in `hypers`. */
PD_API const char *pd_hypers_text(const pd_hypers *hypers, int index, char *text, size_t size);

/* ---- a model ---- */

/* The declaration of one parameter of a model. */
typedef struct pd_declaration {
    const char *name;
    pd_shape shape;
    pd_hypers hypers;
    /* Number of workers in the job, for optimizers that depend on it. 0: unknown. */
    int world;
    /* Number of the parameter's group: parameters with the same optimizer and the same number form a group. Some
     * optimizers count steps by group. */
    int group;
    /* Logical names of the dimensions, "layers,embed,mlp": one per dimension, separated by commas; a name may be
     * empty. NULL or "": no names. */
    const char *axes;
    /* Seed of the optimizer's random numbers, which depend only on the seed, the parameter's name and the step. */
    uint64_t seed;
    /* Number of steps that count as taken before the first one. Counters, schedules and random numbers go on from
     * there. */
    int64_t start_step;
    /* Internal: leave it NULL. */
    struct pd_name_maps *maps;
} pd_declaration;

typedef struct pd_model pd_model;

/* Plans and allocates the state of `count` parameters. Borrows the schedules and texts of the declarations, and copies
 * all else. `threads` >= 1 is the size of the OpenMP team. Gives *out, which pd_model_free frees.
 * PD_INVALID_ARGUMENT: PARAMD_CPU is wrong, or an optimizer refuses a declaration (the text names parameter and
 * reason). PD_NO_MEMORY. */
PD_API int pd_model_new(pd_model **out, const pd_declaration *params, size_t count, int threads, pd_error *err);
/* Accepts NULL. */
PD_API void pd_model_free(pd_model *model);

/* Given random numbers that a step uses in place of its own, to repeat a recorded run. Borrowed during the call. */
typedef struct pd_draws {
    /* The normally distributed random numbers that the optimizer kron draws in a step: those of one block after the
     * other, as the original implementation stacks blocks. NULL: the numbers that follow from the seed. */
    const float *normal;
    /* One random number in [0, 1) for all parameters: kron balances its factors (makes its preconditioning matrices
     * equal in size) if it is at most 0.01. */
    double uniform;
    /* Number of random numbers in `normal`. It must be as many as the parameter's optimizer draws in a step. */
    int64_t n_normal;
} pd_draws;

/* Gradient, weights and options of one parameter in one step. */
typedef struct pd_step_io {
    /* The gradient, in the parameter's shape. NULL: the parameter has no gradient in this step. Then it does not
     * change, and `after` is not written. */
    const float *gradient;
    /* The weights before the step. */
    const float *before;
    /* Receives all weights after the step. May be the same buffer as `before`. */
    float *after;
    /* Hyperparameter values for this step that replace declared or scheduled ones, in the order of pd_optimizer_hypers;
     * or NULL. */
    const double *hypers;
    /* Which entries of `hypers` are used: bit i stands for value i. */
    uint64_t hypers_mask;
    /* Receives the change of all weights; or NULL. Not every optimizer computes the change. */
    float *update;
    /* Random numbers for this step; NULL: those that follow from the seed. */
    const pd_draws *draws;
} pd_step_io;

/* Takes one step of all parameters: io[i] belongs to params[i] of pd_model_new. Inverse roots are computed within
 * the call. If an optimizer counts steps by group, the counter advances if one of the group's parameters has a
 * gradient.
 *
 * After these errors nothing has changed: PD_NO_MEMORY; PD_UNIMPLEMENTED (the optimizer gives no updates);
 * PD_INVALID_ARGUMENT (the number of draws is not the one that the optimizer takes).
 *
 * Any other code comes from an optimizer that could not compute a root and refused the step; the text begins with
 * the parameter's name. All parameters of its group, or this one alone, keep their weights, and their `after` is not
 * written. Their counters and statistics advance. All other parameters have stepped. */
PD_API int pd_model_step(pd_model *model, const pd_step_io *io, pd_error *err);

/* Makes later steps clip the gradients of all parameters by one common norm (Pascanu, Mikolov, Bengio 2013). limit
 * 0: no clipping. The caller's gradients do not change.
 *
 * With T = limit and norm = the norm of all gradients, a step uses
 *   gradient * T * min(1/T, 1/norm)     in float32, as T5X does
 *
 * Some optimizers have a limit of their own. It applies afterwards, to one group of parameters. All parameters of
 * the group must have the same limit.
 *
 * After an error the earlier limit holds. PD_OUT_OF_RANGE: the limit is neither 0 nor from 1e-30 to 1e30.
 * PD_NO_MEMORY: out of memory. */
PD_API int pd_model_clip(pd_model *model, double limit, pd_error *err);
/* Returns the norm of the last step's gradients before clipping. It is the norm of all gradients, or, if only
 * optimizers have limits, that of the first group with a limit. 0: no step was taken yet, or nothing is clipped. */
PD_API double pd_model_norm(const pd_model *model);

/* Computes the weights of a parameter to evaluate with and to save: `out` from `weights`, its weights after the last
 * step. They are others for optimizers that evaluate an average of the weights (schedule_free, gpa); for all others
 * `out` becomes a copy. `out` and `weights` must not overlap. */
PD_API void pd_model_read_out(const pd_model *model, size_t param, const float *weights, float *out);

/* Returns the number of steps that a parameter has taken, or its group if the optimizer counts by group. */
PD_API int64_t pd_model_count(const pd_model *model, size_t param);
/* Returns the bytes of all optimizer state as it is stored, without temporary memory. */
PD_API int64_t pd_model_state_bytes(const pd_model *model);
/* Copies one tensor of a parameter's optimizer state (such as its momentum), or a block of one, into out[0 .. n) as
 * float64. Three values name it: slot, number and block. Examples: "momentum_buffer", -1, -1; "statistics", 3, -1;
 * "factor_matrices", 1, 3.
 *
 * Number -1 means that the slot has no number, block -1 that it has no block. If the slot belongs to the whole
 * parameter, a block >= 0 selects the elements of that block.
 *
 * PD_NOT_FOUND: the optimizer keeps no such tensor. PD_OUT_OF_RANGE: it does not have n elements. */
PD_API int pd_model_read_part(const pd_model *model, size_t param, const char *slot, int number, int block, double *out,
                              int64_t n, pd_error *err);

#ifdef __cplusplus
}
#endif
#endif
