/* Tests hyperparameters that are set while a job runs: which value applies in which step. */
#include "test.h"
#include "counting_row.h"
#include "coupled_row.h"
#include "ones.h"

TEST(a_setting_goes_before_a_pushed_value_before_the_schedule_before_the_configuration)
{
    for (int which = 0; which < 8; which++) {
        bool is_set = (which & 1) != 0, is_pushed = (which & 2) != 0, is_scheduled = (which & 4) != 0;
        double expected = is_set ? 4 : is_pushed ? 3 : is_scheduled ? 2 : 1;
        ones f;
        ones_begin(&f, is_scheduled ? "* sgd lr=table(7,2)" : "* sgd lr=1", 1);
        ASSERT_NEAR(ones_step(&f, 0), is_scheduled ? 7 : 1);
        if (is_set) ones_set(&f, "p0", "lr=4", 0);
        ASSERT_NEAR(ones_step_with(&f, 0, is_pushed ? "lr" : NULL, "3"), expected);
        ASSERT_NEAR(ones_step(&f, 0), is_set ? 4 : is_scheduled ? 2 : 1);
        rig_free(&f.r);
    }
}

TEST(a_withdrawn_setting_gives_way_to_what_was_below_it)
{
    for (int is_pushed = 0; is_pushed < 2; is_pushed++)
        for (int is_scheduled = 0; is_scheduled < 2; is_scheduled++) {
            ones f;
            ones_begin(&f, is_scheduled ? "* sgd lr=table(7,6,2)" : "* sgd lr=1", 1);
            ones_set(&f, "p0", "lr=4", 0);
            ASSERT_NEAR(ones_step(&f, 0), 4);
            ASSERT_NEAR(ones_step(&f, 0), 4);
            ones_set(&f, "p0", "lr=", 0);
            assert_true(f.r.set->at[0].withdrawn);
            ASSERT_NEAR(ones_step_with(&f, 0, is_pushed ? "lr" : NULL, "3"), is_pushed ? 3 : is_scheduled ? 2 : 1);
            assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
            rig_free(&f.r);
        }
}

TEST(a_later_setting_takes_the_place_of_the_one_before)
{
    ones f;

    ones_begin(&f, NULL, 1);
    for (int i = 2; i < 200; i++) {
        char text[32];
        snprintf(text, sizeof text, "lr=%d", i);
        ones_set(&f, "*", text, 0);
        if (i % 50 == 0) ASSERT_NEAR(ones_step(&f, 0), i);
        assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 1);
    }
    rig_free(&f.r);
}

TEST(other_hyperparameters_keep_what_was_set_before)
{
    ones f;

    ones_begin(&f, "* sgd lr=1 momentum=0.5", 1);
    ones_set(&f, "p0", "lr=2", 0);
    ones_set(&f, "p0", "momentum=0.25", 0);
    ASSERT_NEAR(ones_step(&f, 0), 2); /* the momentum buffer is 1 in the first step */
    ASSERT_NEAR(ones_step(&f, 0), 2 * 1.25);
    ones_set(&f, "p0", "lr=", 0);
    ASSERT_NEAR(ones_step(&f, 0), 1 + 0.25 * 1.25);
    rig_free(&f.r);
}

TEST(a_schedule_that_is_set_follows_the_parameters_count)
{
    ones f;

    ones_begin(&f, NULL, 1);
    ones_step(&f, 0);
    ones_set(&f, "p0", "lr=table(1,2,3,4)", 0);
    assert_string_equal(f.r.set->at[0].before, "1");
    assert_string_equal(f.r.set->at[0].value, "table(1,2,3,4), now 2");
    ASSERT_NEAR(ones_step(&f, 0), 2);
    ASSERT_NEAR(ones_step(&f, 0), 3);
    rig_free(&f.r);
}

