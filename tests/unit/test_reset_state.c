/* Tests that operators can set the state of optimizers back to its initial values, while weights stay. */
#include "test.h"
#include "course.h"
#include "import.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { SIDE = 12, SIZE = SIDE * SIDE, PARAMS = 2, OPERATOR = 99, STEPS = 6 };

static void start(rig *r, const pd_store_config *config, const char *options, const char *rules)
{
    static const char *const names[] = { "p0", "p1" };
    const pd_shape shapes[PARAMS] = { { 2, { SIDE, SIDE } }, { 2, { SIDE, SIDE } } };
    float weights[SIZE];

    rig_new(r, config);
    if (rig_hello(r, "job", 0, 1, 10, 10, options, rules) != PD_OK) fail_msg("%s: %s", rules, r->error.text);
    assert_int_equal(rig_declare(r, r->job, 0, 10, names, shapes, NULL, PARAMS, PD_F32), PD_OK);
    for (int i = 0; i < SIZE; i++) weights[i] = 1;
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(rig_init(r, r->job, 10, p, weights, SIZE), PD_OK);
    rig_work(r);
}

static void step(rig *r, uint64_t number, float extreme)
{
    float g[SIZE];

    for (uint32_t p = 0; p < PARAMS; p++) {
        rig_noise(number * 100 + p, g, SIZE);
        for (int i = 0; i < SIZE; i++) g[i] *= 1e-3f;
        if (extreme != 0 && p == 0) g[17] = extreme;
        assert_int_equal(rig_push(r, r->job, 0, 10, number, p, g, SIZE), PD_OK);
    }
    rig_work(r);
}

static void steps(rig *r)
{
    for (uint64_t number = 1; number <= STEPS; number++) step(r, number, 0);
}

static pd_request *request_of(rig *r, pd_import_act act, const char *glob)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(r, OPERATOR));

    request->u.import.act = act;
    request->u.import.job_name = strdup("job");
    request->u.import.param = strdup(glob);
    request->u.import.slot = strdup("");
    request->u.import.number = request->u.import.block = -1;
    return request;
}

static int reset(rig *r, const char *glob, bool keeps_counts)
{
    pd_request *request = request_of(r, PD_IMPORT_RESET, glob);

    request->u.import.partial = keeps_counts;
    r->error.code = PD_OK;
    rig_apply(r, request);
    rig_work(r);
    return r->error.code;
}

static pd_optim *optim_of(const rig *r, uint32_t param)
{
    return inside_job(r->store, r->job)->steps.params[param].optim;
}

TEST(a_reset_state_is_that_of_a_new_job_and_weights_stay)
{
    static const char *const rules[] = {
        "* adam",
        "* shampoo",
        "* kron",
        "* kron dQ=QUAD root_delay=1",
        "* delayed_nesterov period=4",
        "* ademamix",
        "* mars",
        "* schedule_free",
        "* sgd momentum=0.9 hyperball=yes",
        "* muon normuon=yes",
        "* scalable_shampoo block_size=8 best_effort_memory_usage_reduction=yes preconditioning_compute_steps=1",
        "* shampoo preconditioner_dtype=float64 precondition_frequency=3 start_preconditioning_step=3 root_delay=2",
    };
    pd_store_config config = rig_config();

    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        float before[SIZE];
        rig r, fresh;
        start(&r, &config, NULL, rules[k]);
        start(&fresh, &config, NULL, rules[k]);
        steps(&r);
        memcpy(before, rig_weights(&r, r.job, 0), sizeof before);
        if (reset(&r, "*", false) != PD_OK) fail_msg("%s: %s", rules[k], r.error.text);
        for (uint32_t p = 0; p < PARAMS; p++) {
            course_compare_slots(optim_of(&r, p), optim_of(&fresh, p));
            assert_int_equal(pd_optim_tasks_left(optim_of(&r, p)), 0);
        }
        assert_memory_equal(before, rig_weights(&r, r.job, 0), sizeof before);
        step(&r, STEPS + 1, 0);
        assert_int_equal(rig_versions(&r, r.job, 0)->outcome, PD_STEPPED);
        rig_free(&r);
        rig_free(&fresh);
    }
}

