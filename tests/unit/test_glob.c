/* Tests globs: what they match, that the automaton agrees with an algorithm that tries one byte after the other, and
 * that no glob makes a comparison long. */
#include <fnmatch.h>
#include <time.h>

#include "test.h"
#include "glob.h"

static bool matches(const char *text, const char *name)
{
    pd_glob *glob = pd_glob_new(text);
    bool yes;

    assert_non_null(glob);
    yes = pd_glob_match(glob, name);
    assert_true(pd_glob_match(glob, name) == yes); /* a comparison leaves nothing behind */
    pd_glob_free(glob);
    return yes;
}

/* The reference: walks glob and name, and after a mismatch lets the last star take one byte more. */

static bool set_has(const char *set, unsigned char c, const char **end)
{
    bool negated = *set == '!' || *set == '^', found = false;
    const unsigned char *at = (const unsigned char *)set + negated;
    const unsigned char *first = at;

    for (; *at != '\0' && (*at != ']' || at == first); at++) {
        if (at[1] == '-' && at[2] != ']' && at[2] != '\0') {
            found = found || (at[0] <= c && c <= at[2]);
            at += 2;
        } else {
            found = found || *at == c;
        }
    }
    *end = *at == ']' ? (const char *)at + 1 : NULL;
    return found != negated;
}

static bool element_matches(const char **glob, char c)
{
    const char *at = *glob, *end;

    if (*at == '\0') return false;
    if (*at == '[') {
        bool inside = set_has(at + 1, (unsigned char)c, &end);
        if (end != NULL) {
            *glob = end;
            return inside;
        }
    }
    if (*at == '\\' && at[1] != '\0')
        at++;
    else if (*at == '?')
        c = '?';
    *glob = at + 1;
    return *at == c;
}

static bool reference(const char *glob, const char *name)
{
    const char *after_star = NULL, *retry = NULL;

    while (*name != '\0') {
        const char *next = glob;
        if (*glob == '*') {
            after_star = ++glob;
            retry = name;
        } else if (element_matches(&next, *name)) {
            glob = next;
            name++;
        } else if (after_star != NULL) {
            glob = after_star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*glob == '*') glob++;
    return *glob == '\0';
}

static const char *const globs[] = { "*",        "",     "a",     "a*",      "*a",          "a*b*c",
                                     "?",        "a?c",  "[abc]", "[!abc]x", "[a-c]*[0-9]", "layers.*.weight",
                                     "*/kernel", "[]a]", "[a",    "\\*",     "a\\",         "*[",
                                     "**a**",    "[a-]", "[!]]",  "x[b-d-f]" };
static const char *const names[] = { "",
                                     "a",
                                     "b",
                                     "ab",
                                     "abc",
                                     "a-b-c",
                                     "aXbYc",
                                     "x",
                                     "bx",
                                     "dx",
                                     "c7",
                                     "c77",
                                     "layers.0.weight",
                                     "layers.0.bias",
                                     "encoder/layer_0/kernel",
                                     "]",
                                     "[a",
                                     "*",
                                     "**",
                                     "a\\",
                                     "-",
                                     "xb",
                                     "xf",
                                     "x-",
                                     "xe",
                                     "aaaa" };

TEST(matches_like_the_shell)
{
    for (size_t g = 0; g < sizeof globs / sizeof globs[0]; g++)
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            if (strcmp(globs[g], "a\\") == 0) continue; /* a backslash at the end: we match it literally */
            if (matches(globs[g], names[n]) != (fnmatch(globs[g], names[n], 0) == 0))
                fail_msg("%s against %s", globs[g], names[n]);
        }
    assert_true(matches("a\\", "a\\"));
}

