/* Which hyperparameters does a recorded configuration ask for, of which parameter? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recipe.h"

static int read_recipe(pd_recipe *recipe, const char *config, pd_error *err)
{
    json_t *json = json_loads(config, 0, NULL);
    int rc;

    assert_non_null(json);
    rc = pd_recipe_read(recipe, "torch_optim", json, err);
    json_decref(json);
    return rc;
}

static double value_for(const pd_recipe *recipe, const char *param, const char *hyper)
{
    const pd_hypers *hypers = &recipe->groups[pd_recipe_group(recipe, param)];

    return hypers->value[pd_hypers_find(hypers->row, hyper)];
}

static void assert_refused(const char *config, const char *part_of_why)
{
    pd_recipe recipe;
    pd_error err = { 0 };

    if (read_recipe(&recipe, config, &err) != PD_INVALID_ARGUMENT) fail_msg("%s: %s", config, err.text);
    if (strstr(err.text, part_of_why) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part_of_why);
    pd_recipe_free(&recipe);
}

static const char grouped[] = "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"momentum\": 0.25, \"groups\": ["
                              "{\"params\": [\"a\", \"b.weight\"], \"lr\": 2}, {\"params\": [\"*\"], \"momentum\": 0, \"weight_decay\": 1}]}";

static void what_a_group_does_not_say_is_as_the_configuration_around_it_says(void **state)
{
    pd_recipe recipe;

    (void)state;
    assert_int_equal(read_recipe(&recipe, grouped, NULL), PD_OK);
    assert_int_equal(recipe.n_groups, 3);
    assert_true(value_for(&recipe, "a", "lr") == 2 && value_for(&recipe, "a", "momentum") == .25 && value_for(&recipe, "a", "weight_decay") == 0);
    assert_true(value_for(&recipe, "*", "lr") == .5 && value_for(&recipe, "*", "momentum") == 0 && value_for(&recipe, "*", "weight_decay") == 1);
    assert_true(value_for(&recipe, "other", "lr") == .5 && value_for(&recipe, "other", "momentum") == .25);
    pd_recipe_free(&recipe);
}

static void parameters_of_one_group_share_its_number_and_others_do_not(void **state)
{
    pd_recipe recipe;

    (void)state;
    assert_int_equal(read_recipe(&recipe, grouped, NULL), PD_OK);
    assert_int_equal(pd_recipe_group(&recipe, "a"), pd_recipe_group(&recipe, "b.weight"));
    assert_int_not_equal(pd_recipe_group(&recipe, "a"), pd_recipe_group(&recipe, "*"));
    assert_int_equal(pd_recipe_group(&recipe, "b"), 0);
    pd_recipe_free(&recipe);
}

static void each_group_becomes_a_rule_with_its_own_values(void **state)
{
    pd_recipe recipe;
    char *rule;

    (void)state;
    assert_int_equal(read_recipe(&recipe, grouped, NULL), PD_OK);
    assert_non_null(rule = pd_recipe_rule(&recipe, 1, "1/*"));
    assert_string_equal(rule, "1/* sgd lr=2 momentum=0.25 dampening=0 weight_decay=0 nesterov=no maximize=no");
    free(rule);
    assert_non_null(rule = pd_recipe_rule(&recipe, 0, "*"));
    assert_string_equal(rule, "* sgd lr=0.5 momentum=0.25 dampening=0 weight_decay=0 nesterov=no maximize=no");
    free(rule);
    pd_recipe_free(&recipe);
}

static void schedules_of_groups_are_their_own(void **state)
{
    pd_recipe recipe;
    char *rule;

    (void)state;
    assert_int_equal(read_recipe(&recipe, "{\"optimizer\": \"SGD\", \"lr\": {\"schedule\": \"linear_warmup\", \"peak\": 0.5, \"warmup_steps\": 4},"
                                          " \"groups\": [{\"params\": [\"a\"], \"lr\": {\"schedule\": \"linear_warmup\", \"peak\": 2, \"warmup_steps\": 8}}]}", NULL), PD_OK);
    assert_non_null(rule = pd_recipe_rule(&recipe, 1, "1/*"));
    assert_non_null(strstr(rule, " lr=linear_warmup(peak=2,warmup_steps=8) "));
    free(rule);
    assert_true(value_for(&recipe, "a", "lr") == .25 && value_for(&recipe, "b", "lr") == .125);
    pd_recipe_free(&recipe);
}

static void groups_that_cannot_be_are_refused_by_name(void **state)
{
    (void)state;
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [{\"params\": [\"a\"]}, {\"params\": [\"b\", \"a\"]}]}", "parameter a is in two groups");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [{\"lr\": 1}]}", "group 0 has no list of params");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [{\"params\": [3]}]}", "group 0: a name in params is no text");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [3]}", "group 0 is no object");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": {}}", "groups is no list");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [{\"params\": [], \"nesterov\": true}]}", "nesterov");
}

static void groups_without_end_are_refused(void **state)
{
    json_t *config = json_pack("{s:s, s:[]}", "optimizer", "SGD", "groups"), *list = json_object_get(config, "groups");
    pd_recipe recipe;
    pd_error err;

    (void)state;
    for (int i = 0; i < 1001; i++) json_array_append_new(list, json_pack("{s:[]}", "params"));
    assert_int_equal(pd_recipe_read(&recipe, "torch_optim", config, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "1001 groups; a replay takes at most 1000"));
    pd_recipe_free(&recipe);
    json_array_remove(list, 1000);
    assert_int_equal(pd_recipe_read(&recipe, "torch_optim", config, &err), PD_OK);
    pd_recipe_free(&recipe);
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_group_does_not_say_is_as_the_configuration_around_it_says),
        cmocka_unit_test(parameters_of_one_group_share_its_number_and_others_do_not),
        cmocka_unit_test(each_group_becomes_a_rule_with_its_own_values),
        cmocka_unit_test(schedules_of_groups_are_their_own),
        cmocka_unit_test(groups_that_cannot_be_are_refused_by_name),
        cmocka_unit_test(groups_without_end_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
