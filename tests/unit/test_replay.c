/* Tests when a replay of a recorded training run is judged ok, failed or skipped. */
#include "test.h"
#include "replay_run.h"
#include "replayed.h"

/* A recorded run of one parameter: two steps w <- w - 0.5 g, without momentum. */
static const float w0[2] = { 1, 2 }, g1[2] = { 2, 4 }, w1[2] = { 0, 0 }, g2[2] = { 8, -2 }, w2[2] = { -4, 1 };
static const char sgd_config[] =
    "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"momentum\": 0, \"nesterov\": false, \"foreach\": null}";

static tracefile sgd_file(void)
{
    tracefile file = tracefile_of("torch_optim", "by_hand", "2", sgd_config);

    tracefile_add(&file, "param/0000/w", w0, 2);
    tracefile_add(&file, "grad/0001/w", g1, 2);
    tracefile_add(&file, "param/0001/w", w1, 2);
    tracefile_add(&file, "grad/0002/w", g2, 2);
    tracefile_add(&file, "param/0002/w", w2, 2);
    return file;
}

TEST(the_same_weights_are_ok)
{
    tracefile file = sgd_file();

    assert_outcome(&file, PD_REPLAY_OK, "");
}

/* The first schedule gives lr 0.5 in both steps, as recorded. The second gives 0.25 in step 1: w moves half as far
 * as recorded, and the replay fails. */
TEST(a_schedule_in_the_configuration_is_followed)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "config",
                   "{\"optimizer\": \"SGD\", \"lr\": {\"schedule\": \"linear_warmup\", \"peak\": 0.5, "
                   "\"warmup_steps\": 1}, \"momentum\": 0}");
    assert_outcome(&file, PD_REPLAY_OK, "");
    tracefile_meta(&file, "config",
                   "{\"optimizer\": \"SGD\", \"lr\": {\"schedule\": \"linear_warmup\", \"peak\": 0.5, "
                   "\"warmup_steps\": 2}, \"momentum\": 0}");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

/* A learning rate that is recorded for a step overrides the configured schedule, in that step only. */
TEST(a_recorded_rate_overrides_the_schedule)
{
    static const float half = 0.5f;
    tracefile file = sgd_file();

    tracefile_meta(&file, "config",
                   "{\"optimizer\": \"SGD\", \"lr\": {\"schedule\": \"linear_warmup\", \"peak\": 0.5, "
                   "\"warmup_steps\": 2}, \"momentum\": 0}");
    tracefile_add(&file, "learning_rate/0001", &half, 1);
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(a_schedule_that_is_not_there_fails_with_the_list)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "config", "{\"optimizer\": \"SGD\", \"lr\": {\"schedule\": \"zigzag\", \"peak\": 0.5}}");
    assert_outcome(&file, PD_REPLAY_FAILED, "there is no schedule zigzag; there are: linear_warmup");
    tracefile_meta(&file, "config", "{\"optimizer\": \"SGD\", \"lr\": {\"peak\": 0.5}}");
    assert_outcome(&file, PD_REPLAY_FAILED, "neither number, word, flag, list nor schedule");
}

TEST(a_recipe_becomes_a_rule_of_any_length)
{
    char text[6000] = "table(0.5", *whole;
    pd_recipe recipe = { .n_groups = 1, .groups = calloc(1, sizeof(pd_hypers)) };

    assert_non_null(recipe.groups);
    while (strlen(text) < sizeof text - 8) strcat(text, ",0.25");
    strcat(text, ")");
    pd_hypers_init(&recipe.groups[0], pd_optim_find("sgd"));
    assert_int_equal(pd_hypers_set(&recipe.groups[0], "lr", text, NULL), PD_OK);
    assert_non_null(whole = pd_recipe_rule(&recipe, 0, "*"));
    assert_true(strncmp(whole, "* sgd lr=table(0.5,0.25", 23) == 0);
    assert_memory_equal(whole + strlen("* sgd lr="), text, strlen(text));
    assert_string_equal(whole + strlen("* sgd lr=") + strlen(text), "");
    free(whole);
    pd_recipe_free(&recipe);
}

TEST(one_weight_beside_the_tolerance_fails_and_is_located)
{
    static const float off[2] = { -4, 1.0001f };
    tracefile file = sgd_file();
    pd_replay_result r;

    file.entry[4].at = off;
    r = replayed(&file);
    assert_int_equal(r.outcome, PD_REPLAY_FAILED);
    assert_string_equal(r.params[r.verdict.param], "w");
    assert_int_equal(r.verdict.step, 2);
    assert_true(fabs(r.verdict.error - 1e-4 / sqrt(17)) < 1e-6);
    pd_replay_result_free(&r);
}

