/* Tests merged dimensions and blocks of a shape. */
#include "test.h"
#include "partition.h"

static const pd_shape shapes[] = {
    { 0, { 0 } },
    { 1, { 1 } },
    { 1, { 10 } },
    { 2, { 7, 5 } },
    { 2, { 1, 9 } },
    { 3, { 1, 1, 1 } },
    { 4, { 2, 5, 3, 4 } },
    { 4, { 1, 6, 1, 6 } },
    { 8, { 2, 1, 2, 1, 2, 1, 2, 1 } },
    { 8, { 2, 2, 2, 2, 2, 2, 2, 3 } },
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST_LIMIT = 60 };

static int64_t elements_of(const pd_shape *shape)
{
    int64_t n = 0;

    assert_int_equal(pd_shape_elements(shape, &n), PD_OK);
    return n;
}

TEST(merging_keeps_the_elements)
{
    for (int s = 0; s < SHAPES; s++)
        for (int64_t limit = -1; limit <= MOST_LIMIT; limit++) {
            pd_shape merged = pd_shape_merged(&shapes[s], limit);
            assert_int_equal(elements_of(&merged), elements_of(&shapes[s]));
        }
}

TEST(merged_dimensions_are_within_the_limit_or_were_not_merged)
{
    for (int s = 0; s < SHAPES; s++)
        for (int64_t limit = -1; limit <= MOST_LIMIT; limit++) {
            pd_shape merged = pd_shape_merged(&shapes[s], limit);
            for (int d = 0; d < merged.rank; d++) {
                bool own = merged.dim[d] == 1;
                for (int e = 0; e < shapes[s].rank; e++) own |= merged.dim[d] == shapes[s].dim[e];
                assert_true(own || merged.dim[d] <= limit);
            }
        }
}

TEST(no_two_neighbours_could_still_be_merged)
{
    for (int s = 0; s < SHAPES; s++)
        for (int64_t limit = 1; limit <= MOST_LIMIT; limit++) {
            pd_shape merged = pd_shape_merged(&shapes[s], limit);
            for (int d = 0; d + 1 < merged.rank; d++) assert_true(merged.dim[d] * merged.dim[d + 1] > limit);
        }
}

TEST(merging_backwards_keeps_the_elements_and_the_limit)
{
    for (int s = 0; s < SHAPES; s++)
        for (int64_t limit = 0; limit <= MOST_LIMIT; limit++)
            for (int64_t target = 1; target <= 4; target++) {
                pd_shape merged = pd_shape_merged_backwards(&shapes[s], limit, target),
                         plain = pd_shape_merged(&shapes[s], 0);
                assert_int_equal(elements_of(&merged), elements_of(&shapes[s]));
                assert_true(merged.rank >= target || merged.rank == plain.rank);
                for (int d = 0; d < merged.rank; d++) {
                    bool own = false;
                    for (int e = 0; e < plain.rank; e++) own |= merged.dim[d] == plain.dim[e];
                    assert_true(own || merged.dim[d] <= limit);
                }
            }
}

/* Dimensions are joined at the end first, so a neighbour at the front may be left over. */
TEST(backwards_the_last_dimensions_are_merged_first)
{
    static const pd_shape shape = { 4, { 8, 1, 20, 10 } };
    pd_shape merged = pd_shape_merged_backwards(&shape, 256, 1);

    assert_true(pd_shape_equal(&merged, &(pd_shape){ 2, { 8, 200 } }));
    merged = pd_shape_merged(&shape, 256);
    assert_true(pd_shape_equal(&merged, &(pd_shape){ 2, { 160, 10 } }));
    merged = pd_shape_merged_backwards(&shape, 1 << 20, 2);
    assert_true(pd_shape_equal(&merged, &(pd_shape){ 2, { 8, 200 } }));
    merged = pd_shape_merged_backwards(&shape, 1 << 20, 3);
    assert_true(pd_shape_equal(&merged, &(pd_shape){ 3, { 8, 20, 10 } }));
}

