/* fixed_hyper.c - finds hyperparameters that may not change while a job runs. */
#include "fixed_hyper.h"

const char *pd_fixed_hyper(const pd_optimizer_ops *row, uint64_t mask)
{
    size_t count;
    const pd_hyper *hypers = pd_optimizer_hypers(row, &count);

    for (size_t i = 0; i < count; i++)
        if ((mask >> i & 1) != 0 && !hypers[i].per_step) return hypers[i].name;
    return NULL;
}
