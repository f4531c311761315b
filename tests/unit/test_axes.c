/* Tests how lists of pairs, names of dimensions and tables of such names are read. */
#include "test.h"
#include "axes.h"

static pd_error err;

static void says(const char *words)
{
    if (strstr(err.text, words) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

/* Reads `text` and compares its pairs with `wanted`, which is written "key=value|key=value". */
static void reads(const char *text, const char *wanted)
{
    pd_pairs pairs;
    char got[256] = "";

    if (pd_pairs_read(&pairs, text, &err) != PD_OK) fail_msg("%s: %s", text, err.text);
    for (size_t i = 0; i < pairs.n; i++) {
        size_t used = strlen(got);
        snprintf(got + used, sizeof got - used, "%s%s=%s", i > 0 ? "|" : "", pairs.at[i].key, pairs.at[i].value);
    }
    pd_pairs_free(&pairs);
    assert_string_equal(got, wanted);
}

TEST(pairs_stand_in_the_order_of_the_text)
{
    reads("[b:1,a:2,b:3]", "b=1|a=2|b=3");
    reads("b:1,a:2", "b=1|a=2");
    reads("  [ b : 1 , a : 2 ]  ", "b=1|a=2");
    reads("", "");
    reads("[]", "");
    reads("[ ]", "");
}

TEST(a_quoted_key_holds_anything)
{
    reads("['.*/(a|b)[:,]{1,2} x$':NONE]", ".*/(a|b)[:,]{1,2} x$=NONE");
    reads("'it''s':yes,'':no", "it's=yes|=no");
    reads("'''':yes", "'=yes");
    reads("'\\w+\\':yes", "\\w+\\=yes");
}

HOLDS(a_value_may_be_a_list, reads("[a:(ROW, COLUMN),b:[ROW],c:()]", "a=(ROW, COLUMN)|b=[ROW]|c=()"));

TEST(a_text_that_is_no_list_of_pairs_is_refused)
{
    static const char *const texts[] = { "a",    "a:",     ":b",       "a:b,",  ",a:b", "a:b,,c:d",
                                         "'a:b", "'a'b:c", "a'b:c",    "a b:c", "[a:b", "a:b]",
                                         "a:(b", "a:b)",   "[a:b]c:d", "(a:b)", "a(:b", "'a'" };
    pd_pairs pairs;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (pd_pairs_read(&pairs, texts[i], &err) != PD_INVALID_ARGUMENT) fail_msg("%s was taken", texts[i]);
        says("expected key:value");
        pd_pairs_free(&pairs);
    }
}

TEST(the_number_of_pairs_is_bounded)
{
    char text[4 * (PD_MAX_PAIRS + 1) + 1] = "";
    pd_pairs pairs;
    for (int i = 0; i < PD_MAX_PAIRS; i++) strcat(text, i > 0 ? ",a:b" : "a:b");
    assert_int_equal(pd_pairs_read(&pairs, text, &err), PD_OK);
    assert_int_equal(pairs.n, PD_MAX_PAIRS);
    pd_pairs_free(&pairs);
    strcat(text, ",a:b");
    assert_int_equal(pd_pairs_read(&pairs, text, &err), PD_INVALID_ARGUMENT);
    says("at most 256");
    pd_pairs_free(&pairs);
}

TEST(axes_name_each_dimension)
{
    pd_axes axes;
    assert_int_equal(pd_axes_read(&axes, "layers, embed ,,mlp", 4, &err), PD_OK);
    assert_int_equal(axes.n, 4);
    assert_string_equal(axes.name[0], "layers");
    assert_string_equal(axes.name[1], "embed");
    assert_string_equal(axes.name[2], "");
    assert_string_equal(axes.name[3], "mlp");
    assert_int_equal(pd_axes_read(&axes, ",", 2, &err), PD_OK);
    assert_int_equal(axes.n, 2);
}

TEST(axes_may_be_missing)
{
    pd_axes axes;
    assert_int_equal(pd_axes_read(&axes, NULL, 3, &err), PD_OK);
    assert_int_equal(axes.n, 0);
    assert_int_equal(pd_axes_read(&axes, "", 3, &err), PD_OK);
    assert_int_equal(axes.n, 0);
}

TEST(there_are_as_many_names_as_dimensions)
{
    pd_axes axes;
    char commas[32];
    assert_int_equal(pd_axes_read(&axes, "embed", 2, &err), PD_INVALID_ARGUMENT);
    says("expected 2 names");
    assert_int_equal(pd_axes_read(&axes, "embed,", 1, &err), PD_INVALID_ARGUMENT);
    says("got 2");
    assert_int_equal(pd_axes_read(&axes, "embed", 0, &err), PD_INVALID_ARGUMENT);
    memset(commas, ',', sizeof commas - 1);
    commas[sizeof commas - 1] = '\0';
    assert_int_equal(pd_axes_read(&axes, commas, PD_MAX_RANK, &err), PD_INVALID_ARGUMENT);
}

TEST(the_name_of_an_axis_is_bounded)
{
    pd_axes axes;
    char name[PD_AXIS_NAME + 1];
    memset(name, 'x', PD_AXIS_NAME);
    name[PD_AXIS_NAME] = '\0';
    assert_int_equal(pd_axes_read(&axes, name, 1, &err), PD_INVALID_ARGUMENT);
    says("at most 64 bytes");
    assert_int_equal(pd_axes_read(&axes, name + 1, 1, &err), PD_OK);
    assert_string_equal(axes.name[0], name + 1);
}

TEST(the_leading_dimensions_are_the_scanned_layers)
{
    static const struct {
        const char *text;
        int rank, leading;
    } cases[] = {
        { "layers,embed,mlp", 3, 1 },
        { "layers,stack,embed", 3, 2 },
        { "embed,layers", 2, 0 },
        { "layers,embed,stack", 3, 1 },
        { "layers", 1, 1 },
        { ",layers", 2, 0 },
        { NULL, 2, 0 },
        { "Layers,embed", 2, 0 },
    };
    pd_axes axes;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(pd_axes_read(&axes, cases[i].text, cases[i].rank, &err), PD_OK);
        assert_int_equal(pd_axes_leading_batch(&axes), cases[i].leading);
    }
}

