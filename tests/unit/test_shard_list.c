/* Tests lists of shards: blanks, commas and ranges of numbers, what is refused and with which words, and that random
 * lists are taken whole or refused. */
#include "test.h"
#include "shard_list.h"

/* Writes a parsed list as the addresses of its shards, with | between shards. */
static void write_list(const pd_shard_list *list, char *out)
{
    for (size_t s = 0; s < list->n; s++) {
        char *shard = pd_shard_list_text(list, s);
        out += sprintf(out, "%s%s", s > 0 ? "|" : "", shard);
        free(shard);
    }
}

static void expect(const char *text, const char *shards)
{
    char out[2000];
    pd_shard_list list;
    pd_error err = { 0 };

    if (pd_shard_list_parse(&list, text, &err) != PD_OK) fail_msg("\"%s\": %s", text, err.text);
    write_list(&list, out);
    assert_string_equal(out, shards);
    pd_shard_list_free(&list);
}

TEST(a_list_without_blanks_is_one_shard_as_it_always_was)
{
    expect("tcp://a:7070", "tcp://a:7070");
    expect("a", "tcp://a:7070");
    expect("a:1,b:2", "tcp://a:1,tcp://b:2");
    expect("a:1, b:2", "tcp://a:1,tcp://b:2");
    expect(" a:1 ,\tb:2 ", "tcp://a:1,tcp://b:2");
    expect("a:1,a:1", "tcp://a:1,tcp://a:1");
    expect("unix:///run/my dir/socket", "unix:///run/my dir/socket");
    expect("unix:///run/{x}/{1..}/s, :7070", "unix:///run/{x}/{1..}/s,tcp://127.0.0.1:7070");
    expect(":7070, unix:///run/{x}/s", "tcp://127.0.0.1:7070,unix:///run/{x}/s");
}

TEST(blanks_separate_shards)
{
    expect("a:1 b:2", "tcp://a:1|tcp://b:2");
    expect(" tls://a \t tls://b:7070,tls://b2\n", "tls://a:7070|tls://b:7070,tls://b2:7070");
    expect("a:1 ,b:2 c:3", "tcp://a:1,tcp://b:2|tcp://c:3");
    expect("unix:///run/a unix:///run/b tcp://c", "unix:///run/a|unix:///run/b|tcp://c:7070");
    expect("unix:///run/my dir/a unix:///run/b", "unix:///run/my dir/a|unix:///run/b");
    expect("[::1]:1 [::1]:2", "tcp://[::1]:1|tcp://[::1]:2");
}

TEST(ranges_stand_for_numbers)
{
    expect("tls://paramd-{0..3}.paramd:7070", "tls://paramd-0.paramd:7070|tls://paramd-1.paramd:7070|"
                                              "tls://paramd-2.paramd:7070|tls://paramd-3.paramd:7070");
    expect("10.0.0.5:{7070..7072}", "tcp://10.0.0.5:7070|tcp://10.0.0.5:7071|tcp://10.0.0.5:7072");
    expect("n{8..11}", "tcp://n8:7070|tcp://n9:7070|tcp://n10:7070|tcp://n11:7070");
    expect("n{08..10}", "tcp://n08:7070|tcp://n09:7070|tcp://n10:7070");
    expect("n{000..001}", "tcp://n000:7070|tcp://n001:7070");
    expect("n{5..5}", "tcp://n5:7070");
    expect("a{0..1}:1,b{4..5}:1 c:1", "tcp://a0:1,tcp://b4:1|tcp://a1:1,tcp://b5:1|tcp://c:1");
    expect("unix:///run/{a}/{0..1}", "unix:///run/{a}/0|unix:///run/{a}/1");
    expect("unix:///run/{a}/{0..1}, \tunix:///run/{b}/{2..3}",
           "unix:///run/{a}/0,unix:///run/{b}/2|unix:///run/{a}/1,unix:///run/{b}/3");
}

