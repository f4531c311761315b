/* Tests the segment that a job's weights lie in, and the pools that hand out its memory. */
#include <sys/stat.h>

#include "test.h"
#include "buffer_pool.h"
#include "descriptors.h"

enum { LINE = 64, HUGE_PAGE = 2 << 20 };

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

static pd_shared_weights *made(uint64_t elements, uint64_t params)
{
    pd_shared_weights *shared;
    pd_error err;

    if (pd_shared_weights_new(&shared, elements, params, &err) != PD_OK) fail_msg("%s", err.text);
    return shared;
}

static uint64_t offset_of(const pd_shared_weights *shared, const void *at)
{
    return (uint64_t)((const uint8_t *)at - pd_shared_weights_segment(shared)->at);
}

/* Takes buffers of random sizes until the segment is used up. */
static void take_all(uint64_t seed)
{
    pd_shared_weights *shared = made(1 + draw(&seed, 3000000), 1 + draw(&seed, 40));
    uint64_t bytes, begin, end = 0;
    void *at;

    while ((at = pd_shared_weights_take(shared, bytes = 1 + draw(&seed, draw(&seed, 2) ? 3 * HUGE_PAGE : 9000))) !=
           NULL) {
        begin = offset_of(shared, at);
        assert_true(begin >= end && begin < end + LINE);
        assert_int_equal(begin % LINE, 0);
        assert_true(pd_segment_has(pd_shared_weights_segment(shared), at, bytes));
        end = begin + bytes;
    }
    pd_shared_weights_unref(shared);
}

TEST(buffers_of_any_sizes_are_aligned_and_inside_without_gaps)
{
    for (uint64_t seed = 1; seed <= 100; seed++) take_all(seed);
}

TEST(a_buffer_as_long_as_any_number_is_refused)
{
    pd_shared_weights *shared = made(100, 1);

    assert_null(pd_shared_weights_take(shared, SIZE_MAX));
    assert_null(pd_shared_weights_take(shared, SIZE_MAX - 63));
    pd_shared_weights_unref(shared);
}

/* A parameter needs its weights, the next ones, a sum, and a version that a slow reader still holds. */
TEST(there_is_room_for_four_buffers_of_every_parameter)
{
    uint64_t seed = 5;

    for (int round = 0; round < 200; round++) {
        uint64_t n = 1 + draw(&seed, 20), most = 1 + draw(&seed, 2000000), elements = 0, size[20];
        for (uint64_t i = 0; i < n; i++) elements += size[i] = 1 + draw(&seed, most);
        pd_shared_weights *shared = made(elements, n);
        for (uint64_t i = 0; i < 4 * n; i++) assert_non_null(pd_shared_weights_take(shared, size[i % n] * 4));
        pd_shared_weights_unref(shared);
    }
}

TEST(without_a_segment_there_is_none_to_map)
{
    assert_null(pd_shared_weights_segment(NULL));
    pd_shared_weights_unref(NULL);
}

static int make_and_drop(const void *what)
{
    pd_shared_weights *shared = NULL;
    int rc = pd_shared_weights_new(&shared, 1000, 3, NULL);

    (void)what;
    if (rc == PD_OK) pd_shared_weights_unref(shared);
    return rc;
}

TEST(says_that_memory_is_out_and_keeps_no_descriptor)
{
    int before = descriptors_open(0);

    assert_true(oom_each(make_and_drop, NULL) > 0);
    assert_int_equal(descriptors_open(0), before);
}

TEST(says_that_the_system_gives_no_shared_memory)
{
    int rc;

    descriptors_forbid();
    rc = make_and_drop(NULL);
    descriptors_allow();
    assert_int_equal(rc, PD_UNAVAILABLE);
}

static bool lies_in(const pd_shared_weights *shared, const void *at, size_t bytes)
{
    return pd_segment_has(pd_shared_weights_segment(shared), at, bytes);
}

TEST(a_pool_takes_its_buffers_from_the_segment)
{
    pd_buffer_pools all = { 0 };
    pd_shared_weights *shared = made(1000, 1);
    pd_buffer_pool *pool = pd_buffer_pool_join(&all, shared, 4000);
    void *at = pd_buffer_pool_take(pool);

    assert_true(lies_in(shared, at, 4000));
    pd_buffer_pool_give(pool, at);
    pd_buffer_pool_leave(pool);
    pd_shared_weights_unref(shared);
}

