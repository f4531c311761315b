/* forecast.h - forecasts how much memory and computing a model's optimizer will need.
 *
 * It makes the plans of all parameters as a job would, but no state, and computes the memory with the daemon's own
 * functions. A plan lists a parameter's slots and tasks (computations beside the
 * steps, such as matrix roots). A task begins (is "captured") when a step copies its inputs.
 *
 * All functions are pure: they use no files, clocks or connections. */
#ifndef PD_FORECAST_H
#define PD_FORECAST_H

#include "footprint.h"
#include "optimizer.h"
#include "rule.h"
#include "shapes_file.h"

#define PD_FORECAST_STEPS 65536 /* tasks are searched for in the steps up to this number */

/* A kind of parameters: all those that have the same plan (slots of optimizer state, and tasks), because they have
 * the same rule, shape and names of dimensions. If a text in the rule can refer to parameters by name, their plans
 * are compared, too. */
typedef struct pd_kind {
    const pd_rule *rule;
    pd_shape shape;
    const char *axes; /* names of the dimensions, borrowed from the list of shapes; NULL: none */
    int64_t elements, params;
    pd_plan plan;
    pd_aggregation how; /* how the gradients of the workers are combined, such as by their mean */
    /* Memory for one parameter of this kind (parameters with the same plan), as the daemon counts it. The figures that
     * follow are for one parameter, too. */
    pd_footprint need;
    int64_t state_bytes;
    /* Memory that a step needs besides the state: temporary slots, and slots that are converted to float32. */
    int64_t step_bytes;
    int64_t thread_bytes; /* further memory that each computing thread needs during a step */
    /* memory for copied inputs and for results if all tasks begin in one step */
    int64_t task_bytes;
    double task_flops; /* floating-point operations of all tasks of one parameter */
    int64_t due[3];    /* due: numbers of the first three steps in which tasks begin */
    /* Number of entries in `due`, at most 3. If there are fewer, no other task begins up to
     * step PD_FORECAST_STEPS. */
    int n_due;
    /* Tasks go on to begin every pd_kind_interval steps. false: the interval changes later, for example by a
     * schedule. */
    bool goes_on;
} pd_kind;

/* Sums of costs over parameters. A sum that does not fit an int64_t is INT64_MAX. */
typedef struct pd_forecast_sum {
    int64_t params, elements, weight_bytes, state_bytes, step_bytes, task_bytes, blocks, tasks;
    /* Memory that each computing thread needs during a step: the largest value over all parameters, not a sum. */
    int64_t thread_bytes;
    /* Memory for all parameters, as the daemon counts it against its setting limits.max_total_bytes. */
    pd_footprint need;
    double flops;      /* floating-point operations of one step; only matrix products are counted */
    double task_flops; /* floating-point operations if each task runs once */
    /* Floating-point operations of tasks for each step, averaged over the steps from one run of a task to the next. */
    double task_flops_per_step;
} pd_forecast_sum;

typedef struct pd_forecast {
    const pd_shapes *shapes; /* borrowed */
    pd_sizing job;
    pd_rule *rules;
    size_t n_rules;
    /* Maps from parameter names to values, which stand in the texts of rules. NULL once the plans are made. */
    struct pd_name_maps *maps;
    pd_forecast_sum *of_rule; /* for each optimizer rule the sums over its parameters */
    /* For each rule the numbers about the whole model that its optimizer needs (pd_model_stat), such as a sum over
     * parameters. */
    double (*stats)[PD_MAX_MODEL_STATS];
    pd_kind *kinds;
    size_t n_kinds;
    pd_kind **kind; /* for each parameter its kind; all parameters of a kind have the same plan */
    pd_forecast_sum all;
    /* With durability = auto: bytes that `all.need` lacks on a daemon that makes checkpoints. Else 0. */
    uint64_t if_durable;
    size_t largest; /* index of the parameter with the most bytes of weights and state */
} pd_forecast;

/* Returns the settings of a job with one worker and default options, on a daemon with default options that has one
 * thread for steps and one for matrix roots. */
pd_sizing pd_forecast_job(void);
/* Makes the plans (optimizer state and tasks) of all parameters and sums up their costs. The caller frees *out;
 * after an error it is empty. `rules` are texts as a worker sends them in Hello; without rules, "* sgd" is used.
 * `rows` are the optimizers, with NULL at the end.
 *
 * PD_INVALID_ARGUMENT: the daemon would refuse the job. The error names the reason: a rule, a parameter or the
 * number of workers.
 *
 * PD_NO_MEMORY: out of memory. */
int pd_forecast_make(pd_forecast *out, const pd_sizing *job, const pd_shapes *shapes, char *const *rules,
                     size_t n_rules, const pd_optimizer_ops *const *rows, pd_error *err);
/* Frees a forecast, which may be empty. */
void pd_forecast_free(pd_forecast *forecast);

/* Returns the number of steps from one run of a parameter's tasks to the next, if the first three runs are evenly
 * spaced. 0: they are not, or there are fewer than three. */
int64_t pd_kind_interval(const pd_kind *kind);

/* The slots or the tasks of a plan, in groups. Members of a group differ only in their numbers. The members of group g
 * are item[first[g]] up to, but not including, item[first[g + 1]]. */
typedef struct pd_groups {
    int *item; /* indices into the plan's list of slots or tasks */
    size_t *first;
    /* Number of groups of slots or tasks. The groups are in the order of their first members. `first` has n + 1
     * entries. */
    size_t n;
} pd_groups;

/* Group the slots or the tasks of a plan. The caller frees *out. If `apart` is set, each slot or task is a group of its
 * own. PD_NO_MEMORY: out of memory. */
int pd_group_slots(pd_groups *out, const pd_plan *plan, bool apart);
int pd_group_tasks(pd_groups *out, const pd_plan *plan, bool apart);
void pd_groups_free(pd_groups *groups);

#endif
