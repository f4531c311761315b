/* Tests how numbers and tables are written for people. */
#include "test.h"
#include "format.h"

TEST(bytes_have_units)
{
    char text[PD_CELL];

    assert_string_equal(pd_bytes_text(text, 0), "0 B");
    assert_string_equal(pd_bytes_text(text, 1023), "1023 B");
    assert_string_equal(pd_bytes_text(text, 1536), "1.5 KiB");
    assert_string_equal(pd_bytes_text(text, 256ull << 20), "256 MiB");
    assert_string_equal(pd_bytes_text(text, UINT64_MAX), "16.0 EiB");
}

TEST(counts_have_separators)
{
    char text[PD_CELL];

    assert_string_equal(pd_count_text(text, 7), "7");
    assert_string_equal(pd_count_text(text, 999), "999");
    assert_string_equal(pd_count_text(text, 1048576), "1,048,576");
    assert_string_equal(pd_count_text(text, UINT64_MAX), "18,446,744,073,709,551,615");
}

TEST(operations_have_decimal_units)
{
    char text[PD_CELL];

    assert_string_equal(pd_flops_text(text, 0), "0 flop");
    assert_string_equal(pd_flops_text(text, 999), "999 flop");
    assert_string_equal(pd_flops_text(text, 999.6), "1.0 kflop");
    assert_string_equal(pd_flops_text(text, 3.21e9), "3.2 Gflop");
    assert_string_equal(pd_flops_text(text, 256e12), "256 Tflop");
    assert_string_equal(pd_flops_text(text, 1e22), "10000 Eflop");
}

TEST(durations_have_the_two_units_that_matter)
{
    char text[PD_CELL];

    assert_string_equal(pd_duration_text(text, 850), "850 ms");
    assert_string_equal(pd_duration_text(text, 3300), "3.3 s");
    assert_string_equal(pd_duration_text(text, 192000), "3 min 12 s");
    assert_string_equal(pd_duration_text(text, 3600000 + 60000), "1 h 1 min");
    assert_string_equal(pd_duration_text(text, (2 * 86400 + 4 * 3600) * 1000ull), "2 d 4 h");
}

TEST(lines_do_not_carry_directions_or_newlines_to_the_terminal)
{
    char *lines;
    size_t n;
    FILE *out = open_memstream(&lines, &n);

    pd_print_line(out, "%s: 1",
                  "a\xe2\x80\xa8"
                  "b\n");
    fclose(out);
    assert_string_equal(lines, "a?b?: 1\n");
    free(lines);
}

TEST(speeds_have_three_digits)
{
    char text[PD_CELL];

    assert_string_equal(pd_speed_text(text, 0), "0.00");
    assert_string_equal(pd_speed_text(text, 0.034), "0.03");
    assert_string_equal(pd_speed_text(text, 12.34), "12.3");
    assert_string_equal(pd_speed_text(text, 1234.5), "1234");
}

TEST(json_escapes_what_cannot_be_printed_and_leaves_the_rest)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    pd_print_json(out, "{\n  \"name\": \"\u00e9\xe2\x80\xae"
                       "b\xc2\x9b\x7f\xf3\xa0\x81\x81\"\n}");
    fclose(out);
    assert_string_equal(text, "{\n  \"name\": \"\u00e9\\u202eb\\u009b\\u007f\\udb40\\udc41\"\n}");
    free(text);
}
