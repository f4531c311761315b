/* Tests the list of memory that has left the client's window. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "oom.h"
#include "window.h"

enum { A = PD_LEAST_SPARE, B = 2 * A };

/* Gives a new block. */
static void *give(pd_spare *spare, uint64_t bytes)
{
    void *block = malloc(bytes);

    pd_spare_give(spare, block, bytes);
    return block;
}

static void a_block_is_taken_for_exactly_its_size(void **state)
{
    pd_spare spare = { 0 };
    void *a = give(&spare, A), *b = give(&spare, B);
    (void)state;

    assert_int_equal(spare.bytes, A + B);
    assert_null(pd_spare_take(&spare, A + 1));
    assert_ptr_equal(pd_spare_take(&spare, A), a);
    assert_null(pd_spare_take(&spare, A));
    assert_ptr_equal(pd_spare_take(&spare, B), b);
    assert_int_equal(spare.bytes, 0);
    free(a);
    free(b);
}

static void the_block_that_was_given_last_is_taken_first_and_freed_last(void **state)
{
    pd_spare spare = { 0 };
    void *last;
    (void)state;

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

static void small_blocks_are_freed_at_once(void **state)
{
    int64_t before = oom_live();
    pd_spare spare = { 0 };
    (void)state;

    give(&spare, PD_LEAST_SPARE - 1);
    pd_spare_give(&spare, NULL, 0);
    assert_int_equal(spare.bytes, 0);
    assert_int_equal(oom_live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_taken_for_exactly_its_size),
        cmocka_unit_test(the_block_that_was_given_last_is_taken_first_and_freed_last),
        cmocka_unit_test(small_blocks_are_freed_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
