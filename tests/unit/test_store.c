/* Tests pushes: each is counted exactly once, and a refused push changes nothing. */
#include "test.h"
#include "rig.h"

enum { WORLD = 2, N = 3, MOST = 150 };
static const int64_t sizes[N] = { MOST, 64, 5 };

typedef struct fixture {
    rig r;
    uint32_t job;
} fixture;

static int set_up_with(void **state, const char *options, const char *rules)
{
    pd_store_config config = rig_config();
    fixture *f = calloc(1, sizeof *f);

    rig_new(&f->r, &config);
    f->job = rig_start(&f->r, "job", WORLD, 10, sizes, N, options, rules);
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, NULL, "* sgd lr=1");
}
static int set_up_weighted(void **state)
{
    return set_up_with(state, "aggregate=weighted_mean", "* sgd lr=1");
}
static int set_up_sum(void **state)
{
    return set_up_with(state, "aggregate=sum", "* sgd lr=1");
}
static int set_up_reject(void **state)
{
    return set_up_with(state, "nonfinite=reject", "* sgd lr=1");
}
static int set_up_scheduled(void **state)
{
    return set_up_with(state, NULL,
                       "* sgd lr=table(1,0.5,0.25,0.125) momentum=table(0.5,0.25) dampening=piecewise(0.5,1:0)");
}
static int set_up_apply(void **state)
{
    return set_up_with(state, "nonfinite=apply", "* sgd lr=1");
}

static int tear_down(void **state)
{
    fixture *f = *state;

    rig_free(&f->r);
    free(f);
    return 0;
}

static void fill(float *out, float value, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = value;
}

/* Pushes a gradient of one parameter. Every element of the gradient is `value`. */
static int push(fixture *f, uint32_t rank, uint64_t step, uint32_t param, float value)
{
    float g[MOST];

    fill(g, value, MOST);
    return rig_push(&f->r, f->job, rank, 10 + rank, step, param, g, sizes[param]);
}

static int push_weighted(fixture *f, uint32_t rank, uint64_t step, float value, double weight, bool presummed)
{
    rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, rank, 10 + rank, step);
    float g[64];

    fill(g, value, 64);
    rig_piece(frame, 1, PD_F32, 0, 64, g);
    rig_weight(frame, weight, presummed);
    return rig_send(&f->r, frame);
}

/* Returns how far the weights have moved from their initial values. Checks that all elements have moved equally. */
static float moved(fixture *f, uint32_t param)
{
    float first[MOST], d;

    rig_noise(7 + param, first, sizes[param]);
    d = rig_weights(&f->r, f->job, param)[0] - first[0];
    for (int i = 0; i < sizes[param]; i++)
        assert_true(fabsf(rig_weights(&f->r, f->job, param)[i] - first[i] - d) < 1e-2f);
    return d;
}

static rig_entry *entry(fixture *f, uint32_t param)
{
    return &f->r.versions[f->job][param];
}

FIXTURE(set_up, tear_down);

TEST(the_mean_divides_by_the_ranks_that_gave_a_gradient, fixture *f)
{
    rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, 0, 10, 2);

    push(f, 1, 1, 1, 3);
    push(f, 0, 1, 1, 1);
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -2, 1e-2);
    rig_absent(frame, 1);
    assert_int_equal(rig_send(&f->r, frame), PD_OK);
    push(f, 1, 2, 1, 3);
    rig_work(&f->r);
    assert_int_equal(entry(f, 1)->outcome, PD_STEPPED);
    assert_float_equal(moved(f, 1), -5, 1e-2);
}

TEST_WITH(set_up_weighted, tear_down, weights_are_numbers_of_examples, fixture *f)
{
    push_weighted(f, 0, 1, 1, 3, false); /* rank 0: the mean of 3 examples is 1 */
    push_weighted(f, 1, 1, 10, 1, true); /* rank 1: the sum of its 1 example is 10 */
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -13.0 / 4, 1e-2);
}

TEST_WITH(set_up_weighted, tear_down, a_rank_without_examples_does_not_take_part, fixture *f)
{
    push_weighted(f, 0, 1, NAN, 0, false); /* NaN, the mean of no examples */
    push_weighted(f, 1, 1, 2, 5, false);
    rig_work(&f->r);
    assert_int_equal(entry(f, 1)->outcome, PD_STEPPED);
    assert_float_equal(moved(f, 1), -2, 1e-2);
}

