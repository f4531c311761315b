/* table.c - every optimizer the server knows: one line each. */
#include "row.h"

#define ROWS(X) \
    X(pd_sgd) \
    X(pd_scalable_shampoo)

#define DECLARE(row) extern const pd_row row;
ROWS(DECLARE)

#define ADDRESS(row) &row,
const pd_row *const pd_rows[] = { ROWS(ADDRESS) NULL };
