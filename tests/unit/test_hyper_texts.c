/* Tests hyperparameters that are texts, and how rules and lists treat quoted text as one item. */
#include "test.h"
#include "optimizers.h"
#include "rig.h"
#include "optimizer_ops.h"
#include "rule.h"
#include "hyper_text.h"

enum { RATE, RULES, SKIP, KIND, KIND_WORDS, KIND_SIZE };
static const pd_hyper hypers_of_a_row[] = {
    [RATE] = { "rate", PD_REAL, 0.5, 0, 10, NULL, "a rate", true, false },
    [RULES] = { "rules", PD_TEXT, 0, 0, 0, NULL, "a text", false, false },
    [SKIP] = { "skip", PD_TEXT, 0, 0, 0, NULL, "another", false, false },
    [KIND] = { "kind", PD_CHOICE, 0, 0, 0, "plain|rich", "a choice to which a text belongs", true, false },
    [KIND_WORDS] = { "kind.words", PD_TEXT, 0, 0, 0, NULL, "belongs to kind", false, false },
    [KIND_SIZE] = { "kind.size", PD_INT, 1, 1, 9, NULL, "belongs to kind", true, false },
    { .name = NULL },
};

/* Plays an optimizer's check of a parameter: refuses the parameter if the hyperparameter `rules` contains "bad". */
static int plan_by_rules(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)stats, (void)plan;
    if (strstr(pd_hypers_given_text(&declaration->hypers, RULES), "bad") == NULL) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: a bad rule", declaration->name);
}

static void move(const pd_unit *unit)
{
    for (int64_t i = unit->first; i < unit->first + unit->n; i++)
        unit->after[i] = unit->before[i] - (float)unit->hyper[RATE] * unit->gradient[i];
}

static const pd_optimizer_ops row = {
    .name = "row",
    .about = "for this test",
    .hypers = hypers_of_a_row,
    .plan = plan_by_rules,
    .phases = { { .run = move } },
};
static const pd_optimizer_ops *const rows[] = { &row, NULL };
static const pd_optimizer_ops *row_at(size_t index)
{
    return index == 0 ? &row : NULL;
}

static pd_hypers h;
static pd_error err;

static int set_up(void **state)
{
    (void)state;
    err = (pd_error){ 0 };
    pd_hypers_init(&h, &row);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    pd_hypers_free(&h);
    return 0;
}
static int set(const char *name, const char *value)
{
    return pd_hypers_set(&h, name, value, &err);
}
static const char *given(const pd_hypers *hypers, int index)
{
    return pd_hypers_given_text(hypers, index);
}

EACH_TEST(set_up, tear_down);

TEST(a_text_is_none_until_it_is_set)
{
    assert_true(h.value[RULES] == 0);
    assert_string_equal(given(&h, RULES), "");
}

/* The hyperparameter's kind is a plain text, so each value is kept unchanged. Some values look like a list, a
 * schedule or a choice with members. */
TEST(a_text_is_kept_as_it_stands)
{
    static const char *const texts[] = { "a",  " a, b ", "(a,b)", "table(1,2)",    "cosin(",     "x=[1,2)",
                                         "'(", "1",      "yes",   "kind(words=a)", "\xc3\xa9 %s" };
    char room[4];
    uint64_t mask = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (pd_hypers_set_which(&h, "rules", texts[i], &mask, &err) != PD_OK) fail_msg("%s: %s", texts[i], err.text);
        assert_string_equal(given(&h, RULES), texts[i]);
        assert_string_equal(pd_hypers_text(&h, RULES, room, sizeof room), texts[i]);
        assert_true(h.value[RULES] == 1 && h.value[SKIP] == 0);
    }
    assert_true(mask == 1 << RULES && h.scheduled == 0);
    assert_string_equal(given(&h, SKIP), "");
}

TEST(an_empty_text_is_none_again)
{
    char room[4];
    assert_int_equal(set("rules", "a"), PD_OK);
    assert_int_equal(set("rules", ""), PD_OK);
    assert_true(h.value[RULES] == 0);
    assert_string_equal(given(&h, RULES), "");
    assert_string_equal(pd_hypers_text(&h, RULES, room, sizeof room), "");
}

TEST(the_text_set_last_counts)
{
    assert_int_equal(set("rules", "a"), PD_OK);
    assert_int_equal(set("skip", "b"), PD_OK);
    assert_int_equal(set("rules", "c"), PD_OK);
    assert_string_equal(given(&h, RULES), "c");
    assert_string_equal(given(&h, SKIP), "b");
}

TEST(a_text_is_bounded)
{
    static char text[PD_MAX_TEXT + 2];
    memset(text, 'x', PD_MAX_TEXT);
    assert_int_equal(set("rules", text), PD_OK);
    assert_int_equal(strlen(given(&h, RULES)), PD_MAX_TEXT);
    text[PD_MAX_TEXT] = 'x';
    assert_int_equal(set("skip", text), PD_OUT_OF_RANGE);
    assert_string_equal(err.text, "skip of row: expected a text of at most 4096 bytes, got 4097");
    assert_string_equal(given(&h, SKIP), "");
}