/* Readers that are slow make a pool larger for a while. What it does not need afterwards is no memory. */
TEST(idle_buffers_beyond_those_that_the_users_need_have_no_pages)
{
    enum { BYTES = 1 << 20, BUFFERS = 10, KEPT = 2, MORE = 4 };
    pd_buffer_pools all = { 0 };
    pd_shared_weights *shared = made(BYTES / 4, 1);
    pd_buffer_pool *pool = pd_buffer_pool_join(&all, shared, BYTES);
    void *at[BUFFERS + MORE];

    for (int i = 0; i < BUFFERS + MORE; i++) memset(at[i] = pd_buffer_pool_take(pool), 1, BYTES);
    assert_true(lies_in(shared, at[BUFFERS - 1], BYTES));
    assert_false(lies_in(shared, at[BUFFERS], BYTES)); /* the segment is used up */
    for (int i = 0; i < BUFFERS + MORE; i++) pd_buffer_pool_give(pool, at[i]);
    assert_int_equal(all.idle, KEPT * BYTES);
    assert_true(pd_segment_allocated(pd_shared_weights_segment(shared)) <= KEPT * BYTES + HUGE_PAGE);
    for (int i = 0; i < BUFFERS + MORE; i++) memset(at[i] = pd_buffer_pool_take(pool), 1, BYTES);
    assert_int_equal(all.idle, 0);
    assert_int_equal(all.used, (BUFFERS + MORE) * BYTES);
    for (int i = 0; i < BUFFERS + MORE; i++)
        for (int k = 0; k < i; k++) assert_ptr_not_equal(at[i], at[k]);
    for (int i = 0; i < BUFFERS + MORE; i++) pd_buffer_pool_give(pool, at[i]);
    pd_buffer_pool_leave(pool);
    assert_int_equal(all.idle, 0);
    pd_shared_weights_unref(shared);
}

TEST(pools_of_one_size_are_apart_where_their_memory_is)
{
    pd_buffer_pools all = { 0 };
    pd_shared_weights *one = made(1000, 1), *other = made(1000, 1);
    pd_buffer_pool *pools[] = { pd_buffer_pool_join(&all, one, 4000), pd_buffer_pool_join(&all, other, 4000),
                                pd_buffer_pool_join(&all, NULL, 4000) };

    assert_ptr_not_equal(pools[0], pools[1]);
    assert_ptr_not_equal(pools[0], pools[2]);
    assert_ptr_not_equal(pools[1], pools[2]);
    for (int i = 0; i < 3; i++) pd_buffer_pool_leave(pools[i]);
    pd_shared_weights_unref(one);
    pd_shared_weights_unref(other);
}

/* Takes every buffer that the segment has, and ten more. Returns how many there are. */
static size_t exhaust(pd_buffer_pool *pool, const pd_shared_weights *shared, size_t bytes, void **at, size_t most)
{
    size_t n = 0, beyond = 0;

    while (beyond < 10) {
        assert_true(n < most);
        at[n] = pd_buffer_pool_take(pool);
        assert_non_null(at[n]);
        memset(at[n], (int)n, bytes);
        beyond += !lies_in(shared, at[n], bytes);
        n++;
    }
    return n;
}

TEST(a_pool_whose_segment_is_used_up_takes_private_memory)
{
    enum { BYTES = 100000, MOST = 2000 };
    static void *at[MOST];
    pd_buffer_pools all = { 0 };
    pd_shared_weights *shared = made(BYTES / 4, 1);
    pd_buffer_pool *pool = pd_buffer_pool_join(&all, shared, BYTES);
    size_t n = exhaust(pool, shared, BYTES, at, MOST);

    for (size_t i = 0; i < n; i++) assert_int_equal(((const uint8_t *)at[i])[BYTES - 1], (uint8_t)i);
    for (size_t i = 0; i < n; i++) pd_buffer_pool_give(pool, at[i]);
    pd_buffer_pool_leave(pool);
    pd_shared_weights_unref(shared);
    assert_int_equal(all.idle, 0);
}

/* Buffers that are a little larger than a huge page would take two each, if they began on huge pages of their own. */
TEST(a_segment_takes_no_more_memory_than_its_pools_count)
{
    enum { BYTES = HUGE_PAGE + 4096, N = 20 };
    pd_buffer_pools all = { 0 };
    pd_shared_weights *shared = made((uint64_t)N * BYTES, 1);
    pd_buffer_pool *pool = pd_buffer_pool_join(&all, shared, BYTES);
    struct stat file;
    void *at[N];

    for (int i = 0; i < N; i++) memset(at[i] = pd_buffer_pool_take(pool), 1, BYTES);
    assert_int_equal(fstat(pd_shared_weights_segment(shared)->fd, &file), 0);
    assert_true((uint64_t)file.st_blocks * 512 >= all.used);
    assert_true((uint64_t)file.st_blocks * 512 < all.used + HUGE_PAGE);
    for (int i = 0; i < N; i++) pd_buffer_pool_give(pool, at[i]);
    pd_buffer_pool_leave(pool);
    pd_shared_weights_unref(shared);
}

