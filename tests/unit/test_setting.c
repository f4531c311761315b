/* Hyperparameters set while a job runs: which value holds in which step, and what is refused. Values are read off the weights: plain sgd on a
 * gradient of ones takes lr off every weight in a step. */
#include "coupled_row.h"
#include "rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { CONN = 10 };
static const int64_t three[] = { 1, 1, 1 };

typedef struct fixture { rig r; uint32_t job; uint64_t step[3]; } fixture;

static void set_up(fixture *f, const char *rules, size_t params)
{
    pd_store_config config = rig_config();

    memset(f, 0, sizeof *f);
    rig_new(&f->r, &config);
    f->job = rig_start(&f->r, "job", 1, CONN, three, params, NULL, rules);
}

/* A push of ones; gives what the step has taken off the weight. */
static double step_with(fixture *f, uint32_t param, const char *name, const char *value)
{
    float one = 1, before = rig_weights(&f->r, f->job, param)[0];
    rig_frame *frame = rig_frame_new(&f->r, PD_REQ_PUSH, f->job, 0, CONN, ++f->step[param]);

    rig_piece(frame, param, PD_F32, 0, 1, &one);
    if (name != NULL) rig_hyper(frame, name, value);
    assert_int_equal(rig_send(&f->r, frame), PD_OK);
    rig_work(&f->r);
    assert_int_equal(f->r.board[f->job % RIG_JOBS][param].step, f->step[param]);
    return (double)before - (double)rig_weights(&f->r, f->job, param)[0];
}

static double step_of(fixture *f, uint32_t param) { return step_with(f, param, NULL, NULL); }

static void set(fixture *f, const char *pattern, const char *options, uint64_t from)
{
    if (rig_set(&f->r, "job", pattern, options, from) != PD_OK) fail_msg("%s", f->r.error.text);
}

/* Weights are noise of any size: exact numbers are not to be had. */
static void assert_near(double got, double expected, int line)
{
    if (!(fabs(got - expected) < 1e-5 * (fabs(expected) + 1))) fail_msg("line %d: the step is %g, expected %g", line, got, expected);
}
#define ASSERT_NEAR(got, expected) assert_near(got, expected, __LINE__)

/* ---- which value holds ---- */

static void a_setting_goes_before_a_pushed_value_before_the_schedule_before_the_configuration(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++) {
        bool is_set = (which & 1) != 0, is_pushed = (which & 2) != 0, is_scheduled = (which & 4) != 0;
        double expected = is_set ? 4 : is_pushed ? 3 : is_scheduled ? 2 : 1;
        fixture f;
        set_up(&f, is_scheduled ? "* sgd lr=table(7,2)" : "* sgd lr=1", 1);
        ASSERT_NEAR(step_of(&f, 0), is_scheduled ? 7 : 1);
        if (is_set) set(&f, "p0", "lr=4", 0);
        ASSERT_NEAR(step_with(&f, 0, is_pushed ? "lr" : NULL, "3"), expected);
        ASSERT_NEAR(step_of(&f, 0), is_set ? 4 : is_scheduled ? 2 : 1);
        rig_free(&f.r);
    }
}

static void a_withdrawn_setting_gives_way_to_what_was_below_it(void **state)
{
    (void)state;
    for (int is_pushed = 0; is_pushed < 2; is_pushed++)
        for (int is_scheduled = 0; is_scheduled < 2; is_scheduled++) {
            fixture f;
            set_up(&f, is_scheduled ? "* sgd lr=table(7,6,2)" : "* sgd lr=1", 1);
            set(&f, "p0", "lr=4", 0);
            ASSERT_NEAR(step_of(&f, 0), 4);
            ASSERT_NEAR(step_of(&f, 0), 4);
            set(&f, "p0", "lr=", 0);
            assert_true(f.r.set->at[0].withdrawn);
            ASSERT_NEAR(step_with(&f, 0, is_pushed ? "lr" : NULL, "3"), is_pushed ? 3 : is_scheduled ? 2 : 1);
            assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
            rig_free(&f.r);
        }
}

static void a_later_setting_takes_the_place_of_the_one_before(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, NULL, 1);
    for (int i = 2; i < 200; i++) {
        char text[32];
        snprintf(text, sizeof text, "lr=%d", i);
        set(&f, "*", text, 0);
        if (i % 50 == 0) ASSERT_NEAR(step_of(&f, 0), i);
        assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 1);
    }
    rig_free(&f.r);
}

