/* forecast.h - forecasts how much memory and computing a model's optimizer will need. The functions are pure.
 *
 * A forecast makes the plans of all parameters as a job would, but no state. It computes the memory with the daemon's
 * own functions. A preconditioner task counts as begun in the step that captures its inputs. */
#ifndef PD_FORECAST_H
#define PD_FORECAST_H

#include <jansson.h>
#include <stdio.h>

#include "footprint.h"
#include "optimizer.h"
#include "rule.h"
#include "shapes_file.h"

#define PD_FORECAST_STEPS 65536 /* tasks are searched for in the steps up to this number */

/* All parameters that have the same plan, because they have the same rule, shape and names of dimensions. If a text in
 * the rule can refer to parameters by name, their plans are compared, too. */
typedef struct pd_kind {
    const pd_rule *rule;
    pd_shape shape;
    const char *axes;         /* names of the dimensions, borrowed from the list of shapes; NULL: none */
    int64_t elements, params; /* elements of one parameter; number of parameters of this kind */
    pd_plan plan;
    pd_aggregation how;

    /* The figures below are for one parameter. */
    pd_footprint need; /* memory, as the daemon counts it */
    int64_t state_bytes;
    int64_t step_bytes;   /* bytes that a step needs besides the state: temporary slots, and slots that are converted to
                           * float32 */
    int64_t thread_bytes; /* further bytes that each computing thread needs during a step */
    int64_t task_bytes;   /* bytes for the copied inputs and the results of tasks, if all begin in one step */
    double task_flops;    /* floating-point operations of all tasks */
    int64_t due[3];       /* the first steps in which tasks begin, in ascending order */
    int n_due;            /* number of entries of `due`; fewer than 3: no other task begins up to step
                           * PD_FORECAST_STEPS */
    bool goes_on; /* true: tasks begin every pd_kind_interval steps, also later; false: a schedule changes the interval
                   * later */
} pd_kind;

/* Sums of costs over parameters. A sum that does not fit an int64_t is INT64_MAX. */
typedef struct pd_forecast_sum {
    int64_t params, elements, weight_bytes, state_bytes, step_bytes, task_bytes, blocks, tasks;
    int64_t thread_bytes;       /* the largest value over all parameters, not a sum */
    pd_footprint need;          /* memory, as the daemon counts it against limits.max_total_bytes */
    double flops;               /* floating-point operations of one step; only matrix products are counted */
    double task_flops;          /* floating-point operations if each task runs once */
    double task_flops_per_step; /* averaged over the steps from one run of a task to the next */
} pd_forecast_sum;

/* The forecast of a model, for one job. */
typedef struct pd_forecast {
    const pd_shapes *shapes; /* borrowed */
    pd_sizing job;
    pd_rule *rules;
    size_t n_rules;
    struct pd_name_maps *maps;           /* maps from names of parameters that rules contain as text; NULL once the
                                          * plans are made */
    pd_forecast_sum *of_rule;            /* for each rule the sums over its parameters */
    double (*stats)[PD_MAX_MODEL_STATS]; /* for each rule the model statistics that its optimizer needs */
    pd_kind *kinds;
    size_t n_kinds;
    pd_kind **kind; /* the kind of each parameter, in the order of `shapes` */
    pd_forecast_sum all;
    uint64_t if_durable; /* with durability = auto: bytes that a daemon with checkpoints counts in addition to
                          * `all.need` */
    size_t largest;      /* index of the parameter with the most bytes of weights and state */
} pd_forecast;

/* Returns the settings of a job with one worker and default options, on a daemon with default options, one step thread
 * and one pool thread. */
pd_sizing pd_forecast_job(void);
/* Makes the plans of all parameters and sums up their costs. The caller frees *out; after an error it is empty. `rules`
 * are texts as a worker sends them in Hello; without rules, "* sgd" is used. `rows` are the optimizers, with NULL at
 * the end. PD_INVALID_ARGUMENT: the daemon would refuse the job; the error names the rule, the parameter or the number
 * of workers. PD_NO_MEMORY. */
int pd_forecast_make(pd_forecast *out, const pd_sizing *job, const pd_shapes *shapes, char *const *rules,
                     size_t n_rules, const pd_optimizer_ops *const *rows, pd_error *err);
/* Makes the plan of a part of parameter `param` that has this shape, and computes its memory: for a portion of the
 * parameter that another daemon has. The caller frees *plan; after an error it is empty. PD_NO_MEMORY. */
int pd_forecast_portion(pd_plan *plan, pd_footprint *need, const pd_forecast *f, size_t param, const pd_shape *shape,
                        pd_error *err);
/* Frees a forecast, which may be empty. */
void pd_forecast_free(pd_forecast *forecast);

/* Returns the number of steps from one run of a parameter's tasks to the next. Returns 0 if the first three runs are
 * not evenly spaced, or there are fewer than three. */
int64_t pd_kind_interval(const pd_kind *kind);

/* The slots or the tasks of a plan, in groups. Slots of a group differ only in the number in their name; tasks of a
 * group differ only in these numbers of their slots. The members of group g are item[first[g]] up to, but not
 * including, item[first[g + 1]]. */
typedef struct pd_groups {
    int *item;     /* indices into the plan's list of slots or tasks */
    size_t *first; /* for each group the index of its first member in `item`, and at the end the number of all
                    * members */
    size_t n;      /* number of groups; they are in the order of their first members */
} pd_groups;

/* Group the slots or the tasks of a plan. The caller frees *out. If `apart` is set, each slot or task is a group of its
 * own. PD_NO_MEMORY: out of memory. */
int pd_group_slots(pd_groups *out, const pd_plan *plan, bool apart);
int pd_group_tasks(pd_groups *out, const pd_plan *plan, bool apart);
void pd_groups_free(pd_groups *groups);

/* Returns the whole forecast as JSON, which the caller frees. NULL: out of memory (forecast_json.c). */
json_t *pd_forecast_json(const pd_forecast *forecast);
/* Prints the forecast as text. Without `verbose`, similar parameters, slots and tasks share a line. PD_NO_MEMORY
 * (forecast_text.c). */
int pd_forecast_print(const pd_forecast *forecast, bool verbose, FILE *out, pd_error *err);

#endif
