/* Tests tokens: the lines of their file, and new ones. */
#include "test.h"
#include "token.h"

#define HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F"
#define OTHER "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static void expect_refusal(const char *text, const char *why)
{
    pd_tokens tokens = { 0 };
    pd_error err;

    if (pd_tokens_parse(&tokens, text, "file", &err) != PD_INVALID_ARGUMENT) fail_msg("\"%s\" was taken", text);
    if (strstr(err.text, why) == NULL) fail_msg("\"%s\": expected \"%s\", got \"%s\"", text, why, err.text);
    assert_null(strstr(err.text, "0102030405"));
    assert_null(tokens.at);
}

TEST(reads_a_line_for_each_key)
{
    pd_tokens tokens;
    const pd_token *found;
    char id[PD_TOKEN_NAME];

    assert_int_equal(pd_tokens_parse(&tokens,
                                     "# workers\n\nbob:00000002:" OTHER "\r\nalice:00000001:" HEX "\nal:00000001:" HEX,
                                     "file", NULL),
                     PD_OK);
    assert_int_equal(tokens.n, 3);
    found = pd_tokens_find(&tokens, "alice:00000001", 14);
    assert_non_null(found);
    for (int i = 0; i < PD_TOKEN_BYTES; i++) assert_int_equal(found->secret[i], i);
    pd_token_id(found, id);
    assert_string_equal(id, "alice");
    assert_string_equal(pd_tokens_first(&tokens)->name, "bob:00000002");
    pd_tokens_free(&tokens);
}

TEST(finds_only_whole_names)
{
    char longest[200];
    pd_tokens tokens;

    memset(longest, 'a', sizeof longest);
    assert_int_equal(pd_tokens_parse(&tokens, "alice:00000001:" HEX, "file", NULL), PD_OK);
    assert_null(pd_tokens_find(&tokens, "alice:0000000", 13));
    assert_null(pd_tokens_find(&tokens, "alice:00000002", 14));
    assert_null(pd_tokens_find(&tokens, "alice:00000001\0", 15));
    assert_null(pd_tokens_find(&tokens, "", 0));
    assert_null(pd_tokens_find(&tokens, longest, sizeof longest));
    pd_tokens_free(&tokens);
}

TEST(refuses_lines_that_are_no_tokens)
{
    expect_refusal("", "no token found");
    expect_refusal("# only a comment\n", "no token found");
    expect_refusal("\nalice:00000001", "file:2: expected ID:KEY-ID:SECRET");
    expect_refusal("alice:0000001:" HEX "0", "file:1: expected");
    expect_refusal("alice:00000001:" HEX " ", "file:1: expected");
    expect_refusal("al ice:00000001:" HEX, "file:1: expected");
    expect_refusal(":00000001:" HEX, "file:1: expected");
    expect_refusal("alice:00000001:g" HEX, "file:1: expected");
    expect_refusal("alice:0000000g:" HEX, "file:1: expected");
}

TEST(upper_and_lower_case_of_digits_are_the_same)
{
    pd_tokens tokens;
    const pd_token *found;

    assert_int_equal(pd_tokens_parse(&tokens,
                                     "alice:0000ABCD:"
                                     "000102030405060708090A0B0C0D0E0F101112131415161718191a1b1c1d1e1f\n"
                                     "Alice:0000abcd:" OTHER "\nalic:0000abcd:" OTHER "\nbob:0000abcd:" OTHER,
                                     "file", NULL),
                     PD_OK);
    assert_non_null(found = pd_tokens_find(&tokens, "alice:0000abCD", 14));
    for (int i = 0; i < PD_TOKEN_BYTES; i++) assert_int_equal(found->secret[i], i);
    assert_non_null(pd_tokens_find(&tokens, "Alice:0000ABCD", 14));
    assert_ptr_not_equal(pd_tokens_find(&tokens, "Alice:0000ABCD", 14), found);
    assert_non_null(pd_tokens_find(&tokens, "alic:0000ABCD", 13));
    assert_non_null(pd_tokens_find(&tokens, "bob:0000ABCD", 12));
    assert_null(pd_tokens_find(&tokens, "ALICE:0000abcd", 14));
    pd_tokens_free(&tokens);
    expect_refusal("a:0000000a:" HEX "\na:0000000A:" OTHER, "file:2: duplicate key a:0000000A");
}

TEST(a_secret_that_can_be_guessed_is_refused)
{
    char line[PD_TOKEN_LINE];

    snprintf(line, sizeof line, "a:00000001:%064d", 0);
    expect_refusal(line, "file:1: weak secret");
    expect_refusal(line, "`paramctl token new ID`");
    memset(line + 11, 'f', 64);
    expect_refusal(line, "fewer than 8 different bytes");
    for (int i = 0; i < 8; i++) memcpy(line + 11 + 8 * i, "deadbeef", 8);
    expect_refusal(line, "fewer than 8 different bytes");
    snprintf(line, sizeof line, "a:00000001:%052d010203040506", 0); /* seven different bytes */
    expect_refusal(line, "weak secret");
}

TEST(an_id_has_two_keys_at_most_and_each_name_once)
{
    pd_tokens tokens;

    assert_int_equal(pd_tokens_parse(&tokens, "a:00000001:" HEX "\na:00000002:" OTHER, "file", NULL), PD_OK);
    pd_tokens_free(&tokens);
    expect_refusal("a:00000001:" HEX "\nb:00000001:" HEX "\na:00000001:" OTHER "\n",
                   "file:3: duplicate key a:00000001");
    expect_refusal("a:00000001:" HEX "\na:00000003:" HEX "\na:00000002:" OTHER, "file: a has more than 2 keys");
}

TEST(a_new_token_can_be_read_and_is_not_like_another)
{
    char line[PD_TOKEN_LINE], other[PD_TOKEN_LINE];
    pd_tokens tokens;

    assert_int_equal(pd_token_new(line, "worker-3@example.org", NULL), PD_OK);
    assert_int_equal(pd_token_new(other, "worker-3@example.org", NULL), PD_OK);
    assert_string_not_equal(line, other);
    assert_int_equal(pd_tokens_parse(&tokens, line, "file", NULL), PD_OK);
    pd_tokens_free(&tokens);
}

TEST(an_id_is_short_and_plain)
{
    char line[PD_TOKEN_LINE], longest[PD_TOKEN_ID + 2];

    memset(longest, 'x', sizeof longest);
    longest[PD_TOKEN_ID + 1] = '\0';
    assert_int_equal(pd_token_new(line, longest, NULL), PD_INVALID_ARGUMENT);
    longest[PD_TOKEN_ID] = '\0';
    assert_int_equal(pd_token_new(line, longest, NULL), PD_OK);
    assert_int_equal(pd_token_new(line, "", NULL), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_token_new(line, "a:b", NULL), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_token_new(line, "a b", NULL), PD_INVALID_ARGUMENT);
}

static int parse_and_free(const void *text)
{
    pd_tokens tokens;
    int rc = pd_tokens_parse(&tokens, text, "file", NULL);

    if (rc == PD_OK) pd_tokens_free(&tokens);
    return rc;
}

HOLDS(says_that_memory_is_out, assert_true(oom_each(parse_and_free, "a:00000001:" HEX) > 0));