static pd_dim_rule rule_of(const char *table, const char *name)
{
    pd_axis_table read;
    pd_dim_rule rule = PD_DIM_NONE;

    if (pd_axis_table_read(&read, table, &err) != PD_OK) fail_msg("%s: %s", table, err.text);
    if (!pd_axis_table_find(&read, name, &rule)) fail_msg("%s has no %s", table, name);
    pd_axis_table_free(&read);
    return rule;
}

TEST(the_standard_table_is_upstreams)
{
    static const struct {
        const char *name;
        pd_dim_rule rule;
    } wanted[] = {
        { "vocab", PD_DIM_COLUMN },
        { "embed", PD_DIM_ROW },
        { "mlp", PD_DIM_COLUMN },
        { "heads", PD_DIM_COLUMN },
        { "kv", PD_DIM_COLUMN },
        { "joined_kv", PD_DIM_COLUMN },
        { "relpos_buckets", PD_DIM_NONE },
        { "layers", PD_DIM_BATCH },
        { "stack", PD_DIM_BATCH },
        { "q_wi_fused", PD_DIM_COLUMN },
        { "o_wo_fused", PD_DIM_COLUMN },
        { "multiquery_heads", PD_DIM_COLUMN },
        { "kv_fused", PD_DIM_COLUMN },
        { "layer_norm_scale", PD_DIM_NONE },
        { "mlp_activations", PD_DIM_COLUMN },
    };
    pd_axis_table table;
    pd_dim_rule rule;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_int_equal(rule_of("standard", wanted[i].name), wanted[i].rule);
    assert_int_equal(pd_axis_table_read(&table, "standard", &err), PD_OK);
    assert_int_equal(table.n, sizeof wanted / sizeof *wanted);
    assert_false(pd_axis_table_find(&table, "Vocab", &rule));
    assert_false(pd_axis_table_find(&table, "", &rule));
    pd_axis_table_free(&table);
}

TEST(a_users_table_has_only_its_own_entries)
{
    pd_axis_table table;
    pd_dim_rule rule;
    assert_int_equal(rule_of("[a:ROW,b:col,c:Column,d:BATCH,e:none,f:unfactorized]", "c"), PD_DIM_COLUMN);
    assert_int_equal(rule_of("[a:ROW,b:col,c:Column,d:BATCH,e:none,f:unfactorized]", "b"), PD_DIM_COLUMN);
    assert_int_equal(rule_of("[a:ROW,b:col,c:Column,d:BATCH,e:none,f:unfactorized]", "f"), PD_DIM_NONE);
    assert_int_equal(rule_of("a:row,a:batch", "a"), PD_DIM_BATCH);
    assert_int_equal(pd_axis_table_read(&table, "[a:ROW]", &err), PD_OK);
    assert_false(pd_axis_table_find(&table, "embed", &rule));
    pd_axis_table_free(&table);
}

TEST(a_table_that_says_something_else_is_refused)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "Standard", "expected key:value" },
        { "[a:ROWS]", "expected ROW, COLUMN, BATCH or NONE, got \"ROWS\"" },
        { "[a:(ROW)]", "got \"(ROW)\"" },
        { "['':ROW]", "1 to 64 bytes" },
        { "[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:ROW]", "1 to 64 bytes" },
    };
    pd_axis_table table;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(pd_axis_table_read(&table, cases[i].text, &err), PD_INVALID_ARGUMENT);
        says(cases[i].words);
        pd_axis_table_free(&table);
    }
}

TEST(without_memory_a_table_says_so)
{
    pd_axis_table table;
    int64_t n;
    for (n = 0;; n++) {
        bool failed;
        int rc;
        oom_arm(n);
        rc = pd_axis_table_read(&table, "[a:ROW,b:COLUMN]", &err);
        failed = oom_disarm();
        pd_axis_table_free(&table);
        if (!failed) break;
        assert_int_equal(rc, PD_NO_MEMORY);
    }
    assert_true(n >= 3);
}

TEST(rules_have_names)
{
    static const pd_dim_rule all[] = { PD_DIM_NONE, PD_DIM_ROW, PD_DIM_COLUMN, PD_DIM_BATCH };
    pd_dim_rule rule;
    for (size_t i = 0; i < 4; i++) {
        assert_true(pd_dim_rule_read(&rule, pd_dim_rule_name(all[i])));
        assert_int_equal(rule, all[i]);
    }
    assert_string_equal(pd_dim_rule_name(PD_DIM_COLUMN), "COLUMN");
}