TEST_WITH(set_up_weighted, tear_down, all_weights_zero_skip_the_step, fixture *f)
{
    push_weighted(f, 0, 1, 1, 0, false);
    push_weighted(f, 1, 1, 1, 0, false);
    rig_work(&f->r);
    assert_int_equal(entry(f, 1)->outcome, PD_SKIPPED);
    assert_true(moved(f, 1) == 0);
    assert_int_equal(rig_ask(&f->r, PD_INFO_PARAMS, "job")->params[1].count, 0);
}

TEST_WITH(set_up_sum, tear_down, a_sum_is_not_divided, fixture *f)
{
    push_weighted(f, 0, 1, 1, 7, false);
    push_weighted(f, 1, 1, 2, 9, true);
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -3, 1e-2);
}

TEST(every_contribution_counts_once_however_often_it_is_sent, fixture *f)
{
    uint64_t seed = 5;

    for (uint64_t step = 1; step <= 20; step++) {
        for (int i = 0; i < 6; i++) {
            uint32_t rank = (uint32_t)(rig_random(&seed) % WORLD);
            assert_int_equal(push(f, rank, step, 0, 2), PD_OK);
            if (i > 2) assert_int_equal(push(f, 1 - rank, step, 0, 2), PD_OK);
            if (rig_random(&seed) % 2) rig_work(&f->r);
        }
        rig_work(&f->r);
        assert_int_equal(entry(f, 0)->step, step);
        assert_float_equal(moved(f, 0), -2.0 * (double)step, 1e-1);
    }
    assert_int_equal(rig_ask(&f->r, PD_INFO_JOBS, NULL)->jobs[0].contributions, 20 * WORLD * 3);
    assert_true(f->r.info->jobs[0].duplicates > 0);
    assert_int_equal(f->r.buffers_out, 0);
}

TEST(the_first_of_two_contributions_stands, fixture *f)
{
    push(f, 0, 1, 1, 4);
    assert_int_equal(push(f, 0, 1, 1, 100), PD_OK);
    push(f, 1, 1, 1, 4);
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -4, 1e-2);
}

TEST(a_round_without_any_gradient_counts_but_does_not_step, fixture *f)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, rank, 10 + rank, 1);
        rig_absent(frame, 0);
        rig_absent(frame, 2);
        assert_int_equal(rig_send(&f->r, frame), PD_OK);
    }
    rig_work(&f->r);
    assert_int_equal(entry(f, 0)->outcome, PD_NO_GRADIENT);
    assert_int_equal(entry(f, 0)->step, 1);
    assert_int_equal(entry(f, 2)->outcome, PD_NO_GRADIENT);
    assert_true(moved(f, 0) == 0);
    assert_int_equal(rig_ask(&f->r, PD_INFO_PARAMS, "job")->params[0].count, 0);
    assert_int_equal(f->r.info->params[0].version, 0);
}

TEST(skips_a_gradient_that_is_not_finite, fixture *f)
{
    push(f, 0, 1, 1, INFINITY);
    push(f, 1, 1, 1, 1);
    push(f, 0, 1, 2, 1);
    push(f, 1, 1, 2, 1);
    rig_work(&f->r);
    assert_int_equal(entry(f, 1)->outcome, PD_SKIPPED);
    assert_int_equal(entry(f, 2)->outcome, PD_STEPPED);
    assert_true(moved(f, 1) == 0);
    assert_non_null(strstr(f->r.warning, "p1"));
    assert_int_equal(rig_ask(&f->r, PD_INFO_JOBS, NULL)->jobs[0].skipped, 1);
}

TEST_WITH(set_up_reject, tear_down, rejects_before_anything_is_summed, fixture *f)
{
    push(f, 0, 1, 1, NAN);
    rig_work(&f->r);
    assert_int_equal(f->r.error.code, PD_INVALID_ARGUMENT);
    assert_non_null(strstr(f->r.error.text, "p1"));
    assert_int_equal(f->r.buffers_out, 0);
    push(f, 0, 1, 1, 1);
    push(f, 1, 1, 1, 1);
    rig_work(&f->r);
    assert_int_equal(f->r.error.code, PD_OK);
    assert_int_equal(entry(f, 1)->outcome, PD_STEPPED);
    assert_float_equal(moved(f, 1), -1, 1e-2);
}

