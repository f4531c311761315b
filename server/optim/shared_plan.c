/* shared_plan.c - the end of what an optimizer and its tasks share. */
#include "shared_plan.h"

#include <stdlib.h>

void pd_shared_plan_drop(pd_shared_plan *shared)
{
    if (shared == NULL || --shared->refs > 0) return;
    pd_plan_free(&shared->plan);
    free(shared);
}
