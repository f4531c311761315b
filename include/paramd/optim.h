/* paramd/optim.h - optimizers as a library: what the daemon steps with, usable without it.
 *
 * A program that only wants the arithmetic does this:
 *
 *     pd_declaration params[2] = { {"w", shape_w, hypers}, {"b", shape_b, hypers} };
 *     pd_model *model;
 *     pd_model_new(&model, params, 2, threads, &err);
 *     for (...) pd_model_step(model, io, &err);        one step of every parameter
 *     pd_model_free(model);
 *
 * The daemon schedules the same pieces itself (server/optim/optim.h). Threads: an object belongs to
 * the thread that calls; nothing here is global. Results do not depend on the number of threads. */
#ifndef PARAMD_OPTIM_H
#define PARAMD_OPTIM_H

#include "paramd/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pd_row pd_row;           /* an optimizer's entry in the table */

/* Rows in the order of the table: 0 … until NULL. */
PD_API const pd_row *pd_optim_at(size_t index);
/* By name ("sgd"). NULL: no such optimizer. */
PD_API const pd_row *pd_optim_find(const char *name);
PD_API const char   *pd_row_name(const pd_row *row);
PD_API const char   *pd_row_about(const pd_row *row);      /* one line */

/* PD_TEXT: any text (a list of rules, say), which the row reads when it plans; fixed while a job runs. Its value is 1 where it is set, else 0. */
typedef enum pd_hyper_type { PD_REAL, PD_INT, PD_FLAG, PD_CHOICE, PD_TEXT } pd_hyper_type;

/* One hyperparameter of a row. Out-of-range values are refused with name, value and range. A list has an entry for each number, one after the other:
 * "betas[0]", "betas[1]"; what belongs to a choice is an entry, too: "grafting_config.beta2". */
typedef struct pd_hyper {
    const char   *name;             /* upstream's own name */
    pd_hyper_type type;
    double        preset;           /* default; of a PD_CHOICE the index, of a PD_FLAG 0 or 1 */
    double        least, most;      /* inclusive range of PD_REAL and PD_INT */
    const char   *choices;          /* PD_CHOICE: "none|sgd|adam"; PD_REAL and PD_INT: NULL, or a word that stands for `least` ("ready") */
    const char   *help;             /* one line */
    bool          per_step;         /* may come with a push or change while the job runs (lr may, a block size may not) */
    bool          spreads;          /* of the first entry of a list: one number stands for all of them, and what a shorter list leaves out is as preset */
} pd_hyper;

PD_API const pd_hyper *pd_row_hypers(const pd_row *row, size_t *count);

#define PD_MAX_HYPERS 64
#define PD_MAX_TEXT   4096              /* bytes of a PD_TEXT */

typedef struct pd_schedule pd_schedule;     /* a hyperparameter's value as a function of the step; immutable */
typedef struct pd_hyper_text pd_hyper_text; /* a PD_TEXT's text; immutable */

/* A row with values for all its hyperparameters. Plain data: copy it freely. A copy borrows the schedules and texts of what it was copied from,
 * which is to outlive it; whatever is set in the copy changes the copy alone. */
typedef struct pd_hypers {
    const pd_row      *row;
    double             value[PD_MAX_HYPERS];    /* in the order of pd_row_hypers; of one that has a schedule: that of the first step */
    uint64_t           scheduled;               /* bit i: value i follows a schedule, the first of index i in: */
    const pd_schedule *schedules;
    const pd_hyper_text *texts;
} pd_hypers;

