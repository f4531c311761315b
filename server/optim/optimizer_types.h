/* optimizer_types.h - the types that the headers of one parameter's optimizer share: its steps, its preconditioner
 * tasks, and what operators see of its roots. */
#ifndef PD_OPTIMIZER_TYPES_H
#define PD_OPTIMIZER_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

typedef struct pd_optim pd_optim; /* one parameter's optimizer: its plan, its state, and the step under way */
typedef struct pd_task pd_task;   /* a preconditioner task, with its own copies of the inputs */

/* The place from which the next call of pd_optim_fill writes initial values. Both fields are 0 at first. */
typedef struct pd_fill {
    size_t slot;     /* index of the slot in plan->slots */
    int64_t element; /* index of the first element of the slot that has no initial value yet */
} pd_fill;

/* One task that a step has taken (adopted, or thrown away), and how the task ended. */
typedef struct pd_taken_root {
    uint32_t task; /* index of the task in the plan */
    int64_t count; /* number of the step that captured the task */
    /* PD_OK: the task has a result. PD_CANCELLED: the task was not run, because a newer task had replaced it. Another
     * code: the error because of which it has no result */
    int32_t status;
} pd_taken_root;

/* List of the tasks that one step takes. With root_delay = ready the list depends on timing, so it is among the
 * decisions in the WAL. */
typedef struct pd_taken_roots {
    pd_taken_root *at; /* array of the caller, in the order in which the tasks were captured */
    size_t n, room;    /* number of entries in `at`, and number for which it has room */
    size_t left;       /* number of pending tasks that the step did not take; a replayed step does not set it */
    /* the list is not what the step took: `at` had no room, or a task that a replayed step must take does not exist */
    bool missed;
} pd_taken_roots;

/* An atomic group: steps of several parameters that succeed or fail together. Owned by the caller of pd_optim_bind. */
typedef struct pd_atomic_group {
    size_t steps, arrived; /* number of steps in the group, and of those that have reported whether they fail */
    size_t first;          /* position of the first step that fails; `steps` if none fails */
    pd_error why;          /* error of the step `first`; not set if no step fails */
} pd_atomic_group;

/* Counters of all preconditioner tasks of one optimizer, over all its steps. Operators see them. */
typedef struct pd_root_stats {
    /* Numbers of tasks: that steps wanted to capture (due), that were adopted, that failed. `waits` is the number of
     * steps that waited for a task. */
    int64_t due, adopted, failed, waits;
    /* With PD_ROOT_READY, number of tasks whose result was not used because a newer root was in use already, or that
     * were not made because four earlier tasks of each root were still pending. Operators see this number as "unused".
     * The field keeps its old name because images contain it. */
    int64_t replaced;
    /* number of tasks that were thrown away: an earlier task made the step fail, or pd_optim_forget_roots was called */
    int64_t dropped;
    /* largest root error, and longest time in ms, of the tasks that were adopted last */
    double last_error, last_cost_ms;
} pd_root_stats;

/* What is known about one root. One task of the plan computes a root, again and again from newer statistics. */
typedef struct pd_root_state {
    /* number of the step from whose statistics the root in use was computed; 0: the initial root is in use */
    int64_t count;
    int64_t adopted, failed; /* number of the root's tasks that were adopted, and that failed */
    /* error, condition number and time in ms of the root's last task, also if the task failed; 0: not known */
    double error, condition, ms;
    bool failing; /* whether the last task failed, or there was no memory for its inputs */
} pd_root_state;

#endif
