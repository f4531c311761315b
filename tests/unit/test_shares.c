/* Tests that shares are leased so that each is used once, whatever ranks do, and that the same calls give the same
 * leases. */
#include "test.h"
#include "rig.h"
#include "shares.h"

enum { RANKS = 20, EVENTS = 5000, MOST = 1 << 20 };

/* Calls pd_shares_* at random, and records from the leases that it gets which shares were used. */
typedef struct fixture {
    pd_shares *shares;
    uint64_t random;
    bool joined[RANKS];
    uint8_t *used; /* for each share: how often it was used */
} fixture;

static void set_up(fixture *f)
{
    assert_int_equal(pd_shares_make(&f->shares, RANKS), PD_OK);
    assert_non_null(f->used = calloc(1, MOST));
    f->random = 7;
}

static void tear_down(fixture *f)
{
    pd_shares_free(f->shares);
    free(f->used);
}

FIXTURE(fixture, set_up, tear_down);

static uint32_t below(fixture *f, uint32_t n)
{
    return (uint32_t)(rig_random(&f->random) % n);
}

static void join(fixture *f, uint32_t rank, uint32_t want)
{
    assert_int_equal(pd_shares_join(f->shares, rank, want), PD_OK);
    f->joined[rank] = true;
}

static void count(fixture *f, uint32_t rank)
{
    uint32_t n;
    const pd_lease *leases = pd_shares_of(f->shares, rank, &n);

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < leases[i].n; k++) {
            pd_share_range range = leases[i].ranges[k];
            assert_true(range.first + range.count <= MOST);
            for (uint64_t s = range.first; s < range.first + range.count; s++) f->used[s]++;
        }
    }
    pd_shares_count(f->shares, rank);
}

static void leave(fixture *f, uint32_t rank)
{
    pd_shares_remove(f->shares, rank);
    f->joined[rank] = false;
}

/* Closes a step in which the ranks of the mask count; each wants `want` shares next. */
static void close_step(fixture *f, uint32_t mask, uint32_t want)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        if ((mask >> r & 1) == 0 || !f->joined[r]) continue;
        count(f, r);
        (void)pd_shares_give(f->shares, r, want);
    }
}

/* Does what may happen to a job: a step closes with some of its ranks, one is late, one leaves, one joins. */
static void do_something(fixture *f)
{
    uint32_t rank = below(f, RANKS), want = below(f, 4) == 0 ? 1 + below(f, 40) : 1 + below(f, 2);

    switch (below(f, 6)) {
    case 0: leave(f, rank); break;
    case 1: join(f, rank, want); break;
    case 2:
        if (f->joined[rank]) (void)pd_shares_give(f->shares, rank, want);
        break;
    default: close_step(f, below(f, 1 << RANKS), want); break;
    }
}

/* Returns the image of the shares. The caller frees it. */
static uint8_t *image_of(pd_shares *shares, size_t *n)
{
    pd_archive archive;
    uint8_t *image;

    pd_archive_begin_write(&archive);
    pd_shares_visit(&archive, shares);
    assert_int_equal(pd_archive_end(&archive, &image, n, NULL), PD_OK);
    return image;
}

static int read_image(pd_shares *shares, const uint8_t *image, size_t n, pd_error *err)
{
    pd_archive archive;

    pd_archive_begin_read(&archive, image, n);
    pd_shares_visit(&archive, shares);
    return pd_archive_end(&archive, NULL, NULL, err);
}

static void assert_same(pd_shares *a, pd_shares *b)
{
    size_t n, m;
    uint8_t *one = image_of(a, &n), *other = image_of(b, &m);

    assert_int_equal(n, m);
    assert_memory_equal(one, other, n);
    free(one);
    free(other);
}

/* Checks that the rank has one lease, of one range. */
static void has(fixture *f, uint32_t rank, uint64_t first, uint64_t count)
{
    uint32_t n;
    const pd_lease *lease = pd_shares_of(f->shares, rank, &n);

    assert_int_equal(n, 1);
    assert_int_equal(lease->n, 1);
    assert_int_equal(lease->ranges[0].first, first);
    assert_int_equal(lease->ranges[0].count, count);
}

