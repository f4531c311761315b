/* Tests which hyperparameters a recorded configuration asks for, and for which parameters. */
#include "test.h"
#include "recipe.h"

static int read_as(const char *system, pd_recipe *recipe, const char *config, pd_error *err)
{
    json_t *json = json_loads(config, 0, NULL);
    int rc;

    assert_non_null(json);
    rc = pd_recipe_read(recipe, system, json, err);
    json_decref(json);
    return rc;
}

static int read_recipe(pd_recipe *recipe, const char *config, pd_error *err)
{
    return read_as("torch_optim", recipe, config, err);
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

static const char grouped[] =
    "{\"optimizer\": \"SGD\", \"lr\": 0.5, \"momentum\": 0.25, \"groups\": ["
    "{\"params\": [\"a\", \"b.weight\"], \"lr\": 2}, {\"params\": [\"*\"], \"momentum\": 0, \"weight_decay\": 1}]}";

TEST(what_a_group_does_not_say_is_as_the_configuration_around_it_says)
{
    pd_recipe recipe;

    assert_int_equal(read_recipe(&recipe, grouped, NULL), PD_OK);
    assert_int_equal(recipe.n_groups, 3);
    assert_true(value_for(&recipe, "a", "lr") == 2 && value_for(&recipe, "a", "momentum") == .25 &&
                value_for(&recipe, "a", "weight_decay") == 0);
    assert_true(value_for(&recipe, "*", "lr") == .5 && value_for(&recipe, "*", "momentum") == 0 &&
                value_for(&recipe, "*", "weight_decay") == 1);
    assert_true(value_for(&recipe, "other", "lr") == .5 && value_for(&recipe, "other", "momentum") == .25);
    pd_recipe_free(&recipe);
}

TEST(parameters_of_one_group_share_its_number_and_others_do_not)
{
    pd_recipe recipe;

    assert_int_equal(read_recipe(&recipe, grouped, NULL), PD_OK);
    assert_int_equal(pd_recipe_group(&recipe, "a"), pd_recipe_group(&recipe, "b.weight"));
    assert_int_not_equal(pd_recipe_group(&recipe, "a"), pd_recipe_group(&recipe, "*"));
    assert_int_equal(pd_recipe_group(&recipe, "b"), 0);
    pd_recipe_free(&recipe);
}

TEST(each_group_becomes_a_rule_with_its_own_values)
{
    pd_recipe recipe;
    char *rule;

    assert_int_equal(read_recipe(&recipe, grouped, NULL), PD_OK);
    assert_non_null(rule = pd_recipe_rule(&recipe, 1, "1/*"));
    assert_string_equal(rule, "1/* sgd lr=2 momentum=0.25");
    free(rule);
    assert_non_null(rule = pd_recipe_rule(&recipe, 0, "*"));
    assert_string_equal(rule, "* sgd lr=0.5 momentum=0.25");
    free(rule);
    pd_recipe_free(&recipe);
}

TEST(schedules_of_groups_are_their_own)
{
    pd_recipe recipe;
    char *rule;

    assert_int_equal(
        read_recipe(
            &recipe,
            "{\"optimizer\": \"SGD\", \"lr\": {\"schedule\": \"linear_warmup\", \"peak\": 0.5, \"warmup_steps\": 4},"
            " \"groups\": [{\"params\": [\"a\"], \"lr\": {\"schedule\": \"linear_warmup\", \"peak\": 2, "
            "\"warmup_steps\": 8}}]}",
            NULL),
        PD_OK);
    assert_non_null(rule = pd_recipe_rule(&recipe, 1, "1/*"));
    assert_string_equal(rule, "1/* sgd lr=linear_warmup(peak=2,warmup_steps=8)");
    free(rule);
    assert_true(value_for(&recipe, "a", "lr") == .25 && value_for(&recipe, "b", "lr") == .125);
    pd_recipe_free(&recipe);
}

TEST(groups_that_cannot_be_are_refused_by_name)
{
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [{\"params\": [\"a\"]}, {\"params\": [\"b\", \"a\"]}]}",
                   "parameter a is in two groups");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [{\"lr\": 1}]}", "group 0 has no list of params");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [{\"params\": [3]}]}",
                   "group 0: a name in params is not a string");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [3]}", "group 0 is not an object");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": {}}", "groups is not a list");
    assert_refused("{\"optimizer\": \"SGD\", \"groups\": [{\"params\": [], \"nesterov\": true}]}", "nesterov");
}

TEST(groups_without_end_are_refused)
{
    json_t *config = json_pack("{s:s, s:[]}", "optimizer", "SGD", "groups"), *list = json_object_get(config, "groups");
    pd_recipe recipe;
    pd_error err;

    for (int i = 0; i < 1001; i++) json_array_append_new(list, json_pack("{s:[]}", "params"));
    assert_int_equal(pd_recipe_read(&recipe, "torch_optim", config, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "1001 groups, at most 1000 are supported"));
    pd_recipe_free(&recipe);
    json_array_remove(list, 1000);
    assert_int_equal(pd_recipe_read(&recipe, "torch_optim", config, &err), PD_OK);
    pd_recipe_free(&recipe);
    json_decref(config);
}

/* Checks hyperparameters of a group, given as NAME=VALUE. */
static void assert_rule_has(const pd_recipe *recipe, size_t group, const char *const *words)
{
    const pd_hypers *hypers = &recipe->groups[group];

    for (; *words != NULL; words++) {
        const char *value = strchr(*words, '=') + 1;
        char name[100], text[64];
        int index;
        snprintf(name, sizeof name, "%.*s", (int)(value - 1 - *words), *words);
        assert_true((index = pd_hypers_find(hypers->row, name)) >= 0);
        assert_string_equal(pd_hypers_text(hypers, index, text, sizeof text), value);
    }
}

TEST(lists_and_objects_of_meta_are_read_member_by_member)
{
    pd_recipe recipe;
    pd_error err;

    if (read_as("meta_shampoo", &recipe,
                "{\"betas\": [0.75, 0.875], \"inv_root_override\": [9, 1], \"grafting_config\": {\"beta2\": 0.5, "
                "\"epsilon\": 1e-3, \"type\": \"adam\"},"
                " \"precision_config\": {\"momentum_dtype\": \"bfloat16\", \"factor_matrix_dtype\": null}, "
                "\"use_merge_dims\": false}",
                &err) != PD_OK)
        fail_msg("%s", err.text);
    assert_rule_has(&recipe, 0,
                    (const char *const[]){ "betas[0]=0.75", "betas[1]=0.875", "inv_root_override[0]=9",
                                           "inv_root_override[1]=1", "inv_root_override[2]=0", "grafting_config=Adam",
                                           "grafting_config.beta2=0.5", "grafting_config.epsilon=0.001",
                                           "precision_config.momentum_dtype=bfloat16",
                                           "precision_config.factor_matrix_dtype=float32", "use_merge_dims=no", NULL });
    pd_recipe_free(&recipe);
}

TEST(null_is_off_and_one_root_is_for_blocks_of_every_order)
{
    pd_recipe recipe;
    pd_error err;

    if (read_as("meta_shampoo", &recipe,
                "{\"grafting_config\": null, \"precision_config\": null, \"preconditioner_dtype\": null, "
                "\"inv_root_override\": 3}",
                &err) != PD_OK)
        fail_msg("%s", err.text);
    assert_rule_has(&recipe, 0,
                    (const char *const[]){ "grafting_config=none", "preconditioner_dtype=none",
                                           "inv_root_override[0]=3", "inv_root_override[8]=3", NULL });
    pd_recipe_free(&recipe);
}

TEST(of_a_distribution_only_what_changes_numbers_is_read)
{
    pd_recipe recipe;
    pd_error err;

    if (read_as("meta_shampoo", &recipe,
                "{\"distributed_config\": {\"type\": \"ddp\", \"world_size\": 4, \"num_trainers_per_group\": 2, "
                "\"communicate_params\": true, \"communication_dtype\": \"BF16\"},"
                " \"use_pytorch_compile\": true}",
                &err) != PD_OK)
        fail_msg("%s", err.text);
    assert_rule_has(&recipe, 0,
                    (const char *const[]){ "num_trainers_per_group=-1", "communicate_params=yes",
                                           "communication_dtype=BF16", NULL });
    pd_recipe_free(&recipe);
    assert_int_equal(
        read_as("meta_shampoo", &recipe, "{\"distributed_config\": {\"type\": \"ddp\", \"colour\": 4}}", &err),
        PD_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "hyperparameter colour of shampoo is not implemented"));
    pd_recipe_free(&recipe);
}

/* The object grafting_config of a parameter group replaces the outer object as a whole: keys that it leaves out get
 * their defaults. */
TEST(a_group_of_meta_has_a_graft_of_its_own)
{
    pd_recipe recipe;
    pd_error err;

    if (read_as("meta_shampoo", &recipe,
                "{\"betas\": [0.75, 1], \"grafting_config\": {\"beta2\": 0.5, \"type\": \"adam\"}, \"groups\": "
                "[{\"params\": [\"b\"], \"grafting_config\": {\"type\": \"sgd\"}, \"betas\": [0, 0.5]}, {\"params\": "
                "[\"c\"], \"grafting_config\": null}]}",
                &err) != PD_OK)
        fail_msg("%s", err.text);
    assert_rule_has(
        &recipe, 0,
        (const char *const[]){ "grafting_config=Adam", "grafting_config.beta2=0.5", "betas[0]=0.75", NULL });
    assert_rule_has(&recipe, 1,
                    (const char *const[]){ "grafting_config=SGD", "grafting_config.beta2=default", "betas[0]=0",
                                           "betas[1]=0.5", NULL });
    assert_rule_has(&recipe, 2, (const char *const[]){ "grafting_config=none", "betas[0]=0.75", NULL });
    pd_recipe_free(&recipe);
}

TEST(the_rate_of_each_step_may_stand_in_the_configuration)
{
    pd_recipe recipe;
    pd_error err;
    double rate = 7;

    if (read_as("meta_shampoo", &recipe, "{\"lr\": 0.5, \"lr_schedule\": [0.25, 1]}", &err) != PD_OK)
        fail_msg("%s", err.text);
    assert_true(pd_recipe_rate(&recipe, 1, &rate) && rate == .25);
    assert_true(pd_recipe_rate(&recipe, 2, &rate) && rate == 1);
    assert_false(pd_recipe_rate(&recipe, 3, &rate));
    assert_rule_has(&recipe, 0, (const char *const[]){ "lr=0.5", NULL });
    pd_recipe_free(&recipe);
    assert_int_equal(read_as("meta_shampoo", &recipe, "{\"lr_schedule\": [0.25, \"x\"]}", &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "lr_schedule has no number for step 2"));
    pd_recipe_free(&recipe);
}

TEST(values_that_cannot_be_are_refused_with_their_name)
{
    static const char *const configs[] = { "{\"betas\": [0.5]}",
                                           "{\"betas\": [0.5, [1]]}",
                                           "{\"betas\": {\"type\": \"x\"}}",
                                           "{\"grafting_config\": {\"type\": \"lion\"}}",
                                           "{\"grafting_config\": {\"beta2\": [1]}}",
                                           "{\"lr\": [1]}",
                                           "{\"lr_schedule\": 3}" };
    static const char *const names[] = { "betas", "betas",      "betas", "grafting_config", "grafting_config.beta2",
                                         "lr",    "lr_schedule" };

    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        pd_recipe recipe;
        pd_error err = { 0 };
        int rc = read_as("meta_shampoo", &recipe, configs[i], &err);
        if (rc != PD_INVALID_ARGUMENT || strstr(err.text, names[i]) == NULL)
            fail_msg("%s: %d, \"%s\"", configs[i], rc, err.text);
        pd_recipe_free(&recipe);
    }
}

