/* Tests special cases of clipping by a global norm: gradients that are absent, refused or not finite, model state,
 * limits that an optimizer's rule sets, lack of memory, and the key clip_global_norm. */
#include "test.h"
#include "clip.h"
#include "clipped.h"
#include "counting_row.h"

EACH_TEST(clipped_set_up, rig_tear_down);

TEST(absent_gradients_have_no_part_in_the_norm, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=1e3", NULL);

    clipped_push(r, job, 1, 0);
    clipped_push_absent(r, job, 1, 1);
    clipped_push_absent(r, job, 1, 2);
    clipped_push_absent(r, job, 1, 3);
    rig_work(r);
    assert_true(fabs(clipped_info(r)->gradient_norm - clipped_norm(1, 0, 1)) < 1e-14);
    assert_int_equal(rig_versions(r, job, 1)->outcome, PD_NO_GRADIENT);
    assert_int_equal(rig_versions(r, job, 0)->outcome, PD_STEPPED);
}

TEST(a_step_without_any_gradient_closes_and_keeps_the_last_norm, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=2", NULL);

    for (uint64_t step = 1; step <= 2; step++) {
        for (uint32_t p = 0; p < CLIPPED; p++)
            if (step == 1)
                clipped_push_one(r, job, step, p, 3);
            else
                clipped_push_absent(r, job, step, p);
        rig_work(r);
    }
    for (uint32_t p = 0; p < CLIPPED; p++) assert_int_equal(rig_versions(r, job, p)->outcome, PD_NO_GRADIENT);
    assert_true(clipped_info(r)->gradient_norm == 6);
    assert_int_equal(clipped_info(r)->clipped_steps, 1);
}

TEST(values_are_neither_counted_nor_scaled, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=1", "p3 values lr=1;* sgd lr=1");
    float before[2] = { *rig_weights(r, job, 3), *rig_weights(r, job, 1) };

    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_one(r, job, 1, p, p == 3 ? 50 : p == 1 ? 4 : 0);
    rig_work(r);
    assert_true(clipped_info(r)->gradient_norm == 4);
    assert_true(*rig_weights(r, job, 3) == before[0] - 50);
    assert_true(*rig_weights(r, job, 1) == before[1] - 1);
}

TEST(statistics_of_the_model_are_neither_counted_nor_scaled, rig *r)
{
    static const bool states[CLIPPED] = { true, false, false, false };
    uint32_t job;

    r->states = states;
    job = clipped_start(r, "clip_global_norm=1", NULL);
    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_one(r, job, 1, p, p == 0 ? 50 : p == 1 ? 4 : 0);
    rig_work(r);
    assert_true(clipped_info(r)->gradient_norm == 4);
    assert_true(*rig_weights(r, job, 0) == 50);
}

TEST(ranged_parameters_count_with_all_their_elements, rig *r)
{
    static const char *const names[] = { "a", "b" };
    static const pd_shape shapes[] = { { 1, { 100 } }, { 1, { 2 } } };
    static const rig_range ranges[2][2] = { { { 0, 70 }, { -1, 0 } }, { { 50, 100 }, { -1, 0 } } };
    float ones[100], before = 0;
    uint32_t job;

    for (int i = 0; i < 100; i++) ones[i] = 1;
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, 2, rank + 1, 10 + rank, "clip_global_norm=1", "* sgd lr=1"), PD_OK);
        r->ranges = ranges[rank];
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, names, shapes, NULL, 2, PD_F32), PD_OK);
    }
    job = r->job;
    for (int step = 0; step <= 1; step++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            rig_frame *frame =
                rig_frame_new(r, step == 0 ? PD_REQ_INIT : PD_REQ_PUSH, job, rank, 10 + rank, (uint64_t)step);
            if (rank == 0) rig_piece(frame, 0, PD_F32, 0, 64, ones);
            rig_piece(frame, 0, PD_F32, rank == 0 ? 64 : 50, rank == 0 ? 6 : 14, ones);
            if (rank == 1) rig_piece(frame, 0, PD_F32, 64, 36, ones);
            if (rank == 0 || step == 1) rig_piece(frame, 1, PD_F32, 0, 2, ones);
            assert_int_equal(rig_send(r, frame), PD_OK);
        }
        rig_work(r);
        before = step == 0 ? *rig_weights(r, job, 0) : before;
    }
    assert_true(fabs(clipped_info(r)->gradient_norm - sqrt(102)) < 1e-13);
    for (int i = 0; i < 100; i++) assert_true(rig_weights(r, job, 0)[i] == before - 1 / (float)sqrt(102));
}