TEST_WITH(set_up_apply, tear_down, applies_what_is_not_finite_when_asked_to, fixture *f)
{
    push(f, 0, 1, 1, INFINITY);
    push(f, 1, 1, 1, 1);
    rig_work(&f->r);
    assert_int_equal(entry(f, 1)->outcome, PD_STEPPED);
    assert_true(isinf(rig_weights(&f->r, f->job, 1)[0]));
}

static int push_with(fixture *f, uint32_t rank, uint64_t step, const char *name, const char *value)
{
    rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, rank, 10 + rank, step);
    float g[64];

    fill(g, 1, 64);
    rig_piece(frame, 1, PD_F32, 0, 64, g);
    rig_hyper(frame, name, value);
    return rig_send(&f->r, frame);
}

TEST(a_pushed_learning_rate_holds_for_its_round, fixture *f)
{
    push_with(f, 0, 1, "lr", "0.25");
    push(f, 1, 1, 1, 1);
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -0.25, 1e-2);
    push(f, 0, 2, 1, 1);
    push(f, 1, 2, 1, 1);
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -1.25, 1e-2);
}

TEST(ranks_that_send_different_values_are_told, fixture *f)
{
    assert_int_equal(push_with(f, 0, 1, "lr", "0.25"), PD_OK);
    assert_int_equal(push_with(f, 1, 1, "lr", "0.5"), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(f->r.error.text, "rank 0"));
    assert_non_null(strstr(f->r.error.text, "0.25"));
    assert_non_null(strstr(f->r.error.text, "rank 1"));
    assert_non_null(strstr(f->r.error.text, "0.5"));
    assert_int_equal(push_with(f, 1, 1, "lr", "0.250"), PD_OK);
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -0.25, 1e-2);
}

TEST(a_hyperparameter_twice_in_one_push_is_refused, fixture *f)
{
    rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, 0, 10, 1);
    float g[64] = { 0 };

    rig_piece(frame, 1, PD_F32, 0, 64, g);
    rig_hyper(frame, "lr", "0.25");
    rig_hyper(frame, "lr", "0.5");
    assert_int_equal(rig_send(&f->r, frame), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(f->r.error.text, "lr of sgd is in the push twice"));
}

TEST(a_rank_that_sends_another_value_in_its_next_push_is_refused, fixture *f)
{
    assert_int_equal(push_with(f, 0, 1, "lr", "0.25"), PD_OK);
    assert_int_equal(push_with(f, 0, 1, "lr", "0.5"), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(f->r.error.text, "rank 0 sent lr = 0.25 for step 1, rank 0 sends 0.5"));
}

TEST(a_value_that_the_row_cannot_change_now_is_refused, fixture *f)
{
    assert_int_equal(push_with(f, 0, 1, "momentum", "0.9"),
                     PD_INVALID_ARGUMENT); /* declared without momentum: there is no momentum buffer */
    assert_non_null(strstr(f->r.error.text, "momentum"));
}

TEST(a_value_that_comes_with_a_repetition_does_not_count, fixture *f)
{
    push(f, 0, 1, 1, 1);
    assert_int_equal(push_with(f, 0, 1, "lr", "0.25"), PD_OK);
    push(f, 1, 1, 1, 1);
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -1, 1e-2);
}

TEST(a_refused_push_leaves_no_hyperparameter_behind, fixture *f)
{
    assert_int_equal(push_with(f, 0, 2, "lr", "0.5"), PD_FAILED_PRECONDITION);
    push(f, 0, 1, 1, 1);
    push(f, 1, 1, 1, 1);
    rig_work(&f->r);
    assert_float_equal(moved(f, 1), -1, 1e-2);
}

/* Schedules: lr is 1, 0.5, 0.25, 0.125 in steps 1, 2, 3, 4; momentum 0.5, then 0.25; dampening 0.5, then 0. */

static void step_both(fixture *f, uint64_t step, float value)
{
    push(f, 0, step, 1, value);
    push(f, 1, step, 1, value);
    rig_work(&f->r);
}

TEST_WITH(set_up_scheduled, tear_down, a_scheduled_learning_rate_moves_the_weights_step_by_step, fixture *f)
{
    static const float rates[] = { 1, 0.5f, 0.25f, 0.125f, 0.125f, 0.125f };
    float buffer = 1,
          expected = 0; /* every gradient is 1: the buffer is 1 after step 1, momentum is 0.25 from step 2 on */

    for (uint64_t step = 1; step <= 6; step++) {
        if (step > 1) buffer = 0.25f * buffer + 1;
        expected -= rates[step - 1] * buffer;
        step_both(f, step, 1);
        assert_float_equal(moved(f, 1), expected, 1e-2);
    }
}

