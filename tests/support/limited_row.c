/* limited_row.c - two variants of sgd for tests of clipping. */
#include "limited_row.h"

static double limit(const double *hyper)
{
    return hyper[pd_hypers_find(pd_optim_find("sgd"), "dampening")];
}

static pd_optimizer_ops sgd_called(const char *name)
{
    pd_optimizer_ops row = *pd_optim_find("sgd");

    row.name = name;
    return row;
}

const pd_optimizer_ops *limited_row(void)
{
    static pd_optimizer_ops row;

    row = sgd_called("limited");
    row.clip_norm = limit;
    return &row;
}

const pd_optimizer_ops *values_row(void)
{
    static pd_optimizer_ops row;

    row = sgd_called("values");
    row.takes_values = true;
    return &row;
}
