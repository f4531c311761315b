/* Tests the bytes of tallies: each content has one form, and no other bytes are read. */
#include "test.h"
#include "tally.h"

enum { MOST = 4096, RULES = 11, CUTS = 19 };

/* The lists that a tally borrows. */
typedef struct lists {
    uint8_t stepping[2], largest[PD_TALLY_LARGEST * RULES], cuts[PD_TALLY_CUT_SETS * 3];
    uint8_t refusals[PD_TALLY_REFUSAL * RULES];
} lists;

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void fill_outcomes(pd_tally *tally, lists *l, uint64_t *seed)
{
    tally->skipped = next(seed) % 2;
    tally->n_rules = (uint16_t)(next(seed) % (RULES + 1));
    tally->n_cuts = (uint16_t)(next(seed) % (CUTS + 1));
    for (uint16_t r = 0; r < tally->n_rules; r++) {
        if (next(seed) % 2 == 0) pd_tally_set_bit(l->stepping, r);
        if (next(seed) % 2 == 0)
            pd_tally_put_largest(l->largest, tally->n_largest++,
                                 (pd_tally_largest){ r, (float)(1 + next(seed) % 1000) * 1e15f });
    }
    for (size_t c = 0; c < tally->n_cuts; c++)
        for (size_t set = 0; set < PD_TALLY_CUT_SETS; set++)
            if (next(seed) % 2 == 0 && (set != PD_CUTS_SKIP || pd_tally_has_bit(l->cuts, c)))
                pd_tally_set_bit(l->cuts + set * pd_tally_bits(tally->n_cuts), c);
}

static void fill_refusals(pd_tally *tally, lists *l, uint64_t *seed)
{
    tally->n_refusals = (uint16_t)(next(seed) % (RULES + 1));
    for (uint16_t i = 0; i < tally->n_refusals; i++)
        pd_tally_put_refusal(l->refusals, i,
                             (pd_tally_refusal){ (uint16_t)(2 * i), (uint32_t)next(seed), next(seed) >> 1 });
}

/* Makes a tally of any kind. */
static pd_tally make(lists *l, uint64_t *seed)
{
    pd_tally tally = { .step = 1 + next(seed) % 1000, .phase = (uint32_t)(next(seed) % 4), .shards = 3, .shard = 2 };

    memset(l, 0, sizeof *l);
    tally.stepping = l->stepping;
    tally.largest = l->largest;
    tally.cuts = l->cuts;
    tally.refusals = l->refusals;
    tally.kind = (pd_tally_kind)(next(seed) % 3);
    if (tally.kind == PD_TALLY_OUTCOMES) fill_outcomes(&tally, l, seed);
    if (tally.kind == PD_TALLY_REFUSALS) fill_refusals(&tally, l, seed);
    for (uint64_t i = tally.kind == PD_TALLY_REFUSALS ? 0 : next(seed) % 5; i > 0; i--)
        pd_exact_sum_add(&tally.sum, ldexp((double)(next(seed) >> 12), (int)(next(seed) % 200) - 100));
    tally.seen = tally.kind != PD_TALLY_REFUSALS;
    tally.reason = "the gradient of \xc3\xa4 is not finite";
    tally.reason_bytes = next(seed) % 2 ? (uint16_t)strlen(tally.reason) : 0;
    return tally;
}

TEST(what_is_written_is_read)
{
    uint64_t seed = 3;

    for (int c = 0; c < 5000; c++) {
        uint8_t bytes[MOST], again[MOST];
        lists l;
        pd_error err;
        pd_tally tally = make(&l, &seed), read;
        size_t n = pd_tally_write(&tally, bytes);
        assert_int_equal(n, pd_tally_bytes(&tally));
        if (pd_tally_open(&read, bytes, n, &err) != PD_OK) fail_msg("%s", err.text);
        assert_memory_equal(&read.sum, &tally.sum, sizeof read.sum);
        assert_int_equal(read.step, tally.step);
        assert_int_equal(read.phase, tally.phase);
        assert_int_equal(read.kind, tally.kind);
        assert_int_equal(read.skipped, tally.skipped);
        assert_int_equal(pd_tally_write(&read, again), n);
        assert_memory_equal(again, bytes, n);
    }
}

TEST(changed_bytes_are_refused_or_are_another_tally)
{
    uint64_t seed = 5;
    int refused = 0, taken = 0;

    for (int c = 0; c < 60000; c++) {
        uint8_t bytes[MOST], again[MOST];
        lists l;
        pd_error err;
        pd_tally tally = make(&l, &seed), read;
        size_t n = pd_tally_write(&tally, bytes);
        bytes[next(&seed) % n] ^= (uint8_t)(1 << next(&seed) % 8);
        if (pd_tally_open(&read, bytes, n, &err) != PD_OK) {
            assert_int_equal(err.code, PD_INVALID_ARGUMENT);
            refused++;
            continue;
        }
        taken++;
        assert_int_equal(pd_tally_write(&read, again), n);
        assert_memory_equal(again, bytes, n);
    }
    assert_true(refused > 1000 && taken > 1000);
}

TEST(no_length_but_its_own_is_read)
{
    uint64_t seed = 9;

    for (int c = 0; c < 200; c++) {
        uint8_t bytes[MOST] = { 0 };
        lists l;
        pd_error err;
        pd_tally tally = make(&l, &seed), read;
        size_t n = pd_tally_write(&tally, bytes);
        for (size_t other = 0; other < n + 3; other++)
            assert_true((pd_tally_open(&read, bytes, other, &err) == PD_OK) == (other == n));
    }
}

TEST(another_version_is_named)
{
    uint64_t seed = 9;
    uint8_t bytes[MOST];
    lists l;
    pd_error err;
    pd_tally tally = make(&l, &seed), read;
    size_t n = pd_tally_write(&tally, bytes);

    bytes[0] = 2;
    assert_int_equal(pd_tally_open(&read, bytes, n, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "version 2, expected 1"));
}