TEST(a_set_has_the_bytes_of_its_ranges_and_of_no_others)
{
    char name[2] = "";

    for (int c = 1; c < 256; c++) {
        name[0] = (char)c;
        assert_int_equal(matches("[b-d\xe0-\xff]", name), (c >= 'b' && c <= 'd') || c >= 0xe0);
        assert_int_equal(matches("[!b-d\xe0-\xff]", name), !((c >= 'b' && c <= 'd') || c >= 0xe0));
        assert_false(matches("[d-b]", name));
    }
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Writes up to `most` random letters of an alphabet that has all that is special in globs. */
static void random_text(uint64_t *seed, char *text, size_t most, const char *letters)
{
    size_t n = next_random(seed) % (most + 1), choices = strlen(letters);

    for (size_t i = 0; i < n; i++) text[i] = letters[next_random(seed) % choices];
    text[n] = '\0';
}

TEST(agrees_with_the_reference)
{
    static const char *const letters[] = { "ab*", "aab**?", "abc]-!^[\\*?", "ab[]", "\xc3\xa9z-[]!*", "a*[a]" };
    enum { TEXTS = 200000, SETS = sizeof letters / sizeof letters[0] };
    uint64_t seed = 1;
    char glob[201], name[201];
    size_t yes = 0;

    for (size_t i = 0; i < TEXTS; i++) {
        size_t most = i % 16 == 0 ? 200 : 12;
        random_text(&seed, glob, most, letters[i % SETS]);
        random_text(&seed, name, most, i % 3 == 0 ? "a" : "ab]-");
        yes += reference(glob, name);
        if (matches(glob, name) != reference(glob, name)) fail_msg("glob %s, name %s", glob, name);
    }
    assert_in_range(yes, TEXTS / 50, TEXTS); /* not all of them are refused */
}

/* Sets of states of 64, 128 ... bits are where the automaton takes another word. */
TEST(globs_of_all_lengths_match_names_of_their_length_alone)
{
    char glob[400], name[401];

    for (size_t n = 1; n < 400; n++) {
        memset(glob, '?', n);
        glob[n] = '\0';
        memset(name, 'a', n + 1);
        name[n + 1] = '\0';
        assert_false(matches(glob, name));
        name[n] = '\0';
        assert_true(matches(glob, name));
        name[n - 1] = '\0';
        assert_false(matches(glob, name));
        glob[n - 1] = '*';
        assert_true(matches(glob, name));
    }
}

TEST(a_copy_matches_the_same)
{
    pd_glob *glob = pd_glob_new("layers.*.[wb]*"), *copy = pd_glob_copy(glob);

    pd_glob_free(glob);
    assert_true(pd_glob_match(copy, "layers.0.bias"));
    assert_false(pd_glob_match(copy, "layers.0.scale"));
    assert_false(pd_glob_match(copy, "layer.0.bias"));
    pd_glob_free(copy);
}

TEST(without_memory_there_is_no_glob)
{
    for (int64_t n = 0;; n++) {
        oom_arm(n);
        pd_glob *glob = pd_glob_new("a*[b-c]"), *copy = glob != NULL ? pd_glob_copy(glob) : NULL;
        if (!oom_disarm()) {
            assert_non_null(copy);
            pd_glob_free(glob);
            pd_glob_free(copy);
            assert_int_equal(n, 3);
            return;
        }
        assert_null(copy);
        pd_glob_free(glob);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Writes `unit` over and over, up to `n` bytes. */
static void repeat(char *text, const char *unit, size_t n)
{
    for (size_t i = 0; i < n; i++) text[i] = unit[i % strlen(unit)];
    text[n] = '\0';
}

static void hard_glob(char *text, size_t kind)
{
    static const char *const units[] = { "*a", "?", "*", "[a]", "*a*b", "*[!b]", "\\a", "[", "*?", "a" };

    repeat(text, units[kind], PD_GLOB_MAX - 2);
    memcpy(text, "*", 1);
    strcat(text, "b*"); /* a matcher that tries every way to divide a name of a's among the stars would not finish */
}

/* Each glob of 256 bytes is compared 2,000 times with a name of 256 bytes: that takes about 1 us. The bound is loose,
 * since the machine may be slow and the build one with sanitizers. */
TEST(no_glob_of_a_peer_makes_a_comparison_long)
{
    enum { KINDS = 10, TIMES = 2000 };
    char text[PD_GLOB_MAX + 1], name[257];

    memset(name, 'a', 256);
    name[256] = '\0';
    for (size_t kind = 0; kind < KINDS; kind++) {
        pd_glob *glob;
        bool wanted;
        double began;
        hard_glob(text, kind);
        glob = pd_glob_new(text);
        wanted = reference(text, name);
        began = seconds();
        for (int i = 0; i < TIMES; i++) assert_true(pd_glob_match(glob, name) == wanted);
        if (seconds() - began > TIMES * 100e-6) fail_msg("%s takes %g s", text, (seconds() - began) / TIMES);
        pd_glob_free(glob);
    }
}

TEST(a_glob_takes_little_memory)
{
    pd_glob *glob = pd_glob_new("layers.*.weight");

    assert_in_range(pd_glob_bytes(glob), 1, 1024);
    pd_glob_free(glob);
    glob = pd_glob_new("model.layers.0.weight"); /* nothing but bytes that stand for themselves */
    assert_in_range(pd_glob_bytes(glob), 1, 128);
    pd_glob_free(glob);
}

TEST(an_estimate_grows_with_name_and_glob)
{
    char text[PD_GLOB_MAX + 1];
    pd_glob *small = pd_glob_new("*a"), *large;

    hard_glob(text, 1);
    large = pd_glob_new(text);
    assert_true(pd_glob_ns(small, 10) < pd_glob_ns(small, 256));
    assert_true(pd_glob_ns(small, 256) < pd_glob_ns(large, 256));
    assert_true(pd_glob_ns(large, 256) < 1e4);
    pd_glob_free(small);
    pd_glob_free(large);
}