TEST(one_gradient_that_is_not_finite_skips_the_step_of_all, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=1", NULL);

    for (uint64_t step = 1; step <= 2; step++) {
        for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_one(r, job, step, p, step == 1 && p == 2 ? NAN : 1);
        rig_work(r);
        for (uint32_t p = 0; p < CLIPPED; p++)
            assert_int_equal(rig_versions(r, job, p)->outcome, step == 1 ? PD_SKIPPED : PD_STEPPED);
    }
    assert_int_equal(r->warnings, 1);
    assert_non_null(strstr(
        r->warning,
        "step 1 of all parameters is skipped (gradients are clipped together), the gradient of p2 is not finite"));
    assert_true(clipped_info(r)->gradient_norm == 2);
}

TEST(what_is_applied_though_it_is_not_finite_spreads, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=1 nonfinite=apply", NULL);
    uint32_t other = rig_start(r, "inf", 1, 11, clipped_sizes, CLIPPED, "clip_global_norm=1 nonfinite=apply", NULL);
    float before = *rig_weights(r, other, 1);

    for (uint32_t p = 0; p < CLIPPED; p++) {
        clipped_push_one(r, job, 1, p, p == 2 ? NAN : 1);
        assert_int_equal(rig_push(r, other, 0, 11, 1, p, (float[300]){ p == 2 ? INFINITY : 1 }, clipped_sizes[p]),
                         PD_OK);
    }
    rig_work(r);
    for (uint32_t p = 0; p < CLIPPED; p++) assert_true(isnan(*rig_weights(r, job, p)));
    assert_true(isnan(*rig_weights(r, other, 2)));
    assert_true(*rig_weights(r, other, 1) == before);
}

TEST(a_step_that_is_refused_is_refused_as_elsewhere, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=1e6", "p[01] counting;* sgd lr=1");

    for (uint64_t step = 1; step <= 2; step++) {
        for (uint32_t p = 0; p < CLIPPED; p++)
            clipped_push_one(r, job, step, p, step == 1 && p == 0 ? 2 * COUNTING_LIMIT : 1);
        rig_work(r);
    }
    for (uint32_t p = 0; p < CLIPPED; p++) assert_int_equal(rig_versions(r, job, p)->outcome, PD_STEPPED);
    assert_int_equal(clipped_info(r)->refused_steps, 2); /* the steps of both parameters in the atomic group are
                                                          * refused */
    assert_int_equal(clipped_info(r)->steps, 6);
}

/* The optimizer would refuse the gradient as it was pushed, but accepts it after it is clipped. */
TEST(rows_see_the_scaled_gradient, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=1", "* counting");

    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_one(r, job, 1, p, p == 0 ? 2 * COUNTING_LIMIT : 0);
    rig_work(r);
    assert_int_equal(rig_versions(r, job, 0)->outcome, PD_STEPPED);
}

TEST(a_rules_limit_holds_for_its_parameters_alone, rig *r)
{
    uint32_t job = clipped_start(r, NULL, "p[01] limited lr=1 dampening=5;p2 limited lr=1 dampening=1;* sgd lr=1");
    float before[CLIPPED];

    for (uint32_t p = 0; p < CLIPPED; p++) before[p] = *rig_weights(r, job, p);
    for (uint32_t p = 0; p < CLIPPED; p++) {
        clipped_push_one(r, job, 1, p, p == 0 ? 6 : 8);
        if (p < CLIPPED - 1) rig_work(r);
        assert_int_equal(rig_versions(r, job, 0)->step, 0); /* no parameter steps until the last one has its gradient,
                                                          * since all parameters of the job step together */
    }
    rig_work(r);
    assert_true(*rig_weights(r, job, 0) == before[0] - 3);
    assert_true(*rig_weights(r, job, 1) == before[1] - 4);
    assert_true(*rig_weights(r, job, 2) == before[2] - 1);
    assert_true(*rig_weights(r, job, 3) == before[3] - 8);
    assert_true(clipped_info(r)->gradient_norm == 10); /* the norm of p0 and p1 (gradients 6 and 8), whose rule is
                                                        * the first one with a limit */
    assert_int_equal(clipped_info(r)->clipped_steps, 1);
}

TEST(the_jobs_limit_comes_first, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=5", "p[01] limited lr=1 dampening=1;* sgd lr=1");
    float before[CLIPPED];

    for (uint32_t p = 0; p < CLIPPED; p++) before[p] = *rig_weights(r, job, p);
    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_one(r, job, 1, p, p == 0 ? 8 : p == 3 ? 6 : 0);
    rig_work(r);
    assert_true(*rig_weights(r, job, 3) == before[3] - 3);
    assert_true(*rig_weights(r, job, 0) == before[0] - 1); /* the job's limit clips the gradient of 8 to 4, then the
                                                            * rule's limit clips it to 1 */
    assert_true(clipped_info(r)->gradient_norm == 10);
}

TEST(a_rule_without_a_limit_holds_nobody_up, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=off", "* limited lr=1");

    clipped_push(r, job, 1, 2);
    rig_work(r);
    assert_int_equal(rig_versions(r, job, 2)->step, 1);
    assert_true(clipped_info(r)->gradient_norm == 0);
}

