/* Tests the helper that makes allocations fail in other tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oom.h"

static void *volatile kept;

static void fails_the_nth_allocation_and_no_other(void **state)
{
    void *first, *second, *third;
    bool hit;

    (void)state;
    oom_arm(1);
    kept = first = malloc(8);
    kept = second = calloc(1, 8);
    kept = third = strdup("x");
    hit = oom_disarm();
    assert_true(hit);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    free(first);
    free(third);
}

static void says_when_it_did_not_come_so_far(void **state)
{
    (void)state;
    oom_arm(2);
    free(kept = malloc(8));
    assert_false(oom_disarm());
    free(kept = malloc(8));
    kept = malloc(8); /* the third allocation succeeds: the failure was disarmed before it */
    assert_non_null(kept);
    free(kept);
}

static void fails_each_kind_of_allocation(void **state)
{
    void *at = NULL;
    int rc;

    (void)state;
    oom_arm(0);
    kept = malloc(8);
    assert_true(oom_disarm());
    assert_null(kept);
    oom_arm(0);
    kept = calloc(1, 8);
    assert_true(oom_disarm());
    assert_null(kept);
    oom_arm(0);
    kept = realloc(NULL, 8);
    assert_true(oom_disarm());
    assert_null(kept);
    oom_arm(0);
    kept = aligned_alloc(64, 64);
    assert_true(oom_disarm());
    assert_null(kept);
    oom_arm(0);
    kept = strdup("x");
    assert_true(oom_disarm());
    assert_null(kept);
    oom_arm(0);
    kept = strndup("x", 1);
    assert_true(oom_disarm());
    assert_null(kept);
    oom_arm(0);
    rc = posix_memalign(&at, 64, 64);
    assert_true(oom_disarm());
    assert_int_not_equal(rc, 0);
}

static void counts_allocations(void **state)
{
    int64_t before = oom_allocations();

    (void)state;
    kept = malloc(8);
    assert_int_equal(oom_allocations(), before + 1);
    free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fails_the_nth_allocation_and_no_other),
        cmocka_unit_test(says_when_it_did_not_come_so_far),
        cmocka_unit_test(fails_each_kind_of_allocation),
        cmocka_unit_test(counts_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
