/* Tests which text may be printed on a terminal, and how other characters are replaced. */
#include "test.h"
#include "text.h"

static const char *const good[] = { "", "w.0/kernel", "Gr\u00f6\u00dfe", "\u6743\u91cd", "\U0001F680 \u00a0~" };
/* Texts with a part that is not printable, and the index of the byte at which that part begins. */
static const struct {
    const char *text;
    size_t at;
} bad[] = {
    { "a\033[2J", 1 },
    { "\x7f", 0 },
    { "a\xc2\x80", 1 },
    { "ab\xc2\x9b"
      "31m",
      2 },
    { "\xe2\x80\x8b", 0 },
    { "a\xe2\x80\x8f", 1 },
    { "a\xe2\x80\xa8"
      "b",
      1 },
    { "a\xe2\x80\xa9", 1 },
    { "job\xe2\x80\xae"
      "x",
      3 },
    { "a\xe2\x81\xa6", 1 },
    { "a\xe2\x81\xa9", 1 },
    { "a\xef\xbb\xbf", 1 },
    { "a\xf3\xa0\x81\x81", 1 },
    { "a\xd8\x9c", 1 },
    { "a\t", 1 },
    { "a\xc3", 1 },
    { "a\xff", 1 },
    { "a\xc0\xaf", 1 },
    { "a\xed\xa0\x80", 1 },
    { "a\xe2\x82", 1 },
};
enum { GOOD = sizeof good / sizeof good[0], BAD = sizeof bad / sizeof bad[0] };

TEST(letters_of_every_script_are_printable)
{
    for (int i = 0; i < GOOD; i++) {
        assert_int_equal(pd_text_printable(good[i], strlen(good[i])), strlen(good[i]));
        assert_int_equal(pd_text_check("it", good[i], NULL), PD_OK);
    }
}

TEST(controls_directions_and_broken_bytes_are_found_at_their_place)
{
    for (int i = 0; i < BAD; i++)
        if (pd_text_printable(bad[i].text, strlen(bad[i].text)) != bad[i].at) fail_msg("text %d", i);
}

TEST(an_error_names_the_text_the_byte_and_the_character)
{
    pd_error err;

    assert_int_equal(pd_text_check("job name", "job\xe2\x80\xae", &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "job name has a control character at byte 3: U+202E cannot be printed");
    assert_int_equal(pd_text_check("job name", "ab\xff", &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "job name is not UTF-8 at byte 2");
}

TEST(each_character_that_cannot_be_printed_becomes_one_mark)
{
    char out[64], text[64] = "a\033[2J\xc2\x9b"
                             "b\xe2\x80\xae"
                             "c\xff\xfe"
                             "\u00e9";

    assert_string_equal(pd_text_print(out, sizeof out, text), "a?[2J?b?c??\u00e9");
    pd_text_mend(text);
    assert_string_equal(text, out);
}

TEST(a_text_is_cut_between_two_characters)
{
    char out[8];

    assert_string_equal(pd_text_print(out, 6, "abcd\u00e9"), "abcd");
    assert_string_equal(pd_text_print(out, 7, "abcd\u00e9"), "abcd\u00e9");
    assert_string_equal(pd_text_print(out, 4, "\U0001F680"), "");
    assert_string_equal(pd_text_print(out, 1, "a"), "");
}

TEST(a_character_that_was_cut_before_is_left_out_at_the_end_and_marked_elsewhere)
{
    char out[16];

    assert_string_equal(pd_text_print(out, sizeof out, "ab\xe2\x82"), "ab");
    assert_string_equal(pd_text_print(out, sizeof out, "ab\xf0\x9f\x9a"), "ab");
    assert_string_equal(pd_text_print(out, sizeof out, "ab\xe2\x82, c"), "ab??, c");
}

TEST(an_error_is_printable_whatever_it_quotes)
{
    pd_error err;

    pd_fail(&err, PD_INVALID_ARGUMENT, "rule \"%.6s\" is cut, %s turns", "abcde\u00e9", "\xe2\x80\xae\033");
    assert_string_equal(err.text, "rule \"abcde?\" is cut, ?? turns");
}