TEST(full_sets_that_want_1_use_shares_in_the_order_of_steps_and_ranks, fixture *f)
{
    for (uint32_t r = 0; r < RANKS; r++) join(f, r, 1);
    for (uint64_t step = 1; step < 100; step++) {
        for (uint32_t r = 0; r < RANKS; r++) has(f, r, (step - 1) * RANKS + r, 1);
        close_step(f, UINT32_MAX, 1);
    }
}

TEST(the_pools_least_shares_are_leased_before_new_ones, fixture *f)
{
    for (uint32_t r = 0; r < 4; r++) join(f, r, 10);
    leave(f, 2);
    leave(f, 0);
    join(f, 4, 4);
    has(f, 4, 0, 4);
    join(f, 5, 6);
    has(f, 5, 4, 6);
    close_step(f, 1 << 1, 5);
    has(f, 1, 20, 5);
}

TEST(a_lease_that_the_pool_cannot_fill_is_filled_with_new_shares, fixture *f)
{
    join(f, 0, 3);
    join(f, 1, 3);
    leave(f, 0);
    join(f, 2, 5);
    assert_int_equal(pd_shares_of(f->shares, 2, &(uint32_t){ 0 })->n, 2);
    assert_int_equal(pd_shares_of(f->shares, 2, &(uint32_t){ 0 })->ranges[1].first, 6);
    assert_int_equal(pd_shares_of(f->shares, 2, &(uint32_t){ 0 })->ranges[1].count, 2);
}

TEST(new_shares_continue_the_last_range_of_a_lease, fixture *f)
{
    join(f, 0, 3);
    leave(f, 0);
    join(f, 1, 5);
    has(f, 1, 0, 5);
}

TEST(adjacent_ranges_of_the_pool_are_joined, fixture *f)
{
    for (uint32_t r = 0; r < RANKS; r++) join(f, r, 2);
    leave(f, 3);
    leave(f, 1);
    assert_int_equal(pd_shares_counts(f->shares).pool_ranges, 2);
    leave(f, 2);
    assert_int_equal(pd_shares_counts(f->shares).pool_ranges, 1);
    leave(f, 0);
    leave(f, 4);
    assert_int_equal(pd_shares_counts(f->shares).pool_ranges, 1);
    assert_int_equal(pd_shares_counts(f->shares).pooled, 10);
}

/* Leaves every second share of the first 2 * ranges in the pool. */
static void fragment(fixture *f, uint32_t ranges)
{
    assert_true(2 * ranges <= RANKS);
    for (uint32_t r = 0; r < 2 * ranges; r++) join(f, r, 1);
    for (uint32_t r = 0; r < 2 * ranges; r++) {
        if (r % 2 == 1) count(f, r);
        leave(f, r);
    }
    assert_int_equal(pd_shares_counts(f->shares).pool_ranges, ranges);
}

TEST(a_lease_has_several_ranges_of_a_fragmented_pool, fixture *f)
{
    uint32_t n;
    const pd_lease *lease;

    fragment(f, 9);
    join(f, 0, 3);
    lease = pd_shares_of(f->shares, 0, &n);
    assert_int_equal(lease->n, 3);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(lease->ranges[i].first, 2 * i);
}

TEST(a_lease_is_shorter_if_it_would_have_too_many_ranges, fixture *f)
{
    uint32_t n;

    fragment(f, PD_LEASE_RANGES + 1);
    join(f, 0, PD_LEASE_RANGES + 1);
    assert_int_equal(pd_shares_of(f->shares, 0, &n)->n, PD_LEASE_RANGES);
    assert_int_equal(pd_shares_counts(f->shares).leased, PD_LEASE_RANGES);
    assert_int_equal(pd_shares_counts(f->shares).pooled, 1);
}

TEST(a_rank_that_does_not_count_keeps_its_lease, fixture *f)
{
    for (uint32_t r = 0; r < 3; r++) join(f, r, 1);
    close_step(f, 1 << 0 | 1 << 2, 1);
    has(f, 1, 1, 1);
    close_step(f, 1 << 1, 1);
    has(f, 1, 5, 1);
    assert_int_equal(f->used[1], 1);
}

TEST(a_late_rank_has_up_to_four_leases_which_are_used_together, fixture *f)
{
    join(f, 0, 2);
    for (int i = 1; i < PD_LEASES; i++) assert_non_null(pd_shares_give(f->shares, 0, 2));
    assert_null(pd_shares_give(f->shares, 0, 2));
    count(f, 0);
    assert_int_equal(pd_shares_counts(f->shares).used, 2 * PD_LEASES);
}

