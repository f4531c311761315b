/* optimizer_types.h - types of one parameter's optimizer that its implementation shares with its users. */
#ifndef PD_OPTIMIZER_TYPES_H
#define PD_OPTIMIZER_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

typedef struct pd_optim pd_optim; /* one parameter's optimizer: its state, and the step under way */
typedef struct pd_task pd_task;   /* a root task: computes one inverse root of a matrix, from its own copies of the
                                   * inputs */

/* The place at which the next pd_optim_fill goes on writing initial values; zeros at first. */
typedef struct pd_fill {
    size_t slot;
    int64_t element;
} pd_fill;

/* An atomic group: steps of several parameters that succeed or fail together (pd_optim_bind). */
typedef struct pd_atomic_group {
    size_t steps, arrived;
    size_t first; /* position of the first step of the group that is refused; equal to `steps` if none is */
    pd_error why;
} pd_atomic_group;

typedef struct pd_root_stats {
    int64_t due, adopted, failed, waits; /* waits: number of steps that waited for a task; the others: numbers of
                                          * tasks */
    int64_t replaced;                    /* tasks whose result was out of date: a newer root was there (PD_ROOT_READY
                                          * only) */
    int64_t dropped;                     /* tasks thrown away because an earlier task made the step fail */
    /* largest error of a root, and largest time of its task, among the roots that one step began to use last */
    double last_error, last_cost_ms;
} pd_root_stats;

/* The record of the root that one task of a plan computes again and again. */
typedef struct pd_root_state {
    int64_t count; /* step from which the root in use has its statistics; 0: still the initial root */
    int64_t adopted, failed;
    double error, condition, ms; /* of the last task that ran, also if it failed; 0: not known */
    bool failing;                /* the last task gave no new root: it failed, or there was no memory for its inputs */
} pd_root_state;

#endif
