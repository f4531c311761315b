/* Tests regular expressions that come from peers, and the rules that choose which dimensions are factored. */
#include "test.h"
#include "factor_rules.h"

static pd_error err;

static void says(const char *words)
{
    if (strstr(err.text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

/* Searches for an expression in one text, with a budget of *steps steps. Writes the number of remaining steps to
 * *steps. */
static int search_for(const char *pattern, const char *text, int64_t *steps, bool *found)
{
    pd_search *search = pd_search_new(*steps);
    pd_pattern *read = search != NULL ? pd_pattern_new(search, pattern) : NULL;
    int rc = read != NULL ? pd_pattern_find(read, text, found, &err) : PD_NO_MEMORY;

    if (search != NULL) *steps = pd_search_left(search);
    pd_pattern_free(read);
    pd_search_free(search);
    return rc;
}

static bool finds(const char *pattern, const char *text)
{
    int64_t steps = 1000000;
    bool found;

    if (search_for(pattern, text, &steps, &found) != PD_OK) fail_msg("%s: %s", pattern, err.text);
    return found;
}

TEST(an_expression_is_found_anywhere)
{
    assert_true(finds("kernel", "encoder/kernel/x"));
    assert_true(finds("", "a"));
    assert_true(finds(".*", ""));
    assert_true(finds("^a$", "a"));
    assert_false(finds("^a$", "ba"));
    assert_true(finds("layer_[0-9]+/(?!bias)", "layer_12/kernel"));
    assert_false(finds("layer_[0-9]+/(?!bias)", "layer_12/bias"));
}

TEST(case_counts)
{
    assert_false(finds("Kernel", "kernel"));
    assert_true(finds("(?i)Kernel", "kernel"));
}

TEST(a_dot_is_a_character_of_utf8)
{
    assert_true(finds("^.$", "\xc3\xa9"));
    assert_true(finds("\\w$", "\xc3\xa9"));
    assert_true(finds("b$", "a\xff"
                            "b"));
}

TEST(expressions_and_texts_beyond_ascii_are_found)
{
    assert_true(finds("Gr\xc3\xb6(\xc3\x9f|ss)e", "layer/Gr\xc3\xb6\xc3\x9f"
                                                  "e"));
    assert_true(finds("(?i)\xc3\x96", "\xc3\xb6"));
    assert_false(finds("\xc3\xb6", "o"));
    assert_true(finds("^\\w+$", "Gr\xc3\xb6\xc3\x9f"
                                "e"));
}

/* Python's re and Perl read these expressions in different ways. Python's way is expected. */
TEST(a_repetition_may_omit_its_minimum)
{
    assert_true(finds("^(?:[^/]+/){,2}kernel$", "a/b/kernel"));
    assert_true(finds("^(?:[^/]+/){,2}kernel$", "kernel"));
    assert_false(finds("^(?:[^/]+/){,2}kernel$", "a/b/c/kernel"));
    assert_true(finds("^a{,}b$", "aaab"));
    assert_true(finds("^a{,2}?b$", "aab"));
    assert_true(finds("^a\\{,2}$", "a{,2}"));
    assert_true(finds("^[{,2}]+$", "{,2}"));
    assert_false(finds("^[{,2}]+$", "0"));
    assert_true(finds("^a{,x}$", "a{,x}"));
}

TEST(a_bracket_in_a_class_stands_for_itself)
{
    assert_true(finds("^[[:a]+$", "[a:"));
    assert_true(finds("^[]x]{,2}$", "]x"));
    assert_true(finds("^[^]x]{,2}$", "ab"));
    assert_false(finds("^[^]x]{,2}$", "a]"));
    assert_true(finds("^[\\]a]{,3}$", "a]a"));
}

static int error_of(const char *pattern, const char *text)
{
    int64_t steps = 1000000;
    bool found = true;
    int rc = search_for(pattern, text, &steps, &found);

    assert_false(found);
    return rc;
}

TEST(an_invalid_expression_is_refused)
{
    static const char *const patterns[] = { "(", "[a", "a**", "*", "(?P<n", "\\", "a{2,1}", "\\C" };
    char nested[1000];
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        assert_int_equal(error_of(patterns[i], "a"), PD_INVALID_ARGUMENT);
        says("regular expression");
    }
    memset(nested, '(', 499);
    memset(nested + 499, ')', 500);
    nested[999] = '\0';
    assert_int_equal(error_of(nested, "a"), PD_INVALID_ARGUMENT);
    assert_int_equal(error_of("(((a{1,1000}){1,1000}){1,1000})", "a"), PD_INVALID_ARGUMENT);
}

TEST(the_length_of_an_expression_is_bounded)
{
    char pattern[PD_MAX_PATTERN + 2];
    memset(pattern, 'a', PD_MAX_PATTERN + 1);
    pattern[PD_MAX_PATTERN + 1] = '\0';
    assert_int_equal(error_of(pattern, "a"), PD_INVALID_ARGUMENT);
    says("1025 bytes; expected at most 1024");
    assert_false(finds(pattern + 1, "a"));
}

/* Without a limit, each of these searches would take years, or all memory. */
TEST(a_hostile_expression_is_given_up)
{
    static const char *const patterns[] = { "(a+)+$",           "(a|a)*$",        "(a|aa)+$",    "(.*)*(.*)*(.*)*x",
                                            "(?:a?){64}a{64}b", "(a*)*\\1b",      "((a?)*?)*?b", "(?R)?a+b",
                                            "(x+x+)+y|(a+)+b",  "(\xc3\xb6|a+)+$" };
    char text[256];
    memset(text, 'a', sizeof text - 2);
    text[sizeof text - 2] = '!';
    text[sizeof text - 1] = '\0';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        int64_t steps = 100000;
        bool found;
        int rc = search_for(patterns[i], text, &steps, &found);
        assert_true(rc == PD_RESOURCE_EXHAUSTED || rc == PD_OK);
        if (rc != PD_OK) says("takes too ");
        assert_true(steps > -10000); /* a search may exceed its budget only a little: it is stopped after the step
                                      * that exceeds it */
    }
    assert_int_equal(error_of("(a+)+$", text), PD_RESOURCE_EXHAUSTED);
    says("takes too long");
    assert_int_equal(error_of("a*a*a*[bc]", text),
                     PD_RESOURCE_EXHAUSTED); /* a search from one position of the text is within the budget, but
                                              * searches from all positions together are not */
}

TEST(a_search_counts_what_it_runs_over)
{
    char text[251];
    int64_t few = 100000, many = 100000;
    bool found;
    memset(text, 'a', 250);
    text[250] = '\0';
    assert_int_equal(search_for("^a*[bc]", "aaaaa", &few, &found), PD_OK);
    assert_int_equal(search_for("^a*[bc]", text, &many, &found), PD_OK);
    assert_true(few - many > 10);
    many = 100000;
    assert_int_equal(search_for("^(?:(?:abc){1,20}){1,20}z", "c", &many, &found), PD_OK);
    assert_true(many < 100000 - 2000); /* compiling costs steps in proportion to the size of the compiled pattern */
}

TEST(ordinary_expressions_are_searched_for_to_the_end)
{
    char text[251];
    memset(text, 'a', 250);
    text[250] = '\0';
    assert_false(finds(".*attention/.*kernel$", text));
    assert_false(finds("(layers|encoder)/.*_[0-9]+/kernel", text));
    assert_false(finds("[a-z/]+kernel", text));
}

TEST(without_memory_a_search_says_so)
{
    int64_t n;
    for (n = 0;; n++) {
        bool found, failed;
        int64_t steps = 100000;
        int rc;
        oom_arm(n);
        rc = search_for("(enc|dec)oder/(.*)$", "encoder/kernel", &steps, &found);
        failed = oom_disarm();
        if (!failed) break;
        if (rc != PD_OK)
            assert_int_equal(rc, PD_NO_MEMORY); /* the search may succeed, since PCRE2 can do without this allocation */
    }
    assert_true(n >= 5);
}

TEST(a_rule_reads_back)
{
    static const char *const texts[] = { "HEURISTIC", "none",   "(BATCH,ROW,COLUMN)",
                                         "()",        "(NONE)", "(ROW,ROW,ROW,ROW,COLUMN,COLUMN,COLUMN,COLUMN)" };
    pd_factor_rule rule;
    char text[96];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(pd_factor_rule_read(&rule, texts[i], &err), PD_OK);
        assert_string_equal(pd_factor_rule_text(&rule, text, sizeof text), texts[i]);
    }
    assert_int_equal(pd_factor_rule_read(&rule, "[ batch , row, col ]", &err), PD_OK);
    assert_string_equal(pd_factor_rule_text(&rule, text, sizeof text), "(BATCH,ROW,COLUMN)");
}