TEST(the_noise_of_the_trace_widens_the_tolerance)
{
    static const float off[2] = { -4, 1.0001f };
    tracefile file = sgd_file();

    file.entry[4].at = off;
    tracefile_meta(&file, "noise", "1e-5");
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(an_optimizer_that_is_not_there_is_skipped)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "config", "{\"optimizer\": \"Marvel\", \"lr\": 0.5}");
    assert_outcome(&file, PD_REPLAY_SKIPPED, "optimizer marvel is not implemented");
}

TEST(a_system_that_is_not_there_is_skipped)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "system", "other_system");
    assert_outcome(&file, PD_REPLAY_SKIPPED, "system other_system is not implemented");
}

TEST(a_hyperparameter_that_is_not_there_is_skipped)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "config", "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"wings\": 2}");
    assert_outcome(&file, PD_REPLAY_SKIPPED, "wings");
}

TEST(a_hyperparameter_out_of_range_fails)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "config", "{\"optimizer\": \"SGD\", \"lr\": \"fast\"}");
    assert_outcome(&file, PD_REPLAY_FAILED, "lr");
}

TEST(a_file_that_is_no_trace_fails)
{
    tracefile file = sgd_file();

    file.n_meta = 0;
    assert_outcome(&file, PD_REPLAY_FAILED, "metadata");
}

TEST(a_trace_without_anything_to_compare_is_not_ok)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "param_steps", "[]");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(a_step_that_should_fail_and_does_not_fails)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "errors", "[{\"step\": 2}]");
    assert_outcome(&file, PD_REPLAY_FAILED, "step 2 was recorded to fail");
}

