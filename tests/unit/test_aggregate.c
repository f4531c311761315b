/* Sums of contributions: the same bits in one pass and in many, on one thread and on four. */
#include "aggregate.h"
#include "convert.h"
#include "oom.h"
#include "rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD = 5, N = 200000 };          /* one chunk of several ranges */

typedef struct fixture {
    pd_shelves all;
    pd_shelf  *shelf;
    pd_round   round;
    pd_chunk   chunk;
    pd_slot    slots[WORLD];
    pd_request *frames[WORLD];
    float     *g[WORLD];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    f->shelf = pd_shelf_join(&f->all, N * sizeof(float));
    pd_round_init(&f->round, NULL, N, N, WORLD, &f->chunk, f->slots);
    for (uint32_t r = 0; r < WORLD; r++) {
        f->frames[r] = pd_request_new(PD_REQ_PUSH, (pd_ticket){ 1, 1 });
        f->frames[r]->u.data.weight = r + 1;
        f->g[r] = malloc(N * sizeof(float));
        rig_noise(r, f->g[r], N);
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    for (uint32_t r = 0; r < WORLD; r++) {
        pd_request_free(f->frames[r]);
        free(f->g[r]);
    }
    pd_shelf_leave(f->shelf);
    assert_int_equal(f->all.used, 0);
    free(f);
    return 0;
}

static void give(fixture *f, uint32_t rank)
{
    pd_round_add(&f->round, &f->chunk, rank, (pd_slot){ .at = f->g[rank], .frame = f->frames[rank], .state = PD_SLOT_HELD, .dtype = PD_F32 });
}

static void leave_out(fixture *f, uint32_t rank)
{
    pd_round_add(&f->round, &f->chunk, rank, (pd_slot){ .state = PD_SLOT_ABSENT });
}

static void pass(fixture *f, pd_sums *sums, uint32_t upto, pd_aggregation how, int threads, float **accumulator)
{
    pd_sums_clear(sums);
    assert_int_equal(pd_sums_plan(sums, &f->round, &f->chunk, upto, how, accumulator, f->shelf), PD_OK);
    pd_sums_run(sums, threads);
    pd_sums_note(sums, &sums->passes[0], how);
}

/* The aggregate in passes that end before the ranks of bits set in `cuts`; borrowed until the next call. */
static float *aggregate(fixture *f, uint32_t cuts, pd_aggregation how, int threads, float *out)
{
    pd_sums sums = { 0 };
    float *accumulator = NULL;

    pd_round_reset(&f->round);
    for (uint32_t r = 0; r < WORLD; r++) {
        if (r == 3) leave_out(f, r);
        else give(f, r);
    }
    for (uint32_t r = 1; r < WORLD; r++)
        if (cuts >> r & 1) pass(f, &sums, r, how, threads, &accumulator);
    pass(f, &sums, WORLD, how, threads, &accumulator);
    assert_int_equal(f->round.unsummed, 0);
    assert_true(f->round.finite && !f->round.weightless);
    assert_int_equal(f->chunk.given, WORLD - 1);
    memcpy(out, accumulator, N * sizeof(float));
    pd_shelf_give(f->shelf, accumulator);
    pd_sums_free(&sums);
    return out;
}

static void all_ways_to_cut_give_the_same_bits(void **state)
{
    fixture *f = *state;
    float *expected = malloc(N * sizeof(float)), *got = malloc(N * sizeof(float));

    for (pd_aggregation how = PD_MEAN; how <= PD_SUM; how++) {
        aggregate(f, 0, how, 1, expected);
        for (uint32_t cuts = 0; cuts < 1u << WORLD; cuts += 2)
            assert_memory_equal(aggregate(f, cuts, how, 1 + (int)(cuts % 4), got), expected, N * sizeof(float));
    }
    free(expected);
    free(got);
}

static void each_aggregate_is_what_it_says(void **state)
{
    fixture *f = *state;
    float *sum = malloc(N * sizeof(float)), *mean = malloc(N * sizeof(float)), *weighted = malloc(N * sizeof(float));

    f->frames[1]->u.data.presummed = true;
    aggregate(f, 0, PD_SUM, 2, sum);
    aggregate(f, 0, PD_MEAN, 2, mean);
    aggregate(f, 0, PD_WEIGHTED_MEAN, 2, weighted);
    for (int i = 0; i < N; i++) {
        float *const *g = f->g;
        float total = ((g[0][i] + g[1][i]) + g[2][i]) + g[4][i];
        float products = ((1 * g[0][i] + g[1][i]) + 3 * g[2][i]) + 5 * g[4][i];
        if (sum[i] != total || mean[i] != total / 4 || weighted[i] != products / 11) fail_msg("element %d", i);
    }
    free(sum);
    free(mean);
    free(weighted);
}

static void the_last_ranks_may_be_absent_after_a_pass(void **state)
{
    fixture *f = *state;
    pd_sums sums = { 0 };
    float *accumulator = NULL;

    give(f, 0);
    give(f, 1);
    pass(f, &sums, 2, PD_MEAN, 1, &accumulator);
    for (uint32_t r = 2; r < WORLD; r++) leave_out(f, r);
    pass(f, &sums, WORLD, PD_MEAN, 1, &accumulator);
    for (int i = 0; i < N; i++) assert_true(accumulator[i] == (f->g[0][i] + f->g[1][i]) / 2);
    pd_shelf_give(f->shelf, accumulator);
    pd_sums_free(&sums);
}

static void nothing_given_needs_no_sum(void **state)
{
    fixture *f = *state;
    pd_sums sums = { 0 };
    float *accumulator = NULL;

    for (uint32_t r = 0; r < WORLD; r++) leave_out(f, r);
    pass(f, &sums, WORLD, PD_MEAN, 1, &accumulator);
    assert_null(accumulator);
    assert_true(f->round.weightless);
    assert_int_equal(f->round.unsummed, 0);
    pd_sums_free(&sums);
}

static void finds_what_is_not_finite_in_any_range(void **state)
{
    static const int places[] = { 0, N / 2, N - 1 };
    fixture *f = *state;

    for (int i = 0; i < 3; i++) {
        pd_sums sums = { 0 };
        float *accumulator = NULL, kept = f->g[2][places[i]];
        pd_round_reset(&f->round);
        f->g[2][places[i]] = i == 1 ? NAN : INFINITY;
        for (uint32_t r = 0; r < WORLD; r++) give(f, r);
        pass(f, &sums, WORLD, PD_SUM, 1, &accumulator);
        assert_false(f->round.finite);
        f->g[2][places[i]] = kept;
        pd_shelf_give(f->shelf, accumulator);
        pd_sums_free(&sums);
    }
}

static void a_plan_that_gets_no_memory_is_no_plan(void **state)
{
    fixture *f = *state;

    for (uint32_t r = 0; r < WORLD; r++) give(f, r);
    for (int64_t n = 0; ; n++) {
        pd_sums sums = { 0 };
        float *accumulator = NULL;
        bool failed;
        int rc;
        oom_arm(n);
        rc = pd_sums_plan(&sums, &f->round, &f->chunk, WORLD, PD_MEAN, &accumulator, f->shelf);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        assert_int_equal(sums.n_passes, failed ? 0 : 1);
        assert_int_equal(f->chunk.summed, 0);
        pd_shelf_give(f->shelf, accumulator);
        pd_sums_free(&sums);
        if (!failed) break;
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(all_ways_to_cut_give_the_same_bits),
        TEST(each_aggregate_is_what_it_says),
        TEST(the_last_ranks_may_be_absent_after_a_pass),
        TEST(nothing_given_needs_no_sum),
        TEST(finds_what_is_not_finite_in_any_range),
        TEST(a_plan_that_gets_no_memory_is_no_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
