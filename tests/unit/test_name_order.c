/* Tests the order of names, against qsort with strcmp. */
#include "test.h"
#include "name_order.h"
#include "rig.h"

enum { MOST = 300, LENGTH = 40 };

typedef struct names {
    char text[MOST][LENGTH];
    pd_named list[MOST];
    size_t n;
} names;

static const names *compared;

static int by_strcmp(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const pd_named *x = &compared->list[a], *y = &compared->list[b];
    int order = strcmp(x->name, y->name);

    if (order != 0) return order;
    if (x->then != y->then) return x->then < y->then ? -1 : 1;
    return (a > b) - (a < b);
}

/* Sorts a list in parts. */
static void sort(const pd_named *list, size_t n, uint32_t *to)
{
    pd_name_order *order = pd_name_order_new(list, n);
    double budget_ns = 1;

    assert_non_null(order);
    while (!pd_name_order_some(order, &budget_ns)) budget_ns = 1;
    for (size_t i = 0; i < n; i++) to[i] = (uint32_t)pd_name_order_at(order, i);
    pd_name_order_free(order);
}

static void assert_sorted(const names *all)
{
    uint32_t order[MOST], expected[MOST];

    for (size_t i = 0; i < all->n; i++) expected[i] = (uint32_t)i;
    compared = all;
    qsort(expected, all->n, sizeof *expected, by_strcmp);
    sort(all->list, all->n, order);
    assert_memory_equal(order, expected, all->n * sizeof *order);
}

/* Makes names of few different bytes, of which some are above 127, so that they have long beginnings in common. */
static void make(names *all, uint64_t seed)
{
    static const char bytes[] = "a\xff.b";
    uint64_t state = seed + 1;

    all->n = (size_t)(rig_random(&state) % MOST);
    for (size_t i = 0; i < all->n; i++) {
        size_t length = (size_t)(rig_random(&state) % LENGTH), common = (size_t)(rig_random(&state) % LENGTH);

        for (size_t k = 0; k < length; k++)
            all->text[i][k] = k < common ? 'a' : bytes[rig_random(&state) % (sizeof bytes - 1)];
        all->text[i][length] = '\0';
        all->list[i] = (pd_named){ all->text[i], (int64_t)(rig_random(&state) % 3) - 1 };
    }
}

TEST(names_are_sorted_as_strcmp_compares)
{
    static names all;

    for (uint64_t seed = 0; seed < 2000; seed++) {
        make(&all, seed);
        assert_sorted(&all);
    }
}

TEST(portions_of_one_name_are_sorted_by_their_first_element)
{
    const pd_named list[] = { { "layer.10.weight", 200 },
                              { "layer.10.weight", 0 },
                              { "layer.1.weight", 100 },
                              { "layer.10.weight", INT64_MAX },
                              { "layer.10.weight", 100 } };
    const uint32_t expected[] = { 2, 1, 4, 0, 3 };
    uint32_t order[5];

    sort(list, 5, order);
    assert_memory_equal(order, expected, sizeof expected);
}

TEST(names_of_a_whole_number_of_words_end_there)
{
    const pd_named list[] = { { "12345678abcdefgh", 0 }, { "12345678", 0 }, { "", 0 }, { "1234567", 0 } };
    const uint32_t expected[] = { 2, 3, 1, 0 };
    uint32_t order[4];

    sort(list, 4, order);
    assert_memory_equal(order, expected, sizeof expected);
}

/* One part of a sort by eight bytes takes all names that have the bytes before in common. */
TEST(a_list_is_sorted_in_parts)
{
    static names all;
    pd_name_order *order;
    double budget_ns = 1;
    unsigned parts = 1;

    for (uint64_t seed = 1; all.n < MOST / 2; seed++) make(&all, seed);
    assert_non_null(order = pd_name_order_new(all.list, all.n));
    for (; !pd_name_order_some(order, &budget_ns); parts++) budget_ns = 1;
    assert_true(parts > 5);
    pd_name_order_free(order);
}
