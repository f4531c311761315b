/* Tests shapes against upstream's own tables in google_shampoo: merged dimensions, blocks and their order, sides of
 * statistics, exponents. */
#include <jansson.h>

#include "test.h"
#include "golden.h"
#include "partition.h"
#include "plan.h"

static json_t *merges, *partitions, *plans;

static int64_t number(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(entry, key));
}

static pd_shape shape_from(const json_t *list)
{
    pd_shape shape = { .rank = (int)json_array_size(list) };

    assert_true(json_is_array(list) && shape.rank <= PD_MAX_RANK);
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = json_integer_value(json_array_get(list, (size_t)d));
    return shape;
}

static void assert_shape(const pd_shape *ours, const json_t *theirs, const json_t *entry)
{
    pd_shape expected = shape_from(theirs);

    if (!pd_shape_equal(ours, &expected))
        fail_msg("%s: we have rank %d, %lld ...", json_dumps(entry, 0), ours->rank, (long long)ours->dim[0]);
}

TEST(small_dimensions_are_merged_as_upstream_merges_them)
{
    size_t i;
    json_t *entry;

    json_array_foreach(merges, i, entry)
    {
        pd_shape shape = shape_from(json_object_get(entry, "shape")),
                 merged = pd_shape_merged(&shape, number(entry, "max_dim"));
        assert_shape(&merged, json_object_get(entry, "merged"), entry);
    }
    assert_true(i > 0);
}

/* Checks the sizes of the plan's statistics, in order. `sides` lists each size as a number or as a square shape. */
static void assert_sides(const pd_plan *plan, const json_t *sides)
{
    int64_t n = pd_statistics_count(plan);

    assert_int_equal(n, json_array_size(sides));
    for (int64_t k = 0; k < n; k++) {
        const json_t *side = json_array_get(sides, (size_t)k);
        assert_int_equal(pd_statistics_side(plan, k),
                         json_integer_value(json_is_array(side) ? json_array_get(side, 0) : side));
    }
}

static void check_blocks(const pd_plan *plan, const json_t *entry)
{
    const json_t *shapes = json_object_get(entry, "block_shapes"), *firsts = json_object_get(entry, "first_elements");

    assert_int_equal(plan->n_blocks, json_array_size(shapes));
    for (size_t b = 0; b < plan->n_blocks; b++) {
        pd_shape size = { .rank = plan->shape.rank };
        int64_t first = 0;
        for (int d = 0; d < size.rank; d++) {
            size.dim[d] = plan->blocks[b].size[d];
            first = first * plan->shape.dim[d] + plan->blocks[b].start[d];
        }
        assert_shape(&size, json_array_get(shapes, b), entry);
        assert_int_equal(first, json_integer_value(json_array_get(firsts, b)));
    }
}

TEST(blocks_are_upstreams_in_upstreams_order)
{
    size_t i;
    json_t *entry;

    json_array_foreach(partitions, i, entry)
    {
        pd_plan plan = { .shape = shape_from(json_object_get(entry, "shape")) };
        assert_int_equal(pd_plan_blocks(&plan, number(entry, "block_size")), PD_OK);
        check_blocks(&plan, entry);
        assert_sides(&plan, json_object_get(entry, "preconditioner_shapes"));
        pd_plan_free(&plan);
    }
    assert_true(i > 0);
}

TEST(statistics_and_exponents_follow_from_the_shape)
{
    size_t i;
    json_t *entry;

    json_array_foreach(plans, i, entry)
    {
        pd_shape shape = shape_from(json_object_get(entry, "shape"));
        int64_t block_size = number(entry, "block_size");
        pd_plan plan = { .shape = json_is_true(json_object_get(entry, "best_effort_shape_interpretation"))
                                      ? pd_shape_merged(&shape, block_size)
                                      : shape };
        assert_shape(&plan.shape, json_object_get(entry, "transformed"), entry);
        assert_int_equal(2 * plan.shape.rank, number(entry, "exponent"));
        assert_int_equal(pd_plan_blocks(&plan, block_size), PD_OK);
        assert_sides(&plan, json_object_get(entry, "statistics_sizes"));
        pd_plan_free(&plan);
    }
    assert_true(i > 0);
}

static int open_tables(void **state)
{
    (void)state;
    merges = golden_table("google_shampoo/merge_small_dims.json");
    partitions = golden_table("google_shampoo/block_partitioner.json");
    plans = golden_table("google_shampoo/preconditioner_plan.json");
    return 0;
}

static int close_tables(void **state)
{
    (void)state;
    json_decref(merges);
    json_decref(partitions);
    json_decref(plans);
    return 0;
}

GROUP(open_tables, close_tables);