TEST(an_invalid_rule_is_refused)
{
    static const char *const texts[] = { "",           "ROW",   "(ROW",
                                         "ROW)",       "(ROW]", "(ROWS)",
                                         "(ROW,,ROW)", "(",     "(NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE,NONE)",
                                         "heuristics" };
    pd_factor_rule rule;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (pd_factor_rule_read(&rule, texts[i], &err) != PD_INVALID_ARGUMENT) fail_msg("%s was taken", texts[i]);
        says("expected HEURISTIC");
    }
}

TEST(flags_are_words)
{
    bool flag = false;
    assert_int_equal(pd_flag_reader(&flag, "True", &err), PD_OK);
    assert_true(flag);
    assert_int_equal(pd_flag_reader(&flag, "no", &err), PD_OK);
    assert_false(flag);
    assert_int_equal(pd_flag_reader(&flag, "0.5", &err), PD_INVALID_ARGUMENT);
}

static pd_name_maps *maps;

static int set_up(void **state)
{
    (void)state;
    maps = pd_name_maps_new(1);
    return maps == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    pd_name_maps_free(maps);
    return 0;
}

static bool flag_of(const char *map, const char *name)
{
    bool flag;

    if (pd_name_map_find(maps, map, name, pd_flag_reader, &flag, &err) != PD_OK) fail_msg("%s", err.text);
    return flag;
}

