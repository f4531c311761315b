/* optimizer_ops.c - lists every optimizer that the server knows, and finds an optimizer by name or index. Also defines
 * model_state, the optimizer of tensors that belong to a model and are not trained, such as a batch norm's running mean
 * and variance: ranks push values, and the mean of the values becomes the weights. A counter (num_batches_tracked) is
 * exact up to 2^24. */
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
    X(pd_delayed_nesterov)                                                                                             \
    X(pd_ademamix)                                                                                                     \
    X(pd_mars)                                                                                                         \
    X(pd_schedule_free_adamw)                                                                                          \
    X(pd_schedule_free_sgd)                                                                                            \
    X(pd_gpa)                                                                                                          \
    X(pd_muon)                                                                                                         \
    X(pd_scalable_shampoo)                                                                                             \
    X(pd_shampoo)                                                                                                      \
    X(pd_adafactor)                                                                                                    \
    X(pd_kron)                                                                                                         \
    X(pd_soap)                                                                                                         \
    X(pd_kl_shampoo)                                                                                                   \
    X(pd_model_state)

#define DECLARE(row) extern const pd_optimizer_ops row;
ROWS(DECLARE)

#define ADDRESS(row) &row,
const pd_optimizer_ops *const pd_optimizer_table[] = { ROWS(ADDRESS) NULL };

const pd_optimizer_ops *pd_optim_at(size_t index)
{
    for (size_t i = 0; pd_optimizer_table[i] != NULL; i++)
        if (i == index) return pd_optimizer_table[i];
    return NULL;
}

const pd_optimizer_ops *pd_optim_find(const char *name)
{
    for (size_t i = 0; pd_optimizer_table[i] != NULL; i++)
        if (strcmp(pd_optimizer_table[i]->name, name) == 0) return pd_optimizer_table[i];
    return NULL;
}

const char *pd_optimizer_name(const pd_optimizer_ops *ops)
{
    return ops->name;
}

const char *pd_optimizer_about(const pd_optimizer_ops *ops)
{
    return ops->about;
}

const pd_hyper *pd_optimizer_hypers(const pd_optimizer_ops *ops, size_t *count)
{
    size_t n = 0;

    while (ops->hypers[n].name != NULL) n++;
    *count = n;
    return ops->hypers;
}

/* Keeps the names that pd_optimizer_name and the other functions had in version 0.1, for programs built with it. */
const char *pd_row_name(const pd_optimizer_ops *ops) __attribute__((alias("pd_optimizer_name")));
const char *pd_row_about(const pd_optimizer_ops *ops) __attribute__((alias("pd_optimizer_about")));
const pd_hyper *pd_row_hypers(const pd_optimizer_ops *ops, size_t *count) __attribute__((alias("pd_optimizer_hypers")));

int64_t pd_grain_of_elements(const pd_plan *plan)
{
    (void)plan;
    return 1;
}

static const pd_hyper no_hypers[] = { { .name = NULL } };

static int no_state(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)plan, (void)err;
    return PD_OK;
}

static void take(const pd_unit *unit)
{
    memcpy(unit->after + unit->first, unit->gradient + unit->first, (size_t)unit->n * sizeof *unit->after);
}

const pd_optimizer_ops pd_model_state = {
    .name = "model_state",
    .about = "not trained: becomes the mean of what the ranks push (a batch norm's statistics)",
    .hypers = no_hypers,
    .plan = no_state,
    .phases = { { .name = "take", .kind = PD_RANGES, .run = take } },
    .takes_values = true,
    .grain = pd_grain_of_elements,
};
