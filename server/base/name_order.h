/* name_order.h - sorts many names, also if they have long beginnings in common, in parts of bounded time. */
#ifndef PD_NAME_ORDER_H
#define PD_NAME_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An entry to sort. */
typedef struct pd_named {
    const char *name;
    int64_t then; /* decides between equal names */
} pd_named;

typedef struct pd_name_order pd_name_order; /* the order of a list, while it is found and afterwards */

/* Begins to sort the n entries of a list, which is borrowed until the order is freed. NULL: out of memory. */
pd_name_order *pd_name_order_new(const pd_named *list, size_t n);
/* Sorts for about *budget_ns nanoseconds of one core. Returns false if there is more to do. */
bool pd_name_order_some(pd_name_order *order, double *budget_ns);
/* Returns the index of the entry that comes at place i: by name, as strcmp compares, then by `then`, then by index.
 * Call it when the list is sorted. */
size_t pd_name_order_at(const pd_name_order *order, size_t i);
void pd_name_order_free(pd_name_order *order); /* accepts NULL */

#endif
