/* Tests tables as text: widths, alignment, cutting, wrapping, and characters that are never printed on a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "text_table.h"

/* Returns the text that a table prints. The caller frees it. */
static char *printed(pd_table *table)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    pd_table_print(table, out, "nothing");
    fclose(out);
    return text;
}

static void columns_are_as_wide_as_their_widest_cell(void **state)
{
    pd_table *table = pd_table_new("NAME|>SIZE|LAST");
    char *text;

    (void)state;
    pd_table_cell(table, "a");
    pd_table_cell(table, "%d", 12345);
    pd_table_cell(table, "x");
    pd_table_cell(table, "longer");
    pd_table_cell(table, "%d", 1);
    pd_table_cell(table, "y");
    text = printed(table);
    assert_string_equal(text, "NAME     SIZE  LAST\na       12345  x\nlonger      1  y\n");
    free(text);
}

static void letters_of_several_bytes_take_one_column(void **state)
{
    pd_table *table = pd_table_new("N|M");
    char *text;

    (void)state;
    pd_table_cell(table, "\xc3\xa9t\xc3\xa9");
    pd_table_cell(table, "x");
    text = printed(table);
    assert_string_equal(text, "N    M\n\xc3\xa9t\xc3\xa9  x\n");
    free(text);
}

static void control_characters_do_not_reach_the_terminal(void **state)
{
    pd_table *table = pd_table_new("N");
    char *text;

    (void)state;
    pd_table_cell(table, "a\x1b[2Jb\n");
    text = printed(table);
    assert_string_equal(text, "N\na?[2Jb?\n");
    free(text);
}

static void directions_and_c1_controls_do_not_reach_the_terminal_either(void **state)
{
    pd_table *table = pd_table_new("N");
    char *text;

    (void)state;
    pd_table_cell(table, "a\xe2\x80\xae"
                         "b\xc2\x9b"
                         "31m");
    text = printed(table);
    assert_string_equal(text, "N\na?b?31m\n");
    free(text);
}

static void a_line_over_all_columns_widens_none(void **state)
{
    pd_table *table = pd_table_new("A|>B");
    char *text;

    (void)state;
    pd_table_line(table, "a long line, %s\x1b", "as it is");
    pd_table_cell(table, "x");
    pd_table_cell(table, "12");
    text = printed(table);
    assert_string_equal(text, "A   B\na long line, as it is?\nx  12\n");
    free(text);
}

static void an_empty_table_says_so(void **state)
{
    char *text = printed(pd_table_new("A|B"));

    (void)state;
    assert_string_equal(text, "nothing\n");
    free(text);
}

/* ---- lines of limited length ---- */

static void columns_that_may_be_cut_lose_the_middle_of_long_cells(void **state)
{
    pd_table *table = pd_table_new("~NAME|>N");
    char *text;

    (void)state;
    pd_table_limit(table, 20);
    pd_table_cell(table, "transformer.layers.11.weight");
    pd_table_cell(table, "12345");
    text = printed(table);
    assert_string_equal(text, "NAME               N\ntransf\u2026weight  12345\n");
    free(text);
}

static void cutting_counts_characters_not_bytes(void **state)
{
    pd_table *table = pd_table_new("~NAME|>N");
    char *text;

    (void)state;
    pd_table_limit(table, 17);
    pd_table_cell(table,
                  "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e8\u00e8\u00e8\u00e8\u00e8\u00e8\u00e8\u00e8");
    pd_table_cell(table, "123");
    text = printed(table);
    assert_string_equal(
        text, "NAME            N\n\u00e9\u00e9\u00e9\u00e9\u00e9\u2026\u00e8\u00e8\u00e8\u00e8\u00e8\u00e8  123\n");
    free(text);
}

static void the_widest_columns_are_cut_first(void **state)
{
    pd_table *table = pd_table_new("~A|~B");
    char *text;

    (void)state;
    pd_table_limit(table, 40);
    pd_table_cell(table, "short");
    pd_table_cell(table, "0123456789012345678901234567890123456789");
    text = printed(table);
    assert_string_equal(text, "A      B\nshort  0123456789012345\u20264567890123456789\n");
    free(text);
}

static void a_table_within_its_limit_is_not_cut(void **state)
{
    pd_table *table = pd_table_new("~NAME|>N");
    char *text;

    (void)state;
    pd_table_limit(table, 20);
    pd_table_cell(table, "transformer.l");
    pd_table_cell(table, "12345");
    text = printed(table);
    assert_string_equal(text, "NAME               N\ntransformer.l  12345\n");
    free(text);
}

static void the_last_column_may_wrap(void **state)
{
    pd_table *table = pd_table_new("A|&HELP");
    char *text;

    (void)state;
    pd_table_limit(table, 30);
    pd_table_cell(table, "lr");
    pd_table_cell(table, "learning rate, about a third of Adam's");
    text = printed(table);
    assert_string_equal(text, "A   HELP\nlr  learning rate, about a\n    third of Adam's\n");
    free(text);
}

static void a_word_longer_than_a_line_breaks_behind_a_bar(void **state)
{
    pd_table *table = pd_table_new("A|&HELP");
    char *text;

    (void)state;
    pd_table_limit(table, 30);
    pd_table_cell(table, "x");
    pd_table_cell(table, "bfloat16|tensorfloat32|float32|default");
    text = printed(table);
    assert_string_equal(text, "A  HELP\nx  bfloat16|tensorfloat32|\n   float32|default\n");
    free(text);
}

static void an_alarm_is_plain_text_elsewhere_than_on_a_terminal(void **state)
{
    pd_table *table = pd_table_new(">A|B");
    char *text;

    (void)state;
    pd_table_cell(table, "7 (failing)");
    pd_table_alarm(table);
    pd_table_cell(table, "x");
    text = printed(table);
    assert_string_equal(text, "          A  B\n7 (failing)  x\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(letters_of_several_bytes_take_one_column),
        cmocka_unit_test(control_characters_do_not_reach_the_terminal),
        cmocka_unit_test(directions_and_c1_controls_do_not_reach_the_terminal_either),
        cmocka_unit_test(a_line_over_all_columns_widens_none),
        cmocka_unit_test(an_empty_table_says_so),
        cmocka_unit_test(columns_that_may_be_cut_lose_the_middle_of_long_cells),
        cmocka_unit_test(cutting_counts_characters_not_bytes),
        cmocka_unit_test(the_widest_columns_are_cut_first),
        cmocka_unit_test(a_table_within_its_limit_is_not_cut),
        cmocka_unit_test(the_last_column_may_wrap),
        cmocka_unit_test(a_word_longer_than_a_line_breaks_behind_a_bar),
        cmocka_unit_test(an_alarm_is_plain_text_elsewhere_than_on_a_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
