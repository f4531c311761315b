/* Tests checks of hyperparameters that are set while a job runs: refused values change nothing, the number of overrides
 * is bounded, and changes are recorded. */
#include "test.h"
#include "ones.h"

typedef struct refusal {
    const char *pattern, *options;
    int code;
    const char *names;
} refusal;

TEST(what_one_parameter_refuses_changes_nothing)
{
    static const refusal cases[] = {
        { "*", "lr=2 lrx=1", PD_INVALID_ARGUMENT, "no hyperparameter lrx" },
        { "*", "lr=2 momentum=-1", PD_OUT_OF_RANGE, "p1: momentum of sgd" },
        { "*", "lr=1e39", PD_OUT_OF_RANGE, "lr of sgd: 1e39 is outside its range, 0 to 3.4028234663852886e+38" },
        { "*", "dampening=-1e39", PD_OUT_OF_RANGE, "is outside its range, -3.4028234663852886e+38 to" },
        { "*", "lr=linear(init=0,end=1e39,steps=3)", PD_OUT_OF_RANGE, "at count 3, outside its range" },
        { "*", "lr=fast", PD_INVALID_ARGUMENT, "p1: lr of sgd: expected a finite number" },
        { "*", "lr=2 lr=3", PD_INVALID_ARGUMENT, "p1: lr of sgd is set twice" },
        { "*", "lr=2 momentum=0.5", PD_INVALID_ARGUMENT, "p1: " },
        { "*", "lr=2 momentum=table(0,0,0.5)", PD_INVALID_ARGUMENT, "p1: " },
        { "p0", "lr=2", PD_INVALID_ARGUMENT, "no hyperparameter lr" },
        { "p0", "learning_rate=2 block_size=4", PD_INVALID_ARGUMENT,
          "block_size of scalable_shampoo is fixed while the job runs" },
        { "p0", "learning_rate=2 block_size=", PD_INVALID_ARGUMENT,
          "block_size of scalable_shampoo is fixed while the job runs" },
        { "*", "lr=linear_warmup(2)", PD_INVALID_ARGUMENT, "p1: lr of sgd" },
        { "*", "lr=", PD_FAILED_PRECONDITION, "nothing to withdraw" },
        { "p1x", "lr=2", PD_NOT_FOUND, "the nearest is p1" },
        { "", "lr=2", PD_INVALID_ARGUMENT, "pattern" },
        { "*", "", PD_INVALID_ARGUMENT, "1 to 64" },
        { "*\n", "lr=2", PD_INVALID_ARGUMENT, "control" },
        { "*", "lr=2\033", PD_INVALID_ARGUMENT, "control" },
    };
    char stars[PD_NAME_MAX + 2] = "";
    ones f;

    memset(stars, '*', sizeof stars - 1);
    ones_begin(&f, "p0 scalable_shampoo learning_rate=1;* sgd lr=1", 2);
    assert_int_equal(rig_set(&f.r, "job", stars, "lr=2", 0), PD_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = rig_set(&f.r, "job", cases[i].pattern, cases[i].options, 0);
        if (code != cases[i].code || strstr(f.r.error.text, cases[i].names) == NULL)
            fail_msg("%s: %s: %s", cases[i].options, pd_code_name(code), f.r.error.text);
        assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    }
    ASSERT_NEAR(ones_step(&f, 1), 1);
    rig_free(&f.r);
}

TEST(a_value_is_checked_with_those_that_were_set_before_and_those_planned)
{
    ones f;

    ones_begin(&f, "* sgd lr=1 momentum=0.9", 1);
    ones_set(&f, "p0", "dampening=0.5", 5);
    assert_int_equal(rig_set(&f.r, "job", "p0", "nesterov=yes", 0),
                     PD_INVALID_ARGUMENT); /* refused because of the dampening that is set from step 5 on */
    ones_set(&f, "p0", "dampening=0", 5);
    ones_set(&f, "p0", "nesterov=yes", 0);
    assert_int_equal(rig_set(&f.r, "job", "p0", "dampening=0.5", 0), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_set(&f.r, "job", "p0", "dampening=piecewise(0,100:0.5)", 0), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 2);
    rig_free(&f.r);
}