TEST_WITH(set_up, tear_down, the_first_rule_that_is_found_wins)
{
    assert_false(flag_of("['bias|scale':no,'.*':yes]", "layer/bias"));
    assert_true(flag_of("['bias|scale':no,'.*':yes]", "layer/kernel"));
    assert_true(flag_of("['.*':yes,'bias':no]", "layer/bias"));
}

TEST_WITH(set_up, tear_down, names_are_seen_with_either_separator)
{
    assert_true(flag_of("['^a/b/c$':yes]", "a.b.c"));
    assert_true(flag_of("['^a[.]b[.]c$':yes]", "a/b/c"));
    assert_true(flag_of("['^a/b[.]c$':yes]", "a/b.c"));
}

/* In the original (T5X), parameter names are separated by slashes only. So an expression that contains a slash is
 * not compared with "a.b" but with "a/b". A name that has slashes already keeps its dots. */
TEST_WITH(set_up, tear_down, an_expression_with_slashes_sees_names_in_upstreams_spelling)
{
    static const char top[] = "['^[^/]+$':yes,'^[^/]+/[^/]+$':no,'':yes]", dotted[] = "['^[^/]+/[^/]+$':yes,'':no]";
    assert_true(flag_of(top, "kernel"));
    assert_false(flag_of(top, "layer/kernel"));
    assert_false(flag_of(top, "layer.kernel"));
    assert_true(flag_of(dotted, "layer.0/kernel"));
}

TEST_WITH(set_up, tear_down, a_name_without_a_rule_is_an_error)
{
    bool flag;
    assert_int_equal(pd_name_map_find(maps, "['bias':no]", "kernel", pd_flag_reader, &flag, &err), PD_NOT_FOUND);
    assert_int_equal(pd_name_map_find(maps, "[]", "kernel", pd_flag_reader, &flag, &err), PD_NOT_FOUND);
}

TEST_WITH(set_up, tear_down, maps_are_kept_apart)
{
    bool flag;
    assert_true(flag_of("['kernel':yes]", "kernel"));
    assert_int_equal(pd_name_map_find(maps, "['kernel'", "kernel", pd_flag_reader, &flag, &err), PD_INVALID_ARGUMENT);
    assert_false(flag_of("['kernel':no]", "kernel"));
    assert_true(flag_of("['kernel':yes]", "kernel"));
}

