/* Tests the helper that makes allocations fail in other tests. */
#include "test.h"

static void *volatile kept;

TEST(fails_the_nth_allocation_and_no_other)
{
    void *first, *second, *third;
    bool hit;

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

TEST(says_when_it_did_not_come_so_far)
{
    oom_arm(2);
    free(kept = malloc(8));
    assert_false(oom_disarm());
    free(kept = malloc(8));
    kept = malloc(8); /* the third allocation succeeds: the failure was disarmed before it */
    assert_non_null(kept);
    free(kept);
}

TEST(fails_each_kind_of_allocation)
{
    void *at = NULL;
    int rc;

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

TEST(counts_allocations)
{
    int64_t before = oom_allocations();

    kept = malloc(8);
    assert_int_equal(oom_allocations(), before + 1);
    free(kept);
}