TEST(a_key_without_a_value_leaves_the_default)
{
    pd_recipe recipe;

    assert_int_equal(
        read_recipe(&recipe, "{\"optimizer\": \"Adam\", \"lr\": null, \"eps\": 0.5, \"foreach\": null}", NULL), PD_OK);
    assert_true(value_for(&recipe, "w", "lr") == 1e-3 && value_for(&recipe, "w", "eps") == .5);
    pd_recipe_free(&recipe);
}

static const char masked[] =
    "{\"learning_rate\": {\"schedule\": \"any\", \"peak\": 1}, \"b1\": 0.5, \"weight_decay\": 0.25, \"mu_dtype\": "
    "null, \"preconditioner_update_probability\": {\"schedule\": \"anneal\", \"max_prob\": 0.75, \"min_prob\": 0.5, "
    "\"decay\": 1, \"flat_start\": 2}, \"weight_decay_mask\": {\"w\": true, \"b\": false, \"layers\": true}, "
    "\"scanned_layers\": {\"w\": false, \"layers\": true}, \"params_partition_specs\": {\"w\": [\"fsdp\"]}, "
    "\"preconditioner_partition_spec\": [\"fsdp\"]}";

TEST(a_mask_of_kron_takes_the_decay_off_some)
{
    pd_recipe recipe;

    assert_int_equal(read_as("distributed_kron", &recipe, masked, NULL), PD_OK);
    assert_true(value_for(&recipe, "w", "weight_decay") == 0.25);
    assert_true(value_for(&recipe, "b", "weight_decay") == 0);
    assert_true(value_for(&recipe, "layers", "weight_decay") == 0.25);
    assert_true(value_for(&recipe, "b", "b1") == 0.5);
    assert_true(value_for(&recipe, "w", "learning_rate") == 0.0003); /* the replay takes it from the trace */
    pd_recipe_free(&recipe);
}

