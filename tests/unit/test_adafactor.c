/* Tests the optimizer adafactor: which declarations it refuses, which state it keeps, and how its steps depend on each
 * other. */
#include <jansson.h>

#include "test.h"
#include "golden.h"
#include "optimizer.h"

static pd_hypers hypers;
static pd_error err;

static int set_up(void **state)
{
    (void)state;
    memset(&err, 0, sizeof err);
    pd_hypers_init(&hypers, pd_optim_find("adafactor"));
    return pd_hypers_set(&hypers, "learning_rate", "0.1", &err);
}

static int tear_down(void **state)
{
    (void)state;
    pd_hypers_free(&hypers);
    return 0;
}

static void set(const char *name, const char *value)
{
    if (pd_hypers_set(&hypers, name, value, &err) != PD_OK) fail_msg("%s", err.text);
}

static void says(const char *words)
{
    if (strstr(err.text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static pd_declaration parameter(pd_shape shape)
{
    return (pd_declaration){ .name = "encoder/kernel", .shape = shape, .hypers = hypers };
}

static int plan_of(pd_plan *plan, const pd_declaration *declaration)
{
    double stats[PD_MAX_MODEL_STATS];

    pd_model_stats_of(declaration->hypers.row, declaration, 1, stats);
    return pd_plan_make(plan, declaration, stats, &err);
}

/* Checks that the declaration is refused with an error that names the parameter and contains `words`. */
static void is_refused(const pd_declaration *declaration, const char *words)
{
    pd_plan plan;

    assert_int_equal(plan_of(&plan, declaration), PD_INVALID_ARGUMENT);
    says("parameter encoder/kernel: ");
    says(words);
}

static void is_refused_as_shaped(pd_shape shape, const char *words)
{
    pd_declaration declaration = parameter(shape);
    is_refused(&declaration, words);
}

static pd_plan planned(const pd_declaration *declaration)
{
    pd_plan plan;

    if (plan_of(&plan, declaration) != PD_OK) fail_msg("%s", err.text);
    return plan;
}

EACH_TEST(set_up, tear_down);

HOLDS(refuses_rank_three_without_a_rule,
      is_refused_as_shaped((pd_shape){ 3, { 2, 3, 4 } }, "must have an explicit factorization rule"));

TEST(refuses_rank_three_by_heuristic)
{
    set("factor_map", "['.*':HEURISTIC]");
    is_refused_as_shaped((pd_shape){ 3, { 2, 3, 4 } }, "must have an explicit factorization rule");
}

TEST(refuses_a_rule_of_another_rank)
{
    set("factor_map", "['.*':(ROW,COLUMN)]");
    is_refused_as_shaped((pd_shape){ 3, { 2, 3, 4 } }, "incorrect rank for its shape (2, 3, 4): expected one for each "
                                                       "of 3 dimensions, got 2; a rule for it alone can stand before");
}

HOLDS(
    names_every_way_out_for_a_rank_above_two,
    is_refused_as_shaped((pd_shape){ 3, { 2, 3, 4 } },
                         "give one in factor_map, or name its axes and set logical_factor_rules, or use factored=no"));

TEST(quotes_what_is_not_a_regular_expression)
{
    set("factor_map", "['(a':HEURISTIC]");
    is_refused_as_shaped((pd_shape){ 2, { 3, 4 } },
                         "factor_map: \"(a\" is an invalid regular expression: missing closing parenthesis at byte 2");
}

TEST(refuses_a_parameter_without_a_rule)
{
    set("factor_map", "['decoder':HEURISTIC]");
    is_refused_as_shaped((pd_shape){ 2, { 3, 4 } },
                         "factor_map: no expression matches the parameter's name: add a last one, '.*'");
}

TEST(refuses_a_map_where_nothing_is_factored)
{
    set("factored", "no");
    set("factor_map", "['.*':none]");
    is_refused_as_shaped((pd_shape){ 2, { 3, 4 } }, "factorization rules have been provided");
}

TEST(refuses_to_go_without_a_learning_rate)
{
    set("learning_rate", "none");
    is_refused_as_shaped((pd_shape){ 2, { 3, 4 } }, "no learning rate provided");
}

TEST(refuses_a_scale_option_that_is_no_flag)
{
    set("multiply_by_parameter_scale", "0.5");
    is_refused_as_shaped((pd_shape){ 2, { 3, 4 } }, "must be either yes, no or rules");
    set("multiply_by_parameter_scale", "['.*':0.5]");
    is_refused_as_shaped((pd_shape){ 2, { 3, 4 } }, "expected yes or no");
    set("multiply_by_parameter_scale", "['bias':no]");
    is_refused_as_shaped((pd_shape){ 2, { 3, 4 } }, "no expression matches");
}

TEST(takes_any_rank_without_factors)
{
    pd_declaration declaration;
    pd_plan plan;
    set("factored", "no");
    declaration = parameter((pd_shape){ 3, { 2, 3, 4 } });
    plan = planned(&declaration);
    pd_plan_free(&plan);
    set("factored", "yes");
    set("factor_map", "['.*':none]");
    declaration = parameter((pd_shape){ 3, { 2, 3, 4 } });
    plan = planned(&declaration);
    assert_true(pd_plan_state_bytes(&plan) == 24 * 4);
    pd_plan_free(&plan);
}

TEST(refuses_mixed_and_unknown_axes)
{
    pd_declaration declaration;
    set("logical_factor_rules", "standard");
    declaration = parameter((pd_shape){ 3, { 2, 3, 4 } });
    declaration.axes = "embed,mlp,relpos_buckets";
    is_refused(&declaration, "incomplete rule");
    declaration.axes = "embed,mlp,colour";
    is_refused(&declaration, "unknown axis \"colour\"");
    declaration.axes = "embed,mlp";
    is_refused(&declaration, "expected 3 names");
}

TEST(refuses_a_parameter_without_axes_beside_others_that_have_some)
{
    pd_declaration both[2];
    double stats[PD_MAX_MODEL_STATS];
    pd_plan plan;
    set("logical_factor_rules", "standard");
    both[0] = both[1] = parameter((pd_shape){ 2, { 3, 4 } });
    both[0].axes = "embed,mlp";
    pd_model_stats_of(hypers.row, both, 2, stats);
    assert_int_equal(pd_plan_make(&plan, &both[1], stats, &err), PD_INVALID_ARGUMENT);
    says("others of the job have: declare its axes");
    both[1].shape = (pd_shape){ 0 };
    assert_int_equal(pd_plan_make(&plan, &both[1], stats, &err), PD_OK);
    pd_plan_free(&plan);
}

TEST(refuses_steps_that_begin_before_their_offset)
{
    pd_declaration declaration;
    pd_plan plan;
    set("step_offset", "3");
    declaration = parameter((pd_shape){ 1, { 4 } });
    declaration.start_step = 2;
    is_refused(&declaration, "step_offset of adafactor: expected at most the job's first step");
    declaration.start_step = 3;
    plan = planned(&declaration);
    pd_plan_free(&plan);
}

TEST(refuses_values_outside_their_ranges)
{
    static const struct {
        const char *name, *value;
    } cases[] = { { "beta1", "1" }, { "beta1", "-0.5" }, { "decay_rate", "0" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pd_hypers own;
        pd_hypers_init(&own, hypers.row);
        assert_int_equal(pd_hypers_set(&own, cases[i].name, cases[i].value, &err), PD_OK);
        assert_int_equal(pd_hypers_check(&own, &err), PD_INVALID_ARGUMENT);
        says(cases[i].name);
    }
    assert_int_equal(pd_hypers_set(&hypers, "clipping_threshold", "-1", &err), PD_OUT_OF_RANGE);
    assert_int_equal(pd_hypers_set(&hypers, "max_parameter_scale", "-1", &err), PD_OUT_OF_RANGE);
    assert_int_equal(pd_hypers_set(&hypers, "epsilon1", "-1", &err), PD_OUT_OF_RANGE);
}

TEST(refuses_momentum_that_comes_or_goes)
{
    pd_hypers now = hypers;
    assert_int_equal(pd_hypers_set(&now, "beta1", "0.9", &err), PD_OK);
    assert_int_equal(pd_hypers_check_step(&hypers, &now, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_hypers_check_step(&now, &hypers, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_hypers_set(&now, "beta1", "none", &err), PD_OK);
    assert_int_equal(pd_hypers_set(&now, "learning_rate", "none", &err), PD_OK);
    assert_int_equal(pd_hypers_check_step(&hypers, &now, &err), PD_INVALID_ARGUMENT);
}

/* Checks that the list `covered` names every declaration that the original adafactor (t5x) refused when the
 * reference data was recorded. Each refused declaration has its own test above. */
TEST(covers_what_upstream_refuses)
{
    static const char *const covered[] = {
        "rank 3 without an explicit rule",
        "rank 3 with HEURISTIC rule",
        "rule of wrong rank",
        "no rule matches",
        "factored=False together with factor_map",
        "no learning rate at update time",
        "multiply_by_parameter_scale not bool",
        "rank 3, factored=False",
        "rule None (unfactored) for rank 3",
        "logical axes ROW, COLUMN and NONE mixed",
        "unknown logical axis",
    };
    json_t *list = golden_table("t5x_adafactor/refused.json"), *entry;
    size_t i;
    json_array_foreach(list, i, entry)
    {
        const char *what = json_string_value(json_object_get(entry, "what"));
        bool found = false;
        for (size_t k = 0; k < sizeof covered / sizeof *covered; k++) found |= strcmp(what, covered[k]) == 0;
        if (!found) fail_msg("no test of: %s", what);
    }
    json_decref(list);
}

static void has_slot(const pd_plan *plan, size_t i, const char *name, pd_shape shape)
{
    assert_string_equal(plan->slots[i].name, name);
    assert_true(pd_shape_equal(&plan->slots[i].shape, &shape));
}

TEST(moments_lack_the_dimensions_that_they_average_over)
{
    pd_declaration declaration;
    pd_plan plan;
    set("factor_map", "['.*':(BATCH,ROW,COLUMN,COLUMN)]");
    declaration = parameter((pd_shape){ 4, { 2, 6, 3, 4 } });
    plan = planned(&declaration);
    has_slot(&plan, 0, "v_row", (pd_shape){ 2, { 2, 6 } });
    has_slot(&plan, 1, "v_col", (pd_shape){ 3, { 2, 3, 4 } });
    assert_true(pd_plan_state_bytes(&plan) == 4 * (12 + 24));
    pd_plan_free(&plan);
}

TEST(moments_say_which_dimensions_they_follow)
{
    pd_declaration declaration;
    pd_plan plan;
    set("factor_map", "['.*':(COLUMN,BATCH,ROW,COLUMN)]");
    declaration = parameter((pd_shape){ 4, { 2, 6, 3, 4 } });
    plan = planned(&declaration);
    assert_true(plan.slots[0].follows_known && plan.slots[1].follows_known);
    assert_true(plan.slots[0].follows[0] == 1 && plan.slots[0].follows[1] == 2);
    assert_true(plan.slots[1].follows[0] == 0 && plan.slots[1].follows[1] == 1 && plan.slots[1].follows[2] == 3);
    pd_plan_free(&plan);
}

TEST(momentum_is_state_only_where_it_is_asked_for)
{
    pd_declaration declaration;
    pd_plan plan;
    declaration = parameter((pd_shape){ 1, { 10 } });
    plan = planned(&declaration);
    has_slot(&plan, 0, "v", (pd_shape){ 1, { 10 } });
    assert_true(pd_plan_state_bytes(&plan) == 40);
    pd_plan_free(&plan);
    set("beta1", "0");
    declaration = parameter((pd_shape){ 1, { 10 } });
    plan = planned(&declaration);
    has_slot(&plan, 1, "m", (pd_shape){ 1, { 10 } });
    assert_true(pd_plan_state_bytes(&plan) == 80);
    pd_plan_free(&plan);
    set("dtype_momentum", "bfloat16");
    declaration = parameter((pd_shape){ 1, { 10 } });
    plan = planned(&declaration);
    assert_true(pd_plan_state_bytes(&plan) == 60);
    pd_plan_free(&plan);
}

TEST(a_large_matrix_needs_little_besides)
{
    pd_declaration declaration = parameter((pd_shape){ 2, { 8192, 8192 } });
    pd_plan plan = planned(&declaration);
    assert_true(pd_plan_state_bytes(&plan) == 2 * 4 * 8192);
    assert_true(pd_plan_step_bytes(&plan) < 4 * 8192ll * 8192 / 32);
    assert_true(plan.n_blocks >= 32);
    pd_plan_free(&plan);
}

TEST(sums_of_few_long_rows_are_not_kept_by_the_block)
{
    pd_declaration declaration;
    pd_plan plan;
    set("min_dim_size_to_factor", "2");
    declaration = parameter((pd_shape){ 2, { 40, 70000 } });
    plan = planned(&declaration);
    assert_true(pd_plan_step_bytes(&plan) < 4 * 40ll * 70000 / 2);
    pd_plan_free(&plan);
}

TEST(blocks_cover_each_element_once)
{
    static const pd_shape shapes[] = {
        { 2, { 5000, 70 } }, { 2, { 70, 5000 } }, { 1, { 200001 } }, { 2, { 3, 4 } }, { 0 },
        { 2, { 0, 4 } },     { 2, { 1, 300000 } }
    };
    set("min_dim_size_to_factor", "1");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        pd_declaration declaration = parameter(shapes[i]);
        pd_plan plan = planned(&declaration);
        int64_t sum = 0;
        for (size_t b = 0; b < plan.n_blocks; b++) {
            int64_t elements = 1;
            for (int d = 0; d < plan.shape.rank; d++) elements *= plan.blocks[b].size[d];
            assert_true(elements > 0);
            sum += elements;
        }
        assert_true(sum == plan.elements);
        pd_plan_free(&plan);
    }
}

TEST(says_that_a_rule_is_ignored)
{
    pd_declaration declaration;
    pd_plan plan;
    set("factor_map", "['.*':(ROW,COLUMN)]");
    declaration = parameter((pd_shape){ 2, { 3, 4 } });
    plan = planned(&declaration);
    assert_string_equal(
        plan.note,
        "factorization rule (ROW,COLUMN) is ignored: a parameter of rank at most 2 without BATCH goes by HEURISTIC");
    pd_plan_free(&plan);
    set("factor_map", "['.*':(BATCH,COLUMN)]");
    declaration = parameter((pd_shape){ 2, { 3, 4 } });
    plan = planned(&declaration);
    assert_string_equal(plan.note, "");
    pd_plan_free(&plan);
}

TEST(says_that_a_table_of_axes_has_no_effect)
{
    pd_declaration declaration;
    pd_plan plan;
    set("logical_factor_rules", "standard");
    declaration = parameter((pd_shape){ 2, { 3, 4 } });
    plan = planned(&declaration);
    assert_non_null(strstr(plan.note, "logical_factor_rules has no effect"));
    pd_plan_free(&plan);
}

enum { SIDE = 6, ELEMENTS = SIDE * SIDE };

/* Sets w to 1, then takes `steps` steps with the same gradient. */
static void take_steps(pd_shape shape, const float *g, float *w, int64_t n, int steps)
{
    pd_declaration declaration = parameter(shape);
    pd_step_io io = { .gradient = g, .before = w, .after = w };
    pd_model *model;

    for (int64_t i = 0; i < n; i++) w[i] = 1;
    if (pd_model_new(&model, &declaration, 1, 1, &err) != PD_OK) fail_msg("%s", err.text);
    for (int i = 0; i < steps; i++) assert_int_equal(pd_model_step(model, &io, &err), PD_OK);
    pd_model_free(model);
}

TEST(the_first_step_of_a_vector_is_its_signs)
{
    const float g[4] = { 3, -0.01f, 1e-5f, -7 };
    float w[4];
    take_steps((pd_shape){ 1, { 4 } }, g, w, 4, 1);
    for (int i = 0; i < 4; i++) assert_true(fabsf(w[i] - (g[i] > 0 ? 0.9f : 1.1f)) < 1e-6f);
}

/* The square of one gradient element is within float32's range, but the sum of two squares is not, so their mean is
 * infinite. */
TEST(a_mean_is_infinite_where_its_sum_leaves_float32)
{
    const float g[4] = { 1.5e19f, 1.5e19f, 1.5e19f, 1.5e19f };
    float w[4];
    set("min_dim_size_to_factor", "2");
    take_steps((pd_shape){ 2, { 2, 2 } }, g, w, 4, 1);
    assert_true(isnan(w[0]));
    set("factored", "no");
    set("clipping_threshold", "none");
    take_steps((pd_shape){ 2, { 2, 2 } }, g, w, 4, 1);
    assert_true(isfinite(w[0]));
}

/* At a late step the factor by which the new square is added to the moment is 0 in float32. An infinite square times
 * 0 is NaN. With skip_nan_updates, neither the moment nor the weight of that element changes. */
TEST(an_infinite_square_with_a_share_of_0_moves_no_weight)
{
    const float g[4] = { 1, INFINITY, 1e20f, -2 };
    float w[4], after[4];
    pd_declaration declaration;
    pd_step_io io = { .gradient = (const float[]){ 1, 1, 1, 1 }, .before = w, .after = after };
    pd_model *model;
    set("decay_rate", "3");
    set("clipping_threshold", "none");
    set("skip_nan_updates", "yes");
    declaration = parameter((pd_shape){ 1, { 4 } });
    declaration.start_step = 100; /* in step 100 the new square enters the moment with the factor 101^-3 = 1e-6,
                                   * which is not 0 */
    for (int i = 0; i < 4; i++) w[i] = 1;
    assert_int_equal(pd_model_new(&model, &declaration, 1, 1, &err), PD_OK);
    assert_int_equal(pd_model_step(model, &io, &err), PD_OK);
    pd_model_free(model);
    assert_true(isfinite(after[1]) && after[1] != 1);
    declaration.start_step = 1000;
    io.gradient = g;
    assert_int_equal(pd_model_new(&model, &declaration, 1, 1, &err), PD_OK);
    assert_int_equal(pd_model_step(model, &io, &err), PD_OK);
    pd_model_free(model);
    assert_true(after[1] == 1 && after[2] == 1);
    assert_true(after[0] != 1 && after[3] != 1);
}

TEST(a_step_does_not_depend_on_the_gradients_size)
{
    float g[ELEMENTS], w[ELEMENTS], again[ELEMENTS];
    set("min_dim_size_to_factor", "2");
    for (int i = 0; i < ELEMENTS; i++) g[i] = (float)((i * 7) % 11 - 5) / 4;
    take_steps((pd_shape){ 2, { SIDE, SIDE } }, g, w, ELEMENTS, 3);
    for (int i = 0; i < ELEMENTS; i++) g[i] *= 1024;
    take_steps((pd_shape){ 2, { SIDE, SIDE } }, g, again, ELEMENTS, 3);
    for (int i = 0; i < ELEMENTS; i++) assert_true(fabsf(w[i] - again[i]) < 1e-6f);
}

TEST(stacked_layers_step_as_each_would_alone)
{
    float g[2 * ELEMENTS], w[2 * ELEMENTS], alone[ELEMENTS];
    for (int i = 0; i < 2 * ELEMENTS; i++) g[i] = (float)((i * 7) % 11 - 5) / (i < ELEMENTS ? 4 : 400);
    set("factor_map", "['.*':(BATCH,ROW,COLUMN)]");
    take_steps((pd_shape){ 3, { 2, SIDE, SIDE } }, g, w, 2 * ELEMENTS, 3);
    set("factor_map", "");
    set("min_dim_size_to_factor", "2");
    for (int layer = 0; layer < 2; layer++) {
        take_steps((pd_shape){ 2, { SIDE, SIDE } }, g + layer * ELEMENTS, alone, ELEMENTS, 3);
        assert_memory_equal(alone, w + layer * ELEMENTS, sizeof alone);
    }
}

TEST(bfloat16_weights_stay_bfloat16)
{
    float g[ELEMENTS], w[ELEMENTS];
    set("param_dtype", "bfloat16");
    set("weight_decay_rate", "0.013");
    for (int i = 0; i < ELEMENTS; i++) g[i] = (float)((i * 7) % 11 - 5) / 4;
    take_steps((pd_shape){ 2, { SIDE, SIDE } }, g, w, ELEMENTS, 3);
    for (int i = 0; i < ELEMENTS; i++) {
        uint32_t bits;
        memcpy(&bits, &w[i], sizeof bits);
        assert_true((bits & 0xffff) == 0);
    }
}

TEST(a_parameter_without_elements_takes_steps)
{
    float none[1] = { 0 };
    set("min_dim_size_to_factor", "0");
    take_steps((pd_shape){ 2, { 0, 5 } }, none, none, 0, 2);
    take_steps((pd_shape){ 1, { 0 } }, none, none, 0, 2);
}

TEST(the_rule_of_a_group_asks_for_its_norm)
{
    assert_true(hypers.row->clip_norm(hypers.value) == 0);
    set("global_norm_clip_threshold", "2.5");
    assert_true(hypers.row->clip_norm(hypers.value) == 2.5);
}

TEST(without_memory_nothing_is_declared)
{
    pd_declaration declaration;
    int64_t n;
    set("factor_map", "['(en|de)coder':(BATCH,ROW,COLUMN)]");
    set("multiply_by_parameter_scale", "['kernel':no]");
    set("beta1", "0.9");
    declaration = parameter((pd_shape){ 3, { 2, 300, 300 } });
    for (n = 0;; n++) {
        pd_model *model = NULL;
        bool failed;
        int rc;
        oom_arm(n);
        rc = pd_model_new(&model, &declaration, 1, 1, &err);
        failed = oom_disarm();
        if (rc == PD_OK)
            pd_model_free(model);
        else
            assert_int_equal(rc, PD_NO_MEMORY);
        if (!failed) break;
    }
    assert_true(n > 20);
}
