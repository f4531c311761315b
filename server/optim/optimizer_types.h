/* optimizer_types.h - types that the users of one parameter's optimizer share with its inside. */
#ifndef PD_OPTIMIZER_TYPES_H
#define PD_OPTIMIZER_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

typedef struct pd_optim pd_optim;           /* one parameter's optimizer state, and the step under way */
typedef struct pd_task  pd_task;            /* recomputation of one root, on its own copies */

/* Where pd_optim_fill goes on; begins zeroed. */
typedef struct pd_fill { size_t slot; int64_t element; } pd_fill;

/* An atomic group: steps that succeed or fail together (pd_optim_bind). */
typedef struct pd_atomic_group {
    size_t   steps, arrived;
    size_t   first;                         /* position of the first member that refuses its step; steps: none does */
    pd_error why;
} pd_atomic_group;

typedef struct pd_root_stats {
    int64_t due, adopted, failed, waits;    /* tasks; waits: steps that were parked */
    int64_t replaced;                       /* PD_ROOT_READY: tasks never run, or late, because newer statistics came */
    int64_t dropped;                        /* tasks thrown away because the step failed before them */
    double  last_error, last_cost_ms;       /* largest among the tasks adopted last */
} pd_root_stats;

/* What is known of the root that one task of the plan keeps. */
typedef struct pd_root_state {
    int64_t count;                          /* step of the statistics behind the root in use; 0: none was adopted yet */
    int64_t adopted, failed;
    double  error, condition, ms;           /* of the task that ran last, adopted or refused; 0: not known */
    bool    failing;                        /* that task was refused, or had no memory */
} pd_root_state;

#endif
