/* Tests the blocks that a flat range of elements is cut into. */
#include "test.h"
#include "replay_run.h"

static int64_t elements_of(const pd_shape *shape)
{
    int64_t n = 0;

    assert_int_equal(pd_shape_elements(shape, &n), PD_OK);
    return n;
}

/* Calls `holds` with the blocks recovered from each range of a tensor's elements. */
static void each_range(const pd_shape *shape,
                       void (*holds)(const pd_shape *shape, int64_t start, int64_t end, const pd_recovered *r))
{
    int64_t n = elements_of(shape);

    for (int64_t start = 0; start <= n; start++)
        for (int64_t end = start; end <= n; end++) {
            pd_recovered r;
            assert_int_equal(pd_recover_blocks(&r, shape, start, end, NULL), PD_OK);
            holds(shape, start, end, &r);
        }
}

static const pd_shape shapes[] = {
    { .rank = 1, .dim = { 13 } },         { .rank = 2, .dim = { 5, 7 } },
    { .rank = 3, .dim = { 3, 4, 5 } },    { .rank = 4, .dim = { 2, 3, 2, 3 } },
    { .rank = 4, .dim = { 1, 4, 1, 3 } }, { .rank = 8, .dim = { 2, 2, 2, 1, 2, 1, 2, 2 } },
};

static void check_cover(const pd_shape *shape, int64_t start, int64_t end, const pd_recovered *r)
{
    int64_t at = start;
    (void)shape;

    for (int i = 0; i < r->n; i++) {
        assert_int_equal(r->at[i].offset, at);
        assert_true(elements_of(&r->at[i].shape) > 0);
        at += elements_of(&r->at[i].shape);
    }
    assert_int_equal(at, end);
}

TEST(blocks_cover_the_range_in_order_without_gaps)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) each_range(&shapes[s], check_cover);
}

/* Checks that blocks are whole. A block of rank k has the last k - 1 dimensions of the tensor, and its offset is a
 * multiple of their product. */
static void check_whole(const pd_shape *shape, int64_t start, int64_t end, const pd_recovered *r)
{
    (void)start, (void)end;
    for (int i = 0; i < r->n; i++) {
        const pd_shape *block = &r->at[i].shape;
        int first = shape->rank - block->rank;
        int64_t each = 1;
        assert_true(block->rank >= 1 && first >= 0 && block->dim[0] <= shape->dim[first]);
        for (int k = 1; k < block->rank; k++) {
            assert_int_equal(block->dim[k], shape->dim[first + k]);
            each *= block->dim[k];
        }
        assert_int_equal(r->at[i].offset % each, 0);
    }
}

TEST(blocks_are_whole_in_every_dimension_but_their_first)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) each_range(&shapes[s], check_whole);
}

/* Checks that blocks are as large as possible. If a block has exactly the last k dimensions of the tensor, its rank
 * must be k + 1 (its first dimension is 1), not k. */
static void check_largest(const pd_shape *shape, int64_t start, int64_t end, const pd_recovered *r)
{
    int64_t each = 1;
    (void)start, (void)end;

    for (int k = shape->rank - 1; k >= 1; k--) {
        int rank = shape->rank - k;
        each *= shape->dim[k];
        for (int i = 0; i < r->n; i++)
            if (r->at[i].shape.rank == rank && elements_of(&r->at[i].shape) == each)
                fail_msg("a whole index of dimension %d was cut", k - 1);
    }
}

TEST(nothing_is_cut_that_need_not_be)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) each_range(&shapes[s], check_largest);
}

TEST(the_whole_range_is_the_tensor)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        pd_recovered r;
        assert_int_equal(pd_recover_blocks(&r, &shapes[s], 0, elements_of(&shapes[s]), NULL), PD_OK);
        assert_int_equal(r.n, 1);
        assert_true(pd_shape_equal(&r.at[0].shape, &shapes[s]));
    }
}

/* Elements 7 to 46 of a tensor of shape (3, 4, 5). The blocks are: 3 elements of a row, 2 rows, the whole matrix at
 * index 1 of the first dimension, 1 row, 1 element. */
TEST(a_range_in_the_middle_has_blocks_of_every_rank)
{
    static const pd_shape shape = { .rank = 3, .dim = { 3, 4, 5 } };
    static const pd_shape expected[] = { { .rank = 1, .dim = { 3 } },
                                         { .rank = 2, .dim = { 2, 5 } },
                                         { .rank = 3, .dim = { 1, 4, 5 } },
                                         { .rank = 2, .dim = { 1, 5 } },
                                         { .rank = 1, .dim = { 1 } } };
    pd_recovered r;

    assert_int_equal(pd_recover_blocks(&r, &shape, 7, 46, NULL), PD_OK);
    assert_int_equal(r.n, 5);
    for (int i = 0; i < 5; i++) assert_true(pd_shape_equal(&r.at[i].shape, &expected[i]));
}

/* A range of all elements but the first and the last, in a tensor with 8 dimensions of 3, has 15 blocks. */
TEST(the_most_blocks_there_can_be_fit)
{
    pd_shape shape = { .rank = 8, .dim = { 3, 3, 3, 3, 3, 3, 3, 3 } };
    pd_recovered r;

    assert_int_equal(pd_recover_blocks(&r, &shape, 1, 6561 - 1, NULL), PD_OK);
    assert_int_equal(r.n, PD_MAX_RECOVERED);
    check_cover(&shape, 1, 6560, &r);
}

TEST(a_scalar_is_a_vector_of_one)
{
    static const pd_shape scalar = { 0 }, one = { .rank = 1, .dim = { 1 } };
    pd_recovered r;

    assert_int_equal(pd_recover_blocks(&r, &scalar, 0, 1, NULL), PD_OK);
    assert_true(r.n == 1 && r.at[0].offset == 0 && pd_shape_equal(&r.at[0].shape, &one));
}

TEST(a_tensor_without_elements_has_no_blocks)
{
    static const pd_shape empty = { .rank = 3, .dim = { 4, 0, 2 } };
    pd_recovered r;

    assert_int_equal(pd_recover_blocks(&r, &empty, 0, 0, NULL), PD_OK);
    assert_int_equal(r.n, 0);
    assert_int_equal(pd_recover_blocks(&r, &empty, 0, 1, NULL), PD_INVALID_ARGUMENT);
}

TEST(more_than_2_31_elements_are_well)
{
    static const pd_shape large = { .rank = 3, .dim = { 1 << 20, 1 << 20, 3 } };
    pd_recovered r;
    int64_t n = elements_of(&large);

    assert_int_equal(pd_recover_blocks(&r, &large, 1, n - 1, NULL), PD_OK);
    assert_int_equal(r.n, 5);
    check_cover(&large, 1, n - 1, &r);
}

TEST(what_is_no_range_is_refused)
{
    static const pd_shape shape = { .rank = 2, .dim = { 3, 4 } }, wrong = { .rank = 2, .dim = { 3, -4 } };
    static const int64_t bad[][2] = { { -1, 3 }, { 5, 4 }, { 0, 13 }, { 13, 13 }, { INT64_MIN, INT64_MAX } };
    pd_recovered r;
    pd_error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pd_recover_blocks(&r, &shape, bad[i][0], bad[i][1], &err), PD_INVALID_ARGUMENT);
        assert_true(strstr(err.text, "(3, 4)") != NULL && strstr(err.text, "<= 12") != NULL);
        assert_int_equal(r.n, 0);
    }
    assert_int_equal(pd_recover_blocks(&r, &wrong, 0, 0, &err), PD_INVALID_ARGUMENT);
}
