/* Tests that finite gradients beyond what float32 state can take spoil nothing: weights stay finite, the outcome says
 * that the step was not taken, and later steps go on. */
#include "test.h"
#include "rig.h"
#include "optimizer_ops.h"

enum { SIDE = 12, SIZE = SIDE * SIDE, PARAMS = 2, BEFORE = 5, AFTER = 20 };

static void start(rig *r, uint32_t world, const char *options, const char *rules)
{
    static const char *const names[] = { "p0", "p1" };
    const pd_shape shapes[PARAMS] = { { 2, { SIDE, SIDE } }, { 2, { SIDE, SIDE } } };
    float weights[SIZE];

    for (uint32_t rank = 0; rank < world; rank++) {
        if (rig_hello(r, "job", rank, world, 10 + rank, 10 + rank, options, rules) != PD_OK)
            fail_msg("%s: %s", rules, r->error.text);
        if (rig_declare(r, r->job, rank, 10 + rank, names, shapes, NULL, PARAMS, PD_F32) != PD_OK)
            fail_msg("%s: %s", rules, r->error.text);
    }
    for (int i = 0; i < SIZE; i++) weights[i] = 1;
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(rig_init(r, r->job, 10, p, weights, SIZE), PD_OK);
    rig_work(r);
}

/* Fills a gradient with ordinary numbers, and one element of it with `extreme`, unless that is 0. */
static void fill(float *g, uint64_t seed, float extreme)
{
    rig_noise(seed, g, SIZE);
    for (int i = 0; i < SIZE; i++) g[i] *= 1e-3f;
    if (extreme != 0) g[17] = extreme;
}

/* Takes a step with one rank. Parameter 0 has the extreme element. */
static void step(rig *r, uint64_t number, float extreme)
{
    float g[SIZE];

    for (uint32_t p = 0; p < PARAMS; p++) {
        fill(g, number * 100 + p, p == 0 ? extreme : 0);
        assert_int_equal(rig_push(r, r->job, 0, 10, number, p, g, SIZE), PD_OK);
    }
    rig_work(r);
}

static void assert_finite(rig *r, const char *rules, float extreme, const char *when)
{
    for (uint32_t p = 0; p < PARAMS; p++)
        for (int i = 0; i < SIZE; i++)
            if (!isfinite(rig_weights(r, r->job, p)[i]))
                fail_msg("%s: weights are not finite %s a gradient of %g", rules, when, (double)extreme);
}

/* Takes ordinary steps, one with an extreme gradient, and more ordinary ones. */
static void endure(const char *rules, float extreme)
{
    pd_store_config config = rig_config();
    float before[SIZE];
    pd_outcome outcome;
    rig r;

    rig_new(&r, &config);
    start(&r, 1, NULL, rules);
    for (uint64_t number = 1; number <= BEFORE; number++) step(&r, number, 0);
    memcpy(before, rig_weights(&r, r.job, 0), sizeof before);
    step(&r, BEFORE + 1, extreme);
    outcome = rig_versions(&r, r.job, 0)->outcome;
    assert_finite(&r, rules, extreme, "after");
    if (outcome != PD_STEPPED) assert_memory_equal(before, rig_weights(&r, r.job, 0), sizeof before);
    assert_int_equal(rig_versions(&r, r.job, 1)->outcome, PD_STEPPED);
    for (uint64_t number = BEFORE + 2; number <= BEFORE + AFTER; number++) {
        step(&r, number, 0);
        if (rig_versions(&r, r.job, 0)->outcome != PD_STEPPED)
            fail_msg("%s: step %d after a gradient of %g: outcome %d: %s", rules, (int)number, (double)extreme,
                     (int)rig_versions(&r, r.job, 0)->outcome, rig_versions(&r, r.job, 0)->why);
    }
    assert_finite(&r, rules, extreme, "some steps after");
    rig_free(&r);
}

FIXTURE(rig, rig_make, rig_free);

TEST(every_optimizer_goes_on_after_an_extreme_gradient)
{
    static const float extremes[] = { 1e15f, 1e19f, 1e20f, -1e30f, 3e38f };
    const pd_optimizer_ops *row;
    char rules[64];

    for (size_t k = 0; (row = pd_optim_at(k)) != NULL; k++) {
        snprintf(rules, sizeof rules, "* %s%s", pd_optimizer_name(row),
                 strcmp(pd_optimizer_name(row), "adafactor") == 0 ? " learning_rate=1e-3" : "");
        for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++) endure(rules, extremes[i]);
    }
}

