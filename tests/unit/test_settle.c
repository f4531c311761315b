/* Tests that the shards of a job decide each step as one store with all parameters does. */
#include "test.h"
#include "clipped.h"
#include "counting_row.h"
#include "settle.h"
#include "shard_rigs.h"

enum { STEPS = 4 };

typedef struct kind {
    uint32_t shards, world;
    const char *options, *rules;
} kind;

static const char plain_rules[] = "* sgd lr=0.1 momentum=0.5",
                  mixed_rules[] = "p[02] counting lr=0.1;p5 adam lr=0.01;p1* limited lr=0.2 dampening=0.1;* sgd lr=0.1";

/* Jobs that differ in everything that a verdict decides. */
static const kind kinds[] = {
    { 2, 1, "nonfinite_scope=job", plain_rules },
    { 3, 2, "nonfinite_scope=job", mixed_rules },
    { 2, 2, "clip_global_norm=3", plain_rules },
    { 3, 1, "clip_global_norm=0.5", mixed_rules },
    { 2, 1, "clip_global_norm=100", mixed_rules },
    { 3, 2, "nonfinite_scope=job", "p1* limited lr=0.2 dampening=0.1;p[03] limited lr=0.1 dampening=0.2;* sgd lr=0.1" },
};

static void start(shard_rigs *s, const kind *k)
{
    pd_store_config config = clipped_configuration();

    config.chunk_elements = 4096;
    shard_rigs_start(s, k->shards, k->world, &config, k->options, k->rules);
}

static void push_all(shard_rigs *s, uint64_t step, float scale, unsigned absent)
{
    for (uint32_t rank = 0; rank < s->world; rank++) shard_rigs_push(s, rank, step, scale, absent);
}

static const pd_job_info *info_of(rig *r)
{
    return &rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0];
}

TEST(weights_are_those_of_one_store)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        shard_rigs s;
        start(&s, &kinds[k]);
        for (uint64_t step = 1; step <= STEPS; step++) {
            push_all(&s, step, 1, 0);
            shard_rigs_settle(&s);
            shard_rigs_assert_same(&s, step);
        }
        shard_rigs_free(&s);
    }
}

TEST(a_norm_is_that_of_all_shards)
{
    shard_rigs s;

    start(&s, &kinds[2]);
    for (uint64_t step = 1; step <= STEPS; step++) {
        double norm;
        push_all(&s, step, (float)step, 0);
        shard_rigs_settle(&s);
        shard_rigs_assert_same(&s, step);
        norm = info_of(s.whole)->gradient_norm;
        assert_true(norm > 3);
        for (uint32_t i = 0; i < s.n; i++) {
            assert_true(info_of(s.shard[i])->gradient_norm == norm);
            assert_int_equal(info_of(s.shard[i])->clipped_steps, info_of(s.whole)->clipped_steps);
        }
    }
    assert_int_equal(s.verdicts, STEPS); /* one round trip a step */
    shard_rigs_free(&s);
}

TEST(a_gradient_that_is_not_finite_on_one_shard_skips_the_step_on_all)
{
    static const struct {
        uint32_t param;
        int64_t at;
    } spoilt[] = { { 0, 3 }, { SHARD_CUT, 7 }, { SHARD_CUT, 65536 + 7 }, { 4, 0 } };

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t i = 0; i < sizeof spoilt / sizeof spoilt[0]; i++) {
            shard_rigs s;
            start(&s, &kinds[k]);
            for (uint64_t step = 1; step <= STEPS; step++) {
                for (uint32_t rank = 0; rank < s.world; rank++)
                    for (uint32_t p = 0; p < SHARD_PARAMS; p++)
                        shard_rigs_push_one(&s, rank, step, p, 1, step == 2 && p == spoilt[i].param ? spoilt[i].at : -1,
                                            NAN);
                shard_rigs_settle(&s);
                shard_rigs_assert_same(&s, step);
            }
            for (uint32_t r = 0; r < s.n; r++) assert_non_null(strstr(s.shard[r]->warning, "is not finite"));
            shard_rigs_free(&s);
        }
}

TEST(vectors_without_a_gradient_are_left_out_as_in_one_store)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        shard_rigs s;
        start(&s, &kinds[k]);
        for (uint64_t step = 1; step <= 8; step++) {
            push_all(&s, step, 1, (unsigned)(step * 37) & 63);
            shard_rigs_settle(&s);
            shard_rigs_assert_same(&s, step);
        }
        push_all(&s, 9, 1, 63);
        shard_rigs_settle(&s);
        shard_rigs_assert_same(&s, 9);
        push_all(&s, 10, 1, 0);
        shard_rigs_settle(&s);
        shard_rigs_assert_same(&s, 10);
        shard_rigs_free(&s);
    }
}

TEST(half_a_gradient_of_a_cut_vector_is_none)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (uint32_t half = 0; half < 2; half++) {
            shard_rigs s;
            start(&s, &kinds[k]);
            for (uint64_t step = 1; step <= STEPS; step++) {
                uint64_t before = s.verdicts;
                for (uint32_t rank = 0; rank < s.world; rank++)
                    for (uint32_t p = 0; p < SHARD_PARAMS; p++) {
                        if (step == 2 && p == SHARD_CUT)
                            shard_rigs_push_cut_half(&s, rank, step, half);
                        else
                            shard_rigs_push_one(&s, rank, step, p, 1, -1, 0);
                    }
                shard_rigs_settle(&s);
                shard_rigs_assert_same(&s, step);
                if (step == 2) assert_true(s.verdicts - before >= 2); /* the tallies were made again */
            }
            shard_rigs_free(&s);
        }
}

