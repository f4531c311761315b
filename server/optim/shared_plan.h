/* shared_plan.h - the data that an optimizer shares with its tasks: the plan, the job's facts and the random
 * streams. Read only. The step thread makes and frees optimizers and tasks, and so counts the references. */
#ifndef PD_SHARED_PLAN_H
#define PD_SHARED_PLAN_H

#include "row.h"

typedef struct pd_shared_plan {
    unsigned refs;
    pd_plan plan;
    double fact[PD_MAX_FACTS];
    pd_random random, random_of_all;
} pd_shared_plan;

/* Removes one reference; the last one frees the shared data. Accepts NULL. */
void pd_shared_plan_drop(pd_shared_plan *shared);

#endif