static void other_hyperparameters_keep_what_was_set_before(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, "* sgd lr=1 momentum=0.5", 1);
    set(&f, "p0", "lr=2", 0);
    set(&f, "p0", "momentum=0.25", 0);
    ASSERT_NEAR(step_of(&f, 0), 2);                 /* the buffer is 1 */
    ASSERT_NEAR(step_of(&f, 0), 2 * 1.25);
    set(&f, "p0", "lr=", 0);
    ASSERT_NEAR(step_of(&f, 0), 1 + 0.25 * 1.25);
    rig_free(&f.r);
}

static void a_schedule_that_is_set_follows_the_parameters_count(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, NULL, 1);
    step_of(&f, 0);
    set(&f, "p0", "lr=table(1,2,3,4)", 0);
    assert_string_equal(f.r.set->at[0].before, "1");
    assert_string_equal(f.r.set->at[0].value, "2 (table(1,2,3,4))");
    ASSERT_NEAR(step_of(&f, 0), 2);
    ASSERT_NEAR(step_of(&f, 0), 3);
    rig_free(&f.r);
}

/* ---- from which step ---- */

static void a_round_that_is_gathering_takes_it(void **state)
{
    pd_store_config config = rig_config();
    float one = 1, before;
    rig r;

    (void)state;
    rig_new(&r, &config);
    r.job = rig_start(&r, "job", 2, CONN, three, 1, NULL, NULL);
    before = rig_weights(&r, r.job, 0)[0];
    rig_push(&r, r.job, 0, CONN, 1, 0, &one, 1);
    rig_work(&r);
    assert_int_equal(rig_set(&r, "job", "*", "lr=5", 0), PD_OK);
    assert_int_equal(r.set->at[0].from_least, 1);
    rig_push(&r, r.job, 1, CONN + 1, 1, 0, &one, 1);
    rig_work(&r);
    ASSERT_NEAR((double)before - (double)rig_weights(&r, r.job, 0)[0], 5);
    rig_free(&r);
}

static void without_a_step_each_parameter_takes_it_at_its_next(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, NULL, 3);
    for (int i = 0; i < 3; i++) step_of(&f, 1);
    set(&f, "*", "lr=9", 0);
    assert_int_equal(f.r.set->params, 3);
    assert_int_equal(f.r.set->n, 1);
    assert_int_equal(f.r.set->at[0].params, 3);
    assert_int_equal(f.r.set->at[0].from_least, 1);
    assert_int_equal(f.r.set->at[0].from_most, 4);
    for (uint32_t p = 0; p < 3; p++) ASSERT_NEAR(step_of(&f, p), 9);
    rig_free(&f.r);
}

static void with_a_step_it_holds_from_that_step_on(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, NULL, 2);
    step_of(&f, 1);
    set(&f, "*", "lr=9", 3);
    assert_int_equal(f.r.set->at[0].from_least, 3);
    assert_int_equal(f.r.set->at[0].from_most, 3);
    ASSERT_NEAR(step_of(&f, 0), 1);
    ASSERT_NEAR(step_of(&f, 0), 1);
    assert_non_null(strstr(f.r.log, "step 3 has come, lr = 9"));
    ASSERT_NEAR(step_of(&f, 0), 9);
    ASSERT_NEAR(step_of(&f, 1), 1);
    ASSERT_NEAR(step_of(&f, 1), 9);
    rig_free(&f.r);
}

static void a_step_that_is_past_is_refused_for_all(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, NULL, 3);
    step_of(&f, 2);
    assert_int_equal(rig_set(&f.r, "job", "*", "lr=9", 1), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f.r.error.text, "p2"));
    assert_non_null(strstr(f.r.error.text, "the earliest it can be is step 2"));
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    for (uint32_t p = 0; p < 3; p++) ASSERT_NEAR(step_of(&f, p), 1);
    rig_free(&f.r);
}

static void a_plan_of_steps_is_followed(void **state)
{
    static const double expected[] = { 1, 2, 2, 4, 4, 1, 1 };
    fixture f;

    (void)state;
    set_up(&f, NULL, 1);
    set(&f, "p0", "lr=2", 2);
    set(&f, "p0", "lr=4", 4);
    set(&f, "p0", "lr=", 6);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 3);
    assert_string_equal(f.r.info->settings[2].value, "");
    assert_false(f.r.info->settings[0].in_force);
    for (int i = 0; i < 7; i++) ASSERT_NEAR(step_of(&f, 0), expected[i]);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    rig_free(&f.r);
}

