/* Tests the rotation of blocks of a tensor against sums over elements in float64. The blocks are the whole tensor, and
 * pieces that do not lie without gaps in it. */
#include "test.h"
#include "block_rotation.h"

static const pd_shape shapes[] = {
    { 1, { 11 } },      { 2, { 9, 7 } },    { 2, { 1, 12 } },      { 2, { 12, 1 } },
    { 3, { 5, 6, 4 } }, { 3, { 1, 9, 8 } }, { 4, { 3, 4, 2, 5 } }, { 5, { 2, 3, 1, 2, 3 } },
};
static const int64_t block_sizes[] = { 3, 4, 100 };
enum { SHAPES = sizeof shapes / sizeof shapes[0], SIZES = 3, MOST = 160, MOST_SIDE = 12 };

/* A block of a tensor, with a matrix for each dimension. */
typedef struct sample {
    const pd_shape *shape;
    pd_block block;
    int64_t n, elements;
    float whole[MOST], view_scratch[MOST], scratch[4 * MOST], Q[PD_MAX_RANK][MOST_SIDE * MOST_SIDE];
    pd_block_view view;
} sample;

static float number(int i)
{
    return (float)((i * 37 + 11) % 23 - 11) / 8;
}

static void look(sample *s, const pd_shape *shape, int64_t block_size, int64_t index)
{
    *s = (sample){ .shape = shape, .block = pd_partition_block(shape, block_size, index) };
    s->n = pd_block_elements(&s->block, shape->rank);
    assert_int_equal(pd_shape_elements(shape, &s->elements), PD_OK);
    for (int i = 0; i < s->elements; i++) s->whole[i] = number(i);
    for (int d = 0; d < shape->rank; d++)
        for (int i = 0; i < MOST_SIDE * MOST_SIDE; i++) s->Q[d][i] = number(i + 5 * d);
    s->view = pd_block_look(s->whole, shape, &s->block, s->view_scratch);
}

/* Computes in float64 what a rotation along the dimensions of the set `of` must give: x[i] for element i of the block
 * without gaps. */
static void expect(const sample *s, unsigned of, pd_turn turn, double *x)
{
    static float dense[MOST];
    static double next[MOST];

    pd_block_gather(dense, s->whole, s->shape, &s->block);
    for (int64_t i = 0; i < s->n; i++) x[i] = (double)dense[i];
    for (int d = 0; d < s->shape->rank; d++) {
        int64_t side = s->block.size[d], inner = 1;
        if ((of >> d & 1) == 0) continue;
        for (int k = d + 1; k < s->shape->rank; k++) inner *= s->block.size[k];
        for (int64_t i = 0; i < s->n; i++) {
            int64_t b = i / inner % side;
            next[i] = 0;
            for (int64_t a = 0; a < side; a++)
                next[i] +=
                    x[i + (a - b) * inner] * (double)(turn == PD_AS_IS ? s->Q[d][a * side + b] : s->Q[d][b * side + a]);
        }
        memcpy(x, next, sizeof next);
    }
}

static void assert_alike(const float *found, const double *expected, int64_t n)
{
    double most = 1;

    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(expected[i]));
    for (int64_t i = 0; i < n; i++) assert_true(fabs((double)found[i] - expected[i]) < 2e-6 * most);
}

static void check_rotations(sample *s)
{
    static double expected[MOST];
    static float out[MOST];
    int rank = s->shape->rank;

    assert_true(pd_block_rotate_scratch(&s->block, rank) <= (int64_t)(sizeof s->scratch / sizeof *s->scratch));
    for (unsigned of = 0; of < 1u << rank; of++)
        for (int turn = PD_AS_IS; turn <= PD_TRANSPOSED; turn++) {
            float *Q[PD_MAX_RANK];
            for (int d = 0; d < rank; d++) Q[d] = of >> d & 1 ? s->Q[d] : NULL;
            expect(s, of, turn, expected);
            pd_block_rotate(out, &s->view, Q, turn, s->scratch);
            assert_alike(out, expected, s->n);
            if (rank < 2) continue;
            pd_block_gather(out, s->whole, s->shape, &s->block);
            pd_block_rotate(out,
                            &(pd_block_view){ .at = out,
                                              .rank = rank,
                                              .size = { s->view.size[0], s->view.size[1], s->view.size[2],
                                                        s->view.size[3], s->view.size[4] },
                                              .stride = s->view.size[1] },
                            Q, turn, s->scratch);
            assert_alike(out, expected, s->n);
        }
}

/* Checks that the block has changed as expected, and no other element of the tensor. */
static void assert_block(const sample *s, const double *expected)
{
    static float out[MOST], rest[MOST];
    float zeros[MOST] = { 0 };

    pd_block_gather(out, s->whole, s->shape, &s->block);
    assert_alike(out, expected, s->n);
    memcpy(rest, s->whole, sizeof rest);
    pd_block_scatter(rest, zeros, s->shape, &s->block);
    for (int i = 0; i < s->elements; i++) assert_true(rest[i] == 0 || rest[i] == number(i));
}

static void check_in_place(sample *s, int d)
{
    static double expected[MOST];
    int64_t side = s->block.size[d], inner = 1;
    float order[MOST_SIDE], dense[MOST];

    expect(s, 1u << d, PD_AS_IS, expected);
    pd_block_multiply_along(s->whole, s->shape, &s->block, d, pd_mat_dense(s->Q[d], side, side), s->scratch);
    assert_block(s, expected);
    for (int i = 0; i < s->elements; i++) s->whole[i] = number(i);
    for (int k = d + 1; k < s->shape->rank; k++) inner *= s->block.size[k];
    for (int64_t i = 0; i < side; i++) order[i] = (float)((i + 1) % side);
    pd_block_gather(dense, s->whole, s->shape, &s->block);
    for (int64_t i = 0; i < s->n; i++) {
        int64_t b = i / inner % side;
        expected[i] = (double)dense[i + ((b + 1) % side - b) * inner];
    }
    pd_block_sort_along(s->whole, s->shape, &s->block, d, order, s->scratch);
    assert_block(s, expected);
    for (int i = 0; i < s->elements; i++) s->whole[i] = number(i);
}

TEST(blocks_are_rotated_as_sums_say)
{
    static sample s;

    for (int k = 0; k < SHAPES; k++)
        for (int size = 0; size < SIZES; size++)
            for (int64_t b = 0; b < pd_partition_count(&shapes[k], block_sizes[size]); b++) {
                look(&s, &shapes[k], block_sizes[size], b);
                check_rotations(&s);
                for (int d = 0; d < shapes[k].rank; d++) check_in_place(&s, d);
            }
}

/* The scratch memory holds a panel of at most side rows or columns, so a long block is changed panel by panel. */
TEST(long_blocks_are_changed_panel_by_panel)
{
    enum { LONG = 50, SIDE = 3 };
    static const pd_shape wide = { 2, { SIDE, LONG } }, tall = { 2, { LONG, SIDE } };
    static sample s;

    look(&s, &wide, 100, 0);
    check_in_place(&s, 0);
    look(&s, &tall, 100, 0);
    check_in_place(&s, 1);
}
