/* Tests parameters that wait for others: the counters of groups, and jobs that step as a whole. */
#include "test.h"
#include "counting_row.h"
#include "rig.h"

enum { PARAMS = 4, ROUNDS = 7, SIZE = 3 };
typedef enum part {
    ABSENT,
    GIVEN,
    SPOILED,
    HUGE_
} part; /* the gradient of a parameter in a round; HUGE_: one that the optimizer refuses */

static const int64_t sizes[PARAMS] = { SIZE, SIZE, SIZE, SIZE };

static int set_up(void **state)
{
    pd_store_config config = rig_config();

    config.rows = counting_rows();
    return rig_set_up_with(state, &config);
}

/* Returns the gradient of a round, a whole number, so that sums are exact. */
static float gradient_of(uint32_t param, uint64_t step)
{
    return (float)(1 + param + 4 * step);
}

static void push_part(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param, part what)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, conn, step);
    float g = what == HUGE_ ? 2 * COUNTING_LIMIT : gradient_of(param, step),
          values[SIZE] = { g, what == SPOILED ? NAN : g, g };

    if (what == ABSENT)
        rig_absent(frame, param);
    else
        rig_piece(frame, param, PD_F32, 0, SIZE, values);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

static void push(rig *r, uint32_t job, uint64_t step, uint32_t param, part what)
{
    push_part(r, job, 0, 10, step, param, what);
}

static uint32_t start(rig *r, const char *options, const char *rules)
{
    return rig_start(r, "job", 1, 10, sizes, PARAMS, options, rules);
}

static uint64_t closed(const rig *r, uint32_t job, uint32_t param)
{
    return rig_versions(r, job, param)->step;
}

static uint64_t count_of(rig *r, uint32_t param)
{
    return rig_ask(r, PD_INFO_PARAMS, "job")->params[param].count;
}

FIXTURE(set_up, rig_tear_down);

TEST(a_parameter_that_always_has_a_gradient_never_waits, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");

    for (uint64_t step = 1; step <= 100; step++) push(r, job, step, 2, GIVEN);
    assert_int_equal(closed(r, job, 2), 100);
    assert_int_equal(count_of(r, 2), 100);
}

TEST(after_a_round_without_a_gradient_a_parameter_waits_for_its_group, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");

    push(r, job, 1, 0, ABSENT);
    push(r, job, 2, 0, GIVEN);
    assert_int_equal(closed(r, job, 0), 1);
    push(r, job, 1, 1, GIVEN);
    assert_int_equal(closed(r, job, 0), 2);
    assert_int_equal(count_of(r, 0), 2);
}

TEST(a_round_in_which_nobody_of_the_group_has_a_gradient_does_not_count, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");

    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, ABSENT);
    push(r, job, 2, 3, GIVEN);
    assert_int_equal(count_of(r, 3), 1);
}

TEST(a_round_without_gradients_counts_where_the_optimizer_says_so, rig *r)
{
    uint32_t job = start(r, NULL, "* counting counts_empty=yes");

    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, ABSENT);
    push(r, job, 2, 3, GIVEN);
    assert_int_equal(count_of(r, 3), 2);
}

/* Its count is known as soon as it is known that the round is not skipped. */
TEST(a_parameter_without_gradients_waits_for_nobody_where_these_rounds_count, rig *r)
{
    uint32_t job = start(r, NULL, "* counting counts_empty=yes");

    for (uint64_t step = 1; step <= 10; step++) push(r, job, step, 0, step % 3 == 0 ? GIVEN : ABSENT);
    assert_int_equal(closed(r, job, 0), 10);
    push(r, job, 11, 0, GIVEN);
    assert_int_equal(count_of(r, 0), 11);
}

TEST(a_skipped_round_never_counts, rig *r)
{
    uint32_t job = start(r, NULL, "* counting counts_empty=yes");

    push(r, job, 1, 0, SPOILED);
    push(r, job, 2, 0, ABSENT);
    assert_int_equal(closed(r, job, 0), 1);
    for (uint32_t p = 1; p < PARAMS; p++) push(r, job, 1, p, SPOILED);
    assert_int_equal(closed(r, job, 0), 2);
    push(r, job, 3, 0, GIVEN);
    assert_int_equal(count_of(r, 0), 2);
}

