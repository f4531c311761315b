/* Tests tables as text: widths, alignment, cutting, wrapping, and characters that are never printed on a terminal. */
#include "test.h"
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

TEST(columns_are_as_wide_as_their_widest_cell)
{
    pd_table *table = pd_table_new("NAME|>SIZE|LAST");
    char *text;

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

TEST(letters_of_several_bytes_take_one_column)
{
    pd_table *table = pd_table_new("N|M");
    char *text;

    pd_table_cell(table, "\xc3\xa9t\xc3\xa9");
    pd_table_cell(table, "x");
    text = printed(table);
    assert_string_equal(text, "N    M\n\xc3\xa9t\xc3\xa9  x\n");
    free(text);
}

TEST(control_characters_do_not_reach_the_terminal)
{
    pd_table *table = pd_table_new("N");
    char *text;

    pd_table_cell(table, "a\x1b[2Jb\n");
    text = printed(table);
    assert_string_equal(text, "N\na?[2Jb?\n");
    free(text);
}

TEST(directions_and_c1_controls_do_not_reach_the_terminal_either)
{
    pd_table *table = pd_table_new("N");
    char *text;

    pd_table_cell(table, "a\xe2\x80\xae"
                         "b\xc2\x9b"
                         "31m");
    text = printed(table);
    assert_string_equal(text, "N\na?b?31m\n");
    free(text);
}

TEST(a_line_over_all_columns_widens_none)
{
    pd_table *table = pd_table_new("A|>B");
    char *text;

    pd_table_line(table, "a long line, %s\x1b", "as it is");
    pd_table_cell(table, "x");
    pd_table_cell(table, "12");
    text = printed(table);
    assert_string_equal(text, "A   B\na long line, as it is?\nx  12\n");
    free(text);
}

TEST(an_empty_table_says_so)
{
    char *text = printed(pd_table_new("A|B"));

    assert_string_equal(text, "nothing\n");
    free(text);
}

TEST(columns_that_may_be_cut_lose_the_middle_of_long_cells)
{
    pd_table *table = pd_table_new("~NAME|>N");
    char *text;

    pd_table_limit(table, 20);
    pd_table_cell(table, "transformer.layers.11.weight");
    pd_table_cell(table, "12345");
    text = printed(table);
    assert_string_equal(text, "NAME               N\ntransf\u2026weight  12345\n");
    free(text);
}

TEST(cutting_counts_characters_not_bytes)
{
    pd_table *table = pd_table_new("~NAME|>N");
    char *text;

    pd_table_limit(table, 17);
    pd_table_cell(table,
                  "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e8\u00e8\u00e8\u00e8\u00e8\u00e8\u00e8\u00e8");
    pd_table_cell(table, "123");
    text = printed(table);
    assert_string_equal(
        text, "NAME            N\n\u00e9\u00e9\u00e9\u00e9\u00e9\u2026\u00e8\u00e8\u00e8\u00e8\u00e8\u00e8  123\n");
    free(text);
}

TEST(the_widest_columns_are_cut_first)
{
    pd_table *table = pd_table_new("~A|~B");
    char *text;

    pd_table_limit(table, 40);
    pd_table_cell(table, "short");
    pd_table_cell(table, "0123456789012345678901234567890123456789");
    text = printed(table);
    assert_string_equal(text, "A      B\nshort  0123456789012345\u20264567890123456789\n");
    free(text);
}

TEST(a_table_within_its_limit_is_not_cut)
{
    pd_table *table = pd_table_new("~NAME|>N");
    char *text;

    pd_table_limit(table, 20);
    pd_table_cell(table, "transformer.l");
    pd_table_cell(table, "12345");
    text = printed(table);
    assert_string_equal(text, "NAME               N\ntransformer.l  12345\n");
    free(text);
}

TEST(the_last_column_may_wrap)
{
    pd_table *table = pd_table_new("A|&HELP");
    char *text;

    pd_table_limit(table, 30);
    pd_table_cell(table, "lr");
    pd_table_cell(table, "learning rate, about a third of Adam's");
    text = printed(table);
    assert_string_equal(text, "A   HELP\nlr  learning rate, about a\n    third of Adam's\n");
    free(text);
}

TEST(a_word_longer_than_a_line_breaks_behind_a_bar)
{
    pd_table *table = pd_table_new("A|&HELP");
    char *text;

    pd_table_limit(table, 30);
    pd_table_cell(table, "x");
    pd_table_cell(table, "bfloat16|tensorfloat32|float32|default");
    text = printed(table);
    assert_string_equal(text, "A  HELP\nx  bfloat16|tensorfloat32|\n   float32|default\n");
    free(text);
}

TEST(an_alarm_is_plain_text_elsewhere_than_on_a_terminal)
{
    pd_table *table = pd_table_new(">A|B");
    char *text;

    pd_table_cell(table, "7 (failing)");
    pd_table_alarm(table);
    pd_table_cell(table, "x");
    text = printed(table);
    assert_string_equal(text, "          A  B\n7 (failing)  x\n");
    free(text);
}
