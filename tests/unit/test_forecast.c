/* Tests forecasts of what training a model will cost, computed from the model's shapes: memory, steps in which roots
 * are computed, output as JSON, and errors. The optimizers are those of forecasts.h. */
#include "test.h"
#include "coupled_row.h"
#include "forecast.h"
#include "forecasts.h"
#include "root.h"

TEST(sums_are_those_of_the_state_a_job_would_make)
{
    static const char *const names[] = { "w", "v", "s", "w2", "w3" };
    model m = small_model();
    int64_t bytes = 0;

    add_param(&m, names[1], 1, 10, 0);
    add_param(&m, names[2], 0, 0, 0);
    add_param(&m, names[3], 2, 7, 5);
    add_param(&m, names[4], 2, 7, 5);
    const pd_forecast *f = forecast(&m, "s sgd momentum=0.5", "* coupled block_size=4 interval=5");
    for (int i = 0; i < 5; i++) {
        pd_declaration declaration = { .name = names[i],
                                       .shape = m.entry[i].shape,
                                       .hypers = f->kind[i]->rule->hypers };
        pd_optim *optim;
        assert_int_equal(pd_optim_new(&optim, &declaration, f->stats[1], NULL), PD_OK);
        assert_int_equal(f->kind[i]->state_bytes, pd_optim_state_bytes(optim));
        bytes += pd_optim_state_bytes(optim);
        pd_optim_free(optim);
    }
    assert_int_equal(f->all.state_bytes, bytes);
    assert_int_equal(f->all.params, 5);
    assert_int_equal(f->all.elements, 3 * 35 + 10 + 1);
    assert_int_equal(f->all.weight_bytes, (3 * 35 + 10 + 1) * 4);
    assert_int_equal(f->all.blocks, 3 * 4 + 3);
    assert_int_equal(f->all.tasks, 3 * 4 + 3);
    assert_int_equal(f->all.step_bytes, (3 * 35 + 10) * 4);
    assert_int_equal(f->all.task_bytes, 2 * (3 * 35 + 10) * 4);
    assert_true(f->all.task_flops == 4.0 * (3 * 35 + 10));
    assert_true(f->all.task_flops_per_step == f->all.task_flops / 5);
    assert_int_equal(f->all.thread_bytes, 4 * 4 * 4);
    assert_int_equal(f->of_rule[0].params, 1);
    assert_int_equal(f->of_rule[1].params, 4);
    pd_forecast_free(&m.forecast);
}

/* A parameter of 35 elements has three chunks of 16 elements. A collecting aggregate needs three chunks for each
 * worker. */