static void what_is_set_takes_the_place_of_what_was_planned_after_it(void **state)
{
    static const double expected[] = { 1, 3, 3, 3, 3 };
    fixture f;

    (void)state;
    set_up(&f, NULL, 1);
    set(&f, "p0", "lr=4", 4);
    set(&f, "p0", "lr=2 weight_decay=0", 2);
    set(&f, "p0", "lr=3", 2);
    for (int i = 0; i < 5; i++) ASSERT_NEAR(step_of(&f, 0), expected[i]);
    rig_free(&f.r);
}

/* Root tasks that are not back: the step is parked. */
static void a_step_that_has_begun_keeps_its_values(void **state)
{
    static const int64_t sizes[] = { 8 };
    static const float ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const pd_row *const rows[] = { &coupled_row, NULL };
    pd_store_config config = rig_config();
    float weights[2][8];

    (void)state;
    config.rows = rows;
    for (int is_set = 0; is_set < 2; is_set++) {
        rig r;
        rig_new(&r, &config);
        r.lazy_tasks = true;
        r.job = rig_start(&r, "job", 1, CONN, sizes, 1, NULL, "* coupled lr=0.1 block_size=8 interval=1 root_delay=0");
        for (uint64_t step = 1; step < 3 && r.n_tasks == 0; step++) {
            rig_push(&r, r.job, 0, CONN, step, 0, ones, 8);
            rig_work(&r);
        }
        assert_true(r.n_tasks > 0);
        if (is_set) assert_int_equal(rig_set(&r, "job", "*", "lr=100", 0), PD_OK);
        if (is_set) assert_int_equal(r.set->at[0].from_least, r.board[r.job][0].step + 2);
        while (r.n_tasks > 0) rig_finish_task(&r, 0);
        rig_work(&r);
        memcpy(weights[is_set], rig_weights(&r, r.job, 0), sizeof weights[0]);
        rig_free(&r);
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
}

/* ---- which parameters ---- */

static void only_parameters_that_match_take_it(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, NULL, 3);
    set(&f, "p[02]", "lr=9", 0);
    assert_int_equal(f.r.set->params, 2);
    ASSERT_NEAR(step_of(&f, 0), 9);
    ASSERT_NEAR(step_of(&f, 1), 1);
    ASSERT_NEAR(step_of(&f, 2), 9);
    rig_free(&f.r);
}

static void a_parameter_takes_what_its_optimizer_has(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, "p0 scalable_shampoo learning_rate=1;* sgd lr=1", 2);
    set(&f, "*", "lr=9 beta2=0.5", 0);
    assert_int_equal(f.r.set->params, 2);
    assert_int_equal(f.r.set->n, 2);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 2);
    assert_string_equal(f.r.info->settings[0].name, "beta2");
    assert_string_equal(f.r.info->settings[1].name, "lr");
    ASSERT_NEAR(step_of(&f, 1), 9);
    rig_free(&f.r);
}

/* ---- what is refused, whole ---- */

typedef struct refusal { const char *pattern, *options; int code; const char *names; } refusal;

static void what_one_parameter_refuses_changes_nothing(void **state)
{
    static const refusal cases[] = {
        { "*",    "lr=2 lrx=1",                      PD_INVALID_ARGUMENT,   "no hyperparameter lrx" },
        { "*",    "lr=2 momentum=-1",                PD_OUT_OF_RANGE,       "p1: momentum of sgd" },
        { "*",    "lr=fast",                         PD_INVALID_ARGUMENT,   "p1: lr of sgd: expected a finite number" },
        { "*",    "lr=2 lr=3",                       PD_INVALID_ARGUMENT,   "p1: lr of sgd is set twice" },
        { "*",    "lr=2 momentum=0.5",               PD_INVALID_ARGUMENT,   "p1: " },
        { "*",    "lr=2 momentum=table(0,0,0.5)",    PD_INVALID_ARGUMENT,   "p1: " },
        { "p0",   "lr=2",                            PD_INVALID_ARGUMENT,   "no hyperparameter lr" },
        { "p0",   "learning_rate=2 block_size=4",    PD_INVALID_ARGUMENT,   "block_size of scalable_shampoo is fixed while the job runs" },
        { "p0",   "learning_rate=2 block_size=",     PD_INVALID_ARGUMENT,   "block_size of scalable_shampoo is fixed while the job runs" },
        { "*",    "lr=linear_warmup(2)",             PD_INVALID_ARGUMENT,   "p1: lr of sgd" },
        { "*",    "lr=",                             PD_FAILED_PRECONDITION, "nothing to withdraw" },
        { "p1x",  "lr=2",                            PD_NOT_FOUND,          "the nearest is p1" },
        { "",     "lr=2",                            PD_INVALID_ARGUMENT,   "pattern" },
        { "*",    "",                                PD_INVALID_ARGUMENT,   "1 to 64" },
        { "*\n",  "lr=2",                            PD_INVALID_ARGUMENT,   "control" },
        { "*",    "lr=2\033",                        PD_INVALID_ARGUMENT,   "control" },
    };
    fixture f;

    (void)state;
    set_up(&f, "p0 scalable_shampoo learning_rate=1;* sgd lr=1", 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = rig_set(&f.r, "job", cases[i].pattern, cases[i].options, 0);
        if (code != cases[i].code || strstr(f.r.error.text, cases[i].names) == NULL) fail_msg("%s: %s: %s", cases[i].options, pd_code_name(code), f.r.error.text);
        assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    }
    ASSERT_NEAR(step_of(&f, 1), 1);
    rig_free(&f.r);
}