TEST(a_rank_that_joins_again_keeps_its_lease, fixture *f)
{
    join(f, 0, 3);
    join(f, 0, 5);
    has(f, 0, 0, 3);
}

TEST(a_rank_that_wants_no_share_gets_none, fixture *f)
{
    uint32_t n;

    join(f, 0, 0);
    assert_null(pd_shares_give(f->shares, 0, 0));
    (void)pd_shares_of(f->shares, 0, &n);
    assert_int_equal(n, 0);
    assert_int_equal(pd_shares_counts(f->shares).next, 0);
}

TEST(a_lease_has_at_most_65536_shares, fixture *f)
{
    join(f, 0, UINT32_MAX);
    has(f, 0, 0, PD_SHARES_WANT_MOST);
}

TEST(the_removal_of_a_rank_that_has_not_joined_changes_nothing, fixture *f)
{
    pd_shares_remove(f->shares, 3);
    assert_int_equal(pd_shares_counts(f->shares).pooled, 0);
}

TEST(the_least_unused_share_is_found_wherever_it_is, fixture *f)
{
    assert_int_equal(pd_shares_least_unused(f->shares), 0);
    join(f, 0, 2);
    join(f, 1, 2);
    close_step(f, 1 << 0, 0);
    assert_int_equal(pd_shares_least_unused(f->shares), 2);
    leave(f, 1);
    assert_int_equal(pd_shares_least_unused(f->shares), 2);
    join(f, 1, 3);
    close_step(f, 1 << 1, 0);
    assert_int_equal(pd_shares_least_unused(f->shares), 5);
}

/* Where each share is, found by a search of all shares: a model of pd_shares_* that has no ranges. */
typedef struct model {
    uint8_t at[MOST]; /* 0: never given or in the pool; 1 + r: leased to rank r; 255: used */
    uint64_t next;
    uint32_t leases[RANKS];
} model;

static void model_move(model *m, uint8_t from, uint8_t to)
{
    for (uint64_t s = 0; s < m->next; s++)
        if (m->at[s] == from) m->at[s] = to;
}

/* Checks that `lease` is what the model gives. */
static void model_give(model *m, uint32_t rank, uint32_t want, const pd_lease *lease)
{
    uint64_t taken[64], n = 0, k = 0;
    uint32_t ranges = 0;

    if (want == 0 || m->leases[rank] == PD_LEASES) {
        assert_null(lease);
        return;
    }
    for (uint64_t s = 0; n < want; s++) {
        if (m->at[s] != 0) continue;
        ranges += n == 0 || taken[n - 1] + 1 != s;
        if (ranges > PD_LEASE_RANGES) break;
        taken[n++] = s;
        m->at[s] = (uint8_t)(1 + rank);
        if (s >= m->next) m->next = s + 1;
    }
    m->leases[rank]++;
    for (uint32_t i = 0; i < lease->n; i++)
        for (uint64_t j = 0; j < lease->ranges[i].count; j++, k++)
            assert_true(k < n && lease->ranges[i].first + j == taken[k]);
    assert_int_equal(k, n);
}

TEST(leases_are_those_of_a_search_for_the_least_shares, fixture *f)
{
    model *m = calloc(1, sizeof *m);

    assert_non_null(m);
    for (int i = 0; i < EVENTS; i++) {
        uint32_t rank = below(f, RANKS), want = below(f, 20) == 0 ? 1 + below(f, 60) : below(f, 3), n;
        if (!f->joined[rank]) {
            join(f, rank, want);
            if (want > 0) model_give(m, rank, want, pd_shares_of(f->shares, rank, &n));
        } else if (below(f, 4) == 0) {
            leave(f, rank);
            model_move(m, (uint8_t)(1 + rank), 0);
            m->leases[rank] = 0;
        } else {
            if (below(f, 3) > 0) {
                count(f, rank);
                model_move(m, (uint8_t)(1 + rank), 255);
                m->leases[rank] = 0;
            }
            model_give(m, rank, want, pd_shares_give(f->shares, rank, want));
        }
        assert_int_equal(pd_shares_counts(f->shares).next, m->next);
    }
    free(m);
}