TEST_WITH(set_up_scheduled, tear_down, a_pushed_value_overrides_the_schedule_for_that_round_alone, fixture *f)
{
    step_both(f, 1, 1); /* the momentum buffer is 1, the weights have moved by -1 */
    push_with(f, 0, 2, "lr", "4");
    push(f, 1, 2, 1, 1);
    rig_work(&f->r); /* the buffer is 1.25: momentum follows its schedule */
    assert_float_equal(moved(f, 1), -1 - 4 * 1.25, 1e-2);
    step_both(f, 3, 1); /* the buffer is 1.3125, and lr is 0.25, as scheduled for step 3 */
    assert_float_equal(moved(f, 1), -6 - 0.25 * 1.3125, 1e-2);
}

TEST_WITH(set_up_scheduled, tear_down, a_skipped_round_does_not_advance_a_schedule, fixture *f)
{
    step_both(f, 1, NAN);
    assert_float_equal(moved(f, 1), 0, 0);
    step_both(f, 2, 1);
    assert_float_equal(moved(f, 1), -1, 1e-2);
}

TEST_WITH(set_up_scheduled, tear_down, a_pushed_value_is_checked_against_what_is_scheduled_for_its_step, fixture *f)
{
    assert_int_equal(push_with(f, 0, 1, "nesterov", "yes"), PD_INVALID_ARGUMENT); /* needs dampening 0 */
    assert_non_null(strstr(f->r.error.text, "dampening 0.5"));
    step_both(f, 1, 1);
    assert_int_equal(push_with(f, 0, 2, "nesterov", "yes"), PD_OK);
}

/* Refusals: each leaves everything as it was, and the next valid push works. */

typedef struct bad {
    const char *says;
    int code;
    void (*make)(fixture *f, rig_frame *frame);
    uint64_t step;
    uint64_t conn;
    uint32_t rank;
} bad;

static float zeros[MOST];
static void good(fixture *f, rig_frame *frame)
{
    (void)f;
    rig_piece(frame, 2, PD_F32, 0, 5, zeros);
}
static void unknown_param(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_piece(frame, 3, PD_F32, 0, 5, zeros);
}
static void off_the_grid(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_piece(frame, 0, PD_F32, 32, 64, zeros);
}
static void behind_the_end(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_piece(frame, 0, PD_F32, 192, 5, zeros);
}
static void half_a_chunk(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_piece(frame, 0, PD_F32, 0, 32, zeros);
}
static void before_the_start(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_piece(frame, 0, PD_F32, -64, 64, zeros);
}
static void twice(fixture *f, rig_frame *frame)
{
    good(f, frame);
    good(f, frame);
}
static void both(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_absent(frame, 2);
}
static void both_reversed(fixture *f, rig_frame *frame)
{
    (void)f;
    rig_absent(frame, 2);
    good(f, frame);
}
static void no_such_hyper(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_hyper(frame, "lrr", "1");
}
static void bad_value(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_hyper(frame, "lr", "fast");
}
static void out_of_range(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_hyper(frame, "lr", "-1");
}
static void a_schedule(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_hyper(frame, "lr", "table(1,2)");
}
static void negative_weight(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_weight(frame, -1, false);
}
static void nan_weight(fixture *f, rig_frame *frame)
{
    good(f, frame);
    rig_weight(frame, NAN, false);
}