static void a_value_is_checked_with_those_that_were_set_before_and_those_planned(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, "* sgd lr=1 momentum=0.9", 1);
    set(&f, "p0", "dampening=0.5", 5);
    assert_int_equal(rig_set(&f.r, "job", "p0", "nesterov=yes", 0), PD_INVALID_ARGUMENT);   /* from step 5 on it could not be */
    set(&f, "p0", "dampening=0", 5);
    set(&f, "p0", "nesterov=yes", 0);
    assert_int_equal(rig_set(&f.r, "job", "p0", "dampening=0.5", 0), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_set(&f.r, "job", "p0", "dampening=piecewise(0,100:0.5)", 0), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 2);
    rig_free(&f.r);
}

static void a_value_is_checked_with_what_was_pushed_for_the_open_round(void **state)
{
    pd_store_config config = rig_config();
    float one = 1;
    rig_frame *frame;
    rig r;

    (void)state;
    rig_new(&r, &config);
    r.job = rig_start(&r, "job", 2, CONN, three, 1, NULL, "* sgd lr=1 momentum=0.9");
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, CONN, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_hyper(frame, "nesterov", "yes");
    assert_int_equal(rig_send(&r, frame), PD_OK);
    assert_int_equal(rig_set(&r, "job", "*", "dampening=0.5", 0), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_set(&r, "job", "*", "dampening=0.5", 2), PD_OK);
    rig_free(&r);
}

static void a_pushed_value_is_checked_with_what_is_set(void **state)
{
    fixture f;
    rig_frame *frame;
    float one = 1;

    (void)state;
    set_up(&f, "* sgd lr=1 momentum=0.9", 1);
    set(&f, "p0", "dampening=0.5", 0);
    frame = rig_frame_new(&f.r, PD_REQ_PUSH, f.job, 0, CONN, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_hyper(frame, "nesterov", "yes");
    assert_int_equal(rig_send(&f.r, frame), PD_INVALID_ARGUMENT);
    rig_free(&f.r);
}

/* A worker that missed the answer sends the same bytes again: they are answered, whatever was set since. */
static void a_push_that_is_sent_again_is_not_checked_with_what_was_set_since(void **state)
{
    fixture f;
    float one = 1;
    rig_frame *frame;

    (void)state;
    set_up(&f, "* sgd lr=1 momentum=0.9", 1);
    step_with(&f, 0, "nesterov", "yes");
    set(&f, "p0", "dampening=0.5", 0);
    frame = rig_frame_new(&f.r, PD_REQ_PUSH, f.job, 0, CONN, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_hyper(frame, "nesterov", "yes");
    assert_int_equal(rig_send(&f.r, frame), PD_OK);
    rig_free(&f.r);
}

static void a_job_that_is_not_there_or_has_no_parameters_or_drains_is_refused(void **state)
{
    pd_store_config config = rig_config();
    rig r;

    (void)state;
    rig_new(&r, &config);
    assert_int_equal(rig_set(&r, "job", "*", "lr=2", 0), PD_NOT_FOUND);
    rig_hello(&r, "job", 0, 1, 1, CONN, NULL, NULL);
    assert_int_equal(rig_set(&r, "job", "*", "lr=2", 0), PD_NOT_FOUND);
    assert_non_null(strstr(r.error.text, "no parameters yet"));
    rig_apply(&r, pd_request_new(PD_REQ_DRAIN, rig_ticket(&r, 1)));
    assert_int_equal(rig_set(&r, "job", "*", "lr=2", 0), PD_UNAVAILABLE);
    rig_free(&r);
}

/* ---- bounds and records ---- */

static void a_parameter_has_a_bounded_number_of_plans(void **state)
{
    fixture f;
    int n = 0;

    (void)state;
    set_up(&f, NULL, 2);
    for (; n < 1000; n++)
        if (rig_set(&f.r, "job", "*", "lr=9", (uint64_t)n + 2) != PD_OK) break;
    assert_int_equal(n, 64);
    assert_int_equal(f.r.error.code, PD_RESOURCE_EXHAUSTED);
    set(&f, "*", "lr=3", 0);                        /* takes the place of all */
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 2);
    rig_free(&f.r);
}

static void a_list_of_settings_comes_in_pages(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, "* sgd lr=1 momentum=0.5", 3);
    for (uint64_t i = 0; i < 60; i++) {
        char text[64];
        snprintf(text, sizeof text, "lr=%d momentum=0.25", (int)i + 2);
        set(&f, "*", text, i + 1);
    }
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, PD_INFO_PAGE);
    assert_int_equal(f.r.info->total, 360);
    assert_string_equal(f.r.info->settings[255].param, "p2");
    rig_free(&f.r);
}