/* Parameter p1 has no gradient in the first step of its group. */
TEST(a_schedule_that_is_set_follows_the_count_of_a_group)
{
    static const pd_optimizer_ops *const rows[] = { &counting_row, NULL };
    pd_store_config config = rig_config();
    float one = 1, before;
    rig_frame *frame;
    rig r;

    config.rows = rows;
    rig_new(&r, &config);
    r.job = rig_start(&r, "job", 1, ONES_CONN, ones_sizes, 2, NULL, "* counting");
    assert_int_equal(rig_set(&r, "job", "*", "lr=table(1,3)", 0), PD_OK);
    before = rig_weights(&r, r.job, 1)[0];
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, ONES_CONN, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_absent(frame, 1);
    rig_send(&r, frame);
    rig_work(&r);
    rig_push(&r, r.job, 0, ONES_CONN, 2, 1, &one, 1);
    rig_push(&r, r.job, 0, ONES_CONN, 2, 0, &one, 1);
    rig_work(&r);
    ASSERT_NEAR((double)before - (double)rig_weights(&r, r.job, 1)[0], 3 * 2);
    rig_free(&r);
}

TEST(a_round_that_is_gathering_takes_it)
{
    pd_store_config config = rig_config();
    float one = 1, before;
    rig r;

    rig_new(&r, &config);
    r.job = rig_start(&r, "job", 2, ONES_CONN, ones_sizes, 1, NULL, NULL);
    before = rig_weights(&r, r.job, 0)[0];
    rig_push(&r, r.job, 0, ONES_CONN, 1, 0, &one, 1);
    rig_work(&r);
    assert_int_equal(rig_set(&r, "job", "*", "lr=5", 0), PD_OK);
    assert_int_equal(r.set->at[0].from_least, 1);
    rig_push(&r, r.job, 1, ONES_CONN + 1, 1, 0, &one, 1);
    rig_work(&r);
    ASSERT_NEAR((double)before - (double)rig_weights(&r, r.job, 0)[0], 5);
    rig_free(&r);
}

TEST(without_a_step_each_parameter_takes_it_at_its_next)
{
    ones f;

    ones_begin(&f, NULL, 3);
    for (int i = 0; i < 3; i++) ones_step(&f, 1);
    ones_step(&f, 0);
    ones_set(&f, "*", "lr=9", 0);
    assert_int_equal(f.r.set->params, 3);
    assert_int_equal(f.r.set->n, 1);
    assert_int_equal(f.r.set->at[0].params, 3);
    assert_int_equal(f.r.set->at[0].from_least, 1);
    assert_int_equal(f.r.set->at[0].from_most, 4);
    for (uint32_t p = 0; p < 3; p++) ASSERT_NEAR(ones_step(&f, p), 9);
    rig_free(&f.r);
}

TEST(with_a_step_it_holds_from_that_step_on)
{
    uint64_t logs;
    ones f;

    ones_begin(&f, NULL, 2);
    ones_step(&f, 1);
    ones_set(&f, "*", "lr=9", 3);
    assert_int_equal(f.r.set->at[0].from_least, 3);
    assert_int_equal(f.r.set->at[0].from_most, 3);
    ASSERT_NEAR(ones_step(&f, 0), 1);
    ASSERT_NEAR(ones_step(&f, 0), 1);
    assert_non_null(strstr(f.r.log, "from step 3 on lr = 9"));
    logs = f.r.logs;
    ASSERT_NEAR(ones_step(&f, 0), 9);
    ASSERT_NEAR(ones_step(&f, 1), 1);
    assert_int_equal(f.r.logs, logs); /* once */
    ASSERT_NEAR(ones_step(&f, 1), 9);
    rig_free(&f.r);
}

TEST(a_step_that_is_past_is_refused_for_all)
{
    ones f;

    ones_begin(&f, NULL, 3);
    ones_step(&f, 2);
    assert_int_equal(rig_set(&f.r, "job", "*", "lr=9", 1), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f.r.error.text, "p2"));
    assert_non_null(strstr(f.r.error.text, "the earliest possible is step 2"));
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    for (uint32_t p = 0; p < 3; p++) ASSERT_NEAR(ones_step(&f, p), 1);
    rig_free(&f.r);
}

