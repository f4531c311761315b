/* Tests how names of optimizer state in files of other programs are read. */
#include "test.h"
#include "state_keys.h"

static const char *const names[] = { "a", "a.b", "layers.0.bias", "layers.0.weight", "state.x", "w[1]" };
static pd_state_key key;

static pd_key_kind read_key(const char *text)
{
    pd_state_key_read(&key, text, names, sizeof names / sizeof *names);
    return key.kind;
}

static void assert_part(const char *text, const char *name, const char *slot, int number, int block)
{
    if (read_key(text) != PD_KEY_PART) fail_msg("%s is no part", text);
    assert_string_equal(names[key.param], name);
    assert_string_equal(key.slot, slot);
    assert_int_equal(key.number, number);
    assert_int_equal(key.block, block);
}

TEST(reads_metas_flat_keys_behind_the_parameters_name)
{
    assert_part("layers.0.weight[\"block_3\", \"shampoo\", \"factor_matrices\", 1, \"quantized_values\"]",
                "layers.0.weight", "factor_matrices", 1, 3);
    assert_part("layers.0.weight.[\"block_0\", \"shampoo\", \"inv_factor_matrices\", 0, \"quantized_values\"]",
                "layers.0.weight", "inv_factor_matrices", 0, 0);
    assert_part("state/layers.0.bias/[\"block_0\", \"adagrad\", \"quantized_values\"]", "layers.0.bias",
                "grafting_second_moment", -1, 0);
    assert_part("state.layers.0.bias[\"block_0\",\"momentum\",\"quantized_values\"]", "layers.0.bias", "momentum", -1,
                0);
    assert_part("a[\"block_12\", \"filtered_grad\", \"quantized_values\"]", "a", "filtered_grad", -1, 12);
}

TEST(the_step_is_a_counter)
{
    assert_int_equal(read_key("layers.0.weight[\"step\"]"), PD_KEY_COUNT);
    assert_string_equal(names[key.param], "layers.0.weight");
    assert_int_equal(read_key("layers.0.weight.step"), PD_KEY_COUNT);
}

HOLDS(what_follows_from_the_rest_is_passed_over,
      assert_int_equal(read_key("a[\"block_0\", \"shampoo\", \"is_factor_matrices_diagonal\", 0]"), PD_KEY_DERIVED));

TEST(reads_our_own_names)
{
    assert_part("layers.0.weight.block_3.factor_matrices.1", "layers.0.weight", "factor_matrices", 1, 3);
    assert_part("layers.0.weight.momentum", "layers.0.weight", "momentum", -1, -1);
    assert_part("a.statistics.7", "a", "statistics", 7, -1);
}

static const char *const jax_names[] = { "dense/bias", "dense/kernel", "layers.0.weight", "mu", "odd.name/of", "s" };

static pd_key_kind read_jax(const char *text)
{
    pd_state_key_read(&key, text, jax_names, sizeof jax_names / sizeof *jax_names);
    return key.kind;
}

static void assert_jax(const char *text, const char *name, const char *slot, int number)
{
    if (read_jax(text) != PD_KEY_PART) fail_msg("%s is no part: %d", text, key.kind);
    assert_string_equal(jax_names[key.param], name);
    assert_string_equal(key.slot, slot);
    assert_int_equal(key.number, number);
    assert_int_equal(key.block, -1);
}

TEST(reads_paths_into_shampoos_state)
{
    assert_jax("stats/dense/kernel/statistics/3", "dense/kernel", "statistics", 3);
    assert_jax("stats/dense/kernel/preconditioners/12", "dense/kernel", "preconditioners", 12);
    assert_jax("stats/dense/bias/momentum/quantized", "dense/bias", "momentum", -1);
    assert_true(key.codes);
    assert_jax("0/stats/dense/bias/diagonal_statistics/quantized", "dense/bias", "diagonal_statistics", -1);
    assert_jax("opt_state.0.stats.dense.bias.diagonal_momentum.quantized", "dense/bias", "diagonal_momentum", -1);
    assert_jax("stats/dense/kernel/statistics/3/quantized", "dense/kernel", "statistics", 3);
    assert_true(key.codes);
    assert_jax("stats/dense/kernel/training_metrics/inverse_pth_root_errors", "dense/kernel", "inverse_pth_root_errors",
               -1);
    assert_jax("stats/s/momentum", "s", "momentum", -1);
    assert_jax("stats/local_stats/s/momentum/quantized", "s", "momentum", -1);
}