TEST(a_text_may_belong_to_a_choice)
{
    assert_int_equal(set("kind", "rich(words=[a,b],size=2)"), PD_OK);
    assert_string_equal(given(&h, KIND_WORDS), "[a,b]");
    assert_int_equal(set("kind", "rich(words=c,size=99)"), PD_OUT_OF_RANGE);
    assert_string_equal(given(&h, KIND_WORDS), "[a,b]");
}

/* Sets the rules of h to "a" and returns a copy of h. */
static pd_hypers copied(void)
{
    assert_int_equal(set("rules", "a"), PD_OK);
    return h;
}

TEST(a_copy_borrows_texts_and_its_own_change_nothing_of_the_original)
{
    pd_hypers copy = copied();
    assert_string_equal(given(&copy, RULES), "a");
    assert_int_equal(pd_hypers_set(&copy, "rules", "b", &err), PD_OK);
    assert_int_equal(pd_hypers_set(&copy, "skip", "c", &err), PD_OK);
    assert_string_equal(given(&copy, RULES), "b");
    assert_string_equal(given(&h, RULES), "a");
    assert_string_equal(given(&h, SKIP), "");
    pd_hypers_free(&copy);
    assert_string_equal(given(&h, RULES), "a");
    assert_string_equal(given(&copy, RULES), "");
}

TEST(a_copy_takes_a_text_away_for_itself_alone)
{
    pd_hypers copy = copied();
    assert_int_equal(pd_hypers_set(&copy, "rules", "", &err), PD_OK);
    assert_string_equal(given(&copy, RULES), "");
    assert_string_equal(given(&h, RULES), "a");
}

TEST(a_copy_stays_good_when_the_original_is_set_anew)
{
    pd_hypers copy = copied();
    assert_int_equal(set("rules", "b"), PD_OK);
    assert_string_equal(given(&copy, RULES), "a");
}

TEST(a_step_changes_no_text)
{
    pd_hypers now = copied();
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_OK);
    assert_int_equal(pd_hypers_set(&now, "rules", "a", &err), PD_OK);
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_OK);
    assert_int_equal(pd_hypers_set(&now, "rules", "b", &err), PD_OK);
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "rules of row cannot change while the job runs: it is a, a step asks for b");
    assert_int_equal(pd_hypers_set(&now, "rules", "", &err), PD_OK);
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_INVALID_ARGUMENT);
    pd_hypers_free(&now);
}

TEST(values_without_texts_have_those_declared)
{
    pd_hypers now = { .row = &row };
    assert_int_equal(set("rules", "a"), PD_OK);
    memcpy(now.value, h.value, sizeof now.value);
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_OK);
}

/* Sets the hyperparameter `kind`. Checks that it keeps its old value if out of memory. */
static int set_kind(const void *value)
{
    int rc = set("kind", value);
    bool kept = strlen(given(&h, KIND_WORDS)) == 0 && h.value[KIND_WORDS] == 0 && h.value[KIND] == 0;

    return rc == PD_NO_MEMORY && !kept ? PD_INTERNAL : rc;
}

TEST(without_memory_a_text_changes_nothing)
{
    assert_int_equal(set("rules", "a"), PD_OK);
    assert_true(oom_each(set_kind, "rich(words=b)") > 1);
    assert_string_equal(given(&h, KIND_WORDS), "b");
    assert_string_equal(given(&h, RULES), "a");
}

