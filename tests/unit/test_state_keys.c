#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static void reads_metas_flat_keys_behind_the_parameters_name(void **state)
{
    (void)state;
    assert_part("layers.0.weight[\"block_3\", \"shampoo\", \"factor_matrices\", 1, \"quantized_values\"]", "layers.0.weight", "factor_matrices", 1, 3);
    assert_part("layers.0.weight.[\"block_0\", \"shampoo\", \"inv_factor_matrices\", 0, \"quantized_values\"]", "layers.0.weight", "inv_factor_matrices", 0, 0);
    assert_part("state/layers.0.bias/[\"block_0\", \"adagrad\", \"quantized_values\"]", "layers.0.bias", "grafting_second_moment", -1, 0);
    assert_part("state.layers.0.bias[\"block_0\",\"momentum\",\"quantized_values\"]", "layers.0.bias", "momentum", -1, 0);
    assert_part("a[\"block_12\", \"filtered_grad\", \"quantized_values\"]", "a", "filtered_grad", -1, 12);
}

static void the_step_is_a_counter(void **state)
{
    (void)state;
    assert_int_equal(read_key("layers.0.weight[\"step\"]"), PD_KEY_COUNT);
    assert_string_equal(names[key.param], "layers.0.weight");
    assert_int_equal(read_key("layers.0.weight.step"), PD_KEY_COUNT);
}

static void what_follows_from_the_rest_is_passed_over(void **state)
{
    (void)state;
    assert_int_equal(read_key("a[\"block_0\", \"shampoo\", \"is_factor_matrices_diagonal\", 0]"), PD_KEY_DERIVED);
}

static void reads_our_own_names(void **state)
{
    (void)state;
    assert_part("layers.0.weight.block_3.factor_matrices.1", "layers.0.weight", "factor_matrices", 1, 3);
    assert_part("layers.0.weight.momentum", "layers.0.weight", "momentum", -1, -1);
    assert_part("a.statistics.7", "a", "statistics", 7, -1);
}

static void the_longest_name_that_fits_counts(void **state)
{
    (void)state;
    assert_part("a.b.exp_avg", "a.b", "exp_avg", -1, -1);
    assert_part("a.exp_avg", "a", "exp_avg", -1, -1);
    assert_part("state.x.exp_avg", "state.x", "exp_avg", -1, -1);
    assert_part("state.x[\"block_0\", \"momentum\", \"quantized_values\"]", "state.x", "momentum", -1, 0);
    assert_part("w[1][\"block_0\", \"momentum\", \"quantized_values\"]", "w[1]", "momentum", -1, 0);
    assert_part("w[1].momentum", "w[1]", "momentum", -1, -1);
}

static void what_it_does_not_know_is_unknown(void **state)
{
    static const char *const keys[] = {
        "", ".", "[", "b.momentum", "layers.0.weight", "layers.0.weight.", "a[]", "a[1]", "a[\"block_x\", \"momentum\", \"quantized_values\"]",
        "a[\"block_0\", \"momentum\"]", "a[\"block_0\", \"shampoo\", \"factor_matrices\", -1, \"quantized_values\"]",
        "a[\"block_0\", \"shampoo\", \"factor_matrices\", 1, 2, \"quantized_values\"]", "a[\"rank_0-block_0\", \"momentum\", \"quantized_values\"]",
        "a[\"block_0\", {}, \"quantized_values\"]", "a[\"step\", 1]", "a.x.y.z", "a.block_0.", "a.block_99999999999.momentum",
    };

    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (read_key(keys[i]) != PD_KEY_UNKNOWN) fail_msg("%s is known: %d %s", keys[i], key.kind, key.slot);
}

static void keys_of_any_length_and_depth_are_refused_quietly(void **state)
{
    char *text = malloc(200001);

    (void)state;
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
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_metas_flat_keys_behind_the_parameters_name), cmocka_unit_test(the_step_is_a_counter),
        cmocka_unit_test(what_follows_from_the_rest_is_passed_over), cmocka_unit_test(reads_our_own_names),
        cmocka_unit_test(the_longest_name_that_fits_counts), cmocka_unit_test(what_it_does_not_know_is_unknown),
        cmocka_unit_test(keys_of_any_length_and_depth_are_refused_quietly),
    };

    return cmocka_run_group_tests_name("state_keys", tests, NULL, NULL);
}
