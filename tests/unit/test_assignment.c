/* Tests how blocks are ordered by size and assigned to ranks. */
#include "test.h"
#include "assignment.h"
#include "shampoo_step.h"

TEST(the_largest_comes_first_and_of_equal_ones_the_earlier)
{
    pd_load load[] = { { 3, 0 }, { 7, 1 }, { 3, 2 }, { 0.5, 3 }, { 7, 4 }, { 3, 5 } };
    static const uint64_t order[] = { 1, 4, 0, 2, 5, 3 };

    pd_load_sort(load, 6);
    for (int i = 0; i < 6; i++) assert_int_equal(load[i].place, order[i]);
    pd_load_sort(NULL, 0);
}

TEST(the_order_is_the_same_whatever_it_was_before)
{
    enum { N = 200 };
    pd_load load[N], again[N];

    for (int i = 0; i < N; i++) load[i] = (pd_load){ (double)(i * 37 % 11), (uint64_t)i };
    for (int i = 0; i < N; i++) again[i] = load[i * 77 % N];
    pd_load_sort(load, N);
    pd_load_sort(again, N);
    for (int i = 0; i < N; i++) assert_int_equal(load[i].place, again[i].place);
    for (int i = 1; i < N; i++)
        assert_true(pd_load_leads(load[i - 1], load[i]) && !pd_load_leads(load[i], load[i - 1]));
}

TEST(buffers_are_multiples_of_64_bytes)
{
    assert_int_equal(pd_assigned_bytes(0, PD_F32), 0);
    assert_int_equal(pd_assigned_bytes(1, PD_F32), 64);
    assert_int_equal(pd_assigned_bytes(16, PD_F32), 64);
    assert_int_equal(pd_assigned_bytes(17, PD_F32), 128);
    assert_int_equal(pd_assigned_bytes(33, PD_BF16), 128);
    assert_int_equal(pd_assigned_bytes(32, PD_F16), 64);
    assert_int_equal(pd_assigned_bytes(INT64_MAX / 4, PD_F32), INT64_MAX);
    assert_int_equal(pd_assigned_bytes(INT64_MAX / 2, PD_F32), INT64_MAX);
}

/* Assigns blocks of 128, 64, 500 and 256 bytes to two ranks. Buffers are multiples of 64 bytes, so 500 counts as
 * 512. */
TEST(each_block_goes_to_the_rank_with_the_fewest_bytes)
{
    static const int64_t bytes[] = { 128, 64, 512, 256 };
    int owner[4];
    int64_t rank_bytes[2];

    assert_int_equal(pd_assign_blocks(owner, rank_bytes, bytes, 4, 2, NULL), PD_OK);
    assert_true(owner[0] == 1 && owner[1] == 1 && owner[2] == 0 && owner[3] == 1);
    assert_true(rank_bytes[0] == 512 && rank_bytes[1] == 448);
    assert_int_equal(pd_gathered_bytes(rank_bytes, 2), 1024);
}

TEST(of_equal_ranks_the_lower_takes_the_block)
{
    static const int64_t bytes[] = { 64, 64, 64, 64, 64, 64, 64 };
    int owner[7];
    int64_t rank_bytes[3];

    assert_int_equal(pd_assign_blocks(owner, rank_bytes, bytes, 7, 3, NULL), PD_OK);
    for (int i = 0; i < 7; i++) assert_int_equal(owner[i], i % 3);
}

/* The assignment is greedy, largest block first. So no rank carries more than the mean plus one block. */
TEST(no_rank_exceeds_the_mean_by_more_than_one_block)
{
    enum { N = 300, RANKS = 7 };
    int64_t bytes[N], rank_bytes[RANKS], sum = 0, largest = 0, all = 0;
    int owner[N];

    for (int i = 0; i < N; i++) {
        bytes[i] = 64 * (1 + i * i % 97);
        sum += bytes[i];
        largest = bytes[i] > largest ? bytes[i] : largest;
    }
    assert_int_equal(pd_assign_blocks(owner, rank_bytes, bytes, N, RANKS, NULL), PD_OK);
    for (int r = 0; r < RANKS; r++) {
        int64_t own = 0;
        for (int i = 0; i < N; i++) own += owner[i] == r ? bytes[i] : 0;
        assert_int_equal(own, rank_bytes[r]);
        assert_true(own <= sum / RANKS + largest);
        all += own;
    }
    assert_int_equal(all, sum);
}

TEST(a_rank_with_nothing_is_refused_with_the_assignment_made)
{
    static const int64_t bytes[] = { 64, 128 };
    int owner[2];
    int64_t rank_bytes[3];
    pd_error err;

    assert_int_equal(pd_assign_blocks(owner, rank_bytes, bytes, 2, 3, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "Some workers have no parameters to work on"));
    assert_non_null(strstr(err.text, "rank 2"));
    assert_true(owner[0] == 1 && owner[1] == 0 && rank_bytes[0] == 128 && rank_bytes[1] == 64 && rank_bytes[2] == 0);
    assert_int_equal(pd_assign_blocks(owner, rank_bytes, bytes, 0, 1, &err), PD_FAILED_PRECONDITION);
}

TEST(sums_that_do_not_fit_are_the_largest_number)
{
    static const int64_t rank_bytes[] = { INT64_MAX / 2, 0, 0 };

    assert_int_equal(pd_gathered_bytes(rank_bytes, 3), INT64_MAX);
    assert_int_equal(pd_gathered_bytes(rank_bytes, 2), INT64_MAX - 1);
}

TEST(running_out_of_memory_is_reported)
{
    static const int64_t bytes[] = { 64, 128 };

    for (int64_t n = 0; n < 2; n++) {
        int owner[2];
        int64_t rank_bytes[2];
        int rc;
        oom_arm(n);
        rc = pd_assign_blocks(owner, rank_bytes, bytes, 2, 2, NULL);
        assert_true(oom_disarm());
        assert_int_equal(rc, PD_NO_MEMORY);
    }
}

TEST(a_group_is_a_divisor_of_the_world_or_all_of_it)
{
    int size = 0;

    for (int world = 1; world <= 12; world++)
        for (int64_t trainers = 1; trainers <= world; trainers++) {
            int rc = pd_group_size(&size, trainers, world, NULL);
            assert_int_equal(rc, world % trainers == 0 ? PD_OK : PD_INVALID_ARGUMENT);
            if (rc == PD_OK) assert_int_equal(size, trainers);
        }
    assert_int_equal(pd_group_size(&size, -1, 12, NULL), PD_OK);
    assert_int_equal(size, 12);
}

TEST(other_groups_are_refused_with_the_number)
{
    static const int64_t bad[] = { 0, -2, 5, 9, INT64_MAX };
    int size = 77;
    pd_error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char number[32];
        snprintf(number, sizeof number, "group: %lld.", (long long)bad[i]);
        assert_int_equal(pd_group_size(&size, bad[i], 8, &err), PD_INVALID_ARGUMENT);
        assert_true(strstr(err.text, number) != NULL && strstr(err.text, "8") != NULL);
        assert_int_equal(size, 77);
    }
}