TEST(trees_of_kron_name_a_parameter_by_the_way_to_it)
{
    static const char config[] =
        "{\"weight_decay\": 0.25, \"weight_decay_mask\": {\"b\": true, \"e\": {\"l\": {\"w\": true, \"b\": false}}}, "
        "\"scanned_layers\": {\"b\": false, \"e\": {\"l\": {\"w\": true, \"b\": false}}}}";
    pd_recipe recipe;
    char *axes;

    assert_int_equal(read_as("distributed_kron", &recipe, config, NULL), PD_OK);
    assert_true(value_for(&recipe, "e/l/w", "weight_decay") == 0.25 && value_for(&recipe, "b", "weight_decay") == 0.25);
    assert_true(value_for(&recipe, "e/l/b", "weight_decay") == 0);
    axes = pd_recipe_axes(&recipe, "e/l/w", 2);
    assert_string_equal(axes, "layers,");
    free(axes);
    pd_recipe_free(&recipe);
}

TEST(the_probability_of_kron_is_upstreams_schedule)
{
    double at[PD_MAX_HYPERS];
    pd_recipe recipe;
    int i;

    assert_int_equal(read_as("distributed_kron", &recipe, masked, NULL), PD_OK);
    i = pd_hypers_find(recipe.groups[0].row, "preconditioner_update_probability");
    pd_hypers_at(&recipe.groups[0], 0, at);
    assert_true(at[i] == 0.75);
    pd_hypers_at(&recipe.groups[0], 9, at);
    assert_true(at[i] == 0.5);
    pd_recipe_free(&recipe);
}