static void expect_refusal(const char *text, const char *why)
{
    pd_shard_list list;
    pd_error err = { 0 };

    if (pd_shard_list_parse(&list, text, &err) != PD_INVALID_ARGUMENT) fail_msg("\"%s\" was taken", text);
    if (strstr(err.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

TEST(a_wrong_list_is_refused_with_the_reason)
{
    expect_refusal("", "empty");
    expect_refusal("a b:x", "port is not a number");
    expect_refusal("a,,b c", "empty");
    expect_refusal("a{0..1}b{0..1}", "two ranges, so the order of the shards is not clear");
    expect_refusal("host{0..1}:{7070..7071}", "two ranges");
    expect_refusal("a{0..1},b", "different numbers of shards");
    expect_refusal("a{0..1},b{0..2}", "different numbers of shards");
    expect_refusal("a{3..1}", "first number is larger");
    expect_refusal("a{00..1}", "another number of digits");
    expect_refusal("a{0..01}", "another number of digits");
    expect_refusal("a{0..64}", "more than 64 shards");
    expect_refusal("a{0..63} b", "more than 64 shards");
    expect_refusal("a{0..999999999}", "more than 64 shards");
    expect_refusal("a{0..9999999999}", "no two numbers");
    expect_refusal("a{0.3}", "no two numbers");
    expect_refusal("a{0..3", "no two numbers");
    expect_refusal("a{}", "for example tcp://node{0..3}:7070");
}

TEST(a_daemon_that_is_listed_twice_is_refused_with_both_numbers)
{
    expect_refusal("a:1 b:1 a:1", "tcp://a:1 is the address of shard 0 and of shard 2");
    expect_refusal("a:1,b:1 c:1,B:1", "shard 0 and of shard 1");
    expect_refusal("tls://a:1 tcp://a:1", "shard 0 and of shard 1");
    expect_refusal("unix:///a unix:///b unix:///a", "unix:///a is the address of shard 0 and of shard 2");
    expect("unix:///a unix:///A", "unix:///a|unix:///A");
}

TEST(sixty_four_shards_are_taken)
{
    pd_shard_list list;

    assert_int_equal(pd_shard_list_parse(&list, "n{0000..0063},m{0..63}:1", NULL), PD_OK);
    assert_int_equal(list.n, PD_MAX_SHARDS);
    assert_string_equal(list.addresses[list.first[63]].host, "n0063");
    assert_int_equal(pd_shard_list_count(&list, 63), 2);
    pd_shard_list_free(&list);
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*seed * n) >> 32);
}

/* Joins random pieces of lists to a text. Many of these texts are nearly valid. */
static void draw_text(uint32_t *seed, char *text)
{
    static const char *const pieces[] = { "tcp://", "unix:///", "{0..2}", "{3..4}", "{", "}", "..", ":1", ":2",
                                          ",",      ", ",       " ",      "  ",     "a", "b", "c",  "0",  "9" };
    text[0] = '\0';
    for (uint32_t n = draw(seed, 12); n > 0; n--) strcat(text, pieces[draw(seed, sizeof pieces / sizeof pieces[0])]);
}

TEST(a_random_list_is_refused_or_reads_back_from_the_texts_of_its_shards)
{
    enum { DRAWS = 100000 };
    uint32_t seed = 1, taken = 0, clusters = 0;

    for (int i = 0; i < DRAWS; i++) {
        char text[256], out[20000], again[20000];
        pd_shard_list list;
        pd_error err = { 0 };

        draw_text(&seed, text);
        if (pd_shard_list_parse(&list, text, &err) != PD_OK) {
            assert_int_equal(err.code, PD_INVALID_ARGUMENT);
            continue;
        }
        taken++;
        clusters += list.n > 1;
        write_list(&list, out);
        pd_shard_list_free(&list);
        for (char *at = out; *at != '\0'; at++)
            if (*at == '|') *at = ' ';
        if (strstr(out, "{") != NULL) continue; /* a path with braces, which its text would expand */
        assert_int_equal(pd_shard_list_parse(&list, out, &err), PD_OK);
        write_list(&list, again);
        for (char *at = again; *at != '\0'; at++)
            if (*at == '|') *at = ' ';
        assert_string_equal(out, again);
        pd_shard_list_free(&list);
    }
    assert_in_range(taken, DRAWS / 50, DRAWS / 2);
    assert_in_range(clusters, DRAWS / 200, DRAWS / 2);
}
