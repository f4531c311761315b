/* Tests a job that starts at a given step (start_step): everything that counts steps continues from that number. */
#include "test.h"
#include "counting_row.h"
#include "import.h"
#include "rig.h"
#include "store_inside.h"

enum { START = 41, PARAMS = 2, SIZE = 3 };
static const int64_t sizes[PARAMS] = { SIZE, SIZE };
static const float ones[SIZE] = { 1, 1, 1 };

static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    config.rows = counting_rows();
    rig_new(r, &config);
}

static uint32_t start(rig *r, const char *options, const char *rules)
{
    char text[128];

    snprintf(text, sizeof text, "start_step=%d%s%s", START, options != NULL ? " " : "", options != NULL ? options : "");
    return rig_start(r, "job", 1, 10, sizes, PARAMS, text, rules);
}

static int push(rig *r, uint32_t job, uint64_t step, uint32_t param)
{
    int rc = rig_push(r, job, 0, 10, step, param, ones, SIZE);

    rig_work(r);
    return rc;
}

static void push_absent(rig *r, uint32_t job, uint64_t step, uint32_t param)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 10, step);

    rig_absent(frame, param);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

static const pd_param_info *info(rig *r, uint32_t param)
{
    return &rig_ask(r, PD_INFO_PARAMS, "job")->params[param];
}

FIXTURE(rig, set_up, rig_free);

TEST(initial_weights_have_the_start_step_as_their_version, rig *r)
{
    uint32_t job = start(r, NULL, NULL);

    assert_int_equal(rig_versions(r, job, 0)->published->version, START);
    assert_int_equal(rig_versions(r, job, 0)->step, START);
    assert_int_equal(r->steps[0], START); /* the step in the answer to Declare */
    assert_int_equal(info(r, 1)->step, START);
    assert_int_equal(info(r, 1)->version, START);
}

TEST(the_first_push_is_for_the_step_after_it, rig *r)
{
    uint32_t job = start(r, NULL, NULL);

    assert_int_equal(push(r, job, START + 2, 0), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "step 43, expected step 42"));
    assert_int_equal(push(r, job, START, 0), PD_OK); /* answered as a duplicate */
    assert_int_equal(rig_versions(r, job, 0)->step, START);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].duplicates, 1);
    assert_int_equal(push(r, job, START + 1, 0), PD_OK);
    assert_int_equal(rig_versions(r, job, 0)->step, START + 1);
    assert_int_equal(rig_versions(r, job, 0)->published->version, START + 1);
}

TEST(optimizers_count_from_there, rig *r)
{
    uint32_t job = start(r, NULL, "p0 adam;* sgd");

    assert_int_equal(info(r, 0)->count, START);
    push(r, job, START + 1, 0);
    push(r, job, START + 1, 1);
    assert_int_equal(info(r, 0)->count, START + 1);
    assert_int_equal(info(r, 1)->count, START + 1);
}

TEST(schedules_go_on_from_there, rig *r)
{
    uint32_t job = start(r, NULL, "* sgd lr=linear_warmup(peak=64,warmup_steps=64)");
    float before = *rig_weights(r, job, 0);

    push(r, job, START + 1, 0);
    rig_start(r, "plain", 1, 20, sizes, PARAMS, NULL, "* sgd lr=linear_warmup(peak=64,warmup_steps=64)");
    for (uint64_t step = 1; step <= START + 1; step++) {
        float last = *rig_weights(r, r->job, 0), zeros[SIZE] = { 0 };
        assert_int_equal(rig_push(r, r->job, 0, 20, step, 0, step <= START ? zeros : ones, SIZE), PD_OK);
        rig_work(r);
        if (step == START + 1) assert_true(last - *rig_weights(r, r->job, 0) == before - *rig_weights(r, job, 0));
        if (step == START + 1) assert_true(last != *rig_weights(r, r->job, 0));
    }
}

TEST(groups_count_from_there, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");
    float before[PARAMS] = { *rig_weights(r, job, 0), *rig_weights(r, job, 1) };

    push_absent(r, job, START + 1, 0);
    push_absent(r, job, START + 1, 1); /* does not count */
    push(r, job, START + 2, 0);
    assert_true(*rig_weights(r, job, 0) == before[0] - (START + 1));
    push_absent(r, job, START + 2, 1);
    push(r, job, START + 3, 1);
    assert_true(*rig_weights(r, job, 1) == before[1] - (START + 2));
    assert_int_equal(info(r, 0)->step, START + 2);
}

TEST(a_parameter_of_a_group_waits_where_it_would_have_waited_at_the_start, rig *r)
{
    uint32_t job = start(r, NULL, "* counting");

    push_absent(r, job, START + 1, 0);
    push(r, job, START + 2, 0);
    assert_int_equal(rig_versions(r, job, 0)->step, START + 1);
    push(r, job, START + 1, 1);
    assert_int_equal(rig_versions(r, job, 0)->step, START + 2);
}

TEST(a_job_that_steps_as_a_whole_begins_there, rig *r)
{
    uint32_t job = start(r, "nonfinite_scope=job", NULL);

    push(r, job, START + 1, 0);
    assert_int_equal(rig_versions(r, job, 0)->step, START);
    push(r, job, START + 1, 1);
    assert_int_equal(rig_versions(r, job, 0)->step, START + 1);
    assert_int_equal(rig_versions(r, job, 1)->step, START + 1);
}

static int import_count(rig *r, int64_t value)
{
    int rc = PD_OK;

    for (int act = PD_IMPORT_BEGIN; act <= PD_IMPORT_COMMIT && rc == PD_OK; act++) {
        pd_request *request;
        if (act == PD_IMPORT_PIECE) continue;
        request = pd_request_new(PD_REQ_IMPORT, rig_ticket(r, 99));
        request->u.import.act = (pd_import_act)act;
        request->u.import.job_name = strdup("job");
        request->u.import.param = strdup("p0");
        request->u.import.value = value;
        request->u.import.partial = true;
        rc = rig_apply(r, request);
    }
    rig_work(r);
    return rc != PD_OK ? rc : r->error.code;
}

TEST(imported_counters_may_be_lower_before_the_first_round_alone, rig *r)
{
    static const char *const rules[] = { "* adam", "* counting" };

    for (size_t k = 0; k < 2; k++) {
        pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(r, 99));
        uint32_t job = start(r, NULL, rules[k]);
        assert_int_equal(import_count(r, START - 1), PD_OK); /* the saved job had skipped a round */
        assert_int_equal(info(r, 0)->count, START - 1);
        assert_int_equal(import_count(r, START), PD_OK);
        assert_int_equal(info(r, 0)->count, START);
        assert_int_equal(import_count(r, START + 100), PD_OK);
        push(r, job, START + 1, 0);
        assert_int_equal(info(r, 0)->count, START + 101);
        assert_int_equal(import_count(r, START + 100), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(r->error.text, "has counted 142 steps"));
        drop->u.info.job_name = strdup("job");
        rig_apply(r, drop);
    }
}

TEST(what_it_prints_is_what_it_reads, rig *r)
{
    start(r, NULL, NULL);
    assert_int_equal(rig_hello(r, "job", 0, 1, 10, 10, "start_step=40", "* sgd lr=1"), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "start_step = 41, this worker comes with 40"));
    assert_int_equal(rig_hello(r, "far", 0, 1, 1, 50, "start_step=9007199254740992", NULL), PD_OK);
}
