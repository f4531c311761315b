/* Numbers and tables as people read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "format.h"

static void bytes_have_units(void **state)
{
    char text[PD_CELL];

    (void)state;
    assert_string_equal(pd_bytes_text(text, 0), "0 B");
    assert_string_equal(pd_bytes_text(text, 1023), "1023 B");
    assert_string_equal(pd_bytes_text(text, 1536), "1.5 KiB");
    assert_string_equal(pd_bytes_text(text, 256ull << 20), "256 MiB");
    assert_string_equal(pd_bytes_text(text, UINT64_MAX), "16.0 EiB");
}

static void counts_have_separators(void **state)
{
    char text[PD_CELL];

    (void)state;
    assert_string_equal(pd_count_text(text, 7), "7");
    assert_string_equal(pd_count_text(text, 999), "999");
    assert_string_equal(pd_count_text(text, 1048576), "1,048,576");
    assert_string_equal(pd_count_text(text, UINT64_MAX), "18,446,744,073,709,551,615");
}

static void operations_have_decimal_units(void **state)
{
    char text[PD_CELL];

    (void)state;
    assert_string_equal(pd_flops_text(text, 0), "0 flop");
    assert_string_equal(pd_flops_text(text, 999), "999 flop");
    assert_string_equal(pd_flops_text(text, 999.6), "1.0 kflop");
    assert_string_equal(pd_flops_text(text, 3.21e9), "3.2 Gflop");
    assert_string_equal(pd_flops_text(text, 256e12), "256 Tflop");
    assert_string_equal(pd_flops_text(text, 1e22), "10000 Eflop");
}

static void durations_have_the_two_units_that_matter(void **state)
{
    char text[PD_CELL];

    (void)state;
    assert_string_equal(pd_duration_text(text, 850), "850 ms");
    assert_string_equal(pd_duration_text(text, 3300), "3.3 s");
    assert_string_equal(pd_duration_text(text, 192000), "3 min 12 s");
    assert_string_equal(pd_duration_text(text, 3600000 + 60000), "1 h 1 min");
    assert_string_equal(pd_duration_text(text, (2 * 86400 + 4 * 3600) * 1000ull), "2 d 4 h");
}

/* What a table prints; the caller frees. */
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
    char *text, *lines;
    size_t n;
    FILE *out = open_memstream(&lines, &n);

    (void)state;
    pd_table_cell(table, "a\xe2\x80\xae" "b\xc2\x9b" "31m");
    text = printed(table);
    assert_string_equal(text, "N\na?b?31m\n");
    free(text);
    pd_print_line(out, "%s: 1", "a\xe2\x80\xa8" "b\n");
    fclose(out);
    assert_string_equal(lines, "a?b?: 1\n");
    free(lines);
}

static void json_escapes_what_cannot_be_printed_and_leaves_the_rest(void **state)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    (void)state;
    pd_print_json(out, "{\n  \"name\": \"\u00e9\xe2\x80\xae" "b\xc2\x9b\x7f\xf3\xa0\x81\x81\"\n}");
    fclose(out);
    assert_string_equal(text, "{\n  \"name\": \"\u00e9\\u202eb\\u009b\\u007f\\udb40\\udc41\"\n}");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_units),
        cmocka_unit_test(counts_have_separators),
        cmocka_unit_test(operations_have_decimal_units),
        cmocka_unit_test(durations_have_the_two_units_that_matter),
        cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(letters_of_several_bytes_take_one_column),
        cmocka_unit_test(control_characters_do_not_reach_the_terminal),
        cmocka_unit_test(directions_and_c1_controls_do_not_reach_the_terminal_either),
        cmocka_unit_test(json_escapes_what_cannot_be_printed_and_leaves_the_rest),
        cmocka_unit_test(a_line_over_all_columns_widens_none),
        cmocka_unit_test(an_empty_table_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