/* The segment hands out its memory once, so a pool that gave it back could never have it again. */
TEST(a_pool_keeps_memory_of_the_segment_while_it_has_users)
{
    pd_buffer_pools all = { 0 };
    pd_shared_weights *shared = made(1000, 1);
    pd_buffer_pool *pool = pd_buffer_pool_join(&all, shared, 4000);
    void *at[8], *again[8];

    for (int i = 0; i < 8; i++) at[i] = pd_buffer_pool_take(pool);
    for (int i = 8; i-- > 0;) pd_buffer_pool_give(pool, at[i]);
    for (int i = 0; i < 8; i++) again[i] = pd_buffer_pool_take(pool);
    assert_memory_equal(again, at, sizeof at);
    for (int i = 0; i < 8; i++) pd_buffer_pool_give(pool, at[i]);
    pd_buffer_pool_leave(pool);
    pd_shared_weights_unref(shared);
}

TEST(the_segment_lives_until_its_last_buffer_is_back)
{
    int before = descriptors_open(0);
    pd_buffer_pools all = { 0 };
    pd_shared_weights *shared = made(1000, 1);
    pd_buffer_pool *pool = pd_buffer_pool_join(&all, shared, 4000);
    void *at = pd_buffer_pool_take(pool);

    pd_shared_weights_unref(shared);
    pd_buffer_pool_leave(pool);
    memset(at, 1, 4000);
    assert_int_equal(descriptors_open(0), before + 1);
    pd_buffer_pool_give(pool, at);
    assert_int_equal(descriptors_open(0), before);
    assert_null(all.table);
}

/* Random joins, takes, gives and leaves of pools over two segments. All bytes of buffers that are out stay as they were
 * written. */
static void run_seed(uint64_t seed)
{
    enum { POOLS = 6, MOST = 60 };
    static const size_t sizes[] = { 64, 4000, 70000 };
    int before = descriptors_open(0);
    pd_buffer_pools all = { 0 };
    pd_shared_weights *shared[2] = { made(2000, 2), NULL };
    pd_buffer_pool *pools[POOLS];
    struct {
        uint8_t *at;
        int pool;
    } out[MOST];
    size_t n = 0;

    for (int i = 0; i < POOLS; i++) pools[i] = pd_buffer_pool_join(&all, shared[i % 2], sizes[i / 2]);
    pd_shared_weights_unref(shared[0]);
    for (int turn = 0; turn < 400; turn++) {
        if (n < MOST && draw(&seed, 5) < 3) {
            out[n].pool = (int)draw(&seed, POOLS);
            out[n].at = pd_buffer_pool_take(pools[out[n].pool]);
            memset(out[n].at, out[n].pool + 1, sizes[out[n].pool / 2]);
            n++;
        } else if (n > 0) {
            size_t i = draw(&seed, n), bytes = sizes[out[i].pool / 2];
            for (size_t k = 0; k < bytes; k += 63) assert_int_equal(out[i].at[k], out[i].pool + 1);
            pd_buffer_pool_give(pools[out[i].pool], out[i].at);
            out[i] = out[--n];
        }
    }
    for (int i = 0; i < POOLS; i++) pd_buffer_pool_leave(pools[i]);
    while (n-- > 0) pd_buffer_pool_give(pools[out[n].pool], out[n].at);
    assert_null(all.table);
    assert_int_equal(all.used + all.idle, 0);
    assert_int_equal(descriptors_open(0), before);
}

TEST(any_order_of_takes_and_gives_leaves_nothing_over)
{
    for (uint64_t seed = 1; seed <= 100; seed++) run_seed(seed);
}

static int join_and_leave(const void *what)
{
    pd_buffer_pools all = { 0 };
    pd_buffer_pool *pool = pd_buffer_pool_join(&all, (pd_shared_weights *)(uintptr_t)what, 4000);

    pd_buffer_pool_leave(pool);
    return pool != NULL ? PD_OK : PD_NO_MEMORY;
}

TEST(a_pool_that_cannot_be_made_keeps_no_segment)
{
    int before = descriptors_open(0);
    pd_shared_weights *shared = made(1000, 1);

    assert_true(oom_each(join_and_leave, shared) > 0);
    pd_shared_weights_unref(shared);
    assert_int_equal(descriptors_open(0), before);
}