TEST(another_cause_than_the_recorded_one_is_no_agreement)
{
    const pd_error nan_error = { PD_FAILED_PRECONDITION, "parameter w: Encountered nan values in it" },
                   full = { PD_NO_MEMORY, "out of memory" };
    tracefile file = sgd_file();
    pd_trace *trace;
    pd_error err;

    tracefile_meta(&file, "errors",
                   "[{\"step\": 1, \"message\": \"Encountered nan values in factor 0\"}, {\"step\": 2, \"message\": "
                   "\"found inf values\"}]");
    trace = tracefile_open(&file);
    assert_int_equal(pd_replay_judge_step(trace, 1, PD_FAILED_PRECONDITION, &nan_error, &err), PD_OK);
    assert_int_equal(pd_replay_judge_step(trace, 2, PD_FAILED_PRECONDITION, &nan_error, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(
        err.text,
        "step 2 was recorded to fail with \"found inf values\", and failed with \"parameter w: Encountered nan"));
    assert_int_equal(pd_replay_judge_step(trace, 1, PD_NO_MEMORY, &full, &err), PD_NO_MEMORY);
    assert_string_equal(err.text, "out of memory");
    pd_trace_close(trace);
}

TEST(an_error_where_none_was_recorded_is_told_as_it_is)
{
    const pd_error ours = { PD_FAILED_PRECONDITION, "parameter w: no" };
    tracefile file = sgd_file();
    pd_trace *trace;
    pd_error err;

    trace = tracefile_open(&file);
    assert_int_equal(pd_replay_judge_step(trace, 1, PD_OK, &ours, &err), PD_OK);
    assert_int_equal(pd_replay_judge_step(trace, 1, PD_FAILED_PRECONDITION, &ours, &err), PD_FAILED_PRECONDITION);
    assert_string_equal(err.text, "parameter w: no");
    pd_trace_close(trace);
}

TEST(a_recorded_defect_is_skipped_with_its_reason_and_excused)
{
    tracefile file = sgd_file();
    pd_replay_result r;

    tracefile_meta(&file, "quirk", "weights are written twice");
    assert_outcome(&file, PD_REPLAY_SKIPPED, "records a defect: weights are written twice");
    tracefile_meta(&file, "errors", "[{\"step\": 1}]");
    r = replayed(&file);
    assert_true(r.outcome == PD_REPLAY_SKIPPED && r.excused);
    pd_replay_result_free(&r);
}

/* The recorded optimizer failed in both steps, and ours does not fail. */
TEST(a_defect_that_we_do_not_have_is_skipped_with_its_reason)
{
    tracefile file = sgd_file();

    tracefile_meta(&file, "quirk", "nothing works");
    tracefile_meta(&file, "errors", "[{\"step\": 1}, {\"step\": 2}]");
    assert_outcome(&file, PD_REPLAY_SKIPPED, "records a defect: nothing works");
}

TEST(what_a_build_lacks_is_skipped_and_not_excused)
{
    tracefile file = sgd_file();
    pd_replay_result r = replayed_with(&file, "system", "other_system");

    assert_true(r.outcome == PD_REPLAY_SKIPPED && !r.excused);
    pd_replay_result_free(&r);
}

TEST(data_is_no_run_and_excused)
{
    tracefile file = { 0 };
    pd_replay_result r;

    tracefile_meta(&file, "system", "data");
    tracefile_meta(&file, "case", "digits");
    tracefile_meta(&file, "steps", "1");
    tracefile_add(&file, "x", g1, 2);
    r = replayed(&file);
    assert_true(r.outcome == PD_REPLAY_SKIPPED && r.excused);
    assert_non_null(strstr(r.why.text, "no run"));
    pd_replay_result_free(&r);
}

/* Parameter v is in a group with half the learning rate of w, so it moves half as far. */
TEST(each_parameter_has_the_hyperparameters_of_its_group)
{
    static const float v1[2] = { .5f, 1 }, v2[2] = { -1.5f, 1.5f };
    tracefile file = sgd_file();

    tracefile_meta(&file, "config",
                   "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"groups\": [{\"params\": [\"v\"], \"lr\": 0.25}]}");
    tracefile_add(&file, "param/0000/v", w0, 2);
    tracefile_add(&file, "grad/0001/v", g1, 2);
    tracefile_add(&file, "param/0001/v", v1, 2);
    tracefile_add(&file, "grad/0002/v", g2, 2);
    tracefile_add(&file, "param/0002/v", v2, 2);
    assert_outcome(&file, PD_REPLAY_OK, "");
    tracefile_meta(&file, "config",
                   "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"groups\": [{\"params\": [\"w\"], \"lr\": 0.25}]}");
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(a_recorded_schedule_sets_the_rate_of_each_step)
{
    static const float rates[2] = { .5f, .25f }, slower[2] = { -2, .5f };
    tracefile file = sgd_file();

    tracefile_add(&file, "table/learning_rate", rates, 2);
    file.entry[4].at = slower;
    assert_outcome(&file, PD_REPLAY_OK, "");
}

/* The configuration has no learning rate. The trace records 0.5 for step 1 and 0.25 for step 2. Each update is the
 * sign of the gradient times the rate. */
TEST(rates_may_be_recorded_where_the_configuration_has_none)
{
    static const float rates[2] = { .5f, .25f }, signs[2] = { .5f, 1.5f }, again[2] = { .25f, 1.25f };
    tracefile file = sgd_file();

    tracefile_meta(&file, "system", "t5x_adafactor");
    tracefile_meta(&file, "config",
                   "{\"learning_rate\": null, \"multiply_by_parameter_scale\": false, \"clipping_threshold\": null}");
    file.entry[2].at = signs;
    file.entry[3].at = g1;
    file.entry[4].at = again;
    assert_outcome(&file, PD_REPLAY_FAILED, "no learning rate provided");
    tracefile_add(&file, "learning_rate/0001", &rates[0], 0);
    tracefile_add(&file, "learning_rate/0002", &rates[1], 0);
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(a_parameter_without_gradient_stays)
{
    tracefile file = sgd_file();

    file.entry[3] = file.entry[4]; /* grad/0002/w goes */
    file.n--;
    file.entry[3].at = w1;
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(error_is_relative_to_what_was_recorded)
{
    static const float ours[2] = { 3, 4.5f };
    static const double recorded[2] = { 3, 4 };

    assert_true(pd_relative_error(ours, recorded, 2, 0) == .1);
}

TEST(error_is_absolute_where_zero_was_recorded)
{
    static const float ours[1] = { .25f };
    static const double recorded[1] = { 0 };

    assert_true(pd_relative_error(ours, recorded, 1, 0) == .25);
}

TEST(error_of_an_average_is_relative_to_the_larger_input)
{
    static const float ours[1] = { .25f };
    static const double recorded[1] = { 0 };

    assert_true(pd_relative_error(ours, recorded, 1, 10) == .025);
}

TEST(entries_that_are_not_finite_must_coincide)
{
    static const float ours[3] = { NAN, INFINITY, 1 };
    static const double same[3] = { NAN, INFINITY, 1 }, sign[3] = { NAN, -INFINITY, 1 }, finite[3] = { 1, INFINITY, 1 };
    static const double nan_for_one[3] = { NAN, INFINITY, NAN };

    assert_true(pd_relative_error(ours, same, 3, 0) == 0);
    assert_true(isinf(pd_relative_error(ours, sign, 3, 0)));
    assert_true(isinf(pd_relative_error(ours, finite, 3, 0)));
    assert_true(isinf(pd_relative_error(ours, nan_for_one, 3, 0)));
}

TEST(a_verdict_keeps_the_worst_and_where_it_was)
{
    pd_verdict v = { 0 }, other = { 0 };

    assert_false(pd_verdict_holds(&v, 1));
    pd_verdict_add(&v, 0, 1, 0);
    assert_true(pd_verdict_holds(&v, 0));
    pd_verdict_add(&other, 3, 7, .5);
    pd_verdict_add(&other, 4, 8, .25);
    pd_verdict_fold(&v, &other);
    assert_true(v.error == .5 && v.param == 3 && v.step == 7 && v.compared == 3);
    assert_false(pd_verdict_holds(&v, .4));
    pd_verdict_add(&v, 5, 9, NAN);
    assert_false(pd_verdict_holds(&v, 1e300));
}