TEST(a_rule_brings_a_text)
{
    static const struct {
        const char *rule, *text;
    } cases[] = {
        { "* row rules=abc rate=1", "abc" },
        { "* row rules=[a: b, c] rate=1", "[a:b,c]" },         /* blanks between brackets are removed */
        { "* row rules=['a b': c, d] rate=1", "['a b':c,d]" }, /* blanks between quotes are kept */
        { "* row rules=['x\\(': row, '[)': col] rate=1", "['x\\(':row,'[)':col]" },
        { "* row rules='a b, (' rate=1", "'a b, ('" },
        { "* row rules=a'b rate=1", "a'b" }, /* the quote is never closed, so it is an ordinary character */
        { "* row rules=''(a b) rate=1", "''(ab)" },
        { "* row rules=['=': a=b] rate=1", "['=':a=b]" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *const text[] = { (char *)cases[i].rule };
        pd_rule *rules;
        size_t n;
        if (pd_rules_parse(&rules, &n, text, 1, rows, &err) != PD_OK) fail_msg("%s", err.text);
        assert_string_equal(given(&rules[0].hypers, RULES), cases[i].text);
        assert_true(rules[0].hypers.value[RATE] == 1);
        pd_rules_free(rules, n);
    }
}

static int read_rule(const void *text)
{
    pd_rule *rules = NULL;
    size_t n = 0;
    int rc = pd_rules_parse(&rules, &n, text, 1, rows, NULL);

    pd_rules_free(rules, n);
    return rc;
}

TEST(without_memory_reads_no_rule_with_a_text)
{
    static char *const text[] = { (char *)"* row rules=[a: b] skip=c" };
    assert_true(oom_each(read_rule, text) > 5);
}

static const int64_t one_element = 1;

static void begin_without_jobs(rig *r)
{
    pd_store_config config = rig_config();

    config.rows = rows;
    rig_new(r, &config);
}

static void begin(rig *r, const char *rules)
{
    begin_without_jobs(r);
    r->job = rig_start(r, "job", 1, 1, &one_element, 1, NULL, rules);
}

TEST(a_push_and_an_operator_change_no_text)
{
    static const char *const values[] = { "a", "b", "", "table(1,2)" };
    float one = 1;
    rig r;
    begin(&r, "* row rules=a rate=1");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char option[32];
        rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, 1, 1);
        rig_piece(frame, 0, PD_F32, 0, 1, &one);
        rig_hyper(frame, "rules", values[i]);
        assert_int_equal(rig_send(&r, frame), PD_INVALID_ARGUMENT);
        assert_string_equal(r.error.text, "rules of row is fixed while the job runs: it cannot be sent with a push");
        snprintf(option, sizeof option, "rules=%s", values[i]);
        assert_int_equal(rig_set(&r, "job", "*", option, 0), PD_INVALID_ARGUMENT);
        assert_string_equal(r.error.text, "p0: rules of row is fixed while the job runs");
    }
    assert_int_equal(rig_push(&r, r.job, 0, 1, 1, 0, &one, 1), PD_OK);
    rig_free(&r);
}

TEST(a_step_whose_pushes_bring_values_has_the_jobs_texts)
{
    float one = 1, before;
    rig_frame *frame;
    rig r;
    begin(&r, "* row rules=a rate=1");
    before = *rig_weights(&r, r.job, 0);
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, 1, 1);
    rig_piece(frame, 0, PD_F32, 0, 1, &one);
    rig_hyper(frame, "rate", "0.5");
    assert_int_equal(rig_send(&r, frame), PD_OK);
    assert_int_equal(rig_set(&r, "job", "*", "rate=0.25", 2), PD_OK);
    rig_work(&r);
    assert_true(*rig_weights(&r, r.job, 0) == before - 0.5f);
    rig_free(&r);
}

TEST(the_plan_reads_the_text)
{
    static const char *const names[] = { "p0" };
    static const pd_shape shape = { .rank = 1, .dim = { 1 } };
    rig r;
    begin_without_jobs(&r);
    assert_int_equal(rig_hello(&r, "job", 0, 1, 1, 1, NULL, "* row rules=[a, bad]"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, 1, names, &shape, NULL, 1, PD_F32), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "p0: a bad rule"));
    rig_free(&r);
}

TEST(ranks_come_with_the_same_text)
{
    rig r;
    begin_without_jobs(&r);
    assert_int_equal(rig_hello(&r, "job", 0, 2, 1, 1, NULL, "* row rules=a"), PD_OK);
    assert_int_equal(rig_hello(&r, "job", 1, 2, 2, 2, NULL, "* row rules=b"), PD_FAILED_PRECONDITION);
    assert_int_equal(rig_hello(&r, "job", 1, 2, 2, 2, NULL, "* row rules=a"), PD_OK);
    rig_free(&r);
}

TEST(a_list_of_optimizers_says_that_it_is_a_text_and_how_long_it_may_be)
{
    Paramd__OptimizersReply *reply;
    const Paramd__Hyper *hyper;
    assert_int_equal(pd_optimizers_page(&reply, row_at, 0, "row", &err), PD_OK);
    hyper = reply->optimizers[0]->hypers[RULES];
    assert_string_equal(hyper->type, "text");
    assert_string_equal(hyper->preset, "");
    assert_true(hyper->most == PD_MAX_TEXT && !hyper->per_step);
    pd_optimizers_free(reply);
}

TEST(quoted_text_is_not_cut)
{
    char text[] = " 'a,b' :c ,['(', d],'e, f";
    char *rest = text;
    assert_string_equal(pd_text_item(&rest), "'a,b' :c");
    assert_string_equal(pd_text_item(&rest), "['(', d]");
    assert_string_equal(pd_text_item(&rest), "'e");
    assert_string_equal(pd_text_item(&rest), "f");
    assert_null(pd_text_item(&rest));
}

TEST(brackets_in_quotes_open_no_list)
{
    static const char *const cases[][2] = { { "['(',b]", "'(',b" },
                                            { "'(':(1,2)", "1,2" },
                                            { "'a[',(b)", "'a[',(b)" } };
    char *inside;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(pd_text_inside(&inside, cases[i][0]), PD_OK);
        assert_string_equal(inside, cases[i][1]);
        free(inside);
    }
}
