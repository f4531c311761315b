/* Tests matrix products with blocks of a tensor against sums over elements in float64. The cases are a block that is
 * used in place, a dense block, and a block that is copied first. */
#include "test.h"
#include "block_products.h"

static const pd_shape shapes[] = {
    { 1, { 11 } },      { 2, { 9, 7 } },    { 2, { 1, 12 } },      { 2, { 12, 1 } },
    { 3, { 5, 6, 4 } }, { 3, { 1, 9, 8 } }, { 4, { 3, 4, 2, 5 } }, { 5, { 2, 3, 1, 2, 3 } },
};
static const int64_t block_sizes[] = { 3, 4, 100 };
enum { SHAPES = sizeof shapes / sizeof shapes[0], SIZES = 3, MOST = 160, MOST_SIDE = 12 };

static float number(int i)
{
    return (float)((i * 37 + 11) % 23 - 11) / 8;
}

/* Returns the index of a block's element i in the whole tensor. Writes the element's index along each dimension of the
 * block to index[d]. */
static int64_t place(const pd_shape *shape, const pd_block *block, int64_t i, int64_t *index)
{
    int64_t at = 0;

    for (int d = shape->rank - 1; d >= 0; d--) {
        index[d] = i % block->size[d];
        i /= block->size[d];
    }
    for (int d = 0; d < shape->rank; d++) at = at * shape->dim[d] + block->start[d] + index[d];
    return at;
}

static int64_t distance(const pd_shape *shape, int dim)
{
    int64_t stride = 1;

    for (int d = dim + 1; d < shape->rank; d++) stride *= shape->dim[d];
    return stride;
}

static void check_gram(const float *whole, const pd_shape *shape, const pd_block *block, const pd_block_view *view,
                       int dim)
{
    int64_t n = block->size[dim], index[PD_MAX_RANK], step = distance(shape, dim);
    double expected[MOST_SIDE * MOST_SIDE] = { 0 };
    float S[MOST_SIDE * MOST_SIDE];

    for (int64_t i = 0; i < pd_block_elements(block, shape->rank); i++) {
        int64_t at = place(shape, block, i, index);
        for (int64_t a = 0; a < n; a++)
            expected[index[dim] * n + a] += (double)whole[at] * (double)whole[at + (a - index[dim]) * step];
    }
    for (int k = 0; k < MOST_SIDE * MOST_SIDE; k++) S[k] = 2;
    pd_block_gram(pd_mat_dense(S, n, n), 0.5f, 0.25f, view, dim);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            if (j > i)
                assert_true(S[i * n + j] == 2); /* the product writes only the lower half of a symmetric matrix; the
                                                 * upper half stays */
            else
                assert_true(fabs((double)S[i * n + j] - (1 + 0.25 * expected[i * n + j])) < 1e-4);
        }
}

static double sum_of(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

static void check_contraction(const float *whole, const pd_shape *shape, const pd_block *block,
                              const pd_block_view *view, float *scratch)
{
    static float matrix[PD_MAX_RANK][MOST_SIDE * MOST_SIDE], out[MOST];
    static double expected[MOST], next[MOST];
    int64_t n = pd_block_elements(block, shape->rank), index[PD_MAX_RANK];
    float *P[PD_MAX_RANK];
    double sum, total = 0;

    for (int64_t i = 0; i < MOST; i++) expected[i] = (double)whole[i], out[i] = 1000;
    for (int d = 0; d < shape->rank; d++) {
        P[d] = matrix[d];
        /* a matrix that is not symmetric, so that a transposed product is noticed */
        for (int k = 0; k < MOST_SIDE * MOST_SIDE; k++) matrix[d][k] = number(k * 5 + d);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = place(shape, block, i, index);
            next[at] = 0;
            for (int64_t a = 0; a < block->size[d]; a++)
                next[at] +=
                    expected[at + (a - index[d]) * distance(shape, d)] * (double)P[d][a * block->size[d] + index[d]];
        }
        for (int64_t i = 0; i < n; i++) expected[place(shape, block, i, index)] = next[place(shape, block, i, index)];
    }
    sum = pd_block_contract(out, shape, block, view, P, scratch, sum_of);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = place(shape, block, i, index);
        assert_true(fabs((double)out[at] - expected[at]) < 1e-4 * (1 + fabs(expected[at])));
        total += (double)out[at];
        out[at] = 1000;
    }
    assert_true(fabs(sum - total) < 1e-9 * (1 + fabs(total)));
    for (int64_t i = 0; i < MOST; i++) assert_true(out[i] == 1000); /* no element outside the block was written */
}