TEST(only_what_matches_is_reset)
{
    pd_store_config config = rig_config();
    rig r, other;

    start(&r, &config, NULL, "* adam");
    start(&other, &config, NULL, "* adam");
    steps(&r);
    steps(&other);
    assert_int_equal(reset(&r, "p1", false), PD_OK);
    assert_int_equal(pd_optim_count(optim_of(&r, 1)), 0);
    course_compare_slots(optim_of(&r, 0), optim_of(&other, 0));
    rig_free(&r);
    rig_free(&other);
}

TEST(parameters_that_count_together_are_reset_together)
{
    pd_store_config config = rig_config();
    rig r, fresh;

    start(&r, &config, NULL, "* shampoo");
    start(&fresh, &config, NULL, "* shampoo");
    steps(&r);
    assert_int_equal(pd_optim_count(optim_of(&r, 0)), STEPS);
    assert_int_equal(reset(&r, "p1", false), PD_OK);
    for (uint32_t p = 0; p < PARAMS; p++) course_compare_slots(optim_of(&r, p), optim_of(&fresh, p));
    step(&r, STEPS + 1, 0);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(pd_optim_count(optim_of(&r, p)), 1);
    rig_free(&r);
    rig_free(&fresh);
}

TEST(counts_stay_where_that_is_asked_for)
{
    pd_store_config config = rig_config();
    rig r;

    start(&r, &config, NULL, "p0 adam;* shampoo");
    steps(&r);
    assert_int_equal(reset(&r, "*", true), PD_OK);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(pd_optim_count(optim_of(&r, p)), STEPS);
    step(&r, STEPS + 1, 0);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(pd_optim_count(optim_of(&r, p)), STEPS + 1);
    rig_free(&r);
}

TEST(an_optimizer_that_refuses_all_steps_goes_on)
{
    pd_store_config config = rig_config();
    rig r;

    start(&r, &config, "nonfinite=apply", "* shampoo");
    steps(&r);
    step(&r, STEPS + 1, 1e30f);
    for (uint64_t number = STEPS + 2; number < STEPS + 10; number++) {
        step(&r, number, 0);
        assert_int_equal(rig_versions(&r, r.job, 0)->outcome, PD_REFUSED);
    }
    assert_int_equal(reset(&r, "p0", false), PD_OK);
    step(&r, STEPS + 10, 0);
    assert_int_equal(rig_versions(&r, r.job, 0)->outcome, PD_STEPPED);
    rig_free(&r);
}

/* Returns how many times the store works until a reset of all state is answered. */
static int turns_of(rig *r, bool keeps_counts)
{
    pd_request *request = request_of(r, PD_IMPORT_RESET, "*");
    uint64_t answered = r->answered;
    int turns = 0;

    request->u.import.partial = keeps_counts;
    rig_apply(r, request);
    for (; r->answered == answered && turns < 1000; turns++) {
        (void)pd_store_work(r->store, r->now);
        rig_absorb(r);
    }
    assert_int_equal(r->answer, PD_EFF_OK);
    return turns;
}

TEST(no_turn_of_a_reset_does_more_than_one_parameter)
{
    pd_store_config config = rig_config();

    config.batch_ns = 1; /* so short that each turn looks at one parameter */
    for (int grouped = 0; grouped < 2; grouped++) {
        int counts;
        rig r;
        start(&r, &config, NULL, grouped ? "* shampoo" : "* adam");
        steps(&r);
        counts = turns_of(&r, false);
        assert_true(counts >= 3 * PARAMS); /* its name, its state, its count */
        assert_true(counts >= turns_of(&r, true) + PARAMS - 1);
        for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(pd_optim_count(optim_of(&r, p)), 0);
        rig_free(&r);
    }
}

TEST(a_reset_waits_for_roots_at_the_pool_and_adopts_none)
{
    pd_store_config config = rig_config();
    uint64_t answered;
    rig r;

    start(&r, &config, NULL, "* shampoo precondition_frequency=1 start_preconditioning_step=1 root_delay=ready");
    r.lazy_tasks = true;
    step(&r, 1, 0);
    assert_true(r.n_tasks > 0);
    answered = r.answered;
    rig_apply(&r, request_of(&r, PD_IMPORT_RESET, "*"));
    rig_work(&r);
    assert_int_equal(r.answered, answered);
    while (r.n_tasks > 0) rig_finish_task(&r, 0);
    rig_sleep(&r, 1);
    rig_work(&r);
    assert_int_equal(r.answered, answered + 1);
    assert_int_equal(r.answer, PD_EFF_OK);
    for (uint32_t p = 0; p < PARAMS; p++) {
        assert_int_equal(pd_optim_tasks_left(optim_of(&r, p)), 0);
        assert_int_equal(pd_optim_root_stats(optim_of(&r, p)).adopted, 0);
    }
    rig_free(&r);
}

