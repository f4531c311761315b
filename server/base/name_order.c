/* name_order.c - sorts names by eight bytes at a time: entries whose bytes are equal are sorted by the next eight. */
#include "name_order.h"

#include <stdlib.h>

enum { WORD = 8 }; /* bytes of a name that are compared at a time */

/* Estimates of how long the work takes, in nanoseconds of one core. */
#define READ_NS 20.0 /* time to read the next bytes of a name */
#define SORT_NS 80.0 /* time to sort one of many entries by them */

typedef struct keyed {
    uint64_t key;
    uint32_t at; /* index of the entry */
} keyed;

/* Entries that are next to each other, and are not sorted yet. */
typedef struct span {
    uint32_t first, n;
    uint32_t from; /* their names have so many first bytes in common */
    bool ended;    /* they have the same name */
} span;

struct pd_name_order {
    const pd_named *list;
    keyed *sorted;
    span *spans; /* a stack: no two have an entry in common */
    size_t n_spans;
};

pd_name_order *pd_name_order_new(const pd_named *list, size_t n)
{
    pd_name_order *order = calloc(1, sizeof *order);

    if (order == NULL) return NULL;
    order->list = list;
    order->sorted = malloc((n + 1) * sizeof *order->sorted);
    order->spans = malloc((n / 2 + 1) * sizeof *order->spans);
    if (order->sorted == NULL || order->spans == NULL) {
        pd_name_order_free(order);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) order->sorted[i].at = (uint32_t)i;
    if (n > 1) order->spans[order->n_spans++] = (span){ .n = (uint32_t)n };
    return order;
}

void pd_name_order_free(pd_name_order *order)
{
    if (order == NULL) return;
    free(order->sorted);
    free(order->spans);
    free(order);
}

size_t pd_name_order_at(const pd_name_order *order, size_t i)
{
    return order->sorted[i].at;
}

/* Returns the next bytes of a name as a number that compares as they do; zeros follow the end of the name. */
static uint64_t word_of(const char *name)
{
    uint64_t word = 0;
    int i = 0;

    for (; i < WORD && name[i] != '\0'; i++) word = word << 8 | (uint8_t)name[i];
    return i > 0 ? word << 8 * (WORD - i) : 0;
}

/* Returns what decides between the entries of a span: the next bytes of the name, or `then`. */
static uint64_t key_of(const pd_named *entry, const span *s)
{
    return s->ended ? (uint64_t)entry->then ^ (uint64_t)1 << 63 : word_of(entry->name + s->from);
}

static int by_key(const void *left, const void *right)
{
    const keyed *a = left, *b = right;

    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* Adds the entries with equal keys in a sorted span to the stack. */
static void add_spans(pd_name_order *order, const span *s)
{
    const keyed *list = &order->sorted[s->first];

    for (uint32_t first = 0, end; first < s->n; first = end) {
        for (end = first + 1; end < s->n && list[end].key == list[first].key; end++) continue;
        if (end - first == 1) continue;
        order->spans[order->n_spans++] = (span){ .first = s->first + first,
                                                 .n = end - first,
                                                 .from = s->from + WORD,
                                                 .ended = (list[first].key & UINT8_MAX) == 0 };
    }
}

/* Sorts a span by its keys, which are often all the same in names with a common beginning. Returns the estimated
 * time. */
static double sort_span(pd_name_order *order, const span *s)
{
    keyed *list = &order->sorted[s->first];
    bool same = true;

    for (uint32_t i = 0; i < s->n; i++) {
        list[i].key = key_of(&order->list[list[i].at], s);
        same = same && list[i].key == list[0].key;
    }
    if (!same || s->ended) qsort(list, s->n, sizeof *list, by_key);
    if (!s->ended) add_spans(order, s);
    return s->n * (same ? READ_NS : READ_NS + SORT_NS);
}

bool pd_name_order_some(pd_name_order *order, double *budget_ns)
{
    while (order->n_spans > 0) {
        span next;
        if (!(*budget_ns > 0)) return false;
        next = order->spans[--order->n_spans];
        *budget_ns -= sort_span(order, &next);
    }
    return true;
}
