/* shared_plan.h - the data that an optimizer shares with its preconditioner tasks: the plan, the
 * numbers about all parameters of the job (facts) and the random streams. Nobody changes them. Only the step thread
 * makes and frees optimizers and tasks, so it alone counts the references. */
#ifndef PD_SHARED_PLAN_H
#define PD_SHARED_PLAN_H

#include "optimizer_ops.h"

typedef struct pd_shared_plan {
    unsigned refs;
    pd_plan plan;
    double fact[PD_MAX_FACTS];
    pd_random random, random_of_all;
} pd_shared_plan;

/* Removes one reference; the last one frees the shared data. Accepts NULL. */
void pd_shared_plan_drop(pd_shared_plan *shared);

#endif