TEST(used_pooled_leased_and_new_shares_partition_all_shares, fixture *f)
{
    for (int i = 0; i < EVENTS; i++) {
        pd_share_counts counts;
        uint64_t used = 0;

        do_something(f);
        counts = pd_shares_counts(f->shares);
        assert_int_equal(counts.used + counts.pooled + counts.leased, counts.next);
        if (i % 100 != 0) continue;
        for (uint64_t s = 0; s < MOST; s++) used += f->used[s];
        assert_int_equal(counts.used, used);
    }
}

TEST(no_share_is_used_twice, fixture *f)
{
    for (int i = 0; i < EVENTS; i++) do_something(f);
    for (uint64_t s = 0; s < MOST; s++) assert_true(f->used[s] <= 1);
}

TEST(all_shares_of_a_data_set_are_used_although_ranks_leave, fixture *f)
{
    uint64_t total = 20000;

    for (int i = 0; pd_shares_least_unused(f->shares) < total; i++) {
        do_something(f);
        assert_true(i < 100 * EVENTS);
    }
    for (uint64_t s = 0; s < total; s++) assert_int_equal(f->used[s], 1);
}

TEST(the_same_calls_give_the_same_leases_before_and_after_a_restart, fixture *f)
{
    fixture other = { 0 };
    size_t n;
    uint8_t *image;

    set_up(&other);
    for (int i = 0; i < EVENTS; i++) {
        do_something(f);
        do_something(&other);
        assert_same(f->shares, other.shares);
        if (i % 7 != 0) continue;
        image = image_of(other.shares, &n);
        pd_shares_free(other.shares);
        assert_int_equal(pd_shares_make(&other.shares, RANKS), PD_OK);
        assert_int_equal(read_image(other.shares, image, n, NULL), PD_OK);
        free(image);
    }
    tear_down(&other);
}

TEST(only_a_join_allocates_memory, fixture *f)
{
    for (uint32_t r = 0; r < RANKS; r++) join(f, r, 1);
    for (int i = 0; i < EVENTS; i++) {
        uint32_t rank = below(f, RANKS), want = 1 + below(f, 3);
        int64_t before = oom_allocations();

        if (i % 3 == 0 && f->joined[rank])
            leave(f, rank);
        else if (i % 3 == 1 && f->joined[rank])
            (void)pd_shares_give(f->shares, rank, want);
        else
            close_step(f, below(f, 1 << RANKS), want);
        assert_int_equal(oom_allocations(), before);
        if (!f->joined[rank]) join(f, rank, want);
    }
}

TEST(a_join_without_memory_changes_nothing, fixture *f)
{
    pd_shares *same;
    size_t n;
    uint8_t *image;
    int rc;
    int64_t failed = 0;

    assert_int_equal(pd_shares_make(&same, RANKS), PD_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        image = image_of(f->shares, &n);
        assert_int_equal(read_image(same, image, n, NULL), PD_OK);
        free(image);
        oom_arm(0);
        rc = pd_shares_join(f->shares, r, 1);
        if (oom_disarm()) {
            failed++;
            assert_int_equal(rc, PD_NO_MEMORY);
            assert_same(f->shares, same);
            join(f, r, 1);
        }
        has(f, r, r, 1);
    }
    assert_true(failed > 1);
    pd_shares_free(same);
}

static int make_and_free(const void *unused)
{
    pd_shares *shares;
    int rc = pd_shares_make(&shares, RANKS);

    (void)unused;
    pd_shares_free(shares);
    return rc;
}

HOLDS(out_of_memory_is_told_when_shares_are_made, assert_int_equal(oom_each(make_and_free, NULL), 1));

