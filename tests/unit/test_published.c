/* Tests buffers of weights: they are recycled by size, their number is bounded, and they are freed. */
#include "test.h"
#include "published.h"

TEST(a_buffer_that_came_home_is_used_again)
{
    pd_buffer_pools all = { 0 };
    pd_buffer_pool *shelf = pd_buffer_pool_join(&all, NULL, 1000);
    void *first = pd_buffer_pool_take(shelf), *second;

    assert_int_equal((uintptr_t)first % 64, 0);
    assert_int_equal(all.used, 1000);
    pd_buffer_pool_give(shelf, first);
    assert_int_equal(all.used, 0);
    assert_int_equal(all.idle, 1000);
    second = pd_buffer_pool_take(shelf);
    assert_ptr_equal(first, second);
    assert_int_equal(all.idle, 0);
    pd_buffer_pool_give(shelf, second);
    pd_buffer_pool_leave(shelf);
    assert_int_equal(all.idle, 0);
    assert_null(all.table);
}

TEST(equal_sizes_share_a_shelf)
{
    pd_buffer_pools all = { 0 };
    pd_buffer_pool *a = pd_buffer_pool_join(&all, NULL, 64), *b = pd_buffer_pool_join(&all, NULL, 64),
                   *c = pd_buffer_pool_join(&all, NULL, 65);

    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    pd_buffer_pool_leave(a);
    pd_buffer_pool_leave(b);
    pd_buffer_pool_leave(c);
    assert_null(all.table);
}

TEST(keeps_two_idle_buffers_a_user)
{
    pd_buffer_pools all = { 0 };
    pd_buffer_pool *shelf = pd_buffer_pool_join(&all, NULL, 100);
    void *at[5];

    for (int i = 0; i < 5; i++) at[i] = pd_buffer_pool_take(shelf);
    for (int i = 0; i < 5; i++) pd_buffer_pool_give(shelf, at[i]);
    assert_int_equal(all.idle, 200);
    pd_buffer_pool_leave(shelf);
    assert_int_equal(all.idle, 0);
}

TEST(small_and_huge_buffers_are_whole)
{
    static const size_t sizes[] = { 1, 7, 64, 4 << 20, (4 << 20) + 4 };
    pd_buffer_pools all = { 0 };

    for (int i = 0; i < 5; i++) {
        pd_buffer_pool *shelf = pd_buffer_pool_join(&all, NULL, sizes[i]);
        char *at = pd_buffer_pool_take(shelf);
        assert_int_equal((uintptr_t)at % (sizes[i] >= 4 << 20 ? 2 << 20 : 64), 0);
        memset(at, 1, sizes[i]);
        pd_buffer_pool_give(shelf, at);
        pd_buffer_pool_leave(shelf);
    }
    assert_null(all.table);
}

TEST(a_snapshot_outlives_its_parameter)
{
    pd_buffer_pools all = { 0 };
    pd_buffer_pool *shelf[4] = { NULL, pd_buffer_pool_join(&all, NULL, 40), NULL, pd_buffer_pool_join(&all, NULL, 20) };
    pd_published *published = pd_published_new(shelf, 10);

    assert_non_null(published->at[PD_F32]);
    assert_null(published->at[PD_F16]);
    assert_non_null(published->at[PD_BF16]);
    published->store_refs++;
    pd_buffer_pool_leave(shelf[PD_F32]);
    pd_buffer_pool_leave(shelf[PD_BF16]);
    pd_published_unref(published);
    memset(published->at[PD_F32], 1, 40);
    assert_int_equal(all.used, 60);
    pd_published_unref(published);
    assert_int_equal(all.used + all.idle, 0);
    assert_null(all.table);
}

TEST(a_version_takes_the_memory_of_the_one_before)
{
    pd_buffer_pools all = { 0 };
    pd_buffer_pool *shelf[4] = { [PD_F32] = pd_buffer_pool_join(&all, NULL, 40) };
    pd_published *published = pd_published_new(shelf, 10);
    int64_t before;

    published->version = 7;
    pd_published_unref(published);
    before = oom_allocations();
    published = pd_published_new(shelf, 10);
    assert_int_equal(oom_allocations(), before);
    assert_int_equal(published->version, 0);
    pd_published_unref(published);
    pd_buffer_pool_leave(shelf[PD_F32]);
    assert_null(all.table);
}

TEST(a_version_may_have_no_weights)
{
    pd_buffer_pool *const none[4] = { NULL };
    pd_published *published = pd_published_new(none, 10);

    assert_non_null(published);
    for (int t = 0; t < 4; t++) assert_null(published->at[t]);
    pd_published_unref(published);
}

TEST(memory_that_runs_out_leaves_nothing_behind)
{
    for (int64_t n = 0;; n++) {
        pd_buffer_pools all = { 0 };
        pd_buffer_pool *shelf[4] = { NULL };
        pd_published *published = NULL;
        bool failed;
        oom_arm(n);
        shelf[PD_F32] = pd_buffer_pool_join(&all, NULL, 40);
        shelf[PD_F16] = pd_buffer_pool_join(&all, NULL, 20);
        if (shelf[PD_F32] != NULL && shelf[PD_F16] != NULL) published = pd_published_new(shelf, 10);
        failed = oom_disarm();
        assert_true(failed == (published == NULL));
        pd_published_unref(published);
        for (int t = 0; t < 4; t++) pd_buffer_pool_leave(shelf[t]);
        assert_int_equal(all.used + all.idle, 0);
        assert_null(all.table);
        if (!failed) break;
    }
}
