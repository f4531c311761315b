/* shared_plan.c - frees the plan (the list of state tensors, blocks and preconditioner tasks) that an optimizer shares
 * with its preconditioner tasks, when its last user drops it. */
#include "shared_plan.h"

#include <stdlib.h>

void pd_shared_plan_drop(pd_shared_plan *shared)
{
    if (shared == NULL || --shared->refs > 0) return;
    pd_plan_free(&shared->plan);
    free(shared);
}
