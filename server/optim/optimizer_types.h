/* optimizer_types.h - types of one parameter's optimizer that its implementation shares with its users. */
#ifndef PD_OPTIMIZER_TYPES_H
#define PD_OPTIMIZER_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

typedef struct pd_optim pd_optim; /* one parameter's optimizer: its state, and the step under way */
/* A preconditioner task: computes one inverse root of a matrix, from its own copies of the inputs. */
typedef struct pd_task pd_task;

/* The place at which the next call of pd_optim_fill goes on writing initial values of the state; zeros at first. */
typedef struct pd_fill {
    size_t slot;
    int64_t element;
} pd_fill;

/* How a preconditioner task ended that a step took from those whose results were pending. */
typedef struct pd_taken_root {
    uint32_t task; /* index of the task in the plan */
    int64_t count; /* step in which the task's inputs were copied */
    int32_t
        status; /* PD_OK; PD_CANCELLED: it was never run, since a newer one had come; otherwise why it gave no root */
} pd_taken_root;

/* The preconditioner tasks that one step takes. With root_delay = ready these depend on timing, so a log of the job's
 * steps has them. */
typedef struct pd_taken_roots {
    pd_taken_root *at;
    size_t n, room; /* number of entries; most entries that `at` has room for */
    size_t left;    /* number of pending tasks that the step could have taken, had they been back; only noted */
    bool missed;    /* something was left out: `at` had no room, or a replayed task was not there */
} pd_taken_roots;

/* An atomic group: steps of several parameters that succeed or fail together (pd_optim_bind). */
typedef struct pd_atomic_group {
    size_t steps, arrived;
    size_t first; /* position of the first step of the atomic group that fails; equal to `steps` if none fails */
    pd_error why;
} pd_atomic_group;

typedef struct pd_root_stats {
    /* Numbers of preconditioner tasks that became due, whose roots were adopted, and that failed. `waits` is the number
     * of steps that waited for a task. */
    int64_t due, adopted, failed, waits;
    /* with PD_ROOT_READY, number of tasks whose result was out of date because a newer matrix root was in use, or that
     * were not made because four earlier ones of the same root were still pending. Operators see it as "unused"; images
     * have this name, which cannot change without their format. */
    int64_t replaced;
    /* number of tasks that were thrown away, because an earlier task made the step fail */
    int64_t dropped;
    /* The largest error, and the largest time of a task, among the matrix roots that the latest step with new roots
     * began to use. */
    double last_error, last_cost_ms;
} pd_root_stats;

/* The record of one matrix root, which the same task of the plan computes again and again during training. */
typedef struct pd_root_state {
    /* step whose statistics the matrix root in use was computed from; 0: the initial one is still in use */
    int64_t count;
    int64_t adopted, failed;
    /* error, condition number and time in ms of the last task that ran, also if it failed; 0: not known */
    double error, condition, ms;
    /* whether the last task gave no new matrix root: it failed, or there was no memory for its inputs */
    bool failing;
} pd_root_state;

#endif