TEST(a_plan_of_steps_is_followed)
{
    static const double expected[] = { 1, 2, 2, 4, 4, 1, 1 };
    ones f;

    ones_begin(&f, NULL, 1);
    ones_set(&f, "p0", "lr=2", 2);
    ones_set(&f, "p0", "lr=4", 4);
    ones_set(&f, "p0", "lr=", 6);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 3);
    assert_string_equal(f.r.info->settings[2].value, "");
    assert_false(f.r.info->settings[0].in_force);
    for (int i = 0; i < 7; i++) ASSERT_NEAR(ones_step(&f, 0), expected[i]);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    rig_free(&f.r);
}

TEST(what_is_set_takes_the_place_of_what_was_planned_after_it)
{
    static const double expected[] = { 1, 3, 3, 3, 3 };
    ones f;

    ones_begin(&f, NULL, 1);
    ones_set(&f, "p0", "lr=4", 4);
    ones_set(&f, "p0", "lr=2 weight_decay=0", 2);
    ones_set(&f, "p0", "lr=3", 2);
    for (int i = 0; i < 5; i++) ASSERT_NEAR(ones_step(&f, 0), expected[i]);
    rig_free(&f.r);
}

/* The step has begun and waits for preconditioner tasks that are not delivered. */
TEST(a_step_that_has_begun_keeps_its_values)
{
    static const int64_t sizes[] = { 8 };
    static const float gradient[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    static const pd_optimizer_ops *const rows[] = { &coupled_row, NULL };
    pd_store_config config = rig_config();
    float weights[2][8];

    config.rows = rows;
    for (int is_set = 0; is_set < 2; is_set++) {
        rig r;
        rig_new(&r, &config);
        r.lazy_tasks = true;
        r.job =
            rig_start(&r, "job", 1, ONES_CONN, sizes, 1, NULL, "* coupled lr=0.1 block_size=8 interval=1 root_delay=0");
        for (uint64_t step = 1; step < 3 && r.n_tasks == 0; step++) {
            rig_push(&r, r.job, 0, ONES_CONN, step, 0, gradient, 8);
            rig_work(&r);
        }
        assert_true(r.n_tasks > 0);
        if (is_set) assert_int_equal(rig_set(&r, "job", "*", "lr=100", 0), PD_OK);
        if (is_set) assert_int_equal(r.set->at[0].from_least, r.versions[r.job][0].step + 2);
        while (r.n_tasks > 0) rig_finish_task(&r, 0);
        rig_work(&r);
        memcpy(weights[is_set], rig_weights(&r, r.job, 0), sizeof weights[0]);
        rig_free(&r);
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
}

enum { LR, MAXIMIZE, HYPERS, HORIZON = 60, COMMANDS = 150 };

/* The reference: for each parameter and hyperparameter, the value that applies in each step. A command writes its
 * value into every step from its first step on. 0: no override. */
typedef struct plan {
    double at[3][HYPERS][HORIZON + 2];
} plan;

static void write_plan(plan *p, const ones *f, unsigned which, int h, double value, uint64_t from)
{
    for (unsigned param = 0; param < 3; param++) {
        uint64_t first = from > 0 ? from : f->step[param] + 1;
        bool any = false;
        for (uint64_t t = f->step[param] + 1; t < HORIZON + 2; t++) any = any || p->at[param][h][t] != 0;
        if ((which >> param & 1) == 0 || (value == 0 && !any)) continue;
        for (uint64_t t = first; t < HORIZON + 2; t++) p->at[param][h][t] = value;
    }
}

static void command_at_random(ones *f, plan *p, uint64_t *seed)
{
    static const char *const patterns[] = { "*", "p0", "p1", "p2", "p[01]", "p[!0]" };
    static const unsigned meant[] = { 7, 1, 2, 4, 3, 6 };
    unsigned k = rig_random(seed) % 6;
    int h = rig_random(seed) % HYPERS;
    double value = rig_random(seed) % 4 == 0   ? 0
                   : h == LR                   ? (double)(2 + rig_random(seed) % 8) / 8
                   : rig_random(seed) % 2 == 0 ? 1
                                               : -1;
    uint64_t from = rig_random(seed) % 2 == 0 ? 0 : 1 + rig_random(seed) % HORIZON;
    char text[64];
    bool past = false, any = value != 0;

    for (unsigned param = 0; param < 3; param++) {
        bool has = value != 0;
        for (uint64_t t = f->step[param] + 1; t < HORIZON + 2; t++) has = has || p->at[param][h][t] != 0;
        if ((meant[k] >> param & 1) == 0) continue;
        any = any || has;
        past = past || (has && from > 0 && from <= f->step[param]);
    }
    if (value == 0)
        snprintf(text, sizeof text, "%s=", h == LR ? "lr" : "maximize");
    else if (h == LR)
        snprintf(text, sizeof text, "lr=%g", value);
    else
        snprintf(text, sizeof text, "maximize=%s", value > 0 ? "yes" : "no");
    assert_int_equal(rig_set(&f->r, "job", patterns[k], text, from), past || !any ? PD_FAILED_PRECONDITION : PD_OK);
    if (!past && any) write_plan(p, f, meant[k], h, value, from);
}

static void check_list(ones *f, const plan *p)
{
    double told[3][HYPERS] = { { 0 } };

    rig_ask(&f->r, PD_INFO_SETTINGS, "job");
    for (size_t i = 0; i < f->r.info->n_settings; i++) {
        const pd_override_info *info = &f->r.info->settings[i];
        bool is_lr = strcmp(info->name, "lr") == 0;
        if (!info->in_force) continue;
        assert_true(told[info->param[1] - '0'][is_lr ? LR : MAXIMIZE] == 0);
        told[info->param[1] - '0'][is_lr ? LR : MAXIMIZE] = is_lr                             ? atof(info->value)
                                                            : strcmp(info->value, "yes") == 0 ? 1
                                                                                              : -1;
    }
    for (unsigned param = 0; param < 3; param++)
        for (int h = 0; h < HYPERS; h++) assert_true(told[param][h] == p->at[param][h][f->step[param] + 1]);
}

TEST(any_commands_give_each_step_the_values_of_the_definition)
{
    uint64_t seed = 1;

    for (int run = 0; run < 15; run++) {
        plan p = { 0 };
        ones f;
        ones_begin(&f, "* sgd lr=1", 3);
        for (int i = 0; i < COMMANDS; i++) {
            uint32_t param = rig_random(&seed) % 3;
            const double *lr = p.at[param][LR], *maximize = p.at[param][MAXIMIZE];
            uint64_t step = f.step[param] + 1;
            bool pushes = rig_random(&seed) % 4 == 0;
            double expected = (lr[step] != 0 ? lr[step] : pushes ? 0.5 : 1) * (maximize[step] > 0 ? -1 : 1);
            if (rig_random(&seed) % 3 == 0)
                command_at_random(&f, &p, &seed);
            else if (step <= HORIZON)
                ASSERT_NEAR(ones_step_with(&f, param, pushes ? "lr" : NULL, "0.5"), expected);
            check_list(&f, &p);
        }
        rig_free(&f.r);
    }
}

TEST(only_parameters_that_match_take_it)
{
    ones f;

    ones_begin(&f, NULL, 3);
    ones_set(&f, "p[02]", "lr=9", 0);
    assert_int_equal(f.r.set->params, 2);
    ASSERT_NEAR(ones_step(&f, 0), 9);
    ASSERT_NEAR(ones_step(&f, 1), 1);
    ASSERT_NEAR(ones_step(&f, 2), 9);
    rig_free(&f.r);
}

TEST(a_parameter_takes_what_its_optimizer_has)
{
    ones f;

    ones_begin(&f, "p0 scalable_shampoo learning_rate=1;* sgd lr=1", 2);
    ones_set(&f, "*", "lr=9 beta2=0.5", 0);
    assert_int_equal(f.r.set->params, 2);
    assert_int_equal(f.r.set->n, 2);
    assert_int_equal(rig_ask(&f.r, PD_INFO_SETTINGS, "job")->n_settings, 2);
    assert_string_equal(f.r.info->settings[0].name, "beta2");
    assert_string_equal(f.r.info->settings[1].name, "lr");
    ASSERT_NEAR(ones_step(&f, 1), 9);
    rig_free(&f.r);
}
