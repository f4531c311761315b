/* Tests the list of memory that has left the client's window. */
#include "test.h"
#include "window.h"

enum { A = PD_LEAST_SPARE, B = 2 * A };

/* Gives a new block. */
static void *give(pd_spare *spare, uint64_t bytes)
{
    void *block = malloc(bytes);

    pd_spare_give(spare, block, bytes);
    return block;
}

TEST(a_block_is_taken_for_exactly_its_size)
{
    pd_spare spare = { 0 };
    void *a = give(&spare, A), *b = give(&spare, B);

    assert_int_equal(spare.bytes, A + B);
    assert_null(pd_spare_take(&spare, A + 1));
    assert_ptr_equal(pd_spare_take(&spare, A), a);
    assert_null(pd_spare_take(&spare, A));
    assert_ptr_equal(pd_spare_take(&spare, B), b);
    assert_int_equal(spare.bytes, 0);
    free(a);
    free(b);
}

TEST(the_block_that_was_given_last_is_taken_first_and_freed_last)
{
    pd_spare spare = { 0 };
    void *last;

    give(&spare, A);
    give(&spare, B);
    last = give(&spare, A);
    pd_spare_shrink(&spare, A + B);
    assert_int_equal(spare.bytes, A + B);
    pd_spare_shrink(&spare, A + B - 1);
    assert_int_equal(spare.bytes, A);
    assert_ptr_equal(pd_spare_take(&spare, A), last);
    free(last);
}

TEST(small_blocks_are_freed_at_once)
{
    int64_t before = oom_live();
    pd_spare spare = { 0 };

    give(&spare, PD_LEAST_SPARE - 1);
    pd_spare_give(&spare, NULL, 0);
    assert_int_equal(spare.bytes, 0);
    assert_int_equal(oom_live(), before);
}