TEST(the_memory_of_an_aggregate_is_counted)
{
    static const struct {
        const char *aggregate;
        uint32_t world;
        uint64_t bytes;
    } cases[] = {
        { "mean", 4, 0 },
        { "weighted_mean", 4, 0 },
        { "sum", 4, 0 },
        { "median", 4, 4 * 3 * 16 * 4 },
        { "trimmed_mean", 3, 3 * 3 * 16 * 4 },
        { "median", 1, 3 * 16 * 4 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = small_model();
        m.job = pd_forecast_job();
        m.job.world = cases[i].world;
        m.job.chunk_elements = 16;
        assert_int_equal(pd_job_values_set(&m.job.values, "aggregate", cases[i].aggregate, NULL), PD_OK);
        const pd_footprint *need = &forecast(&m, "* sgd", NULL)->all.need;
        assert_int_equal(need->collected, cases[i].bytes);
        assert_int_equal(need->weights, 2 * 35 * 4);
        assert_int_equal(need->sums, 35 * 4);
        pd_forecast_free(&m.forecast);
    }
}

TEST(a_checkpoint_counts_if_the_job_has_one)
{
    for (int durable = 0; durable <= 1; durable++) {
        model m = small_model();
        m.job = pd_forecast_job();
        m.job.durable = durable;
        const pd_footprint *need = &forecast(&m, "* sgd momentum=0.9", NULL)->all.need;
        /* old weights and a copy of the momentum, and their records */
        assert_true(durable ? need->kept > 2 * 35 * 4 : need->kept == 0);
        assert_true(need->kept < 16384);
        pd_forecast_free(&m.forecast);
    }
}

TEST(scratch_counts_for_each_thread)
{
    for (int threads = 1; threads <= 5; threads += 4) {
        model m = small_model();
        m.job = pd_forecast_job();
        m.job.threads = threads;
        const pd_forecast *f = forecast(&m, "* coupled block_size=4", NULL);
        assert_int_equal(f->all.need.job, threads * f->all.thread_bytes);
        assert_true(f->all.thread_bytes > 0);
        pd_forecast_free(&m.forecast);
    }
}

TEST(the_scratch_of_a_root_counts_for_each_thread_of_the_pool)
{
    for (int threads = 1; threads <= 5; threads += 4) {
        model m = small_model();
        m.job = pd_forecast_job();
        m.job.pool_threads = threads;
        const pd_forecast *f = forecast(&m, "* scalable_shampoo block_size=8", NULL);
        assert_int_equal(f->all.need.pool,
                         pd_root_scratch(PD_ROOT_NEWTON, false, 7, 4)); /* scratch memory for a root of the largest
                                                                         * matrix (7 x 7) */
        assert_int_equal(f->all.need.job,
                         f->all.thread_bytes + threads * (int64_t)f->all.need.pool + (int64_t)f->all.need.light);
        pd_forecast_free(&m.forecast);
    }
}

TEST(the_scratch_of_the_largest_light_root_counts_once_more)
{
    model m = small_model();
    add_param(&m, "heavy", 2, 64, 64);
    const pd_forecast *f =
        forecast(&m, "* scalable_shampoo block_size=64 best_effort_shape_interpretation=no padding_coupling=no", NULL);
    assert_int_equal(f->all.need.pool, pd_root_scratch(PD_ROOT_NEWTON, false, 64, 4));
    assert_int_equal(f->all.need.light, pd_root_scratch(PD_ROOT_NEWTON, false, 7, 4));
    pd_forecast_free(&m.forecast);
}

TEST(an_unsuitable_number_of_workers_is_refused)
{
    model m = small_model();
    pd_error err;

    m.job = pd_forecast_job();
    m.job.world = 2;
    assert_int_equal(pd_job_values_set(&m.job.values, "aggregate", "trimmed_mean", NULL), PD_OK);
    assert_int_equal(make_forecast(&m, NULL, 0, &err), PD_INVALID_ARGUMENT);
    m.job.world = PD_MAX_WORLD + 1;
    assert_int_equal(make_forecast(&m, NULL, 0, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "a job has 1 to 4096 workers, not 4097");
}

TEST(sums_that_do_not_fit_are_the_largest)
{
    model m = { 0 };

    for (int i = 0; i < 10; i++) add_param(&m, "abcdefghij" + i, 1, INT64_MAX / 8, 0);
    assert_true(forecast(&m, "* sgd momentum=0.9", NULL)->all.state_bytes == INT64_MAX);
    assert_true(m.forecast.all.weight_bytes == INT64_MAX);
    assert_tells(&m.forecast, false, "state 8.0 EiB");
    assert_true(pd_footprint_sum(&m.forecast.all.need) == UINT64_MAX);
    pd_forecast_free(&m.forecast);
}

TEST(the_largest_has_most_weights_and_state)
{
    model m = { 0 };

    add_param(&m, "a", 1, 10, 0);
    add_param(&m, "b", 1, 6, 0);
    add_param(&m, "c", 1, 5, 0);
    assert_int_equal(forecast(&m, "a sgd", "* sgd momentum=0.9")->largest, 1);
    assert_tells(&m.forecast, false, "largest b: 24 B of weights, 24 B of state\n");
    pd_forecast_free(&m.forecast);
}

TEST(a_kind_has_one_rule)
{
    model m = { 0 };

    add_param(&m, "x1", 1, 4, 0);
    add_param(&m, "y1", 1, 4, 0);
    add_param(&m, "x2", 1, 4, 0);
    add_param(&m, "y2", 1, 4, 0);
    const pd_forecast *f = forecast(&m, "x* sgd", "* sgd momentum=0.9");
    assert_int_equal(f->n_kinds, 2);
    assert_ptr_equal(f->kind[0], f->kind[2]);
    assert_ptr_equal(f->kind[1], f->kind[3]);
    assert_int_equal(f->kind[0]->state_bytes, 0);
    assert_int_equal(f->kind[1]->state_bytes, 16);
    pd_forecast_free(&m.forecast);
}

TEST(facts_couple_the_parameters_of_one_optimizer)
{
    model m = small_model();

    add_param(&m, "v", 1, 100, 0);
    const pd_forecast *f = forecast(&m, "v coupled block_size=50", "* coupled");
    assert_true(f->stats[0][0] == 50 && f->stats[1][0] == 50);
    assert_tells(f, false, "fact coupled: largest_block 50\n");
    pd_forecast_free(&m.forecast);
}

TEST(due_steps_are_the_first_that_the_row_names)
{
    model m = small_model();
    const pd_forecast *f = forecast(&m, "* coupled interval=20 root_delay=7", NULL);

    assert_int_equal(f->kind[0]->n_due, 3);
    assert_int_equal(f->kind[0]->due[0], 20);
    assert_int_equal(f->kind[0]->due[2], 60);
    assert_int_equal(pd_kind_interval(f->kind[0]), 20);
    assert_true(f->all.task_flops_per_step == f->all.task_flops / 20);
    assert_tells(f, false, "due every 20 steps (20, 40, 60 …), used from 7 steps later on");
    pd_forecast_free(&m.forecast);
}

TEST(due_in_every_step_is_said_so)
{
    model m = small_model();
    const pd_forecast *f = forecast(&m, "* coupled", NULL);

    assert_tells(f, false, "due in every step, used in the same step");
    pd_forecast_free(&m.forecast);
}

TEST(the_search_for_tasks_that_are_due_late_or_never_ends)
{
    model m = small_model();

    assert_tells(forecast(&m, "* coupled interval=100000", NULL), false, "due in none of the first 65536 steps");
    pd_forecast_free(&m.forecast);
    assert_tells(forecast(&m, "* coupled interval=40000", NULL), false,
                 "due in steps 40000 and no other of the first 65536");
    assert_int_equal(pd_kind_interval(m.forecast.kind[0]), 0);
    pd_forecast_free(&m.forecast);
}

TEST(due_steps_follow_schedules)
{
    model m = small_model();
    const pd_forecast *f = forecast(&m, "* varied lr=piecewise(0,4:2,6:0,9:3)", NULL);

    assert_int_equal(f->kind[0]->due[0], 5);
    assert_int_equal(f->kind[0]->due[1], 6);
    assert_int_equal(f->kind[0]->due[2], 10);
    assert_int_equal(pd_kind_interval(f->kind[0]), 0);
    assert_true(f->all.task_flops_per_step == 0);
    assert_tells(f, false,
                 " due in steps 5, 6, 10 …, used as soon as they are ready: not the same bits in every run\n");
    pd_forecast_free(&m.forecast);
}

TEST(steps_that_change_later_are_told_as_those_at_first)
{
    static const struct {
        const char *rule;
        bool goes_on;
    } list[] = {
        { "* coupled interval=20", true },
        { "* coupled", true },
        { "* coupled lr=cosine(peak=2,steps=100)", true },
        { "* varied lr=2", true },
        { "* varied lr=piecewise(2,50:1)", false },
        { "* varied lr=piecewise(2,5000:1,5200:2,100000:0)", false },
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        model m = small_model();
        if (forecast(&m, list[i].rule, NULL)->kind[0]->goes_on != list[i].goes_on) fail_msg("%s", list[i].rule);
        if (list[i].goes_on)
            assert_does_not_tell(&m.forecast, false, "at first");
        else
            assert_tells(&m.forecast, false, "due in every step at first, used as soon");
        pd_forecast_free(&m.forecast);
    }
}

TEST(json_has_every_slot_and_task)
{
    model m = small_model();
    json_t *root = pd_forecast_json(forecast(&m, "* coupled interval=3", NULL));
    json_t *kind = json_array_get(json_object_get(root, "kinds"), 0), *slots = json_object_get(kind, "slots"), *task;

    assert_int_equal(json_array_size(slots), 14);
    assert_int_equal(json_array_size(json_object_get(kind, "blocks")), 6);
    assert_int_equal(json_array_size(json_object_get(kind, "tasks")), 6);
    task = json_array_get(json_object_get(kind, "tasks"), 5);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(task, "inputs"), 0)), 12);
    assert_string_equal(json_string_value(json_object_get(json_array_get(slots, 12), "name")), "statistics");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(slots, 12), "number")), 5);
    assert_string_equal(json_string_value(json_object_get(json_array_get(slots, 12), "storage")), "float32");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(slots, 12), "bytes")), 2 * 4);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(slots, 0), "bytes")), 0);
    assert_int_equal(json_integer_value(json_object_get(kind, "step_bytes")), 35 * 4);
    assert_int_equal(json_integer_value(json_object_get(kind, "task_bytes")), 2 * 35 * 4);
    assert_true(json_number_value(json_object_get(kind, "task_flops")) == 4 * 35);
    assert_true(json_number_value(json_object_get(task, "exponent")) == 2);
    assert_null(json_object_get(json_array_get(slots, 0), "number"));
    assert_true(json_is_true(json_object_get(json_array_get(slots, 0), "temporary")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(kind, "due"), "interval")), 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "total"), "state_bytes")),
                     (2 * 35 + 1) * 4);
    json_decref(root);
    pd_forecast_free(&m.forecast);
}