static void who_has_set_what_is_recorded(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, "* sgd lr=0.1", 3);
    set(&f, "p[01]", "lr=0.05", 0);
    assert_string_equal(f.r.log, "job job: host:7 sets lr of 2 parameters (p[01]): 0.1 -> 0.05 from step 1 on");
    set(&f, "*", "lr=0.01", 0);
    assert_string_equal(f.r.log, "job job: host:7 sets lr of 3 parameters (*): 0.05 and others -> 0.01 from step 1 on");
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

static void the_log_says_once_that_a_pushed_value_does_not_count(void **state)
{
    fixture f;
    uint64_t logs;

    (void)state;
    set_up(&f, NULL, 1);
    set(&f, "*", "lr=4", 0);
    logs = f.r.logs;
    ASSERT_NEAR(step_with(&f, 0, "lr", "3"), 4);
    assert_int_equal(f.r.logs, logs + 1);
    assert_non_null(strstr(f.r.log, "workers send lr for p0 with step 1; what host:7 has set goes before it"));
    ASSERT_NEAR(step_with(&f, 0, "lr", "3"), 4);
    assert_int_equal(f.r.logs, logs + 1);
    rig_free(&f.r);
}

static void a_worker_that_comes_back_sees_no_difference(void **state)
{
    fixture f;

    (void)state;
    set_up(&f, "* sgd lr=1", 1);
    set(&f, "*", "lr=4", 0);
    assert_int_equal(rig_hello(&f.r, "job", 0, 1, CONN, CONN + 1, NULL, "* sgd lr=1"), PD_OK);
    rig_free(&f.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_setting_goes_before_a_pushed_value_before_the_schedule_before_the_configuration),
        cmocka_unit_test(a_withdrawn_setting_gives_way_to_what_was_below_it),
        cmocka_unit_test(a_later_setting_takes_the_place_of_the_one_before),
        cmocka_unit_test(other_hyperparameters_keep_what_was_set_before),
        cmocka_unit_test(a_schedule_that_is_set_follows_the_parameters_count),
        cmocka_unit_test(a_round_that_is_gathering_takes_it),
        cmocka_unit_test(without_a_step_each_parameter_takes_it_at_its_next),
        cmocka_unit_test(with_a_step_it_holds_from_that_step_on),
        cmocka_unit_test(a_step_that_is_past_is_refused_for_all),
        cmocka_unit_test(a_plan_of_steps_is_followed),
        cmocka_unit_test(what_is_set_takes_the_place_of_what_was_planned_after_it),
        cmocka_unit_test(a_step_that_has_begun_keeps_its_values),
        cmocka_unit_test(only_parameters_that_match_take_it),
        cmocka_unit_test(a_parameter_takes_what_its_optimizer_has),
        cmocka_unit_test(what_one_parameter_refuses_changes_nothing),
        cmocka_unit_test(a_value_is_checked_with_those_that_were_set_before_and_those_planned),
        cmocka_unit_test(a_value_is_checked_with_what_was_pushed_for_the_open_round),
        cmocka_unit_test(a_pushed_value_is_checked_with_what_is_set),
        cmocka_unit_test(a_push_that_is_sent_again_is_not_checked_with_what_was_set_since),
        cmocka_unit_test(a_job_that_is_not_there_or_has_no_parameters_or_drains_is_refused),
        cmocka_unit_test(a_parameter_has_a_bounded_number_of_plans),
        cmocka_unit_test(a_list_of_settings_comes_in_pages),
        cmocka_unit_test(who_has_set_what_is_recorded),
        cmocka_unit_test(the_log_says_once_that_a_pushed_value_does_not_count),
        cmocka_unit_test(a_worker_that_comes_back_sees_no_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
