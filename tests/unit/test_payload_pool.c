/* Tests the pool of buffers that payloads are received into. */
#include "test.h"
#include "payloads.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

static pd_buffer *get(pd_pool *pool, size_t size, uint64_t conn)
{
    pd_buffer *buffer;

    assert_int_equal(pd_pool_get(pool, size, conn, false, &buffer), PD_OK);
    return buffer;
}

TEST(gives_memory_aligned_and_charged_to_its_connection)
{
    pd_pool *pool = pd_pool_new(64 * MIB, NULL, NULL, NULL);
    static const size_t sizes[] = { 1, 63, 4096, 4097, 100 * KIB, MIB, 4 * MIB, 5 * MIB + 1 };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        pd_buffer *buffer = get(pool, sizes[i], 7);
        assert_int_equal((uintptr_t)buffer->at % 64, 0);
        assert_int_equal(buffer->conn, 7);
        assert_int_equal(buffer->charged, sizes[i]);
        assert_int_equal(buffer->size, sizes[i]);
        memset(buffer->at, 0x5a, sizes[i]);
        pd_pool_put(pool, buffer);
    }
    assert_int_equal(pd_pool_used(pool), 0);
    pd_pool_free(pool);
}

TEST(uses_memory_again)
{
    pd_pool *pool = pd_pool_new(64 * MIB, NULL, NULL, NULL);
    pd_buffer *first = get(pool, 4 * MIB, 1);
    uint8_t *at = first->at;

    pd_pool_put(pool, first);
    assert_ptr_equal(get(pool, 4 * MIB - 100, 2)->at, at);
    assert_int_equal(pd_pool_kept(pool), 0);
    pd_pool_put(pool, first);
    pd_pool_free(pool);
}

TEST(keeps_unused_memory_only_within_its_limit)
{
    pd_pool *pool = pd_pool_new(8 * MIB, NULL, NULL, NULL);
    pd_buffer *at[4];

    for (int i = 0; i < 4; i++) at[i] = get(pool, 4 * MIB, 1); /* buffers in use may exceed the pool's limit */
    assert_int_equal(pd_pool_used(pool), 16 * MIB);
    for (int i = 0; i < 4; i++) pd_pool_put(pool, at[i]);
    assert_true(pd_pool_kept(pool) <= 8 * MIB);
    pd_pool_free(pool);
}

TEST(memory_of_other_sizes_makes_room)
{
    pd_pool *pool = pd_pool_new(8 * MIB, NULL, NULL, NULL);
    pd_buffer *large[2], *small;

    for (int i = 0; i < 2; i++) large[i] = get(pool, 4 * MIB, 1);
    for (int i = 0; i < 2; i++) pd_pool_put(pool, large[i]);
    assert_int_equal(pd_pool_kept(pool), 8 * MIB);
    small = get(pool, MIB, 1);
    assert_true(pd_pool_used(pool) + pd_pool_kept(pool) <= 8 * MIB);
    pd_pool_put(pool, small);
    pd_pool_free(pool);
}

TEST(refuses_what_no_machine_has)
{
    pd_pool *pool = pd_pool_new(8 * MIB, NULL, NULL, NULL);
    pd_buffer *buffer;

    assert_int_equal(pd_pool_get(pool, SIZE_MAX / 2, 1, false, &buffer), PD_NO_MEMORY);
    assert_int_equal(pd_pool_used(pool), 0);
    pd_pool_free(pool);
}

static void count(void *arg)
{
    ++*(int *)arg;
}

/* Background work that the pool has handed out. The test runs it later, in place of another thread. */
typedef struct errands {
    pd_background *at[8];
    int n;
} errands;

static bool note(void *arg, pd_background *work)
{
    errands *list = arg;

    list->at[list->n++] = work;
    return true;
}

static void run(errands *list)
{
    for (int i = 0; i < list->n; i++) {
        list->at[i]->run(list->at[i]);
        list->at[i]->done(list->at[i]);
    }
    list->n = 0;
}

TEST(large_memory_is_made_by_workers_and_waited_for)
{
    errands list = { .n = 0 };
    pd_platform platform = { .arg = &list, .background = note };
    int told = 0;
    pd_buffer *one, *two;
    pd_pool *pool;

    pool = pd_pool_new(64 * MIB, &platform, count, &told);
    assert_int_equal(pd_pool_get(pool, 4 * KIB, 1, false, &one), PD_OK); /* small: at once */
    pd_pool_put(pool, one);
    assert_int_equal(pd_pool_get(pool, 4 * MIB, 1, false, &one), PD_UNAVAILABLE);
    assert_int_equal(pd_pool_get(pool, 4 * MIB, 2, false, &two), PD_UNAVAILABLE);
    assert_int_equal(pd_pool_get(pool, 4 * MIB, 2, true, &two), PD_UNAVAILABLE); /* asked again: no second allocation
                                                                                  * starts for connection 2 */
    run(&list);
    assert_int_equal(told, 2);
    assert_int_equal(pd_pool_get(pool, 4 * MIB, 1, true, &one), PD_OK);
    assert_int_equal(pd_pool_get(pool, 4 * MIB, 2, true, &two), PD_OK);
    pd_pool_put(pool, one);
    pd_pool_put(pool, two);
    assert_int_equal(pd_pool_get(pool, 4 * MIB, 3, false, &one), PD_OK); /* a recycled buffer is given at once */
    pd_pool_put(pool, one);
    pd_pool_free(pool);
}

TEST(what_was_waited_for_and_given_away_is_made_again)
{
    errands list = { .n = 0 };
    pd_platform platform = { .arg = &list, .background = note };
    int told = 0;
    pd_buffer *one, *large;
    pd_pool *pool;

    pool = pd_pool_new(4 * MIB, &platform, count, &told);
    assert_int_equal(pd_pool_get(pool, MIB, 1, false, &one), PD_UNAVAILABLE);
    run(&list);
    assert_int_equal(pd_pool_get(pool, 4 * MIB, 2, false, &large),
                     PD_UNAVAILABLE); /* connection 2 takes the memory that was allocated for connection 1 */
    run(&list);
    assert_int_equal(pd_pool_get(pool, MIB, 1, true, &one), PD_UNAVAILABLE);
    run(&list);
    assert_int_equal(pd_pool_get(pool, MIB, 1, true, &one), PD_OK);
    pd_pool_put(pool, one);
    pd_pool_free(pool);
}