TEST(a_value_is_checked_with_what_was_pushed_for_the_open_round)
{
    pd_store_config config = rig_config();
    float one = 1;
    rig_frame *frame;
    rig r;

    rig_new(&r, &config);
    r.job = rig_start(&r, "job", 2, ONES_CONN, ones_sizes, 1, NULL, "* sgd lr=1 momentum=0.9");
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, ONES_CONN, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_hyper(frame, "nesterov", "yes");
    assert_int_equal(rig_send(&r, frame), PD_OK);
    assert_int_equal(rig_set(&r, "job", "*", "dampening=0.5", 0), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_set(&r, "job", "*", "dampening=0.5", 2), PD_OK);
    rig_free(&r);
}

TEST(a_pushed_value_counts_again_when_a_setting_is_withdrawn_and_is_checked_then)
{
    pd_store_config config = rig_config();
    float one = 1;
    rig_frame *frame;
    rig r;

    rig_new(&r, &config);
    r.job = rig_start(&r, "job", 2, ONES_CONN, ones_sizes, 1, NULL, "* sgd lr=1 momentum=0.9");
    assert_int_equal(rig_set(&r, "job", "*", "nesterov=no", 0), PD_OK);
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, ONES_CONN, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_hyper(frame, "nesterov", "yes");
    assert_int_equal(rig_send(&r, frame), PD_OK);
    assert_int_equal(rig_set(&r, "job", "*", "dampening=0.5", 0), PD_OK);
    assert_int_equal(rig_set(&r, "job", "*", "nesterov=", 0), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_set(&r, "job", "*", "nesterov=", 2), PD_OK);
    rig_free(&r);
}

TEST(a_plain_value_takes_a_schedules_place_in_the_check)
{
    ones f;

    ones_begin(&f, "* sgd lr=1 momentum=0.9 dampening=piecewise(0,3:0.5)", 1);
    assert_int_equal(rig_set(&f.r, "job", "*", "nesterov=yes", 0), PD_INVALID_ARGUMENT);
    ones_set(&f, "*", "nesterov=yes dampening=0", 0);
    assert_int_equal(rig_set(&f.r, "job", "*", "dampening=", 0), PD_INVALID_ARGUMENT);
    rig_free(&f.r);
}

/* Parameters with equal hyperparameters are checked together. But p0 has taken 5 steps and p1 none, so the check
 * must also cover the steps that only p1 has ahead. */
TEST(a_schedule_is_checked_from_each_parameters_count_on)
{
    ones f;

    ones_begin(&f, "* sgd lr=1 momentum=0.9 nesterov=yes", 2);
    for (int i = 0; i < 5; i++) ones_step(&f, 0);
    ones_set(&f, "p0", "dampening=table(0,0.5,0.5,0)", 0);
    assert_int_equal(rig_set(&f.r, "job", "*", "dampening=table(0,0.5,0)", 0), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(f.r.error.text, "p1: "));
    rig_free(&f.r);
}

