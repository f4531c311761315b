#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "row.h"

enum { RATE, SIZE, FAST, GRAFT };
static const pd_hyper hypers_of_a_row[] = {
    [RATE]  = { "rate", PD_REAL, 0.5, 0, 10, NULL, "a rate", true },
    [SIZE]  = { "size", PD_INT, 128, 1, 4096, NULL, "a size", false },
    [FAST]  = { "fast", PD_FLAG, 1, 0, 1, NULL, "a flag", true },
    [GRAFT] = { "graft", PD_CHOICE, 1, 0, 0, "none|sgd|adam", "a choice", true },
    { .name = NULL },
};

static int rate_below_size(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    if (now->value[RATE] > declared->value[SIZE]) return pd_fail(err, PD_INVALID_ARGUMENT, "rate above size");
    return PD_OK;
}

static const pd_row row = { .name = "row", .about = "for this test", .hypers = hypers_of_a_row, .check = rate_below_size };

static pd_hypers h;
static pd_error err;

static int set_up(void **state)
{
    (void)state;
    pd_hypers_init(&h, &row);
    memset(&err, 0, sizeof err);
    return 0;
}

static int set(const char *name, const char *value) { return pd_hypers_set(&h, name, value, &err); }

static void begins_with_the_presets(void **state)
{
    (void)state;
    assert_true(h.row == &row && h.value[RATE] == 0.5 && h.value[SIZE] == 128 && h.value[FAST] == 1 && h.value[GRAFT] == 1);
}

static void reads_reals(void **state)
{
    (void)state;
    assert_int_equal(set("rate", "1e-3"), PD_OK);
    assert_true(h.value[RATE] == 1e-3);
    assert_int_equal(set("rate", "10"), PD_OK);
    assert_true(h.value[RATE] == 10);
}

static void reads_whole_numbers(void **state)
{
    (void)state;
    assert_int_equal(set("size", "4096"), PD_OK);
    assert_true(h.value[SIZE] == 4096);
    assert_int_equal(set("size", "1.5"), PD_INVALID_ARGUMENT);
    assert_int_equal(set("size", "99999999999999999999"), PD_INVALID_ARGUMENT);
}

static void reads_flags_in_three_manners(void **state)
{
    static const char *const yes[] = { "yes", "true", "1" }, *const no[] = { "no", "false", "0" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(set("fast", no[i]), PD_OK);
        assert_true(h.value[FAST] == 0);
        assert_int_equal(set("fast", yes[i]), PD_OK);
        assert_true(h.value[FAST] == 1);
    }
    assert_int_equal(set("fast", "2"), PD_INVALID_ARGUMENT);
}

static void reads_choices_by_their_whole_name(void **state)
{
    (void)state;
    assert_int_equal(set("graft", "adam"), PD_OK);
    assert_true(h.value[GRAFT] == 2);
    assert_int_equal(set("graft", "ada"), PD_INVALID_ARGUMENT);
    assert_int_equal(set("graft", "sgd|adam"), PD_INVALID_ARGUMENT);
    assert_int_equal(set("graft", ""), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "none|sgd|adam"));
}

static void refuses_what_is_not_a_number(void **state)
{
    static const char *const texts[] = { "", " ", " 1", "1 ", "fast", "1,5", "nan", "inf", "1e999", "0x", "--1" };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(set("rate", texts[i]), PD_INVALID_ARGUMENT);
        assert_int_equal(set("size", texts[i]), PD_INVALID_ARGUMENT);
    }
    assert_true(h.value[RATE] == 0.5 && h.value[SIZE] == 128);
}

static void refuses_what_is_out_of_range(void **state)
{
    (void)state;
    assert_int_equal(set("rate", "10.000001"), PD_OUT_OF_RANGE);
    assert_int_equal(set("size", "0"), PD_OUT_OF_RANGE);
    assert_non_null(strstr(err.text, "1 to 4096"));
    assert_true(h.value[RATE] == 0.5 && h.value[SIZE] == 128);
}

static void names_what_it_has_when_asked_for_another(void **state)
{
    (void)state;
    assert_int_equal(set("momentum", "1"), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "momentum"));
    assert_non_null(strstr(err.text, "rate, size, fast, graft"));
}

static void survives_texts_that_are_too_long(void **state)
{
    char text[2000];
    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(set(text, "1"), PD_NOT_FOUND);
    assert_int_equal(set("rate", text), PD_INVALID_ARGUMENT);
}