TEST(without_a_limit_only_dimensions_of_1_disappear)
{
    pd_shape merged = pd_shape_merged(&(pd_shape){ 4, { 1, 6, 1, 6 } }, 0);

    assert_true(pd_shape_equal(&merged, &(pd_shape){ 2, { 6, 6 } }));
    merged = pd_shape_merged(&(pd_shape){ 3, { 1, 1, 1 } }, -1);
    assert_true(pd_shape_equal(&merged, &(pd_shape){ 1, { 1 } }));
}

TEST(a_shape_without_elements_stays_as_it_is)
{
    pd_shape empty = { 3, { 4, 0, 2 } }, merged = pd_shape_merged(&empty, 100);

    assert_true(pd_shape_equal(&merged, &empty));
    assert_int_equal(pd_shape_largest_side(&empty, 3), 0);
}

TEST(dimensions_whose_product_does_not_fit_are_not_merged)
{
    pd_shape large = { 3, { 0, 0, 0 } };

    for (int d = 0; d < 3; d++) large.dim[d] = (int64_t)1 << 40;
    large = pd_shape_merged(&large, INT64_MAX);
    assert_int_equal(large.rank, 3);
}

TEST(the_largest_side_is_that_of_the_largest_block)
{
    for (int s = 0; s < SHAPES; s++)
        for (int64_t size = -1; size <= 11; size++) {
            int64_t largest = 0;
            for (int64_t b = 0; b < pd_partition_count(&shapes[s], size); b++) {
                pd_block block = pd_partition_block(&shapes[s], size, b);
                for (int d = 0; d < shapes[s].rank; d++)
                    if (block.size[d] > largest) largest = block.size[d];
            }
            assert_int_equal(pd_shape_largest_side(&shapes[s], size), largest);
        }
}

TEST(a_block_size_of_0_cuts_nothing)
{
    for (int s = 0; s < SHAPES; s++) {
        pd_block block = pd_partition_block(&shapes[s], 0, 0);
        assert_int_equal(pd_partition_count(&shapes[s], 0), 1);
        assert_int_equal(pd_block_elements(&block, shapes[s].rank), elements_of(&shapes[s]));
    }
}

TEST(matrices_that_cannot_be_addressed_are_refused_with_their_size)
{
    pd_shape wide = { 2, { (int64_t)1 << 31, 2 } }, deep = { 4, { 4096, 4096, 4096, 2 } };
    pd_error err;

    assert_int_equal(pd_shape_check_blocks(&wide, 0, "block_size", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "2147483648"));
    assert_int_equal(pd_shape_check_blocks(&wide, 8192, "block_size", &err), PD_OK);
    assert_int_equal(pd_shape_check_blocks(&deep, 0, "block_size", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "137438953472"));
    assert_int_equal(pd_shape_check_blocks(&deep, 128, "block_size", &err), PD_OK);
}

TEST(a_limit_is_exceeded_by_what_is_above_it)
{
    assert_false(pd_shape_exceeds(&(pd_shape){ 2, { 3, 5 } }, 5));
    assert_true(pd_shape_exceeds(&(pd_shape){ 2, { 6, 5 } }, 5));
    assert_false(pd_shape_exceeds(&(pd_shape){ 0, { 0 } }, 0));
}

TEST(a_cut_into_too_many_blocks_is_refused)
{
    pd_shape most = { 2, { PD_MAX_BLOCKS / 16 * 8, 128 } }, more = { 2, { PD_MAX_BLOCKS / 16 * 8 + 1, 128 } },
             huge = { 2, { 1 << 30, 1 << 30 } };
    pd_error err = { 0 };

    assert_int_equal(pd_shape_check_blocks(&most, 8, "block_size", &err), PD_OK);
    assert_int_equal(pd_shape_check_blocks(&more, 8, "block_size", &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_shape_check_blocks(&huge, 1, "block_size", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "more than 262144 blocks"));
}