TEST(a_skip_beside_half_a_gradient_is_decided_as_in_one_store)
{
    for (uint32_t half = 0; half < 2; half++) {
        shard_rigs s;
        start(&s, &kinds[3]);
        for (uint32_t p = 0; p < SHARD_PARAMS; p++) {
            if (p == SHARD_CUT)
                shard_rigs_push_cut_half(&s, 0, 1, half);
            else
                shard_rigs_push_one(&s, 0, 1, p, 1, p == 4 ? 0 : -1, INFINITY);
        }
        shard_rigs_settle(&s);
        shard_rigs_assert_same(&s, 1);
        assert_int_equal(s.last_phase, 0);
        shard_rigs_free(&s);
    }
}

TEST(a_gradient_that_is_too_large_for_an_optimizer_on_one_shard_skips_the_step_on_all)
{
    static const kind clipped = { 3, 1, "clip_global_norm=1e30", "p5 adam lr=0.1;p2 adam lr=0.1;* sgd lr=0.1" },
                      free = { 2, 1, "nonfinite_scope=job", "p5 adam lr=0.1;* sgd lr=0.1" },
                      tight = { 2, 1, "clip_global_norm=1", "p5 adam lr=0.1;* sgd lr=0.1" };
    static const kind *const all[] = { &clipped, &free, &tight };

    for (size_t k = 0; k < 3; k++) {
        shard_rigs s;
        start(&s, all[k]);
        for (uint64_t step = 1; step <= 3; step++) {
            for (uint32_t p = 0; p < SHARD_PARAMS; p++)
                shard_rigs_push_one(&s, 0, step, p, 1, step == 2 && p == 5 ? 0 : -1, 1e20f);
            shard_rigs_settle(&s);
            shard_rigs_assert_same(&s, step);
        }
        /* A clip makes the gradient small enough. */
        assert_int_equal(info_of(s.whole)->skipped, all[k] == &free ? SHARD_PARAMS : 0);
        shard_rigs_free(&s);
    }
}

TEST(an_outlier_is_one_on_all_shards)
{
    static const kind outliers = { 3, 1, "skip_outlier=3;clip_global_norm=50", mixed_rules };
    kind k = outliers;
    shard_rigs s;

    k.options = "skip_outlier=3 clip_global_norm=50";
    start(&s, &k);
    for (uint64_t step = 1; step <= 14; step++) {
        push_all(&s, step, step == 12 ? 1000 : 1, 0);
        shard_rigs_settle(&s);
        shard_rigs_assert_same(&s, step);
    }
    assert_int_equal(info_of(s.whole)->outlier_steps, 1);
    for (uint32_t i = 0; i < s.n; i++) assert_int_equal(info_of(s.shard[i])->outlier_steps, 1);
    shard_rigs_free(&s);
}

TEST(a_refusal_on_one_shard_refuses_the_steps_of_the_group_on_all)
{
    static const kind all[] = { { 2, 1, "nonfinite_scope=job", "p[02345] counting lr=0.1;* sgd lr=0.1" },
                                { 3, 1, "clip_global_norm=1e9", "p[0234]* counting lr=0.1;* sgd lr=0.1" } };

    for (size_t k = 0; k < 2; k++)
        for (uint32_t refused = 0; refused < SHARD_PARAMS; refused++) {
            shard_rigs s;
            start(&s, &all[k]);
            for (uint64_t step = 1; step <= 5; step++) {
                for (uint32_t p = 0; p < SHARD_PARAMS; p++)
                    shard_rigs_push_one(&s, 0, step, p, 1, step == 2 && (p == refused || p == 3) ? 0 : -1,
                                        2 * COUNTING_LIMIT);
                shard_rigs_settle(&s);
                shard_rigs_assert_same(&s, step);
            }
            shard_rigs_free(&s);
        }
}

TEST(steps_of_a_group_are_counted_although_no_member_on_the_shard_has_a_gradient)
{
    static const kind counted = { 2, 1, "nonfinite_scope=job", "p[05] counting lr=0.1;* sgd lr=0.1" };
    shard_rigs s;

    start(&s, &counted);
    for (uint64_t step = 1; step <= 6; step++) {
        /* p0 is on shard 0, p5 on shard 1: now only one has a gradient, now none. */
        push_all(&s, step, 1, step % 3 == 0 ? 33 : step % 2 == 0 ? 1 : 32);
        shard_rigs_settle(&s);
        shard_rigs_assert_same(&s, step);
    }
    push_all(&s, 7, 1, 0);
    shard_rigs_settle(&s);
    shard_rigs_assert_same(&s, 7);
    shard_rigs_free(&s);
}

TEST(what_many_shards_tell_each_other_must_fit_into_a_frame)
{
    pd_steps steps = { .name = "job", .shards = 64, .n_cut = 1000 };
    pd_error err;

    assert_int_equal(pd_settle_fits(&steps, &err), PD_OK);
    steps.n_cut = 4000;
    assert_int_equal(pd_settle_fits(&steps, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "fewer cut parameters than 4000"));
    steps.shards = 16;
    assert_int_equal(pd_settle_fits(&steps, &err), PD_OK);
}
