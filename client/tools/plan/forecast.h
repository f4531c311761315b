/* forecast.h - forecasts what a model costs. It makes the plans of all parameters as a job would, but no state, and
 * computes the memory with the daemon's own functions. Pure.
 *
 * A plan lists a parameter's slots (tensors of optimizer state) and tasks (computations beside the steps, such as
 * matrix roots). A task is captured when a step copies its inputs. */
#ifndef PD_FORECAST_H
#define PD_FORECAST_H

#include "footprint.h"
#include "optimizer.h"
#include "rule.h"
#include "shapes_file.h"

#define PD_FORECAST_STEPS 65536 /* the first steps, up to this number, are searched for due tasks */

/* Parameters that have the same plan: those with the same rule, shape and axes. If a text in the rule can refer to
 * parameters by name, their plans are compared, too. */
typedef struct pd_kind {
    const pd_rule *rule;
    pd_shape shape;
    const char *axes; /* names of the dimensions; NULL: none; borrowed from the shapes */
    int64_t elements, params;
    pd_plan plan;
    pd_aggregation how; /* how the workers' contributions are combined */
    pd_footprint need;  /* memory for one parameter; all figures below are for one parameter, too */
    int64_t state_bytes;
    int64_t step_bytes;   /* memory besides the state during a step: temporary slots, and slots converted to float32 */
    int64_t thread_bytes; /* further memory that each thread needs during a step */
    int64_t task_bytes;   /* memory for input copies and results when all tasks are captured at once */
    double task_flops;    /* floating-point operations of all tasks together */
    int64_t due[3];       /* numbers of the first three steps in which tasks are captured */
    int n_due;            /* entries of `due`; fewer than 3: no other capture up to step PD_FORECAST_STEPS */
    bool goes_on;         /* captures go on every pd_kind_interval steps; false: the interval changes later, for
                           * example by a schedule */
} pd_kind;

/* Sums over parameters. A sum that does not fit an int64_t is INT64_MAX. */
typedef struct pd_forecast_sum {
    int64_t params, elements, weight_bytes, state_bytes, step_bytes, task_bytes, blocks, tasks;
    int64_t thread_bytes;       /* the largest value of the kinds, not a sum */
    pd_footprint need;          /* memory for all parameters, as the daemon counts it against limits.max_total_bytes */
    double flops;               /* operations of one step: counts matrix products only */
    double task_flops;          /* operations when all tasks are captured once */
    double task_flops_per_step; /* operations of tasks, averaged over the steps between two captures */
} pd_forecast_sum;

typedef struct pd_forecast {
    const pd_shapes *shapes; /* borrowed */
    pd_sizing job;
    pd_rule *rules;
    size_t n_rules;
    struct pd_name_maps *maps;    /* maps from parameter names to values in the rules' texts; NULL once the plans are
                                   * made */
    pd_forecast_sum *of_rule;     /* sums for each rule */
    double (*fact)[PD_MAX_FACTS]; /* for each rule the numbers about the whole model that its optimizer needs
                                   * (pd_fact) */
    pd_kind *kinds;
    size_t n_kinds;
    pd_kind **kind; /* kind of each parameter */
    pd_forecast_sum all;
    size_t largest; /* index of the parameter with the most bytes of weights and state */
} pd_forecast;

/* Returns a job with one worker and default options, on a daemon with default options and one thread of each kind. */
pd_sizing pd_forecast_job(void);
/* Makes the plans of all parameters and the sums. The caller frees *out; after an error it is empty. `rules` are
 * texts as in a worker's Hello; without rules, "* sgd" is used. `rows` are the optimizers, with NULL at the end.
 *
 * PD_INVALID_ARGUMENT: the daemon would refuse the job. The error names the reason: a rule, a parameter or the
 * number of workers.
 *
 * PD_NO_MEMORY: out of memory. */
int pd_forecast_make(pd_forecast *out, const pd_sizing *job, const pd_shapes *shapes, char *const *rules,
                     size_t n_rules, const pd_row *const *rows, pd_error *err);
void pd_forecast_free(pd_forecast *forecast); /* also accepts an empty forecast */

/* Returns the number of steps between two captures if the first three are evenly spaced. 0: they are not, or there
 * are fewer than three. */
int64_t pd_kind_interval(const pd_kind *kind);

/* ---- similar slots and tasks of a plan ---- */

/* The slots or tasks of a plan in groups, whose members differ only in their numbers. The members of group g are
 * item[first[g]] up to, but not including, item[first[g + 1]]. */
typedef struct pd_groups {
    int *item; /* indices into the plan's list of slots or tasks */
    size_t *first;
    size_t n; /* number of groups, which are in the order of their first members; `first` has n + 1 entries */
} pd_groups;

/* Group the slots or the tasks of a plan. The caller frees *out. With `apart`, each item is a group of its own.
 * PD_NO_MEMORY: out of memory. */
int pd_group_slots(pd_groups *out, const pd_plan *plan, bool apart);
int pd_group_tasks(pd_groups *out, const pd_plan *plan, bool apart);
void pd_groups_free(pd_groups *groups);

#endif