TEST(reads_what_keystr_makes_of_them)
{
    assert_jax(".stats['dense']['kernel'].statistics[3]", "dense/kernel", "statistics", 3);
    assert_jax("[0].stats['dense/kernel'].preconditioners[0].quantized", "dense/kernel", "preconditioners", 0);
    assert_jax(".stats[\"layers.0.weight\"].momentum.quantized", "layers.0.weight", "momentum", -1);
    assert_jax("['Qs_preconditioners']['layers.0.weight'][1]", "layers.0.weight", "Q", 1);
    assert_jax("[0]['mu']['s']", "s", "mu", -1);
    assert_jax("['0']['stats']['dense']['kernel']['statistics']['3']['quantized']", "dense/kernel", "statistics", 3);
    assert_jax(".param_states['dense']['bias'].v_row", "dense/bias", "v_row", -1);
}

TEST(reads_paths_into_adafactors_and_krons_state)
{
    static const char *const fields[] = { "v_row", "v_col", "v", "m" };
    char text[64];

    for (int f = 0; f < 4; f++) {
        snprintf(text, sizeof text, "state/param_states/dense/kernel/%s", fields[f]);
        assert_jax(text, "dense/kernel", fields[f], -1);
        assert_true(key.fill && !key.codes && !key.stacked);
    }
    assert_jax("mu/dense/kernel", "dense/kernel", "mu", -1);
    assert_false(key.stacked);
    assert_jax("0.Qs_preconditioners.dense.kernel.2", "dense/kernel", "Q", 2);
    assert_true(key.stacked && !key.fill);
}

TEST(a_name_may_have_either_separator_in_a_path)
{
    assert_jax("mu/layers/0/weight", "layers.0.weight", "mu", -1);
    assert_jax("mu.dense.bias", "dense/bias", "mu", -1);
    assert_jax("mu/odd.name/of", "odd.name/of", "mu", -1);
    assert_jax("mu['odd.name/of']", "odd.name/of", "mu", -1);
    assert_jax("mu/mu", "mu", "mu", -1);
}

TEST(one_value_may_be_of_all_parameters)
{
    static const char *const counters[] = { "count",
                                            "step",
                                            ".count",
                                            "0/count",
                                            "[0].count",
                                            "state/step",
                                            "opt_state.1.count",
                                            "['count']",
                                            "optimizer/state/step" };

    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        if (read_jax(counters[i]) != PD_KEY_COUNT) fail_msg("%s is no counter", counters[i]);
        assert_true(key.param == PD_KEY_ALL);
    }
    assert_int_equal(read_jax("[0]['update_counter']"), PD_KEY_PART);
    assert_true(key.param == PD_KEY_ALL);
    assert_string_equal(key.slot, "update_counter");
    assert_int_equal(read_jax("layers.0.weight.step"), PD_KEY_COUNT);
    assert_string_equal(jax_names[key.param], "layers.0.weight");
    assert_int_equal(read_jax("layers.1.weight.step"), PD_KEY_UNKNOWN); /* one unknown parameter; the key does not
                                                                         * stand for all parameters */
}

TEST(what_lies_beside_codes_goes_with_them)
{
    static const char *const companions[] = { "stats/s/momentum/bucket_size", ".stats['s'].statistics[3].diagonal",
                                              "stats/dense/kernel/preconditioners/0/bucket_size",
                                              "state/0001/s/statistics/3/diagonal" };

    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++)
        if (read_jax(companions[i]) != PD_KEY_COMPANION) fail_msg("%s: %d", companions[i], key.kind);
    assert_int_equal(read_jax("mu/s/bucket_size"), PD_KEY_UNKNOWN);
    assert_int_equal(read_jax("param_states/s/v/diagonal"), PD_KEY_UNKNOWN);
}

TEST(stacks_of_all_parameters_are_refused_with_what_to_do)
{
    assert_int_equal(read_jax("stats/global_stats/statistics"), PD_KEY_REFUSED);
    assert_non_null(strstr(key.why, "stats/NAME/statistics/I"));
    assert_int_equal(read_jax(".stats.global_stats.exponents"), PD_KEY_REFUSED);
    assert_int_equal(read_jax("stats/my_global_stats/x"), PD_KEY_UNKNOWN);
}