TEST(a_round_that_the_whole_job_skips_does_not_count, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", "* counting counts_empty=yes");

    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, p == 0 ? ABSENT : SPOILED);
    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 2, p, ABSENT);
    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 3, p, GIVEN);
    assert_int_equal(count_of(r, 0), 2);
    assert_int_equal(count_of(r, 3), 2);
}

TEST(a_skipped_round_counts_no_more_than_an_absent_one, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");

    push(r, job, 1, 0, SPOILED);
    push(r, job, 2, 0, GIVEN);
    assert_int_equal(closed(r, job, 0), 1);
    for (uint32_t p = 1; p < PARAMS; p++) push(r, job, 1, p, SPOILED);
    assert_int_equal(closed(r, job, 0), 2);
    assert_int_equal(count_of(r, 0), 1);
}

TEST(rules_with_one_row_are_groups_of_their_own, rig *r)
{
    uint32_t job = start(r, NULL, "p[01] counting;* counting");

    push(r, job, 1, 0, ABSENT);
    push(r, job, 1, 2, GIVEN);
    push(r, job, 2, 0, GIVEN);
    assert_int_equal(closed(r, job, 0), 1);
    push(r, job, 1, 1, ABSENT);
    assert_int_equal(closed(r, job, 0), 2);
    assert_int_equal(count_of(r, 0), 1);
}

TEST(a_row_that_does_not_count_by_group_waits_for_nobody, rig *r)
{
    uint32_t job = start(r, NULL, "* sgd");

    push(r, job, 1, 0, ABSENT);
    push(r, job, 2, 0, GIVEN);
    assert_int_equal(closed(r, job, 0), 2);
    assert_int_equal(count_of(r, 0), 1);
}

TEST(a_round_that_is_held_too_long_is_reported_with_what_it_waits_for, rig *r)
{
    uint32_t job = start(r, "step_timeout=10s", "* counting");

    push(r, job, 1, 0, ABSENT);
    push(r, job, 2, 0, GIVEN);
    rig_sleep(r, 11);
    assert_int_equal(r->timed_out, 1);
    assert_int_equal(r->timed_out_step, 2);
    assert_non_null(strstr(
        r->timeout.text,
        "rank 0 (host:10, connected) has not contributed to step 1 of p1 for 11 s, which step 2 of p0 waits for"));
    push(r, job, 1, 1, GIVEN);
    rig_sleep(r, 30);
    assert_int_equal(r->timed_out, 1);
}

typedef struct script {
    part at[PARAMS][ROUNDS];
} script;

static script random_script(uint64_t *seed)
{
    script s;

    for (int p = 0; p < PARAMS; p++)
        for (int k = 0; k < ROUNDS; k++) s.at[p][k] = (part)(rig_random(seed) % 3);
    for (int k = 0; k < ROUNDS; k++) /* now and then, no parameter has a gradient in a round */
        if (rig_random(seed) % 4 == 0)
            for (int p = 0; p < PARAMS; p++) s.at[p][k] = ABSENT;
    return s;
}

static bool group_steps(const script *s, int k)
{
    for (int p = 0; p < PARAMS; p++)
        if (s->at[p][k] == GIVEN) return true;
    return false;
}

/* The reference: returns the first weight after all rounds, beginning with `weight`. */
static float expected(const script *s, uint32_t p, float weight)
{
    int earlier = 0;

    for (int k = 0; k < ROUNDS; k++) {
        if (s->at[p][k] == GIVEN) weight -= (float)(earlier + 1) * gradient_of(p, (uint64_t)k + 1);
        earlier += group_steps(s, k);
    }
    return weight;
}

/* Pushes the rounds of all parameters in an order drawn from `seed`, until all rounds are closed. A parameter's next
 * round is pushed only when its last one has closed. */