/* All defaults, and no schedules. */
PD_API void pd_hypers_init(pd_hypers *hypers, const pd_row *row);
/* Sets one value from text ("lr", "0.05"; flags take yes/no, true/false, 1/0), or, where the hyperparameter is per_step, a schedule
 * ("lr", "linear_warmup(peak=0.1,warmup_steps=2000)"; README.md lists the kinds): all values that it takes must lie in the
 * range, whole numbers and flags are rounded to, and words cannot be scheduled. The name of a list takes all its numbers: "0.9,0.999", also in () or [];
 * a choice takes what belongs to it in brackets: "Adam(beta2=0.999,epsilon=1e-8)"; the case of words does not count. A PD_TEXT takes any text of at most
 * PD_MAX_TEXT bytes as it stands; "": none. After an error nothing is set. A schedule or text belongs to `hypers`, at its present address, until pd_hypers_free there.
 * PD_NOT_FOUND: the row has no such hyperparameter (the text lists those it has).
 * PD_INVALID_ARGUMENT: not a value of that type, or no schedule. PD_OUT_OF_RANGE: outside the range, or too long. PD_NO_MEMORY: for a schedule or text. */
PD_API int pd_hypers_set(pd_hypers *hypers, const char *name, const char *value, pd_error *err);
/* The same, and adds to *mask which ones were set: bit i, value i. */
PD_API int pd_hypers_set_which(pd_hypers *hypers, const char *name, const char *value, uint64_t *mask, pd_error *err);
/* Frees the schedules and texts that were set in `hypers` itself, which no copy may use any more; those it borrows stay. Every value is a plain
 * number then, and there are no texts. Wanted where one may have been set, and before such a struct is initialised anew, assigned to or moved. */
PD_API void pd_hypers_free(pd_hypers *hypers);
/* The values in force in the step before which `count` steps were counted: 0 in the first. Fills value[PD_MAX_HYPERS]. */
PD_API void pd_hypers_at(const pd_hypers *hypers, int64_t count, double *value);
/* Index in pd_row_hypers, or -1. */
PD_API int pd_hypers_find(const pd_row *row, const char *name);
/* What a name stands for: bit i, value i; of a list all its numbers. 0: the row has no such hyperparameter. */
PD_API uint64_t pd_hypers_bits(const pd_row *row, const char *name);
/* What concerns several values at once (sgd: nesterov wants momentum > 0 and dampening 0), wherever schedules turn too. PD_INVALID_ARGUMENT. */
PD_API int pd_hypers_check(const pd_hypers *hypers, pd_error *err);
/* The text of a PD_TEXT as it was given; "" where none is set. Lives as a schedule does. */
PD_API const char *pd_hypers_given_text(const pd_hypers *hypers, int index);
/* May one step of a parameter declared with `declared` use now->value? Also refuses a change of what is not per_step (of texts, where `now` has any), and what
 * the state does not provide for (sgd: momentum in a step, declared without). Both have the same row. PD_INVALID_ARGUMENT. */
PD_API int pd_hypers_check_step(const pd_hypers *declared, const pd_hypers *now, pd_error *err);
/* A value as text that pd_hypers_set reads back to the same bits: in `text` (64 bytes suffice), or a schedule's own text or a PD_TEXT's, of whatever length,
 * which lives as long as that. */
PD_API const char *pd_hypers_text(const pd_hypers *hypers, int index, char *text, size_t size);

/* What a parameter is, before it has state. */
typedef struct pd_declaration {
    const char *name;
    pd_shape    shape;
    pd_hypers   hypers;
    int         world;              /* workers of the job, for what depends on their number; 0: not known */
    int         group;              /* parameters with the same row and number form a group, for rows that count by group (pd_row) */
    const char *axes;               /* logical names of its dimensions, "layers,embed,mlp": as many as it has, each may be empty; NULL or "": not given */
    uint64_t    seed;               /* of the random numbers that its optimizer draws: these follow from seed, name and step alone */
    int64_t     start_step;         /* steps that count as taken before the first one: counters, schedules and random numbers go on from there */
    struct pd_name_maps *maps;      /* what is read once for a whole set of parameters, by who plans it: leave it NULL */
} pd_declaration;

typedef struct pd_model pd_model;

/* Plans and allocates the state of `count` parameters, all in their initial state. Borrows the declarations' schedules, and copies what else it needs. `threads` >= 1: size of the OpenMP team.
 * PD_INVALID_ARGUMENT: a declaration that its row refuses (names parameter and reason). PD_NO_MEMORY. */
