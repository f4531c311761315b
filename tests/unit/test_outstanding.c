/* Tests the list of answers that a worker reads in shared memory: their order, their number and their bytes. */
#include "test.h"
#include "output.h"

static pd_pendings table = { .key = 1 };

static pd_pending *answer(uint64_t id, size_t pieces)
{
    pd_pending *made = pd_pending_new(&table, NULL, &(pd_prefix){ .request = id, .method = 4 }, pieces);

    assert_non_null(made);
    return made;
}

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

/* Takes n answers and frees them. Checks that they are those from number `first` on. Returns their bytes. */
static size_t take(pd_outstanding *lent, uint64_t first, uint64_t n, uint64_t now_ms)
{
    pd_pending *at = pd_outstanding_take(lent, n, now_ms);
    size_t bytes = 0;

    for (uint64_t i = 0; i < n; i++) {
        pd_pending *next = at->next_reply;
        assert_int_equal(at->id, first + i);
        bytes += pd_pending_bytes(at->wait.n);
        pd_pending_free(at);
        at = next;
    }
    assert_null(at);
    return bytes;
}

static void run_seed(uint64_t seed)
{
    pd_outstanding lent = { 0 };
    uint64_t added = 0, taken = 0;
    size_t bytes = 0;

    for (uint64_t turn = 0; turn < 200; turn++) {
        if (draw(&seed, 2) == 0) {
            size_t pieces = draw(&seed, 5);
            pd_outstanding_add(&lent, answer(added++, pieces), turn);
            bytes += pd_pending_bytes(pieces);
        } else {
            uint64_t n = draw(&seed, added - taken + 1);
            bytes -= take(&lent, taken, n, turn);
            taken += n;
        }
        assert_int_equal(lent.n, added - taken);
        assert_int_equal(lent.bytes, bytes);
    }
    take(&lent, taken, added - taken, 0);
    assert_int_equal(lent.bytes, 0);
}

TEST(any_order_of_adds_and_takes_keeps_order_number_and_bytes)
{
    for (uint64_t seed = 1; seed <= 200; seed++) run_seed(seed);
}

TEST(the_oldest_waits_from_when_it_was_added)
{
    pd_outstanding lent = { 0 };

    pd_outstanding_add(&lent, answer(0, 1), 100);
    pd_outstanding_add(&lent, answer(1, 1), 200);
    assert_int_equal(lent.since_ms, 100);
    take(&lent, 0, 2, 300);
}

TEST(the_next_one_waits_from_when_the_oldest_was_released)
{
    pd_outstanding lent = { 0 };

    pd_outstanding_add(&lent, answer(0, 1), 100);
    pd_outstanding_add(&lent, answer(1, 1), 200);
    take(&lent, 0, 1, 300);
    assert_int_equal(lent.since_ms, 300);
    take(&lent, 1, 1, 400);
}

TEST(one_that_is_added_to_an_empty_list_waits_from_then)
{
    pd_outstanding lent = { 0 };

    pd_outstanding_add(&lent, answer(0, 1), 100);
    take(&lent, 0, 1, 150);
    pd_outstanding_add(&lent, answer(1, 1), 900);
    assert_int_equal(lent.since_ms, 900);
    take(&lent, 1, 1, 900);
}

TEST(a_release_of_none_leaves_the_time_as_it_is)
{
    pd_outstanding lent = { 0 };

    pd_outstanding_add(&lent, answer(0, 1), 100);
    assert_null(pd_outstanding_take(&lent, 0, 500));
    assert_int_equal(lent.since_ms, 100);
    take(&lent, 0, 1, 600);
}

static int free_table(void **state)
{
    (void)state;
    pd_pendings_free(&table);
    return 0;
}

GROUP(NULL, free_table);