TEST(a_pushed_value_is_checked_with_what_is_set)
{
    ones f;
    rig_frame *frame;
    float one = 1;

    ones_begin(&f, "* sgd lr=1 momentum=0.9", 1);
    ones_set(&f, "p0", "dampening=0.5", 0);
    frame = rig_frame_new(&f.r, PD_REQ_PUSH, f.job, 0, ONES_CONN, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_hyper(frame, "nesterov", "yes");
    assert_int_equal(rig_send(&f.r, frame), PD_INVALID_ARGUMENT);
    rig_free(&f.r);
}

/* A worker that missed the answer sends the same push again. The push is answered, whatever an operator has set
 * since. */
TEST(a_push_that_is_sent_again_is_not_checked_with_what_was_set_since)
{
    ones f;
    float one = 1;
    rig_frame *frame;

    ones_begin(&f, "* sgd lr=1 momentum=0.9", 1);
    ones_step_with(&f, 0, "nesterov", "yes");
    ones_set(&f, "p0", "dampening=0.5", 0);
    frame = rig_frame_new(&f.r, PD_REQ_PUSH, f.job, 0, ONES_CONN, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_hyper(frame, "nesterov", "yes");
    assert_int_equal(rig_send(&f.r, frame), PD_OK);
    rig_free(&f.r);
}

TEST(a_job_that_is_not_there_or_has_no_parameters_or_drains_is_refused)
{
    pd_store_config config = rig_config();
    rig r;

    rig_new(&r, &config);
    assert_int_equal(rig_set(&r, "job", "*", "lr=2", 0), PD_NOT_FOUND);
    rig_hello(&r, "job", 0, 1, 1, ONES_CONN, NULL, NULL);
    assert_int_equal(rig_set(&r, "job", "*", "lr=2", 0), PD_NOT_FOUND);
    assert_non_null(strstr(r.error.text, "no parameters yet"));
    rig_apply(&r, pd_request_new(PD_REQ_DRAIN, rig_ticket(&r, 1)));
    assert_int_equal(rig_set(&r, "job", "*", "lr=2", 0), PD_UNAVAILABLE);
    rig_free(&r);
}

TEST(only_what_was_set_is_withdrawn)
{
    ones f;

    ones_begin(&f, "* sgd lr=1 momentum=0.5", 2);
    ones_set(&f, "p0", "lr=4", 0);
    ones_set(&f, "*", "lr= momentum=", 0);
    assert_int_equal(f.r.set->params, 1);
    assert_int_equal(f.r.set->n, 1);
    assert_string_equal(f.r.set->at[0].name, "lr");
    assert_int_equal(f.r.set->at[0].params, 1);
    ones_set(&f, "p0", "lr=4", 0);
    ones_set(&f, "p0", "lr= momentum=0.25", 7);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 3);
    assert_int_equal(rig_set(&f.r, "job", "p0", "lrx=", 0), PD_INVALID_ARGUMENT);
    ones_set(&f, "p1", "lr=4", 4);
    ones_set(&f, "p1", "lr=", 6);
    ones_set(&f, "p1", "lr=", 4); /* removes both planned overrides; there is nothing left to withdraw */
    assert_int_equal(rig_set(&f.r, "job", "p1", "lr=", 0), PD_FAILED_PRECONDITION);
    rig_free(&f.r);
}

TEST(a_list_is_set_and_withdrawn_by_its_name)
{
    ones f;

    ones_begin(&f, "* adam lr=1 betas=0.9,0.99", 1);
    ones_set(&f, "*", "betas=0.5,0.75", 0);
    assert_int_equal(f.r.set->n, 2);
    assert_string_equal(f.r.set->at[1].name, "betas[1]");
    assert_string_equal(f.r.set->at[1].before, "0.99");
    ones_set(&f, "*", "betas[0]=0.25", 0);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 2);
    ones_set(&f, "*", "betas=", 0);
    assert_int_equal(f.r.set->n, 2);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    rig_free(&f.r);
}

TEST(a_parameter_has_a_bounded_number_of_plans)
{
    ones f;
    int n = 0;

    ones_begin(&f, NULL, 2);
    for (; n < 1000; n++)
        if (rig_set(&f.r, "job", "*", "lr=9", (uint64_t)n + 2) != PD_OK) break;
    assert_int_equal(n, 64);
    assert_int_equal(f.r.error.code, PD_RESOURCE_EXHAUSTED);
    ones_set(&f, "*", "lr=3", 0); /* replaces all planned overrides */
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 2);
    rig_free(&f.r);
}

TEST(a_job_has_a_bounded_number_of_commands)
{
    enum { PARAMS = 64 };
    pd_store_config config = rig_config();
    int64_t sizes[PARAMS];
    int n = 0;
    rig r;

    for (int i = 0; i < PARAMS; i++) sizes[i] = 1;
    rig_new(&r, &config);
    r.job = rig_start(&r, "job", 1, ONES_CONN, sizes, PARAMS, NULL, NULL);
    for (; n < 10000; n++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", n / 64 % PARAMS);
        if (rig_set(&r, "job", name, "lr=9", (uint64_t)(n % 64) + 2) != PD_OK) break;
    }
    assert_int_equal(n, 4096);
    assert_int_equal(r.error.code, PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "4096 settings"));
    assert_int_equal(rig_set(&r, "job", "p0", "lr=", 70), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(rig_set(&r, "job", "p0", "lr=", 0), PD_OK);
    assert_int_equal(rig_set(&r, "job", "p0", "lr=9", 2), PD_OK);
    rig_free(&r);
}