TEST(a_scanned_parameter_of_kron_has_layers)
{
    static const struct {
        const char *name;
        int rank;
        const char *axes;
    } cases[] = {
        { "layers", 3, "layers,," }, { "layers", 1, "layers" }, { "w", 3, "" },
        { "unheard of", 2, "" },     { "layers", 0, "" },
    };
    pd_recipe recipe;

    assert_int_equal(read_as("distributed_kron", &recipe, masked, NULL), PD_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *axes = pd_recipe_axes(&recipe, cases[i].name, cases[i].rank);
        assert_string_equal(axes, cases[i].axes);
        free(axes);
    }
    pd_recipe_free(&recipe);
}

TEST(a_mask_of_kron_may_be_a_rule_for_dimensions)
{
    pd_recipe recipe;
    pd_error err;

    assert_int_equal(read_as("distributed_kron", &recipe,
                             "{\"weight_decay\": 1, \"weight_decay_mask\": \"callable:ndim>=2\"}", NULL),
                     PD_OK);
    assert_true(value_for(&recipe, "w", "weight_decay_min_ndim") == 2);
    pd_recipe_free(&recipe);
    assert_int_equal(read_as("distributed_kron", &recipe, "{\"weight_decay_mask\": \"callable:odd\"}", &err),
                     PD_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "weight_decay_mask"));
    pd_recipe_free(&recipe);
    assert_int_equal(read_as("distributed_kron", &recipe, "{\"block_sise\": 2}", &err), PD_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "block_sise"));
    pd_recipe_free(&recipe);
}

static const char *text_for(const pd_recipe *recipe, const char *hyper)
{
    return pd_hypers_given_text(&recipe->groups[0], pd_hypers_find(recipe->groups[0].row, hyper));
}