static void each_block(void (*check)(const float *whole, const pd_shape *shape, const pd_block *block))
{
    float whole[MOST];

    for (int i = 0; i < MOST; i++) whole[i] = number(i);
    for (int s = 0; s < SHAPES; s++)
        for (int k = 0; k < SIZES; k++)
            for (int64_t b = 0; b < pd_partition_count(&shapes[s], block_sizes[k]); b++) {
                pd_block block = pd_partition_block(&shapes[s], block_sizes[k], b);
                check(whole, &shapes[s], &block);
            }
}

/* Allocates scratch memory of the requested size, so that a sanitizer finds an access beyond its end. */
static float *scratch_of(int64_t floats)
{
    return aligned_alloc(64, (size_t)(floats + 15) / 16 * 16 * sizeof(float));
}

static void grams(const float *whole, const pd_shape *shape, const pd_block *block)
{
    float *scratch = scratch_of(pd_block_view_scratch(shape, block));
    pd_block_view view = pd_block_look(whole, shape, block, scratch);

    for (int d = 0; d < shape->rank; d++) check_gram(whole, shape, block, &view, d);
    free(scratch);
}

static void contractions(const float *whole, const pd_shape *shape, const pd_block *block)
{
    float *looked = scratch_of(pd_block_view_scratch(shape, block)),
          *scratch = scratch_of(pd_block_contract_scratch(shape, block));
    pd_block_view view = pd_block_look(whole, shape, block, looked);

    check_contraction(whole, shape, block, &view, scratch);
    free(looked);
    free(scratch);
}

HOLDS(statistics_are_sums_over_all_other_dimensions, each_block(grams));

HOLDS(each_dimension_is_multiplied_by_its_matrix, each_block(contractions));

TEST(without_beta_the_old_statistic_is_not_read)
{
    float S[9], g[3] = { 1, 2, 3 };
    pd_shape shape = { 1, { 3 } };
    pd_block block = pd_partition_block(&shape, 0, 0);
    pd_block_view view = pd_block_look(g, &shape, &block, NULL);

    for (int i = 0; i < 9; i++) S[i] = NAN;
    pd_block_gram(pd_mat_dense(S, 3, 3), 0, 1, &view, 0);
    assert_true(S[0] == 1 && S[3] == 2 && S[4] == 4 && S[6] == 3 && S[7] == 6 && S[8] == 9);
}

/* A large block of a matrix is used in place. A dense copy of the same block, as a tensor of its own, must give the
 * same result. */
TEST(a_large_block_gives_the_same_result_inside_a_matrix_and_alone)
{
    enum { ROWS = 230, COLS = 300, HIGH = 190, WIDE = 200 };
    static float whole[ROWS * COLS], alone[HIGH * WIDE], out[ROWS * COLS], out_alone[HIGH * WIDE], S[WIDE * WIDE],
        T[WIDE * WIDE], P[2][WIDE * WIDE];
    pd_shape shape = { 2, { ROWS, COLS } }, own = { 2, { HIGH, WIDE } };
    pd_block block = { .start = { 40, 100 }, .size = { HIGH, WIDE } }, all = pd_partition_block(&own, 0, 0);
    float *scratch = scratch_of(pd_block_contract_scratch(&shape, &block)), *matrices[2] = { P[0], P[1] };
    pd_block_view view = pd_block_look(whole, &shape, &block, NULL),
                  view_alone = pd_block_look(alone, &own, &all, NULL);
    double sum, sum_alone;

    assert_int_equal(pd_block_view_scratch(&shape, &block), 0);
    for (int i = 0; i < ROWS * COLS; i++) whole[i] = number(i);
    for (int i = 0; i < WIDE * WIDE; i++) P[0][i] = number(3 * i), P[1][i] = number(5 * i + 1);
    pd_block_gather(alone, whole, &shape, &block);
    for (int d = 0; d < 2; d++) {
        pd_block_gram(pd_mat_dense(S, block.size[d], block.size[d]), 0, 1, &view, d);
        pd_block_gram(pd_mat_dense(T, block.size[d], block.size[d]), 0, 1, &view_alone, d);
        for (int64_t i = 0; i < block.size[d]; i++)
            assert_memory_equal(S + i * block.size[d], T + i * block.size[d], (size_t)(i + 1) * sizeof *S);
    }
    sum = pd_block_contract(out, &shape, &block, &view, matrices, scratch, sum_of);
    sum_alone = pd_block_contract(out_alone, &own, &all, &view_alone, matrices, scratch, sum_of);
    assert_true(fabs(sum - sum_alone) <= 1e-6 * fabs(sum) && sum != 0);
    pd_block_gather(alone, out, &shape, &block);
    assert_memory_equal(alone, out_alone, sizeof alone);
    free(scratch);
}
