/* optimizer_types.h - types of one parameter's optimizer that its implementation shares with its users. */
#ifndef PD_OPTIMIZER_TYPES_H
#define PD_OPTIMIZER_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

typedef struct pd_optim pd_optim; /* one parameter's optimizer: its state, and the step under way */
typedef struct pd_task pd_task;   /* a preconditioner task, with its own copies of the inputs */

/* Where the next call of pd_optim_fill continues to write initial values; zeros at first. */
typedef struct pd_fill {
    size_t slot;
    int64_t element;
} pd_fill;

/* How a pending task ended that a step took. */
typedef struct pd_taken_root {
    uint32_t task; /* index of the task in the plan */
    int64_t count; /* step that captured the task */
    /* PD_OK; PD_CANCELLED: it was never run, since a newer one had come; otherwise why it gave no root */
    int32_t status;
} pd_taken_root;

/* The tasks that one step takes. With root_delay = ready these depend on timing, so a log of the job's steps has
 * them. */
typedef struct pd_taken_roots {
    pd_taken_root *at;
    size_t n, room;
    size_t left; /* number of pending tasks that the step could have taken, had they been back; only noted */
    bool missed; /* something was left out: `at` had no room, or a replayed task was not there */
} pd_taken_roots;

/* Steps of several parameters that succeed or fail together (pd_optim_bind). */
typedef struct pd_atomic_group {
    size_t steps, arrived;
    size_t first; /* position of the first step that fails; `steps` if none fails */
    pd_error why;
} pd_atomic_group;

typedef struct pd_root_stats {
    /* Numbers of tasks that became due, whose roots were adopted, and that failed. `waits` is the number of steps that
     * waited for a task. */
    int64_t due, adopted, failed, waits;
    /* With PD_ROOT_READY, number of tasks whose result was out of date because a newer root was in use, or that were
     * not made because four earlier ones of the same root were still pending. Operators see it as "unused"; images have
     * this name, which cannot change without their format. */
    int64_t replaced;
    int64_t dropped;                 /* tasks that were thrown away, because an earlier task made the step fail */
    double last_error, last_cost_ms; /* largest error and time of a task in the latest step that adopted roots */
} pd_root_stats;

/* The record of one root, which the same task of the plan computes again and again. */
typedef struct pd_root_state {
    int64_t count; /* step whose statistics the root in use was computed from; 0: the initial root is in use */
    int64_t adopted, failed;
    double error, condition, ms; /* of the last task that ran, also if it failed; 0: not known */
    bool failing;                /* whether the last task failed, or there was no memory for its inputs */
} pd_root_state;

#endif