TEST_WITH(set_up, tear_down, an_expression_is_compiled_once)
{
    static const char map[] = "['^(?:(?:abc){1,20}){1,20}z':yes,'':no]";
    int64_t begin = pd_name_maps_left(maps), first, second;
    assert_false(flag_of(map, "c"));
    first = begin - pd_name_maps_left(maps);
    assert_false(flag_of(map, "d"));
    second = begin - first - pd_name_maps_left(maps);
    assert_true(second < first / 100);
}

/* Searches for a hundred expressions in a thousand names (16 layers of 63 kernels). No expression matches. */
TEST(a_hundred_expressions_for_a_thousand_names_are_within_the_budget)
{
    char map[4096] = "[", name[128];
    size_t used = 1;
    pd_name_maps *many = pd_name_maps_new(1008);
    bool flag;
    for (int i = 0; i < 50; i++)
        used += (size_t)snprintf(map + used, sizeof map - used,
                                 "'.*/attention_%d/.*kernel$':yes,'decoder/layers_%d/':yes,", i, i);
    snprintf(map + used, sizeof map - used, "'':no]");
    for (int layer = 0; layer < 16; layer++) {
        for (int i = 0; i < 63; i++) {
            snprintf(name, sizeof name, "encoder/layers_%d/self_attention/mlp_%d/kernel", layer, i);
            if (pd_name_map_find(many, map, name, pd_flag_reader, &flag, &err) != PD_OK) fail_msg("%s", err.text);
            assert_false(flag);
        }
    }
    assert_true(pd_name_maps_left(many) > 0);
    pd_name_maps_free(many);
}

/* Each search is within the limit for one search, but all searches of the map together would take hours. */
TEST_WITH(set_up, tear_down, a_hostile_map_is_refused_once_its_names_have_used_up_their_steps)
{
    char name[257];
    int64_t begin = pd_name_maps_left(maps);
    int searches = 0, rc = PD_OK;
    bool flag;
    memset(name, 'a', 256);
    name[256] = '\0';
    while (rc == PD_OK && searches++ < 100000)
        rc = pd_name_map_find(maps, "['a*a*[bc]':yes,'(x+x+)+y':yes,'':no]", name, pd_flag_reader, &flag, &err);
    assert_int_equal(rc, PD_RESOURCE_EXHAUSTED);
    says("takes too long");
    assert_true(searches > 3);
    assert_true(begin < 3000000 && pd_name_maps_left(maps) > -10000);
    assert_int_equal(pd_name_map_find(maps, "['':no]", name, pd_flag_reader, &flag, &err), PD_RESOURCE_EXHAUSTED);
}

/* A step thread that searches has no time for others: whatever is left of the budget, one name gets 5 ms of it. */
TEST(one_name_may_not_use_up_what_all_names_share)
{
    char name[257];
    pd_name_maps *many = pd_name_maps_new(65536);
    int64_t begin = pd_name_maps_left(many);
    bool flag;
    memset(name, 'a', 256);
    name[256] = '\0';
    assert_true(begin > 60000000);
    assert_int_equal(pd_name_map_find(many, "['(a+a+)+[bc]':yes,'':no]", name, pd_flag_reader, &flag, &err),
                     PD_RESOURCE_EXHAUSTED);
    says("takes too long");
    assert_in_range(begin - pd_name_maps_left(many), 100000, 400000);
    assert_int_equal(pd_name_map_find(many, "['':no]", name, pd_flag_reader, &flag, &err), PD_OK);
    pd_name_maps_free(many);
}

static int rule_of(pd_factor_rule *rule, const char *table, const char *names, int rank)
{
    pd_axes axes;

    assert_int_equal(pd_axes_read(&axes, names, rank, &err), PD_OK);
    return pd_factor_rule_of_axes(rule, table, &axes, &err);
}

TEST(axes_make_a_rule)
{
    static const struct {
        const char *names;
        int rank;
        const char *rule;
    } cases[] = {
        { "embed,heads,kv", 3, "(ROW,COLUMN,COLUMN)" },
        { "layers,embed,stack,heads,kv", 5, "(BATCH,ROW,BATCH,COLUMN,COLUMN)" },
        { "layers,embed", 2, "(BATCH,NONE)" },
        { "relpos_buckets,heads", 2, "(NONE,NONE)" },
        { "vocab,embed", 2, "(COLUMN,ROW)" },
        { "", 0, "()" },
    };
    pd_factor_rule rule;
    char text[96];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(rule_of(&rule, "standard", cases[i].names, cases[i].rank), PD_OK);
        assert_string_equal(pd_factor_rule_text(&rule, text, sizeof text), cases[i].rule);
    }
}