TEST(rules_of_adafactor_become_text)
{
    static const char config[] = "{\"learning_rate\": 0.5, \"factor_map\": [[\"it's (a|b)\", [\"BATCH\", \"ROW\"]], "
                                 "[\"x\", \"HEURISTIC\"], [\"\", null]], \"multiply_by_parameter_scale\": [[\"bias\", "
                                 "false], [\".*\", true]], \"logical_factor_rules\": {\"embed\": \"row\"}}";
    pd_recipe recipe;

    assert_int_equal(read_as("t5x_adafactor", &recipe, config, NULL), PD_OK);
    assert_string_equal(text_for(&recipe, "factor_map"), "['it''s (a|b)':(BATCH,ROW),'x':HEURISTIC,'':none]");
    assert_string_equal(text_for(&recipe, "multiply_by_parameter_scale"), "['bias':no,'.*':yes]");
    assert_string_equal(text_for(&recipe, "logical_factor_rules"), "['embed':row]");
    pd_recipe_free(&recipe);
}

TEST(null_of_adafactor_is_none)
{
    pd_recipe recipe;

    assert_int_equal(read_as("t5x_adafactor", &recipe,
                             "{\"learning_rate\": 1, \"clipping_threshold\": null, \"factor_map\": null}", NULL),
                     PD_OK);
    assert_true(value_for(&recipe, "w", "clipping_threshold") == 0);
    assert_true(value_for(&recipe, "w", "factor_map") == 0);
    pd_recipe_free(&recipe);
}

TEST(axes_and_the_first_step_are_declared)
{
    pd_recipe recipe;
    char *axes, *none;

    assert_int_equal(read_as("t5x_adafactor", &recipe,
                             "{\"learning_rate\": 1, \"start_step\": 7, \"param_axes\": {\"w\": [\"embed\", \"mlp\"]}}",
                             NULL),
                     PD_OK);
    assert_int_equal(recipe.start_step, 7);
    axes = pd_recipe_axes(&recipe, "w", 2);
    none = pd_recipe_axes(&recipe, "b", 2);
    assert_string_equal(axes, "embed,mlp");
    assert_string_equal(none, "");
    free(axes);
    free(none);
    pd_recipe_free(&recipe);
    assert_int_equal(read_as("t5x_adafactor", &recipe, "{\"learning_rate\": 1, \"start_step\": -1}", NULL),
                     PD_INVALID_ARGUMENT);
    pd_recipe_free(&recipe);
}

TEST(a_run_of_nadam_from_before_torch_2_has_its_defect)
{
    pd_recipe recipe;

    assert_int_equal(read_recipe(&recipe, "{\"optimizer\": \"NAdam\", \"lr\": 1, \"betas\": [0.5, 0.75]}", NULL),
                     PD_OK);
    assert_true(value_for(&recipe, "w", "mu_counted_twice") == 1 && value_for(&recipe, "w", "betas[1]") == .75);
    pd_recipe_free(&recipe);
    assert_int_equal(read_recipe(&recipe, "{\"optimizer\": \"NAdam\", \"lr\": 1, \"differentiable\": false}", NULL),
                     PD_OK);
    assert_true(value_for(&recipe, "w", "mu_counted_twice") == 0);
    pd_recipe_free(&recipe);
}

/* Classes of 2026 have upstream's names without their last words; lists of exponents are lists of pairs here. */
TEST(classes_of_meta_are_read_word_by_word)
{
    pd_recipe recipe;
    pd_error err;

    if (read_as(
            "meta_head", &recipe,
            "{\"epsilon\": 0.0, \"weight_decay_type\": \"CORRECTED\", \"target_parameter_dimensionality\": \"inf\", "
            "\"grafting_config\": {\"type\": \"AdaGradPreconditionerConfig\", \"epsilon\": 1e-3}, "
            "\"iterate_averaging_config\": {\"type\": \"ClassicMomentumConfig\", \"dampening\": 0.25}, "
            "\"preconditioner_config\": {\"type\": \"RootInvShampooPreconditionerConfig\", \"use_symmetric_packing\": "
            "false, \"use_trace_scaling\": true, \"inverse_exponent_override\": {\"1\": 0.5, \"2\": {\"0\": 0.25}}, "
            "\"amortized_computation_config\": {\"type\": \"EigenConfig\", \"rank_deficient_stability_config\": "
            "{\"type\": \"PseudoInverseConfig\", \"rank_atol\": 0.125, \"rank_rtol\": null}}}}",
            &err) != PD_OK)
        fail_msg("%s", err.text);
    assert_rule_has(&recipe, 0,
                    (const char *const[]){
                        "semantics=2026", "weight_decay_type=CORRECTED", "target_parameter_dimensionality=inf",
                        "grafting_config=Adagrad", "grafting_config.epsilon=0.001", "momentum=0.5", "dampening=0.25",
                        "preconditioner_config=RootInvShampoo", "preconditioner_config.trace_scaling_exponent=0.5",
                        "inverse_exponent_override=[1:0.5,2:[0:0.25]]", "root_inverse_method=eigen",
                        "rank_deficient_stability_config=PseudoInverse",
                        "rank_deficient_stability_config.rank_atol=0.125",
                        "rank_deficient_stability_config.rank_rtol=default", NULL });
    pd_recipe_free(&recipe);
}