TEST(reads_keys_of_recorded_runs)
{
    static const struct {
        const char *text, *name, *slot;
        int number;
    } cases[] = {
        { "state/0001/dense/kernel/statistics/3", "dense/kernel", "statistics", 3 },
        { "state/0012/s/Q/0", "s", "Q", 0 },
        { "state/s/v_row", "s", "v_row", -1 },
        { "state/0001/dense/bias/momentum/quantized", "dense/bias", "momentum", -1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_jax(cases[i].text, cases[i].name, cases[i].slot, cases[i].number);
        assert_true(key.codes && key.fill);
    }
}

TEST(paths_that_are_none_are_unknown)
{
    static const char *const keys[] = {
        "stats",
        "stats/",
        "stats/s",
        "stats/s/",
        "stats/none/momentum/quantized",
        "stats/s/moment",
        "stats/s/momentum/x",
        "stats/s/quantized",
        "stats/s/statistics",
        "stats/s/statistics/-1",
        "stats/s/statistics/x",
        "stats/s/statistics/1/2",
        "stats/s/statistics/99999999",
        "param_states/s/w",
        "param_states/s/v_row/0",
        "mu/",
        "mu/none",
        "Qs_preconditioners/s",
        "Qs_preconditioners/s/0/1",
        "my_mu/s",
        "mus",
        "[",
        "['mu'",
        "['mu']['s",
        "['mu]['s']",
        "[]",
        "['']",
        "count/x",
        "x/count",
        "state",
        "state/",
        "state/0001",
        "state/0001/none/mu",
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (read_jax(keys[i]) != PD_KEY_UNKNOWN) fail_msg("%s is known: %d %s", keys[i], key.kind, key.slot);
}

TEST(the_longest_name_that_fits_counts)
{
    assert_part("a.b.exp_avg", "a.b", "exp_avg", -1, -1);
    assert_part("a.exp_avg", "a", "exp_avg", -1, -1);
    assert_part("state.x.exp_avg", "state.x", "exp_avg", -1, -1);
    assert_part("state.x[\"block_0\", \"momentum\", \"quantized_values\"]", "state.x", "momentum", -1, 0);
    assert_part("w[1][\"block_0\", \"momentum\", \"quantized_values\"]", "w[1]", "momentum", -1, 0);
    assert_part("w[1].momentum", "w[1]", "momentum", -1, -1);
}

TEST(the_name_of_a_parameter_is_its_weights)
{
    assert_int_equal(read_key("layers.0.weight"), PD_KEY_WEIGHTS);
    assert_string_equal(names[key.param], "layers.0.weight");
    assert_int_equal(read_key("a.b"), PD_KEY_WEIGHTS); /* the parameter a.b, not the state b of a parameter a */
    assert_string_equal(names[key.param], "a.b");
}

TEST(what_it_does_not_know_is_unknown)
{
    static const char *const keys[] = {
        "",
        ".",
        "[",
        "b.momentum",
        "layers.0.weight.",
        "a[]",
        "a[1]",
        "a[\"block_x\", \"momentum\", \"quantized_values\"]",
        "a[\"block_0\", \"momentum\"]",
        "a[\"block_0\", \"shampoo\", \"factor_matrices\", -1, \"quantized_values\"]",
        "a[\"block_0\", \"shampoo\", \"factor_matrices\", 1, 2, \"quantized_values\"]",
        "a[\"rank_0-block_0\", \"momentum\", \"quantized_values\"]",
        "a[\"block_0\", {}, \"quantized_values\"]",
        "a[\"step\", 1]",
        "a.x.y.z",
        "a.block_0.",
        "a.block_99999999999.momentum",
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (read_key(keys[i]) != PD_KEY_UNKNOWN) fail_msg("%s is known: %d %s", keys[i], key.kind, key.slot);
}

TEST(keys_of_any_length_and_depth_are_refused_quietly)
{
    char *text = malloc(200001);

    assert_non_null(text);
    memset(text, '[', 200000);
    text[0] = 'a';
    text[200000] = '\0';
    assert_int_equal(read_key(text), PD_KEY_UNKNOWN);
    memset(text, '.', 200000);
    assert_int_equal(read_key(text), PD_KEY_UNKNOWN);
    memset(text + 2, 'x', 199998);
    memcpy(text, "a.", 2);
    assert_int_equal(read_key(text), PD_KEY_UNKNOWN);
    for (int i = 0; i + 6 <= 1020; i += 6) memcpy(text + i, "stats/", 6);
    text[1020] = '\0';
    assert_int_equal(read_key(text), PD_KEY_UNKNOWN);
    free(text);
}