static void play(rig *r, uint32_t job, const script *s, uint64_t *seed)
{
    uint64_t pushed[PARAMS] = { 0 };

    for (int left = PARAMS * ROUNDS; left > 0;) {
        uint32_t p = (uint32_t)(rig_random(seed) % PARAMS);
        if (pushed[p] > closed(r, job, p) || pushed[p] == ROUNDS) continue;
        push(r, job, pushed[p] + 1, p, s->at[p][pushed[p]]);
        pushed[p]++;
        left--;
    }
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(closed(r, job, p), ROUNDS);
}

TEST(counts_are_as_defined_whatever_the_order_of_arrivals)
{
    uint64_t seed = 1;

    for (int trial = 0; trial < 300; trial++) {
        void *own = NULL;
        script s = random_script(&seed);
        float before[PARAMS];
        set_up(&own);
        uint32_t job = start(own, NULL, "* counting");
        for (uint32_t p = 0; p < PARAMS; p++) before[p] = *rig_weights(own, job, p);
        play(own, job, &s, &seed);
        for (uint32_t p = 0; p < PARAMS; p++) assert_true(*rig_weights(own, job, p) == expected(&s, p, before[p]));
        rig_tear_down(&own);
    }
}

TEST(no_step_begins_before_the_rounds_of_all_parameters_are_gathered, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", NULL);

    for (uint32_t p = 0; p < PARAMS; p++) {
        for (uint32_t q = 0; q < PARAMS; q++) assert_int_equal(closed(r, job, q), 0);
        push(r, job, 1, p, p == 1 ? ABSENT : GIVEN);
    }
    for (uint32_t q = 0; q < PARAMS; q++) assert_int_equal(closed(r, job, q), 1);
    assert_int_equal(rig_versions(r, job, 0)->outcome, PD_STEPPED);
    assert_int_equal(rig_versions(r, job, 1)->outcome, PD_NO_GRADIENT);
}

TEST(one_gradient_that_is_not_finite_skips_the_steps_of_all, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", NULL);

    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, p == 2 ? SPOILED : p == 3 ? ABSENT : GIVEN);
    for (uint32_t p = 0; p < 3; p++) {
        assert_int_equal(rig_versions(r, job, p)->outcome, PD_SKIPPED);
        assert_int_equal(rig_versions(r, job, p)->published->version, 0);
    }
    assert_int_equal(rig_versions(r, job, 3)->outcome, PD_NO_GRADIENT);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].skipped, 3);
    assert_int_equal(r->warnings, 1);
    assert_non_null(strstr(
        r->warning, "step 1 of all parameters is skipped (nonfinite_scope = job), the gradient of p2 is not finite"));
}

TEST(after_a_skipped_step_the_next_one_is_taken, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", "* counting");

    for (uint64_t step = 1; step <= 2; step++)
        for (uint32_t p = 0; p < PARAMS; p++) push(r, job, step, p, step == 1 && p == 0 ? SPOILED : GIVEN);
    for (uint32_t p = 0; p < PARAMS; p++) {
        assert_int_equal(rig_versions(r, job, p)->outcome, PD_STEPPED);
        assert_int_equal(rig_versions(r, job, p)->published->version, 2);
        assert_int_equal(count_of(r, p), 1);
    }
}

TEST(nothing_is_skipped_where_gradients_are_applied_as_they_are, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job nonfinite=apply", NULL);

    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, p == 2 ? SPOILED : GIVEN);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(rig_versions(r, job, p)->outcome, PD_STEPPED);
}

TEST(a_job_steps_as_a_whole_whatever_the_order_of_ranks_and_parameters, rig *r)
{
    uint32_t job = rig_start(r, "job", 4, 10, sizes, PARAMS, "nonfinite_scope=job", "* counting");
    uint64_t seed = 3;

    for (uint64_t step = 1; step <= 20; step++) {
        uint32_t order[4 * PARAMS];
        for (uint32_t i = 0; i < 4 * PARAMS; i++) {
            uint32_t j = (uint32_t)(rig_random(&seed) % (i + 1));
            order[i] = order[j];
            order[j] = i;
        }
        for (uint32_t i = 0; i < 4 * PARAMS; i++)
            push_part(r, job, order[i] / PARAMS, 10 + order[i] / PARAMS, step, order[i] % PARAMS, GIVEN);
        for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(closed(r, job, p), step);
        assert_int_equal(r->buffers_out, 0);
    }
}