TEST(so_do_other_settings_of_the_optimizers)
{
    static const char *const rules[] = {
        "* sgd lr=0.1 momentum=0.9",
        "* adam amsgrad=yes",
        "* delayed_nesterov period=3 lr=0.7",
        "* ademamix alpha=8 alpha_warmup=4",
        "* schedule_free inner_momentum=0.9",
        "* mars gamma=1",
        "* adamw hyperball=yes",
        "* shampoo hyperball=yes precondition_frequency=1 grafting_config=SGD",
        "* kron dQ=QUAD merge_small_dims=no",
        "* kron dQ=QUAD4P merge_small_dims=no whiten_grad=no",
        "* kron dQ=Q0.5EQ1.5 merge_small_dims=no b1=0",
        "* kron dQ=PRO4P merge_small_dims=no preconditioner_max_skew=9",
        "* kron dQ=QEP merge_small_dims=no preconditioner_init_scale=auto",
        "* kron dQ=QEQ merge_small_dims=no",
        "* kron dQ=EQ_psgd merge_small_dims=no",
        "* muon form=keller normuon=yes compute=bfloat16",
        "* mars mars_type=mars-lion",
        "* rmsprop centered=yes momentum=0.5",
        "* scalable_shampoo block_size=8 preconditioning_compute_steps=1 graft_type=RMSPROP_NORMALIZED",
        "* shampoo precondition_frequency=1 grafting_config=Adam(beta2=0.99)",
        "* adafactor learning_rate=0.1",
    };
    static const float extremes[] = { 1e15f, 1e20f, 1e30f, 3e38f };

    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++)
        for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++) endure(rules[k], extremes[i]);
}

TEST(a_gradient_whose_square_is_infinite_is_skipped_and_the_log_says_why, rig *r)
{
    start(r, 1, NULL, "* adam");
    step(r, 1, PD_SQUARE_MOST);
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_STEPPED);
    step(r, 2, -nextafterf(PD_SQUARE_MOST, INFINITY));
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_SKIPPED);
    assert_int_equal(rig_versions(r, r->job, 1)->outcome, PD_STEPPED);
    assert_non_null(strstr(r->warning, "step 2 of p0 is skipped: an element of the gradient of p0, 1.84e+19, exceeds "
                                       "the largest that adam takes, 1.84e+19 (1 skipped so far)"));
}

TEST(a_job_that_skips_as_a_whole_skips_it_for_all_parameters, rig *r)
{
    start(r, 1, "nonfinite_scope=job", "* adam");
    step(r, 1, 1e20f);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(rig_versions(r, r->job, p)->outcome, PD_SKIPPED);
    assert_non_null(strstr(r->warning, "an element of the gradient of p0, 1e+20, exceeds the largest that adam takes"));
}

TEST(a_job_that_applies_everything_takes_the_step, rig *r)
{
    start(r, 1, "nonfinite=apply", "p0 adam;* sgd lr=10");
    step(r, 1, 1e20f);
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_STEPPED);
}

TEST(what_clipping_has_made_small_is_not_too_large, rig *r)
{
    start(r, 1, "clip_global_norm=1", "* shampoo");
    step(r, 1, 1e18f);
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_STEPPED);
    step(r, 2, 0);
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_STEPPED);
}

static void push(rig *r, uint32_t rank, uint64_t number, float extreme)
{
    float g[SIZE];

    for (uint32_t p = 0; p < PARAMS; p++) {
        fill(g, 1, p == 0 ? extreme : 0);
        assert_int_equal(rig_push(r, r->job, rank, 10 + rank, number, p, g, SIZE), PD_OK);
    }
}

/* The mean of the ranks' gradients counts, in however many passes it is summed. */
TEST(the_aggregate_decides_and_not_a_sum_on_the_way, rig *r)
{
    start(r, 3, NULL, "* adam");
    for (int parts = 0; parts < 2; parts++) {
        for (uint32_t rank = 0; rank < 3; rank++) {
            push(r, rank, 1 + (uint64_t)parts, 1.5e19f);
            if (parts == 1) rig_work(r);
        }
        rig_work(r);
        assert_int_equal(rig_versions(r, r->job, 0)->step, 1 + parts);
        assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_STEPPED);
    }
}

