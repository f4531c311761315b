/* shared_plan.h - what an optimizer and its tasks share: the plan, the job's facts and the random streams. Read only.
 * The step thread counts the references: it makes and frees both. */
#ifndef PD_SHARED_PLAN_H
#define PD_SHARED_PLAN_H

#include "row.h"

typedef struct pd_shared_plan {
    unsigned refs;
    pd_plan  plan;
    double   fact[PD_MAX_FACTS];
    pd_random random, random_of_all;
} pd_shared_plan;

/* Takes one reference away; the last one frees all. Accepts NULL. */
void pd_shared_plan_drop(pd_shared_plan *shared);

#endif
