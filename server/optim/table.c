/* table.c - lists every optimizer that the server knows, and finds an optimizer by name or index. */
#include "table.h"

#include "optimizer_ops.h"

#include <string.h>

#define ROWS(X)                                                                                                        \
    X(pd_sgd)                                                                                                          \
    X(pd_adam)                                                                                                         \
    X(pd_adamw)                                                                                                        \
    X(pd_adagrad)                                                                                                      \
    X(pd_rmsprop)                                                                                                      \
    X(pd_nadam)                                                                                                        \
    X(pd_radam)                                                                                                        \
    X(pd_adamax)                                                                                                       \
    X(pd_adadelta)                                                                                                     \
    X(pd_rprop)                                                                                                        \
    X(pd_asgd)                                                                                                         \
    X(pd_lamb)                                                                                                         \
    X(pd_lion)                                                                                                         \
    X(pd_scalable_shampoo)                                                                                             \
    X(pd_shampoo)                                                                                                      \
    X(pd_adafactor)                                                                                                    \
    X(pd_kron)                                                                                                         \
    X(pd_model_state)

#define DECLARE(row) extern const pd_optimizer_ops row;
ROWS(DECLARE)

#define ADDRESS(row) &row,
const pd_optimizer_ops *const pd_rows[] = { ROWS(ADDRESS) NULL };

const pd_optimizer_ops *pd_optim_at(size_t index)
{
    for (size_t i = 0; pd_rows[i] != NULL; i++)
        if (i == index) return pd_rows[i];
    return NULL;
}

const pd_optimizer_ops *pd_optim_find(const char *name)
{
    for (size_t i = 0; pd_rows[i] != NULL; i++)
        if (strcmp(pd_rows[i]->name, name) == 0) return pd_rows[i];
    return NULL;
}

const char *pd_optimizer_name(const pd_optimizer_ops *row)
{
    return row->name;
}

const char *pd_optimizer_about(const pd_optimizer_ops *row)
{
    return row->about;
}

const pd_hyper *pd_optimizer_hypers(const pd_optimizer_ops *row, size_t *count)
{
    size_t n = 0;

    while (row->hypers[n].name != NULL) n++;
    *count = n;
    return row->hypers;
}

const char *pd_row_name(const pd_optimizer_ops *ops) __attribute__((alias("pd_optimizer_name")));
const char *pd_row_about(const pd_optimizer_ops *ops) __attribute__((alias("pd_optimizer_about")));
const pd_hyper *pd_row_hypers(const pd_optimizer_ops *ops, size_t *count) __attribute__((alias("pd_optimizer_hypers")));