/* The last rank has no gradient, so the last pass adds nothing to the sum. */
TEST(a_sum_that_is_finished_early_is_judged_as_well, rig *r)
{
    rig_frame *frame;

    start(r, 2, "aggregate=sum", "* adam");
    push(r, 0, 1, 1e20f);
    rig_work(r);
    frame = rig_frame_new(r, PD_REQ_PUSH, r->job, 1, 11, 1);
    for (uint32_t p = 0; p < PARAMS; p++) rig_absent(frame, p);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
    assert_int_equal(rig_versions(r, r->job, 0)->step, 1);
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_SKIPPED);
}

TEST(every_aggregate_is_judged)
{
    static const char *const aggregates[] = { "mean",        "weighted_mean", "sum",          "adasum",
                                              "adasum_vdot", "median",        "trimmed_mean", "radial_mean" };

    for (size_t k = 0; k < sizeof aggregates / sizeof aggregates[0]; k++) {
        pd_store_config config = rig_config();
        char option[64];
        rig r;
        rig_new(&r, &config);
        snprintf(option, sizeof option, "aggregate=%s adasum_fold=yes", aggregates[k]);
        start(&r, 3, option, "* adam");
        for (uint32_t rank = 0; rank < 3; rank++) push(&r, rank, 1, 1e20f);
        rig_work(&r);
        if (rig_versions(&r, r.job, 0)->outcome != PD_SKIPPED) fail_msg("%s: not skipped", aggregates[k]);
        assert_int_equal(rig_versions(&r, r.job, 1)->outcome, PD_STEPPED);
        rig_free(&r);
    }
}

TEST(a_step_that_makes_weights_infinite_is_refused_and_they_stay)
{
    static const char *const rules[] = { "* sgd lr=1e3", "* lion lr=3e38 weight_decay=3e38", "* asgd lr=1e3" };

    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        pd_store_config config = rig_config();
        float before[SIZE];
        rig r;
        rig_new(&r, &config);
        start(&r, 1, NULL, rules[k]);
        memcpy(before, rig_weights(&r, r.job, 0), sizeof before);
        step(&r, 1, 1e38f);
        if (rig_versions(&r, r.job, 0)->outcome != PD_REFUSED) fail_msg("%s: not refused", rules[k]);
        assert_memory_equal(before, rig_weights(&r, r.job, 0), sizeof before);
        assert_non_null(
            strstr(rig_versions(&r, r.job, 0)->why, "p0: the gradient is finite, but the new weights are not"));
        if (strstr(r.warning, "`paramctl reset-state job p") == NULL) fail_msg("%s", r.warning);
        rig_free(&r);
    }
}

TEST(blocks_are_checked_as_ranges_are, rig *r)
{
    float before[SIZE];

    start(r, 1, NULL, "* shampoo lr=3e38 grafting_config=SGD");
    memcpy(before, rig_weights(r, r->job, 0), sizeof before);
    step(r, 1, 1e14f);
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_REFUSED);
    assert_memory_equal(before, rig_weights(r, r->job, 0), sizeof before);
}

/* Weights that were infinite before are left to whoever has chosen them. */
TEST(weights_that_were_infinite_before_refuse_no_step, rig *r)
{
    static const char *const name = "p0";
    const pd_shape shape = { 1, { 3 } };
    const float weights[] = { 1, -INFINITY, 2 }, gradient[] = { 1, 1, 1 };

    assert_int_equal(rig_hello(r, "job", 0, 1, 10, 10, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 10, &name, &shape, NULL, 1, PD_F32), PD_OK);
    assert_int_equal(rig_init(r, r->job, 10, 0, weights, 3), PD_OK);
    rig_work(r);
    assert_int_equal(rig_push(r, r->job, 0, 10, 1, 0, gradient, 3), PD_OK);
    rig_work(r);
    assert_int_equal(rig_versions(r, r->job, 0)->outcome, PD_STEPPED);
    assert_true(rig_weights(r, r->job, 0)[2] == 1);
}
