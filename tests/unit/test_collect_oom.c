/* Tests memory that runs out while a job collects contributions. Workers that wait are notified and nothing is lost.
 * The job continues with the same bits when memory is available. */
#include "test.h"
#include "collecting.h"
#include "rig.h"
#include "store_inside.h"

enum { CONN = COLLECTING_CONN, WORLD = COLLECTING_WORLD, N = COLLECTING_N };

/* Plays two rounds. All contributions to the second round arrive, then the n-th allocation of its aggregation fails.
 * With `over_quota`, the quotas are so small that all ranks exceed them. Writes the weights to `weights`. Returns
 * whether an allocation failed. */
static bool second_round(const char *options, bool over_quota, float *weights, int64_t n)
{
    bool failed;
    rig r;

    collecting_start(&r, options, over_quota);
    for (uint64_t step = 1; step <= 2; step++) {
        rig_work(&r);
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            float values[N];
            rig_noise(rank + 10 * step, values, N);
            assert_int_equal(rig_push(&r, r.job, rank, CONN + rank, step, 0, values, N), PD_OK);
        }
    }
    oom_arm(n);
    while (pd_store_work(r.store, r.now)) continue;
    failed = oom_disarm();
    rig_absorb(&r);
    assert_true(failed == (r.timed_out > 0));
    for (int i = 0; i < 3 && r.versions[r.job][0].step < 2; i++) {
        assert_true(failed);
        assert_int_equal(r.timeout.code, PD_RESOURCE_EXHAUSTED);
        rig_sleep(&r, 1.0);
        rig_work(&r);
    }
    assert_int_equal(r.versions[r.job][0].step, 2);
    assert_int_equal(r.buffers_out, 0);
    memcpy(weights, rig_weights(&r, r.job, 0), N * sizeof *weights);
    rig_free(&r);
    return failed;
}

/* Plays one round. After the contributions of three ranks have arrived, they should be spilled, but the n-th
 * allocation fails. Writes the weights to `weights`. Returns whether an allocation failed. */
static bool spills_short_of_memory(const char *options, float *weights, int64_t n)
{
    bool failed = false;
    rig r;

    collecting_start(&r, options, true);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        float values[N];
        rig_noise(rank, values, N);
        rig_push(&r, r.job, rank, CONN + rank, 1, 0, values, N);
        if (rank != 2) continue;
        oom_arm(n);
        while (pd_store_work(r.store, r.now)) continue;
        failed = oom_disarm();
        rig_absorb(&r);
        assert_true(failed == (r.timed_out > 0));
        rig_sleep(&r, 1.0);
        rig_work(&r);
        assert_int_equal(r.buffers_out, 0);
    }
    rig_work(&r);
    assert_int_equal(r.versions[r.job][0].step, 1);
    memcpy(weights, rig_weights(&r, r.job, 0), N * sizeof *weights);
    rig_free(&r);
    return failed;
}

/* 18 ranks, of which half contribute to the first section only: each of the two sections has a tree with its own
 * memory. */

enum { MANY = 18, PART = 100 };

static int64_t end_of(uint32_t rank)
{
    return rank % 2 == 0 ? N : PART;
}

static void give(rig *r, pd_request_kind kind, uint32_t rank, uint64_t step)
{
    float values[N];

    rig_noise(rank + 100 * step, values, N);
    for (int64_t first = 0, n; first < end_of(rank); first += n) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, CONN + rank, step);
        n = pd_range_piece(0, end_of(rank), (uint64_t)r->chunk, (uint64_t)first);
        rig_piece(frame, 0, PD_F32, first, n, values + first);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
    if (kind == PD_REQ_INIT) rig_work(r);
}

static void start_ranged(rig *r, const char *options, bool over_quota)
{
    static const char *const name[] = { "w" };
    static const pd_shape shape = { 1, { N } };
    pd_store_config config = rig_config();

    if (over_quota) config.ingest_bytes = MANY * 4096;
    config.batch_ns = 1;
    rig_new(r, &config);
    for (uint32_t rank = 0; rank < MANY; rank++) {
        rig_range range = { 0, end_of(rank) };
        assert_int_equal(rig_hello(r, "job", rank, MANY, CONN + rank, CONN + rank, options, "* sgd lr=1"), PD_OK);
        r->ranges = &range;
        assert_int_equal(rig_declare(r, r->job, rank, CONN + rank, name, &shape, NULL, 1, PD_F32), PD_OK);
        r->ranges = NULL;
    }
    for (uint32_t rank = 0; rank < MANY; rank++) give(r, PD_REQ_INIT, rank, 0);
}

/* Plays one round in which ranks contribute ranges, and the n-th allocation of the aggregation fails. Returns
 * whether an allocation failed. */
static bool ranged_round(const char *options, bool over_quota, float *weights, int64_t n)
{
    uint64_t committed;
    bool failed;
    rig r;

    start_ranged(&r, options, over_quota);
    committed = r.store->budget.used;
    for (uint32_t rank = 0; rank < MANY; rank++) give(&r, PD_REQ_PUSH, rank, 1);
    oom_arm(n);
    while (pd_store_work(r.store, r.now)) continue;
    failed = oom_disarm();
    rig_absorb(&r);
    for (int i = 0; i < 3 && r.versions[r.job][0].step < 1; i++) {
        assert_int_equal(r.timeout.code, PD_RESOURCE_EXHAUSTED);
        rig_sleep(&r, 1.0);
        rig_work(&r);
    }
    assert_int_equal(r.versions[r.job][0].step, 1);
    assert_int_equal(r.buffers_out, 0);
    assert_int_equal(r.store->budget.used, committed);
    memcpy(weights, rig_weights(&r, r.job, 0), N * sizeof *weights);
    rig_free(&r);
    return failed;
}

TEST(sections_of_many_ranks_are_merged_later_with_the_same_bits)
{
    static const char *const how[] = { "aggregate=adasum adasum_fold=yes", "aggregate=adasum_vdot", "aggregate=median",
                                       "aggregate=trimmed_mean trim=3" };
    float expected[N], got[N];

    for (int i = 0; i < 8; i++) {
        assert_false(ranged_round(how[i / 2], false, expected, INT32_MAX));
        for (int64_t n = 0; ranged_round(how[i / 2], i % 2 == 1, got, n); n++)
            assert_memory_equal(got, expected, sizeof got);
    }
}

TEST(rounds_are_closed_later_with_the_same_bits)
{
    float expected[N], got[N];

    for (int i = 0; i < 2 * COLLECTING; i++) {
        assert_false(second_round(collecting[i / 2], false, expected, INT32_MAX));
        for (int64_t n = 0; second_round(collecting[i / 2], i % 2 == 1, got, n); n++)
            assert_memory_equal(got, expected, sizeof got);
    }
}

TEST(contributions_that_cannot_be_spilled_yet_are_kept)
{
    float expected[N], got[N];

    for (int i = 0; i < COLLECTING; i++) {
        assert_false(spills_short_of_memory(collecting[i], expected, INT32_MAX));
        for (int64_t n = 0; spills_short_of_memory(collecting[i], got, n); n++)
            assert_memory_equal(got, expected, sizeof got);
    }
}
