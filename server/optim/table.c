/* table.c - every optimizer the server knows: one line each. */
#include "table.h"

#define ROWS(X) \
    X(pd_sgd) \
    X(pd_adam) \
    X(pd_adamw) \
    X(pd_adagrad) \
    X(pd_rmsprop) \
    X(pd_nadam) \
    X(pd_radam) \
    X(pd_adamax) \
    X(pd_adadelta) \
    X(pd_rprop) \
    X(pd_asgd) \
    X(pd_lamb) \
    X(pd_lion) \
    X(pd_scalable_shampoo) \
    X(pd_shampoo) \
    X(pd_adafactor) \
    X(pd_kron) \
    X(pd_model_state)

#define DECLARE(row) extern const pd_row row;
ROWS(DECLARE)

#define ADDRESS(row) &row,
const pd_row *const pd_rows[] = { ROWS(ADDRESS) NULL };
