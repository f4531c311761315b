/* Tests the thread that touches memory ahead of its user. */
#define _GNU_SOURCE /* mincore */
#include <sys/mman.h>

#include "test.h"
#include "overlapped.h"

WITH_THREADS();

enum { BYTES = 9 << 20, PATIENCE_S = 30 };

static const pd_numa no_node = { 0 };

static uint8_t *map(void)
{
    uint8_t *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(at != MAP_FAILED);
    return at;
}

static size_t touched_pages(void *at)
{
    static unsigned char in_core[BYTES / 4096];
    size_t n = 0, page = (size_t)sysconf(_SC_PAGESIZE);

    assert_int_equal(mincore(at, BYTES, in_core), 0);
    for (size_t i = 0; i < BYTES / page; i++) n += in_core[i] & 1;
    return n;
}

/* Returns whether all pages of a mapping are touched. */
static bool is_touched(void *at)
{
    return touched_pages(at) == BYTES / (size_t)sysconf(_SC_PAGESIZE);
}

TEST(memory_is_touched_and_its_content_stays)
{
    uint8_t *at = map(), *other = map();
    pd_warmer *warmer;

#ifdef MADV_POPULATE_WRITE
    if (madvise(other, 1, MADV_POPULATE_WRITE) != 0) skip();
#else
    skip();
#endif
    memset(at + 5000, 7, 100);
    assert_int_equal(pd_warmer_start(&warmer, &no_node, NULL), PD_OK);
    pd_warmer_put(warmer, at, BYTES);
    assert_true(await(is_touched, at, PATIENCE_S));
    assert_int_equal(at[4999] + at[5000] + at[5099] + at[5100], 14);
    pd_warmer_stop(warmer);
    munmap(at, BYTES);
    munmap(other, BYTES);
}

TEST(memory_that_was_given_up_may_be_unmapped)
{
    pd_warmer *warmer;

    assert_int_equal(pd_warmer_start(&warmer, &no_node, NULL), PD_OK);
    for (int i = 0; i < 20; i++) {
        uint8_t *at = map();
        pd_warmer_put(warmer, at, BYTES);
        pd_warmer_put(warmer, NULL, 0);
        memset(at, 1, BYTES);
        assert_int_equal(munmap(at, BYTES), 0);
    }
    pd_warmer_stop(warmer);
}