static void list_from(ones *f, const char *pattern, uint64_t start)
{
    pd_request *request = pd_request_new(PD_REQ_INFO, rig_ticket(&f->r, 1));

    request->u.info.what = PD_INFO_SETTINGS;
    request->u.info.job_name = strdup("job");
    request->u.info.pattern = strdup(pattern);
    request->u.info.start = start;
    assert_int_equal(rig_apply(&f->r, request), PD_OK);
}

TEST(a_list_of_settings_comes_in_pages)
{
    ones f;

    ones_begin(&f, "* sgd lr=1 momentum=0.5", 3);
    for (uint64_t i = 0; i < 60; i++) {
        char text[64];
        snprintf(text, sizeof text, "lr=%d momentum=0.25", (int)i + 2);
        ones_set(&f, "*", text, i + 1);
    }
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, PD_INFO_PAGE);
    assert_int_equal(f.r.info->total, 360);
    assert_string_equal(f.r.info->settings[255].param, "p2");
    list_from(&f, "*", 256);
    assert_int_equal(f.r.info->n_settings, 104);
    assert_int_equal(f.r.info->total, 360);
    assert_string_equal(f.r.info->settings[103].param, "p2");
    list_from(&f, "p[1]", 100);
    assert_int_equal(f.r.info->n_settings, 20);
    assert_int_equal(f.r.info->total, 120);
    assert_string_equal(f.r.info->settings[0].param, "p1");
    rig_free(&f.r);
}

TEST(who_has_set_what_is_recorded)
{
    ones f;

    ones_begin(&f, "* sgd lr=0.1", 3);
    ones_set(&f, "p[01]", "lr=0.05", 0);
    assert_string_equal(f.r.log, "job job: host:7 sets lr of 2 parameters (p[01]): 0.1 -> 0.05, from step 1 on");
    ones_set(&f, "*", "lr=0.01", 0);
    assert_string_equal(f.r.log,
                        "job job: host:7 sets lr of 3 parameters (*): 0.05 and others -> 0.01, from step 1 on");
    assert_true(f.r.set->at[0].mixed);
    rig_ask(&f.r, PD_INFO_SETTINGS, "job");
    assert_int_equal(f.r.info->n_settings, 3);
    assert_string_equal(f.r.info->settings[1].param, "p1");
    assert_string_equal(f.r.info->settings[1].pattern, "*");
    assert_string_equal(f.r.info->settings[1].value, "0.01");
    assert_string_equal(f.r.info->settings[1].by, "host:7");
    assert_int_equal(f.r.info->settings[1].from, 1);
    assert_true(f.r.info->settings[1].in_force);
    rig_free(&f.r);
}

TEST(the_log_says_once_that_a_pushed_value_does_not_count)
{
    ones f;
    uint64_t logs;

    ones_begin(&f, NULL, 1);
    ones_set(&f, "*", "lr=4", 0);
    logs = f.r.logs;
    ASSERT_NEAR(ones_step_with(&f, 0, "lr", "3"), 4);
    assert_int_equal(f.r.logs, logs + 1);
    assert_non_null(strstr(f.r.log, "workers push lr for p0 with step 1; the override by host:7 takes precedence"));
    ASSERT_NEAR(ones_step_with(&f, 0, "lr", "3"), 4);
    assert_int_equal(f.r.logs, logs + 1);
    rig_free(&f.r);
}

TEST(a_worker_that_comes_back_sees_no_difference)
{
    ones f;

    ones_begin(&f, "* sgd lr=1", 1);
    ones_set(&f, "*", "lr=4", 0);
    assert_int_equal(rig_hello(&f.r, "job", 0, 1, ONES_CONN, ONES_CONN + 1, NULL, "* sgd lr=1"), PD_OK);
    rig_free(&f.r);
}