TEST(an_image_that_is_read_without_memory_changes_nothing, fixture *f)
{
    pd_shares *other, *empty;
    uint8_t *image;
    size_t n;
    int64_t k;

    fragment(f, 5);
    join(f, 3, 2);
    image = image_of(f->shares, &n);
    assert_int_equal(pd_shares_make(&other, RANKS), PD_OK);
    assert_int_equal(pd_shares_make(&empty, RANKS), PD_OK);
    for (k = 0;; k++) {
        int rc;
        oom_arm(k);
        rc = read_image(other, image, n, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_same(other, empty);
    }
    assert_true(k > 1);
    assert_same(other, f->shares);
    pd_shares_free(other);
    pd_shares_free(empty);
    free(image);
}

TEST(an_image_of_another_world_size_brings_all_leases_to_the_pool, fixture *f)
{
    pd_shares *smaller;
    uint8_t *image;
    size_t n;

    for (uint32_t r = 0; r < RANKS; r++) join(f, r, 2);
    close_step(f, 1 << 0, 2);
    image = image_of(f->shares, &n);
    assert_int_equal(pd_shares_make(&smaller, 3), PD_OK);
    assert_int_equal(read_image(smaller, image, n, NULL), PD_OK);
    assert_int_equal(pd_shares_counts(smaller).used, 2);
    assert_int_equal(pd_shares_counts(smaller).pooled, 2 * RANKS);
    assert_int_equal(pd_shares_join(smaller, 2, 2), PD_OK);
    assert_int_equal(pd_shares_of(smaller, 2, &(uint32_t){ 0 })->ranges[0].first, 2);
    pd_shares_free(smaller);
    free(image);
}

/* Changes a number of 8 bytes at its first place in the image, and checks that the image is refused. */
static void refuses(fixture *f, uint64_t number, uint64_t other)
{
    pd_shares *empty, *same;
    size_t n;
    uint8_t *image = image_of(f->shares, &n), *at = image;

    while (memcmp(at, &number, sizeof number) != 0) assert_true(++at + sizeof number <= image + n);
    memcpy(at, &other, sizeof other);
    assert_int_equal(pd_shares_make(&empty, RANKS), PD_OK);
    assert_int_equal(pd_shares_make(&same, RANKS), PD_OK);
    assert_int_equal(read_image(empty, image, n, NULL), PD_DATA_LOSS);
    assert_same(empty, same);
    pd_shares_free(empty);
    pd_shares_free(same);
    free(image);
}

/* Leases 0 to 999 and 1,000 to 3,199 to ranks 0 and 1; 3,200 to 3,299 are in the pool, the last three ranges used. */
static void some_shares(fixture *f)
{
    join(f, 0, 1000);
    join(f, 1, 2200);
    join(f, 2, 100);
    join(f, 3, 300);
    count(f, 3);
    leave(f, 2);
}

TEST(an_image_that_leases_a_share_twice_is_refused, fixture *f)
{
    some_shares(f);
    refuses(f, 1000, 1001);
}

TEST(an_image_with_a_share_in_the_pool_and_in_a_lease_is_refused, fixture *f)
{
    some_shares(f);
    refuses(f, 3200, 3199);
}

TEST(an_image_with_shares_that_were_never_given_is_refused, fixture *f)
{
    some_shares(f);
    refuses(f, 3600, 3299);
}

TEST(an_image_with_an_empty_range_is_refused, fixture *f)
{
    some_shares(f);
    refuses(f, 2200, 0);
}

TEST(a_damaged_image_is_refused_or_has_each_share_at_one_place, fixture *f)
{
    uint8_t *image;
    size_t n;

    fragment(f, 7);
    join(f, 2, 4);
    join(f, 5, 300);
    image = image_of(f->shares, &n);
    for (int i = 0; i < 20000; i++) {
        pd_shares *other;
        size_t at = below(f, (uint32_t)n);
        uint8_t before = image[at];

        image[at] ^= (uint8_t)(1 + below(f, 255));
        assert_int_equal(pd_shares_make(&other, RANKS), PD_OK);
        if (read_image(other, image, n, NULL) == PD_OK) {
            pd_share_counts counts = pd_shares_counts(other);
            assert_true(counts.pooled + counts.leased <= counts.next);
            for (uint32_t r = 0; r < RANKS; r++) pd_shares_remove(other, r);
            assert_int_equal(pd_shares_counts(other).pooled, counts.pooled + counts.leased);
        }
        pd_shares_free(other);
        image[at] = before;
    }
    free(image);
}

TEST(an_image_that_is_cut_is_refused, fixture *f)
{
    pd_shares *other;
    uint8_t *image;
    size_t n;

    join(f, 0, 3);
    leave(f, 0);
    join(f, 1, 2);
    image = image_of(f->shares, &n);
    assert_int_equal(pd_shares_make(&other, RANKS), PD_OK);
    for (size_t cut = 0; cut < n; cut++) assert_int_equal(read_image(other, image, cut, NULL), PD_DATA_LOSS);
    pd_shares_free(other);
    free(image);
}
