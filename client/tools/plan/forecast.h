/* forecast.h - what will a model cost? The plans of all its parameters, made as a job would make them and without any
 * state, and the memory that the daemon will count for them, by its own functions. Pure. */
#ifndef PD_FORECAST_H
#define PD_FORECAST_H

#include "footprint.h"
#include "optimizer.h"
#include "rule.h"
#include "shapes_file.h"

#define PD_FORECAST_STEPS 65536         /* number of first steps that are searched for due tasks */

/* Parameters of one rule, shape and axes have the same plan. If the rule has a text, which may name parameters, only
 * those with equal plans are of a kind. */
typedef struct pd_kind {
    const pd_rule *rule;
    pd_shape       shape;
    const char    *axes;                /* NULL: none; borrowed from the shapes */
    int64_t        elements, params;
    pd_plan        plan;
    pd_aggregation how;                 /* aggregation of their contributions */
    pd_footprint   need;                /* of one parameter, as all figures below */
    int64_t        state_bytes;
    int64_t        step_bytes;          /* temporary slots and float32 forms during a step, in addition to the state */
    int64_t        thread_bytes;        /* needed in addition by each thread of a step */
    int64_t        task_bytes;          /* copies and results of all tasks of one capture */
    double         task_flops;          /* of all tasks of one capture */
    int64_t        due[3];              /* the first steps in which tasks are captured */
    int            n_due;               /* fewer than 3: there are no others before step PD_FORECAST_STEPS */
    bool           goes_on;             /* tasks stay due every pd_kind_interval steps; false: a schedule, say, changes
                                         * the interval */
} pd_kind;

/* Sums over all parameters. A sum that does not fit an int64_t is INT64_MAX. */
typedef struct pd_forecast_sum {
    int64_t params, elements, weight_bytes, state_bytes, step_bytes, task_bytes, blocks, tasks;
    int64_t thread_bytes;               /* the largest of the kinds */
    pd_footprint need;                  /* of all parameters: counted by the daemon against limits.max_total_bytes */
    double  flops;                      /* of one step: matrix products, without passes over memory */
    double  task_flops;                 /* of one capture of everything */
    double  task_flops_per_step;        /* the same divided by the steps between the first three captures */
} pd_forecast_sum;

typedef struct pd_forecast {
    const pd_shapes *shapes;            /* borrowed */
    pd_sizing        job;
    pd_rule         *rules;             size_t n_rules;
    struct pd_name_maps *maps;          /* of the rules' texts, while plans are made, which happens twice */
    pd_forecast_sum *of_rule;           /* by rule */
    double         (*fact)[PD_MAX_FACTS];       /* by rule */
    pd_kind         *kinds;             size_t n_kinds;
    pd_kind        **kind;              /* by parameter */
    pd_forecast_sum  all;
    size_t           largest;           /* the parameter with most bytes of weights and state */
} pd_forecast;

/* Returns a job with the presets and one worker, on a daemon with the presets and one thread of each kind. */
pd_sizing pd_forecast_job(void);
/* Makes the plans and sums; free *out. `rules`: as a worker's Hello has them, none: "* sgd"; `rows`: the optimizers,
 * ending with NULL. PD_INVALID_ARGUMENT: a rule, a parameter or a number of workers for which a job would be refused;
 * the text names it. PD_NO_MEMORY. After an error *out is empty. */
int  pd_forecast_make(pd_forecast *out, const pd_sizing *job, const pd_shapes *shapes, char *const *rules,
                      size_t n_rules, const pd_row *const *rows, pd_error *err);
void pd_forecast_free(pd_forecast *forecast);           /* accepts an empty one */

/* Returns the number of steps between captures if the first three are evenly spaced; 0: they are not, or there are
 * fewer. */
int64_t pd_kind_interval(const pd_kind *kind);

/* ---- what of a plan is alike ---- */

/* Members of a plan's list, grouped by everything except their numbers: group g is item[first[g]] ... item[first[g + 1]
 * - 1]. */
typedef struct pd_groups {
    int    *item;                       /* indices into the plan's list */
    size_t *first;
    size_t  n;                          /* groups, in the order of their first items; `first` has n + 1 entries */
} pd_groups;

/* Groups slots or tasks; free *out. `apart`: each item is a group of its own. PD_NO_MEMORY. */
int  pd_group_slots(pd_groups *out, const pd_plan *plan, bool apart);
int  pd_group_tasks(pd_groups *out, const pd_plan *plan, bool apart);
void pd_groups_free(pd_groups *groups);

#endif