static void writes_what_it_reads_back_to_the_same_bits(void **state)
{
    static const double values[] = { 0.1, 1.0 / 3, 1e-300, 0, 7, 0x1.fffffffffffffp1, 5e-324 };
    char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        h.value[RATE] = values[i];
        assert_ptr_equal(pd_hypers_text(&h, RATE, text, sizeof text), text);
        h.value[RATE] = -1;
        assert_int_equal(set("rate", text), PD_OK);
        assert_true(h.value[RATE] == values[i]);
    }
}

static void writes_the_shortest_text(void **state)
{
    char text[64];
    (void)state;
    h.value[RATE] = 0.1;
    assert_string_equal(pd_hypers_text(&h, RATE, text, sizeof text), "0.1");
    assert_string_equal(pd_hypers_text(&h, SIZE, text, sizeof text), "128");
    assert_string_equal(pd_hypers_text(&h, FAST, text, sizeof text), "yes");
    assert_string_equal(pd_hypers_text(&h, GRAFT, text, sizeof text), "sgd");
}

static void checks_several_values_at_once(void **state)
{
    (void)state;
    assert_int_equal(pd_hypers_check(&h, &err), PD_OK);
    h.value[SIZE] = 1;
    h.value[RATE] = 2;
    assert_int_equal(pd_hypers_check(&h, &err), PD_INVALID_ARGUMENT);
}

static void a_step_may_change_only_what_is_per_step(void **state)
{
    pd_hypers now = h;
    (void)state;
    now.value[RATE] = 0.25;
    now.value[GRAFT] = 2;
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_OK);
    now.value[SIZE] = 64;
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "size"));
    assert_non_null(strstr(err.text, "128"));
    assert_non_null(strstr(err.text, "64"));
}

static void a_step_is_checked_against_what_was_declared(void **state)
{
    pd_hypers now;
    (void)state;
    h.value[SIZE] = 5;
    now = h;
    now.value[RATE] = 6;
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_INVALID_ARGUMENT);
}

static void finds_every_row_of_the_table_by_name(void **state)
{
    size_t n, rows = 0;
    (void)state;
    for (const pd_row *r; (r = pd_optim_at(rows)) != NULL; rows++) {
        assert_ptr_equal(pd_optim_find(pd_row_name(r)), r);
        assert_true(strlen(pd_row_about(r)) > 0);
        for (size_t i = 0; pd_row_hypers(r, &n) != NULL && i < n; i++) {
            assert_int_equal(pd_hypers_find(r, pd_row_hypers(r, &n)[i].name), i);
            assert_true(strlen(pd_row_hypers(r, &n)[i].help) > 0);
        }
        assert_true(n <= PD_MAX_HYPERS);
    }
    assert_true(rows > 0);
    assert_null(pd_optim_find("nothing"));
    assert_null(pd_optim_at(rows + 1));
}

static void presets_pass_their_own_checks(void **state)
{
    (void)state;
    for (size_t r = 0; pd_optim_at(r) != NULL; r++) {
        size_t n;
        const pd_hyper *hypers = pd_row_hypers(pd_optim_at(r), &n);
        pd_hypers_init(&h, pd_optim_at(r));
        assert_int_equal(pd_hypers_check(&h, &err), PD_OK);
        for (size_t i = 0; i < n; i++) {
            char text[64];
            assert_int_equal(set(hypers[i].name, pd_hypers_text(&h, (int)i, text, sizeof text)), PD_OK);
            assert_true(h.value[i] == hypers[i].preset);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        CASE(begins_with_the_presets), CASE(reads_reals), CASE(reads_whole_numbers), CASE(reads_flags_in_three_manners),
        CASE(reads_choices_by_their_whole_name), CASE(refuses_what_is_not_a_number), CASE(refuses_what_is_out_of_range),
        CASE(names_what_it_has_when_asked_for_another), CASE(survives_texts_that_are_too_long),
        CASE(writes_what_it_reads_back_to_the_same_bits), CASE(writes_the_shortest_text),
        CASE(checks_several_values_at_once), CASE(a_step_may_change_only_what_is_per_step), CASE(a_step_is_checked_against_what_was_declared),
        CASE(finds_every_row_of_the_table_by_name), CASE(presets_pass_their_own_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