TEST(a_job_that_waits_as_a_whole_drains, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", NULL);
    pd_request *drain = pd_request_new(PD_REQ_DRAIN, rig_ticket(r, 1));
    uint64_t before;

    push(r, job, 1, 0, GIVEN);
    before = r->answered;
    drain->u.drain.deadline_ns = 1000000000000;
    rig_apply(r, drain);
    for (uint32_t p = 1; p < PARAMS; p++) {
        assert_int_equal(r->answered, before);
        push(r, job, 1, p, GIVEN);
    }
    assert_int_equal(r->answered, before + 1);
    assert_int_equal(closed(r, job, 0), 1);
}

TEST(a_job_may_be_dropped_while_parameters_are_held, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", "* counting");
    pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(r, 1));

    push(r, job, 1, 0, GIVEN);
    drop->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(r, drop), PD_OK);
    rig_work(r);
    assert_int_equal(r->gone, 1);
}

TEST(a_refused_step_closes_its_round_with_the_reason_and_leaves_the_weights, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");
    float before = *rig_weights(r, job, 1);
    const pd_info *info;

    push(r, job, 1, 1, HUGE_);
    assert_int_equal(closed(r, job, 1), 1);
    assert_int_equal(rig_versions(r, job, 1)->outcome, PD_REFUSED);
    assert_non_null(strstr(rig_versions(r, job, 1)->why, "p1"));
    assert_non_null(strstr(rig_versions(r, job, 1)->why, "the root of step 1 is too large"));
    assert_true(*rig_weights(r, job, 1) == before);
    info = rig_ask(r, PD_INFO_PARAMS, "job");
    assert_int_equal(info->params[1].version, 0);
    assert_int_equal(info->params[1].refused_steps, 1);
    assert_int_equal(info->params[0].refused_steps, 0);
    info = rig_ask(r, PD_INFO_JOBS, NULL);
    assert_int_equal(info->jobs[0].refused_steps, 1);
    assert_int_equal(info->jobs[0].steps, 0);
    assert_int_equal(info->jobs[0].skipped, 0);
}

TEST(a_refused_step_counts_and_the_next_one_is_taken, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");
    float before = *rig_weights(r, job, 1);

    push(r, job, 1, 1, HUGE_);
    push(r, job, 2, 1, GIVEN);
    assert_int_equal(rig_versions(r, job, 1)->outcome, PD_STEPPED);
    assert_int_equal(rig_versions(r, job, 1)->published->version, 2);
    assert_true(*rig_weights(r, job, 1) == before - 2 * gradient_of(1, 2));
}

TEST(without_a_common_scope_a_refusal_concerns_its_parameter_alone, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");

    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, p == 2 ? HUGE_ : GIVEN);
    for (uint32_t p = 0; p < PARAMS; p++)
        assert_int_equal(rig_versions(r, job, p)->outcome, p == 2 ? PD_REFUSED : PD_STEPPED);
}

TEST(a_refusal_concerns_all_of_its_group_where_the_job_steps_as_a_whole, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", "p3 sgd;* counting");
    float before[PARAMS];

    for (uint32_t p = 0; p < PARAMS; p++) before[p] = *rig_weights(r, job, p);
    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, p == 1 ? HUGE_ : GIVEN);
    for (uint32_t p = 0; p < 3; p++) {
        assert_int_equal(rig_versions(r, job, p)->outcome, PD_REFUSED);
        assert_non_null(strstr(rig_versions(r, job, p)->why, "p1"));
        assert_true(*rig_weights(r, job, p) == before[p]);
    }
    assert_int_equal(rig_versions(r, job, 3)->outcome, PD_STEPPED);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].refused_steps, 3);
}

TEST(parameters_without_a_gradient_have_no_part_in_a_refusal, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", "* counting");

    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, p == 1 ? HUGE_ : p == 2 ? ABSENT : GIVEN);
    assert_int_equal(rig_versions(r, job, 0)->outcome, PD_REFUSED);
    assert_int_equal(rig_versions(r, job, 2)->outcome, PD_NO_GRADIENT);
    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 2, p, GIVEN);
    for (uint32_t p = 0; p < PARAMS; p++) {
        assert_int_equal(rig_versions(r, job, p)->outcome, PD_STEPPED);
        assert_int_equal(count_of(r, p), 2);
    }
}