static const bad bads[] = {
    { "there is no number 3", PD_INVALID_ARGUMENT, unknown_param, 1, 11, 1 },
    { "p0", PD_INVALID_ARGUMENT, off_the_grid, 1, 11, 1 },
    { "p0", PD_INVALID_ARGUMENT, behind_the_end, 1, 11, 1 },
    { "p0", PD_INVALID_ARGUMENT, half_a_chunk, 1, 11, 1 },
    { "p0", PD_INVALID_ARGUMENT, before_the_start, 1, 11, 1 },
    { "twice", PD_INVALID_ARGUMENT, twice, 1, 11, 1 },
    { "p2", PD_INVALID_ARGUMENT, both, 1, 11, 1 },
    { "p2", PD_INVALID_ARGUMENT, both_reversed, 1, 11, 1 },
    { "lrr", PD_INVALID_ARGUMENT, no_such_hyper, 1, 11, 1 },
    { "fast", PD_INVALID_ARGUMENT, bad_value, 1, 11, 1 },
    { "-1", PD_INVALID_ARGUMENT, out_of_range, 1, 11, 1 },
    { "not a schedule: \"table(1,2)\"", PD_INVALID_ARGUMENT, a_schedule, 1, 11, 1 },
    { "weight", PD_INVALID_ARGUMENT, negative_weight, 1, 11, 1 },
    { "weight", PD_INVALID_ARGUMENT, nan_weight, 1, 11, 1 },
    { "invalid step 0", PD_INVALID_ARGUMENT, good, 0, 11, 1 },
    { "expected step 1", PD_FAILED_PRECONDITION, good, 2, 11, 1 },
    { "ranks 0 to 1", PD_INVALID_ARGUMENT, good, 1, 11, 2 },
    { "another process", PD_ABORTED, good, 1, 99, 1 },
};

TEST(a_refused_push_changes_nothing, fixture *f)
{
    uint64_t n = sizeof bads / sizeof bads[0];

    push(f, 0, 1, 2, 3);
    for (uint64_t i = 0; i < n; i++) {
        rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, bads[i].rank, bads[i].conn, bads[i].step);
        bads[i].make(f, frame);
        assert_int_equal(rig_send(&f->r, frame), bads[i].code);
        if (strstr(f->r.error.text, bads[i].says) == NULL) fail_msg("case %d says: %s", (int)i, f->r.error.text);
        rig_work(&f->r);
        assert_int_equal(f->r.buffers_out, 1); /* rank 0's */
        assert_int_equal(entry(f, 2)->step, 0);
        assert_string_equal(rig_ask(&f->r, PD_INFO_PARAMS, "job")->params[2].missing, "1");
        assert_string_equal(f->r.info->params[0].missing, "");
    }
    assert_int_equal(push(f, 1, 1, 2, 5), PD_OK);
    rig_work(&f->r);
    assert_float_equal(moved(f, 2), -4, 1e-2);
    assert_int_equal(rig_ask(&f->r, PD_INFO_JOBS, NULL)->jobs[0].refused, n);
}

TEST(a_rank_cannot_take_back_what_it_gave, fixture *f)
{
    rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, 0, 10, 1);

    push(f, 0, 1, 1, 1);
    rig_absent(frame, 1);
    assert_int_equal(rig_send(&f->r, frame), PD_FAILED_PRECONDITION);
    frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, 1, 11, 1);
    rig_absent(frame, 1);
    assert_int_equal(rig_send(&f->r, frame), PD_OK);
    rig_work(&f->r);
    assert_int_equal(entry(f, 1)->outcome, PD_STEPPED);
    assert_float_equal(moved(f, 1), -1, 1e-2);
}

TEST(a_frame_may_repeat_what_is_closed_beside_what_is_new, fixture *f)
{
    rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, 0, 10, 1);
    float ones[64];

    push(f, 0, 1, 2, 1);
    push(f, 1, 1, 2, 1);
    rig_work(&f->r);
    fill(ones, 1, 64);
    rig_piece(frame, 1, PD_F32, 0, 64, ones);
    rig_piece(frame, 2, PD_F32, 0, 5, ones);
    assert_int_equal(rig_send(&f->r, frame), PD_OK);
    push(f, 1, 1, 1, 1);
    rig_work(&f->r);
    assert_int_equal(entry(f, 1)->step, 1);
    assert_int_equal(entry(f, 2)->step, 1);
    assert_float_equal(moved(f, 2), -1, 1e-2);
    assert_int_equal(f->r.buffers_out, 0);
}

TEST(what_a_row_warns_of_is_said_once_for_each_rule)
{
    static const int64_t elements[3] = { 4, 4, 4 };
    pd_store_config config = rig_config();
    rig r;

    rig_new(&r, &config);
    rig_start(&r, "job", 1, 10, elements, 3, NULL, "p0 shampoo;* shampoo use_nesterov=yes");
    assert_int_equal(r.warnings, 1);
    assert_non_null(
        strstr(r.warning, "job job: rule \"* shampoo use_nesterov=yes\": use_nesterov has no effect without momentum"));
    rig_free(&r);
}
