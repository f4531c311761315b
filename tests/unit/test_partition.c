/* Tests how a tensor is cut into blocks and put together again. */
#include "test.h"
#include "partition.h"

static const pd_shape shapes[] = {
    { 0, { 0 } },    { 1, { 1 } },       { 1, { 10 } },         { 2, { 7, 5 } },
    { 2, { 1, 9 } }, { 3, { 4, 3, 5 } }, { 4, { 2, 5, 3, 4 } }, { 2, { 6, 6 } },
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MOST = 200 };

/* Runs CHECK for each shape and block size. CHECK uses `shape`, `size`, the number of blocks `n` and the number of
 * elements `elements`. */
#define EACH(CHECK)                                                                                                    \
    for (int s = 0; s < SHAPES; s++)                                                                                   \
        for (int64_t size = 1; size <= 11; size++) {                                                                   \
            const pd_shape *shape = &shapes[s];                                                                        \
            int64_t n = pd_partition_count(shape, size), elements = 0;                                                 \
            (void)pd_shape_elements(shape, &elements);                                                                 \
            CHECK                                                                                                      \
        }

TEST(blocks_cover_every_element_once)
{
    float dense[MOST], whole[MOST], number[MOST];

    for (int i = 0; i < MOST; i++) number[i] = (float)(i + 1);
    EACH({
        memset(whole, 0, sizeof whole);
        int64_t sum = 0;
        for (int64_t b = 0; b < n; b++) {
            pd_block block = pd_partition_block(shape, size, b);
            int64_t m = pd_block_elements(&block, shape->rank);
            pd_block_gather(dense, number, shape, &block);
            for (int64_t i = 0; i < m; i++) assert_true(whole[(int64_t)dense[i] - 1]++ == 0);
            sum += m;
        }
        assert_int_equal(sum, elements);
    })
}

TEST(no_block_is_larger_than_its_size){ EACH({
    for (int64_t b = 0; b < n; b++) {
        pd_block block = pd_partition_block(shape, size, b);
        for (int d = 0; d < shape->rank; d++)
            assert_true(block.size[d] >= 1 && block.size[d] <= size && block.start[d] % size == 0 &&
                        block.start[d] + block.size[d] <= shape->dim[d]);
    }
}) }

TEST(what_was_gathered_is_scattered_back)
{
    float dense[MOST], whole[MOST], number[MOST];

    for (int i = 0; i < MOST; i++) number[i] = (float)(i + 1);
    EACH({
        memset(whole, 0, sizeof whole);
        for (int64_t b = 0; b < n; b++) {
            pd_block block = pd_partition_block(shape, size, b);
            pd_block_gather(dense, number, shape, &block);
            pd_block_scatter(whole, dense, shape, &block);
        }
        assert_memory_equal(whole, number, (size_t)elements * sizeof(float));
        assert_true(whole[elements] == 0);
    })
}

TEST(seven_by_five_in_threes)
{
    const pd_shape shape = { 2, { 7, 5 } };
    float whole[35], dense[9];
    pd_block block;

    for (int i = 0; i < 35; i++) whole[i] = (float)i;
    assert_int_equal(pd_partition_count(&shape, 3), 6);
    block = pd_partition_block(&shape, 3, 3); /* block 3: rows 3 to 5, columns 3 and 4 */
    assert_int_equal(pd_block_elements(&block, 2), 6);
    pd_block_gather(dense, whole, &shape, &block);
    assert_memory_equal(dense, ((float[]){ 18, 19, 23, 24, 28, 29 }), 6 * sizeof(float));
    block = pd_partition_block(&shape, 3, 4); /* block 4: the last row, columns 0 to 2 */
    pd_block_gather(dense, whole, &shape, &block);
    assert_memory_equal(dense, ((float[]){ 30, 31, 32 }), 3 * sizeof(float));
}

TEST(a_scalar_is_one_block)
{
    const pd_shape shape = { 0, { 0 } };
    pd_block block = pd_partition_block(&shape, 4, 0);
    float dense = 0, whole = 5;

    assert_int_equal(pd_partition_count(&shape, 4), 1);
    pd_block_gather(&dense, &whole, &shape, &block);
    assert_true(dense == 5);
}

TEST(a_shape_without_elements_has_no_blocks)
{
    assert_int_equal(pd_partition_count(&(pd_shape){ 2, { 5, 0 } }, 3), 0);
    assert_int_equal(pd_partition_count(&(pd_shape){ 3, { 0, INT64_MAX, INT64_MAX } }, 1), 0);
}

TEST(a_count_that_does_not_fit_is_the_largest)
{
    assert_true(pd_partition_count(&(pd_shape){ 2, { INT64_MAX, INT64_MAX } }, 1) == INT64_MAX);
    assert_int_equal(pd_partition_count(&(pd_shape){ 1, { INT64_MAX } }, INT64_MAX), 1);
}
