/* Tests ranges of many ranks: common ranges, and gaps. Code whose time grows with
 * the square of the number of ranks would not finish these tests. */
#include "test.h"
#include "sums.h"
#include "rig.h"
#include "rounds.h"

enum { WORLD = 9, ELEMENTS = 200, CHUNK = 64, CHUNKS = 4 };

static void draw_ranges(pd_round *round, uint64_t *seed)
{
    for (uint32_t r = 0; r < pd_round_ranks(round); r++) {
        int64_t a = (int64_t)(rig_random(seed) % (ELEMENTS + 1)), b = (int64_t)(rig_random(seed) % (ELEMENTS + 1));
        if (rig_random(seed) % 8 == 0) continue; /* not known */
        if (rig_random(seed) % 8 == 0) b = a;
        pd_round_set_range(round, r, a < b ? a : b, a < b ? b : a);
    }
    for (uint32_t r = 0; r < pd_round_ranks(round); r++)
        if (round->ranges.at[r].known && rig_random(seed) % 4 == 0) pd_round_unset_range(round, r);
}

static bool has(const pd_round *round, uint32_t rank, int64_t element)
{
    const pd_rank_range *range = &round->ranges.at[rank];

    return !range->known || (range->start <= element && element < range->end);
}

static void assert_common_range(const pd_round *round, const pd_sweep *sweep)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < pd_round_ranks(round); r++) {
        if (!has(round, r, sweep->range.first)) continue;
        assert_int_equal(pd_sweep_rank(sweep, n), r);
        n++;
    }
    assert_int_equal(sweep->n, n);
    assert_int_equal(pd_round_count_covering(round, sweep->range), n);
    for (uint32_t r = 0; r < pd_round_ranks(round); r++)
        for (int64_t e = sweep->range.first; e < sweep->range.first + sweep->range.n; e++)
            assert_int_equal(has(round, r, e), has(round, r, sweep->range.first));
}

TEST(a_sweep_meets_every_common_range_with_the_ranks_that_contribute_it)
{
    pd_chunk chunks[CHUNKS] = { 0 };
    pd_contribution slots[CHUNKS * WORLD];
    pd_rank_range ranges[WORLD];
    pd_round round;
    uint64_t seed = 11;

    for (int turn = 0; turn < 500; turn++) {
        int64_t first = (int64_t)(rig_random(&seed) % ELEMENTS), at = first;
        memset(slots, 0, sizeof slots);
        memset(ranges, 0, sizeof ranges);
        lay_round(&round, ELEMENTS, CHUNK, WORLD, chunks, slots, ranges);
        draw_ranges(&round, &seed);
        for (pd_sweep sweep = pd_sweep_begin(&round, first, ELEMENTS); pd_sweep_next(&sweep); at += sweep.range.n) {
            assert_int_equal(sweep.range.first, at);
            assert_true(sweep.range.n > 0);
            assert_common_range(&round, &sweep);
        }
        assert_int_equal(at, ELEMENTS);
    }
}

TEST(without_ranges_there_is_one_common_range_of_all_ranks)
{
    pd_chunk chunks[CHUNKS] = { 0 };
    pd_contribution slots[CHUNKS * WORLD] = { 0 };
    pd_round round;
    pd_sweep sweep;

    lay_round(&round, ELEMENTS, CHUNK, WORLD, chunks, slots, NULL);
    sweep = pd_sweep_begin(&round, 10, 50);
    assert_true(pd_sweep_next(&sweep));
    assert_int_equal(sweep.range.n, 40);
    assert_int_equal(sweep.n, WORLD);
    assert_int_equal(pd_sweep_rank(&sweep, 3), 3);
    assert_false(pd_sweep_next(&sweep));
}

enum { MANY = 1 << 19 };

typedef struct many_jobs {
    pd_round round;
    pd_chunk chunk;
    pd_contribution *slots;
    pd_rank_range *ranges;
} many_jobs;

static void set_up(many_jobs *c)
{
    c->slots = calloc(MANY, sizeof *c->slots);
    c->ranges = calloc(MANY, sizeof *c->ranges);
    lay_round(&c->round, MANY, MANY, MANY, &c->chunk, c->slots, c->ranges);
    for (uint32_t r = MANY; r-- > 0;) pd_round_set_range(&c->round, r, MANY - 1 - (int64_t)r, MANY - (int64_t)r);
}

static void tear_down(many_jobs *c)
{
    free(c->slots);
    free(c->ranges);
}

FIXTURE(many_jobs, set_up, tear_down);

TEST(a_gap_is_found_among_half_a_million_ranges, many_jobs *c)
{
    pd_rank_range gap;

    assert_false(pd_round_gap(&c->round, false, &gap));
    pd_round_unset_range(&c->round, 0); /* the last element */
    assert_true(pd_round_gap(&c->round, false, &gap));
    assert_int_equal(gap.start, MANY - 1);
    assert_int_equal(gap.end, MANY);
}

TEST(half_a_million_common_ranges_are_met, many_jobs *c)
{
    int64_t n = 0;

    for (pd_range run = { 0, 0 }; run.first + run.n < MANY; n++) {
        run = pd_round_common_range(&c->round, run.first + run.n, MANY);
        assert_true(pd_round_count_covering(&c->round, run) == 1);
    }
    assert_int_equal(n, MANY);
}

TEST(the_contributions_of_half_a_million_ranks_are_summed, many_jobs *c)
{
    pd_request *frame = pd_request_new(PD_REQ_PUSH, (pd_ticket){ 1, 1 });
    pd_buffer_pools all = { 0 };
    pd_buffer_pool *shelf = pd_buffer_pool_join(&all, NULL, MANY * sizeof(float));
    float *values = malloc(MANY * sizeof *values), *sum = NULL;
    pd_sums sums = { 0 };

    frame->u.data.weight = 1;
    for (uint32_t r = 0; r < MANY; r++) {
        values[r] = (float)r;
        pd_round_add(
            &c->round, &c->chunk, r,
            (pd_contribution){ .u.at = &values[r], .frame = frame, .state = PD_CONTRIBUTION_HELD, .dtype = PD_F32 });
    }
    assert_int_equal(pd_sums_plan(&sums, &c->round, &c->chunk, MANY, PD_MEAN, &sum, shelf), PD_OK);
    pd_sums_run(&sums, 1);
    pd_sums_note(&sums, &sums.passes[0], PD_MEAN);
    assert_false(c->round.weightless);
    for (uint32_t e = 0; e < MANY; e++) assert_true(sum[e] == (float)(MANY - 1 - e));
    pd_sums_free(&sums);
    pd_buffer_pool_give(shelf, sum);
    pd_buffer_pool_leave(shelf);
    free(values);
    pd_request_free(frame);
}