TEST(refusals_are_said_once_and_then_at_powers_of_two, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");
    uint64_t before = r->warnings;

    for (uint64_t step = 1; step <= 9; step++) push(r, job, step, 0, HUGE_);
    assert_non_null(strstr(r->warning, "step 8 of p0 is refused: "));
    assert_non_null(strstr(r->warning, "the root of step 8 is too large (8 so far)"));
    assert_int_equal(r->warnings - before, 8); /* refusals 1, 2, 4 and 8 are logged, with two lines each: the refusal
                                                * and the failed root */
}

/* Starts a job that steps as a whole, in batches of one chunk or one parameter. The test itself finishes the root
 * tasks. */
static uint32_t start_bit_by_bit(rig *r, const char *rules)
{
    pd_store_config config = rig_config();

    config.rows = counting_rows();
    config.batch_ns = 1;
    rig_new(r, &config);
    r->lazy_tasks = true;
    return start(r, "nonfinite_scope=job", rules);
}

/* Each batch is so small that the group needs several to begin and run its step. The preconditioner tasks are finished
 * in random order. */
TEST(a_group_that_steps_in_many_batches_stands_or_falls_as_one)
{
    uint64_t seed = 5;

    for (int trial = 0; trial < 60; trial++) {
        uint32_t refuser = (uint32_t)(rig_random(&seed) % (2 * PARAMS)), job;
        rig r;

        job = start_bit_by_bit(&r, "* counting");
        for (uint32_t p = 0; p < PARAMS; p++) push(&r, job, 1, p, p == refuser ? HUGE_ : GIVEN);
        while (r.n_tasks > 0) {
            for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(closed(&r, job, p), 0);
            rig_finish_task(&r, rig_random(&seed) % r.n_tasks);
            rig_work(&r);
        }
        for (uint32_t p = 0; p < PARAMS; p++)
            assert_int_equal(rig_versions(&r, job, p)->outcome, refuser < PARAMS ? PD_REFUSED : PD_STEPPED);
        rig_free(&r);
    }
}

/* The parameters of a step begin one by one, in batches. A hyperparameter is set after `batches` of these batches. */
TEST(a_value_holds_from_the_step_that_the_answer_tells_also_while_a_group_begins)
{
    for (int batches = 0; batches < 3 * PARAMS; batches++) {
        float first[SIZE], moved;
        uint32_t job;
        rig r;

        job = start_bit_by_bit(&r, "* counting lr=1");
        memcpy(first, rig_weights(&r, job, 0), sizeof first);
        for (uint32_t p = 0; p < PARAMS; p++) {
            rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, job, 0, 10, 1);
            rig_piece(frame, p, PD_F32, 0, SIZE, (float[SIZE]){ 1, 1, 1 });
            assert_int_equal(rig_send(&r, frame), PD_OK);
        }
        for (int b = 0; b < batches; b++) pd_store_work(r.store, r.now);
        rig_absorb(&r);
        assert_int_equal(rig_set(&r, "job", "p0", "lr=2", 0), PD_OK);
        rig_work(&r);
        while (r.n_tasks > 0) {
            rig_finish_task(&r, 0);
            rig_work(&r);
        }
        moved = first[0] - rig_weights(&r, job, 0)[0];
        assert_float_equal(moved, rig_ask(&r, PD_INFO_SETTINGS, "job")->settings[0].from == 1 ? 2 : 1, 0.1);
        rig_free(&r);
    }
}

TEST(a_job_may_be_dropped_while_its_bound_steps_are_under_way, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", "* counting");
    pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(r, 1));

    r->lazy_tasks = true;
    for (uint32_t p = 0; p < PARAMS; p++) push(r, job, 1, p, GIVEN);
    rig_finish_task(r, 1);
    drop->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(r, drop), PD_OK);
    while (r->n_tasks > 0) rig_finish_task(r, 0);
}