TEST(json_names_the_block_of_a_slot)
{
    model m = small_model();
    json_t *root = pd_forecast_json(forecast(&m, "* wide", NULL));
    json_t *slots = json_object_get(json_array_get(json_object_get(root, "kinds"), 0), "slots"),
           *last = json_array_get(slots, 4 + 3 * 6 - 1);

    assert_string_equal(json_string_value(json_object_get(last, "name")), "short");
    assert_int_equal(json_integer_value(json_object_get(last, "block")), 5);
    assert_null(json_object_get(last, "number"));
    assert_null(json_object_get(json_array_get(slots, 1), "block"));
    json_decref(root);
    pd_forecast_free(&m.forecast);
}

TEST(json_params_say_which_kind_they_are)
{
    model m = { 0 };
    json_t *root, *kinds, *params;

    add_param(&m, "b", 1, 5, 0);
    add_param(&m, "a", 1, 3, 0);
    add_param(&m, "c", 1, 5, 0);
    root = pd_forecast_json(forecast(&m, "none sgd", "* sgd momentum=0.9"));
    kinds = json_object_get(root, "kinds");
    params = json_object_get(root, "params");
    assert_int_equal(json_array_size(kinds), 2);
    for (size_t i = 0; i < 3; i++) {
        json_t *kind =
            json_array_get(kinds, (size_t)json_integer_value(json_object_get(json_array_get(params, i), "kind")));
        assert_string_equal(json_string_value(json_object_get(json_array_get(params, i), "name")), m.entry[i].name);
        assert_int_equal(json_integer_value(json_object_get(kind, "rule")), 1);
        assert_int_equal(json_integer_value(json_object_get(kind, "elements")), m.entry[i].elements);
        assert_int_equal(json_integer_value(json_object_get(kind, "state_bytes")), m.entry[i].elements * 4);
    }
    json_decref(root);
    pd_forecast_free(&m.forecast);
}