TEST(a_reset_that_waits_looks_first_at_the_parameter_that_was_at_work)
{
    pd_store_config config = rig_config();
    pd_job *job;
    rig r;

    start(&r, &config, NULL,
          "p0 adam;* shampoo precondition_frequency=1 start_preconditioning_step=1 root_delay=ready");
    job = inside_job(r.store, r.job);
    r.lazy_tasks = true;
    step(&r, 1, 0);
    assert_int_equal(reset(&r, "*", false), PD_OK);
    assert_false(pd_import_writes(job));
    assert_int_equal(job->import->busy, 1);
    while (r.n_tasks > 0) rig_finish_task(&r, 0);
    rig_sleep(&r, 1);
    rig_work(&r);
    assert_null(job->import);
    rig_free(&r);
}

TEST(a_reset_that_finds_no_rest_is_refused_after_ten_seconds)
{
    pd_store_config config = rig_config();
    rig r;

    start(&r, &config, NULL, "* shampoo precondition_frequency=1 start_preconditioning_step=1 root_delay=ready");
    r.lazy_tasks = true;
    step(&r, 1, 0);
    assert_int_equal(reset(&r, "*", false), PD_OK);
    for (int second = 0; second < 11; second++) rig_sleep(&r, 1);
    assert_int_equal(r.error.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r.error.text, "or a root of it is being computed"));
    assert_null(inside_job(r.store, r.job)->import);
    while (r.n_tasks > 0) rig_finish_task(&r, 0);
    rig_free(&r);
}

TEST(a_job_with_checkpoints_writes_one_at_once_that_has_the_reset)
{
    pd_store_config config = durable_config();
    uint64_t kept;
    rig r, again;

    start(&r, &config, "checkpoint_every=100 durability=log", "* adam");
    steps(&r);
    kept = r.kept;
    assert_int_equal(reset(&r, "*", false), PD_OK);
    assert_int_equal(r.kept, kept + 1);
    rig_new(&again, &config);
    assert_int_equal(rig_restore(&again, &r), PD_OK);
    again.job = 1;
    for (uint32_t p = 0; p < PARAMS; p++) course_compare_slots(optim_of(&r, p), optim_of(&again, p));
    rig_free(&again);
    rig_free(&r);
}

TEST(a_reset_that_is_refused_changes_nothing)
{
    static const struct {
        const char *glob;
        int code;
    } wrong[] = { { "q*", PD_NOT_FOUND }, { "", PD_INVALID_ARGUMENT }, { "p\n", PD_INVALID_ARGUMENT } };
    pd_store_config config = durable_config();
    char stars[PD_NAME_MAX + 2] = "";
    uint64_t kept;
    rig r, other;

    memset(stars, '*', sizeof stars - 1);
    start(&r, &config, NULL, "* adam");
    start(&other, &config, NULL, "* adam");
    steps(&r);
    steps(&other);
    kept = r.kept;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(reset(&r, wrong[i].glob, false), wrong[i].code);
    assert_int_equal(reset(&r, stars, false), PD_INVALID_ARGUMENT);
    assert_int_equal(r.kept, kept);
    for (uint32_t p = 0; p < PARAMS; p++) course_compare_slots(optim_of(&r, p), optim_of(&other, p));
    assert_null(inside_job(r.store, r.job)->import);
    rig_free(&r);
    rig_free(&other);
}

TEST(an_import_that_is_staged_stays)
{
    pd_store_config config = rig_config();
    rig r;

    start(&r, &config, NULL, "* adam");
    assert_int_equal(rig_apply(&r, request_of(&r, PD_IMPORT_BEGIN, "")), PD_OK);
    assert_int_equal(reset(&r, "*", false), PD_UNAVAILABLE);
    assert_non_null(inside_job(r.store, r.job)->import);
    rig_free(&r);
}

TEST(a_job_without_parameters_has_no_state)
{
    pd_store_config config = rig_config();
    rig r;

    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "job", 0, 1, 10, 10, NULL, "* adam"), PD_OK);
    assert_int_equal(reset(&r, "*", false), PD_FAILED_PRECONDITION);
    rig_free(&r);
}
