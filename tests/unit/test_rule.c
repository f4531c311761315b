/* Tests rules: name patterns and the options that follow them. */
#include "test.h"
#include "optimizer.h"
#include "rule.h"

TEST(no_rules_mean_sgd_for_all)
{
    pd_rule *rules;
    size_t n;

    assert_int_equal(pd_rules_parse(&rules, &n, NULL, 0, pd_optimizer_table, NULL), PD_OK);
    assert_int_equal(n, 1);
    assert_string_equal(pd_optimizer_name(pd_rules_match(rules, n, "anything", NULL)->hypers.row), "sgd");
    pd_rules_free(rules, n);
}

TEST(reads_hyperparameters)
{
    static char *const text[] = { (char *)"  *.bias\tsgd  lr=0.5 ", (char *)"w* sgd momentum=0.75" };
    pd_rule *rules;
    size_t n;
    const pd_hypers *hypers;

    assert_int_equal(pd_rules_parse(&rules, &n, text, 2, pd_optimizer_table, NULL), PD_OK);
    hypers = &pd_rules_match(rules, n, "x.bias", NULL)->hypers;
    assert_true(hypers->value[pd_hypers_find(hypers->row, "lr")] == 0.5);
    hypers = &pd_rules_match(rules, n, "w.weight", NULL)->hypers;
    assert_true(hypers->value[pd_hypers_find(hypers->row, "momentum")] == 0.75);
    assert_ptr_equal(pd_rules_match(rules, n, "w.bias", NULL), &rules[0]);
    assert_null(pd_rules_match(rules, n, "b", NULL));
    pd_rules_free(rules, n);
}

TEST(blanks_in_brackets_do_not_end_a_word)
{
    static char *const text[] = { (char *)"* sgd lr=linear_warmup(peak=0.5, warmup_steps=10) momentum=0.75" };
    pd_rule *rules;
    size_t n;
    const pd_hypers *hypers;

    assert_int_equal(pd_rules_parse(&rules, &n, text, 1, pd_optimizer_table, NULL), PD_OK);
    hypers = &rules[0].hypers;
    assert_true(hypers->scheduled != 0 && hypers->value[pd_hypers_find(hypers->row, "momentum")] == 0.75);
    pd_rules_free(rules, n);
}

TEST(reads_schedules)
{
    static char *const text[] = { (char *)"* sgd lr=linear_warmup(peak=0.5,warmup_steps=2) momentum=table(0.5,0.25)" };
    pd_rule *rules;
    size_t n;
    double value[PD_MAX_HYPERS];

    assert_int_equal(pd_rules_parse(&rules, &n, text, 1, pd_optimizer_table, NULL), PD_OK);
    pd_hypers_at(&rules[0].hypers, 1, value);
    assert_true(value[pd_hypers_find(rules[0].hypers.row, "lr")] == 0.5);
    assert_true(value[pd_hypers_find(rules[0].hypers.row, "momentum")] == 0.25);
    pd_rules_free(rules, n);
}

TEST(refuses_schedules_by_rule_and_reason)
{
    static const char *const bad[][2] = {
        { "* sgd lr=cosine(peak=1)", "lr of sgd: missing argument \"steps\"" },
        { "* sgd lr=table(1,-1)", "is -1 at count 1, outside its range" },
        { "* sgd momentum=table(0.9,0)", "momentum cannot change from 0.9 to 0" },
        { "* sgd lr=cosine(peak=1,steps=2", "parenthesis" },
    };
    pd_error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *const text[] = { (char *)bad[i][0] };
        pd_rule *rules;
        size_t n;
        assert_int_equal(pd_rules_parse(&rules, &n, text, 1, pd_optimizer_table, &err), PD_INVALID_ARGUMENT);
        if (strstr(err.text, bad[i][0]) == NULL || strstr(err.text, bad[i][1]) == NULL) fail_msg("%s", err.text);
    }
}

/* Parses two rules. Checks that no rules are returned on an error. */
static int read_both(const void *text)
{
    pd_rule *rules = NULL;
    size_t n = 0;
    int rc = pd_rules_parse(&rules, &n, text, 2, pd_optimizer_table, NULL);

    if (rc != PD_OK && rules != NULL) return PD_INTERNAL;
    pd_rules_free(rules, n);
    return rc;
}

TEST(without_memory_reads_no_schedule)
{
    static char *const text[] = { (char *)"w sgd lr=table(1,2)", (char *)"* sgd lr=cosine(peak=1,steps=3)" };

    assert_true(oom_each(read_both, text) > 8);
}