TEST(the_key_takes_a_limit_or_none)
{
    static const char *const good[] = { "off", "0", "-0", "0.0", "1", "1e-30", "1e30", "0.1" };
    static const char *const bad[] = { "", "on", "-1", "nan", "inf", "1e31", "1e-31", "1x", " 1" };
    pd_error err;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(pd_job_key_check("clip_global_norm", good[i], &err), PD_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(pd_job_key_check("clip_global_norm", bad[i], &err), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "expected a number from 1e-30 to 1e+30, or off"));
    }
}

TEST(ranks_must_agree_on_it, rig *r)
{
    assert_int_equal(rig_hello(r, "a", 0, 2, 1, 1, "clip_global_norm=0.1", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "a", 1, 2, 2, 2, "clip_global_norm=0.10", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "b", 0, 2, 1, 3, "clip_global_norm=0", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "b", 1, 2, 2, 4, "clip_global_norm=-0", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "b", 1, 2, 2, 4, "clip_global_norm=off", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "a", 1, 2, 2, 2, NULL, NULL), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "clip_global_norm = 0.1, this worker comes with off"));
}

TEST(a_set_for_which_memory_is_short_is_refused_and_taken_later, rig *r)
{
    static const char *const names[] = { "p0" };
    static const pd_shape shapes[] = { { 1, { 70 } } };

    assert_int_equal(rig_hello(r, "job", 0, 1, 1, 10, "clip_global_norm=1", "* sgd lr=1"), PD_OK);
    for (int64_t n = 0;; n++) {
        pd_request *request = pd_request_new(PD_REQ_DECLARE, rig_ticket(r, 10));
        request->job = r->job;
        request->u.declare.n = 1;
        request->u.declare.params = calloc(1, sizeof(pd_param_decl));
        request->u.declare.params[0] =
            (pd_param_decl){ .name = strdup(names[0]), .shape = shapes[0], .pull_dtype = PD_F32 };
        r->error.code = PD_OK;
        oom_arm(n);
        pd_store_apply(r->store, request, r->now);
        if (!oom_disarm()) break;
        rig_absorb(r);
        if (r->error.code == PD_OK) break; /* the failed allocation cost only a line of the log */
        assert_int_equal(r->error.code, PD_NO_MEMORY);
    }
    rig_absorb(r);
    assert_int_equal(r->error.code, PD_OK);
    assert_int_equal(rig_init(r, r->job, 10, 0, (float[70]){ 0 }, 70), PD_OK);
    clipped_push_one(r, r->job, 1, 0, 4);
    rig_work(r);
    assert_true(*rig_weights(r, r->job, 0) == -1);
}

/* Runs one step of all parameters. The n-th allocation of the step fails, and the store retries the step later. The
 * gradients must be scaled only once. Writes the weights to `out`. Returns whether an allocation failed. */
static bool step_short_of_memory(float *out, int64_t n)
{
    bool failed;
    uint32_t job;
    void *own = NULL;
    rig *r;

    clipped_set_up(&own);
    r = own;
    job = clipped_start(r, "clip_global_norm=0.5", "* sgd lr=0.1 momentum=0.5");
    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push(r, job, 1, p);
    oom_arm(n);
    while (pd_store_work(r->store, r->now)) continue;
    failed = oom_disarm();
    rig_absorb(r);
    for (int i = 0; i < 3; i++) {
        rig_sleep(r, 1);
        rig_work(r);
    }
    for (uint32_t p = 0; p < CLIPPED; out += clipped_sizes[p++]) {
        assert_int_equal(rig_versions(r, job, p)->step, 1);
        memcpy(out, rig_weights(r, job, p), (size_t)clipped_sizes[p] * sizeof *out);
    }
    rig_tear_down(&own);
    return failed;
}

HOLDS(a_step_for_which_memory_is_short_is_scaled_once, oom_assert_same(step_short_of_memory, 374));

TEST(what_clipping_holds_counts_against_the_limit, rig *r)
{
    uint64_t least[2] = { 0, 0 };

    (void)r;
    for (int clips = 0; clips < 2; clips++)
        for (uint64_t total = 1000; least[clips] == 0; total += 1000) {
            static const char *const names[] = { "p0" };
            static const pd_shape shapes[] = { { 1, { 70 } } };
            pd_store_config config = clipped_configuration();
            rig own;
            config.max_total_bytes = total;
            rig_new(&own, &config);
            rig_hello(&own, "job", 0, 1, 1, 10, clips ? "clip_global_norm=1" : NULL, "* sgd lr=1");
            if (rig_declare(&own, own.job, 0, 10, names, shapes, NULL, 1, PD_F32) == PD_OK) least[clips] = total;
            rig_free(&own);
        }
    assert_in_range(least[1], least[0] + 1024 * sizeof(pd_clip_piece) - 1000,
                    least[0] + 1024 * sizeof(pd_clip_piece) + 3000);
}