static void assert_refused(model *m, const char *rule, const char *part)
{
    char *rules[] = { (char *)(uintptr_t)rule };
    pd_error err = { 0 };

    assert_int_equal(make_forecast(m, rules, 1, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(m->forecast.kinds);
}

TEST(parameters_of_other_axes_are_of_other_kinds)
{
    model m = { 0 };
    for (int i = 0; i < 3; i++) add_param(&m, "abc" + i, 2, 3, 4);
    m.entry[0].axes = m.entry[2].axes = (char *)(uintptr_t) "in,out";
    const pd_forecast *f = forecast(&m, "* literal", NULL);
    assert_int_equal(f->n_kinds, 2);
    assert_true(f->kind[0] == f->kind[2] && f->kind[0] != f->kind[1]);
    assert_tells(f, false, "axes in,out");
    assert_tells(f, false, "note: axes were in,out");
    pd_forecast_free(&m.forecast);
}

TEST(where_a_rule_has_a_text_plans_are_told_apart_by_what_came_of_the_names)
{
    static const char *const names[] = { "ax", "by", "ay", "axx" };
    model m = { 0 };
    for (int i = 0; i < 4; i++) add_param(&m, names[i], 1, 5, 0);
    const pd_forecast *f = forecast(&m, "* literal part=x", NULL);
    assert_int_equal(f->n_kinds, 3);
    assert_true(f->kind[1] == f->kind[2] && f->kind[0] != f->kind[3]);
    assert_int_equal(f->kind[0]->state_bytes, 2 * 4);
    assert_int_equal(f->kind[1]->state_bytes, 0);
    assert_int_equal(f->kind[3]->state_bytes, 3 * 4);
    pd_forecast_free(&m.forecast);
    f = forecast(&m, "* literal", NULL);
    assert_int_equal(f->n_kinds, 1);
    pd_forecast_free(&m.forecast);
}

TEST(json_says_axes_notes_and_what_slots_follow)
{
    model m = small_model();
    json_t *json, *kind;
    m.entry[0].axes = (char *)(uintptr_t) "in,out";
    json = pd_forecast_json(forecast(&m, "* literal part=w", NULL));
    kind = json_array_get(json_object_get(json, "kinds"), 0);
    assert_string_equal(json_string_value(json_object_get(kind, "axes")), "in,out");
    assert_string_equal(json_string_value(json_object_get(kind, "note")), "axes were in,out");
    assert_true(json_is_null(json_object_get(json_array_get(json_object_get(kind, "slots"), 0), "follows")));
    json_decref(json);
    pd_forecast_free(&m.forecast);
    json = pd_forecast_json(forecast(&m, "* sgd momentum=0.5", NULL));
    kind = json_object_get(
        json_array_get(json_object_get(json_array_get(json_object_get(json, "kinds"), 0), "slots"), 0), "follows");
    assert_int_equal(json_array_size(kind), 2);
    assert_int_equal(json_integer_value(json_array_get(kind, 1)), 1);
    json_decref(json);
    pd_forecast_free(&m.forecast);
}

TEST(rules_and_parameters_are_refused_as_a_job_would)
{
    model m = small_model();

    assert_refused(&m, "* marvel", "there are: sgd, coupled, varied, wide, scalable_shampoo");
    assert_refused(&m, "* coupled block_size=0", "block_size");
    assert_refused(&m, "v* coupled", "parameter w: no rule matches");
}

TEST(running_out_of_memory_leaves_nothing)
{
    char *rules[] = { (char *)(uintptr_t) "w* coupled", (char *)(uintptr_t) "* literal part=b" };
    model m = small_model();

    add_param(&m, "b", 1, 7, 0);
    for (int64_t n = 0;; n++) {
        pd_error err;
        oom_arm(n);
        int rc = make_forecast(&m, rules, 2, &err);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_null(m.forecast.kinds);
    }
    for (int64_t n = 0;; n++) {
        FILE *out = fopen("/dev/null", "w");
        oom_arm(n);
        int rc = pd_forecast_print(&m.forecast, false, out, NULL);
        bool failed = oom_disarm();
        fclose(out);
        if (!failed) break;
        assert_int_equal(rc, PD_NO_MEMORY);
    }
    pd_forecast_free(&m.forecast);
}