PD_API int  pd_model_new(pd_model **out, const pd_declaration *params, size_t count, int threads, pd_error *err);
PD_API void pd_model_free(pd_model *model);                    /* accepts NULL */

/* One parameter's part in one step. */
typedef struct pd_step_io {
    const float *gradient;          /* aggregated gradient; NULL: none in this step, nothing changes and `after` is not written */
    const float *before;            /* weights before the step */
    float       *after;             /* weights after it, written whole; may be `before` itself */
    const double *hypers;           /* values to use in this step instead of what is declared or scheduled, or NULL: read by the call alone */
    uint64_t      hypers_mask;      /* of these, bit i: value i; the others are as declared or scheduled */
    float        *update;           /* NULL, or gets what was added to the weights, whole; only from rows that give updates */
    const struct pd_draws *draws;   /* NULL, or random numbers to be used in this step instead of those that the seed gives */
} pd_step_io;

/* Recorded random numbers, for a replay. Borrowed until the step is done and the tasks that it captured have run: of a model, by the call alone. */
typedef struct pd_draws {
    const float *normal;            /* kron's probe, laid out as upstream's stacked blocks (kron.h); NULL: those that the seed gives, if any are needed */
    double       uniform;           /* one number in [0, 1) for the whole optimizer: kron balances its factors where it is at most 0.01 */
    int64_t      n_normal;          /* how many numbers `normal` has: as many as the parameter's row takes */
} pd_draws;

/* One step of all parameters: io[i] belongs to params[i]. Root tasks run inside the call. Where a row counts by group, its counter advances when
 * one of the group's parameters has a gradient.
 * PD_NO_MEMORY: nothing has changed. PD_UNIMPLEMENTED, for updates that a row does not give, and PD_INVALID_ARGUMENT, for another number of normal draws than the
 * parameter's row takes in a step: nothing has changed. Any other code is a row's own: it
 * has refused a step, since it can make no root (the text begins with the parameter's name). All parameters of its group, or it alone, keep
 * their weights, and their `after` is not written; the step is counted, and the statistics have been updated. All others have stepped. */
PD_API int pd_model_step(pd_model *model, const pd_step_io *io, pd_error *err);

/* Clips the gradients of all parameters together in the steps that follow (Pascanu, Mikolov, Bengio 2013; the factor is T5X's, T min(1/T, 1/norm) in
 * float32), before what a row has of its own; such a limit holds for the parameters of one row and group together, all declared with the same. Your gradients stay
 * as they are. `limit`: of their norm; 0: none.
 * PD_OUT_OF_RANGE: not 0, and not from 1e-30 to 1e30. PD_NO_MEMORY, for copies. What was set before holds then. */
PD_API int    pd_model_clip(pd_model *model, double limit, pd_error *err);
/* The norm before clipping in the last step: of all gradients, or where only rows have limits of the first such group's. 0: none yet, or nothing is clipped. */
PD_API double pd_model_norm(const pd_model *model);

/* Steps that a parameter has taken; where its row counts by group, those that the group has. */
PD_API int64_t pd_model_count(const pd_model *model, size_t param);
/* Bytes of optimizer state (slots as stored, temporaries not counted). */
PD_API int64_t pd_model_state_bytes(const pd_model *model);
/* Copies a part of parameter `param`'s state to `out` in float64, whatever it is stored as: "momentum_buffer", number -1, block -1; "statistics", 3, -1.
 * With block >= 0 a slot of that block ("factor_matrices", 1, 3), or what lies in that block of a slot that the whole parameter has.
 * PD_NOT_FOUND: the optimizer keeps no such part. PD_OUT_OF_RANGE: it does not have n elements. */
PD_API int pd_model_read_part(const pd_model *model, size_t param, const char *slot, int number, int block, double *out, int64_t n, pd_error *err);

#ifdef __cplusplus
}
#endif
#endif