TEST(mixed_and_unknown_axes_are_refused)
{
    pd_factor_rule rule;
    assert_int_equal(rule_of(&rule, "standard", "embed,mlp,relpos_buckets", 3), PD_INVALID_ARGUMENT);
    says("incomplete rule (ROW,COLUMN,NONE)");
    assert_int_equal(rule_of(&rule, "standard", "embed,colour", 2), PD_INVALID_ARGUMENT);
    says("unknown axis \"colour\"");
    assert_int_equal(rule_of(&rule, "[embed:ROW]", "embed,mlp", 2), PD_INVALID_ARGUMENT);
}

/* Returns the factoring as text, one letter for each dimension: R for ROW, C for COLUMN, - for NONE, B for BATCH. */
static const char *factoring(const char *rule_text, pd_shape shape, int64_t least)
{
    static char text[PD_MAX_RANK + 16];
    pd_factor_rule rule;
    pd_factoring f;

    assert_int_equal(pd_factor_rule_read(&rule, rule_text, &err), PD_OK);
    if (pd_factoring_of(&f, &rule, &shape, least, &err) != PD_OK) return "refused";
    for (int d = 0; d < shape.rank; d++) text[d] = "-RCB"[f.dim[d]];
    snprintf(text + shape.rank, sizeof text - (size_t)shape.rank, "%s%s", f.factored ? " factored" : "",
             f.ignored ? " ignored" : "");
    return text;
}

TEST(a_heuristic_makes_the_smaller_side_the_row)
{
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 2, { 24, 16 } }, 8), "CR factored");
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 2, { 16, 24 } }, 8), "RC factored");
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 2, { 16, 16 } }, 8), "RC factored");
}

TEST(a_heuristic_leaves_small_sides_alone)
{
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 2, { 16, 128 } }, 16), "RC factored");
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 2, { 16, 128 } }, 17), "--");
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 1, { 1000 } }, 8), "-");
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 0 }, 0), "");
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 2, { 1, 9 } }, 0), "RC factored");
}

TEST(a_heuristic_needs_a_rule_above_rank_two)
{
    assert_string_equal(factoring("HEURISTIC", (pd_shape){ 3, { 4, 5, 6 } }, 0), "refused");
    says("rank above 2 must have an explicit factorization rule");
    assert_string_equal(factoring("none", (pd_shape){ 3, { 4, 5, 6 } }, 0), "---");
}

TEST(a_rule_has_the_rank_of_its_parameter)
{
    assert_string_equal(factoring("(ROW,COLUMN)", (pd_shape){ 3, { 4, 5, 6 } }, 0), "refused");
    says("incorrect rank");
    assert_string_equal(factoring("(ROW,COLUMN,COLUMN)", (pd_shape){ 2, { 4, 5 } }, 0), "refused");
}

TEST(a_rule_without_batch_is_ignored_up_to_matrices)
{
    assert_string_equal(factoring("(COLUMN,ROW)", (pd_shape){ 2, { 16, 24 } }, 8), "RC factored ignored");
    assert_string_equal(factoring("(NONE,NONE)", (pd_shape){ 2, { 16, 24 } }, 8), "RC factored ignored");
    assert_string_equal(factoring("(ROW)", (pd_shape){ 1, { 16 } }, 8), "- ignored");
    assert_string_equal(factoring("(BATCH,COLUMN)", (pd_shape){ 2, { 16, 24 } }, 128), "BC factored");
    assert_string_equal(factoring("(BATCH,NONE)", (pd_shape){ 2, { 16, 24 } }, 8), "B-");
}

TEST(an_explicit_rule_takes_any_size)
{
    assert_string_equal(factoring("(ROW,NONE,COLUMN)", (pd_shape){ 3, { 2, 1, 3 } }, 128), "R-C factored");
    assert_string_equal(factoring("(ROW,ROW,ROW)", (pd_shape){ 3, { 2, 1, 3 } }, 128), "RRR factored");
}