TEST(bases_of_meta_are_read_with_their_iteration)
{
    pd_recipe recipe;
    pd_error err;

    if (read_as(
            "meta_soap", &recipe,
            "{\"preconditioner_config\": {\"type\": \"EigenvalueCorrectedShampooPreconditionerConfig\", "
            "\"ignored_basis_change_dims\": {\"1\": [0], \"3\": [0, 2]}, \"amortized_computation_config\": {\"type\": "
            "\"QREigendecompositionConfig\", \"tolerance\": 0.25, \"max_iterations\": 3}}}",
            &err) != PD_OK)
        fail_msg("%s", err.text);
    assert_rule_has(&recipe, 0,
                    (const char *const[]){ "preconditioner_config=EigenvalueCorrectedShampoo", "root_inverse_method=qr",
                                           "root_inverse_tolerance=0.25", "root_inverse_max_iterations=3",
                                           "ignored_basis_change_dims=[1:[0],3:[0,2]]", NULL });
    pd_recipe_free(&recipe);
}

TEST(averages_of_iterates_are_read_but_for_other_powers)
{
    pd_recipe recipe;

    assert_int_equal(read_as("meta_head", &recipe,
                             "{\"iterate_averaging_config\": {\"type\": \"ScheduleFreeConfig\", "
                             "\"eval_coeff_lr_power\": 2}}",
                             NULL),
                     PD_OK);
    assert_null(recipe.left_out);
    assert_rule_has(&recipe, 0,
                    (const char *const[]){ "iterate_averaging_config.train_interp_coeff=0.8",
                                           "iterate_averaging_config.eval_interp_coeff=schedule_free", NULL });
    pd_recipe_free(&recipe);
    assert_int_equal(read_as("meta_head", &recipe,
                             "{\"iterate_averaging_config\": {\"type\": \"GeneralizedPrimalAveragingConfig\", "
                             "\"eval_interp_coeff\": 0.5}}",
                             NULL),
                     PD_OK);
    assert_rule_has(&recipe, 0,
                    (const char *const[]){ "iterate_averaging_config.train_interp_coeff=0.8",
                                           "iterate_averaging_config.eval_interp_coeff=0.5", NULL });
    pd_recipe_free(&recipe);
    assert_int_equal(read_as("meta_head", &recipe,
                             "{\"iterate_averaging_config\": {\"type\": \"ScheduleFreeConfig\", "
                             "\"eval_coeff_lr_power\": 1}}",
                             NULL),
                     PD_OK);
    assert_non_null(recipe.left_out);
    pd_recipe_free(&recipe);
}

#define SOLVER(type)                                                                                                   \
    "{\"preconditioner_config\": {\"type\": \"RootInvShampooPreconditionerConfig\", "                                  \
    "\"amortized_computation_config\": "                                                                               \
    "{\"type\": \"" type "\"}}}"

TEST(unknown_classes_of_meta_are_refused)
{
    pd_recipe recipe;
    pd_error err;

    assert_int_equal(read_as("meta_head", &recipe, SOLVER("CoupledNewtonConfig"), &err), PD_OK);
    pd_recipe_free(&recipe);
    assert_int_equal(read_as("meta_head", &recipe, SOLVER("MagicConfig"), &err), PD_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "MagicConfig is not implemented"));
    pd_recipe_free(&recipe);
    assert_int_equal(read_as("meta_head", &recipe, "{\"grafting_config\": {\"type\": \"Adam\"}}", &err),
                     PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "grafting_config has no type that ends in Preconditioner"));
    pd_recipe_free(&recipe);
}
