/* Tests reading, checking and printing of hyperparameters. */
#include "test.h"
#include "optimizer_ops.h"

enum { RATE, SIZE, FAST, GRAFT, LAG, CUT, BETA0, BETA1, ROOT0, ROOT1, ROOT2, GRAFT_BETA, MODE };
static const pd_hyper hypers_of_a_row[] = {
    [RATE] = { "rate", PD_REAL, 0.5, 0, 10, NULL, "a rate", true },
    [SIZE] = { "size", PD_INT, 128, 1, 4096, NULL, "a size", false },
    [FAST] = { "fast", PD_FLAG, 1, 0, 1, NULL, "a flag", true },
    [GRAFT] = { "graft", PD_CHOICE, 1, 0, 0, "none|sgd|adam", "a choice", true },
    [LAG] = { "lag", PD_INT, 0, -1, 100, "ready", "a whole number or a word", true },
    [CUT] = { "cut", PD_REAL, 1, 0, 1e9, "never", "a number or a word", false },
    [BETA0] = { "betas[0]", PD_REAL, 0.9, 0, 1, NULL, "a list", true },
    [BETA1] = { "betas[1]", PD_REAL, 0.99, 0, 1, NULL, "a list", true },
    [ROOT0] = { "root[0]", PD_INT, 0, 0, 9, NULL, "a list of any length", false, true },
    [ROOT1] = { "root[1]", PD_INT, 0, 0, 9, NULL, "a list of any length", false },
    [ROOT2] = { "root[2]", PD_INT, 0, 0, 9, NULL, "a list of any length", false },
    [GRAFT_BETA] = { "graft.beta", PD_REAL, 0.5, 0, 1, NULL, "belongs to graft", true },
    [MODE] = { "mode", PD_CHOICE, 0, 0, 0, "slow|fast", "a word (upstream: pace)", true },
    { .name = NULL },
};

static int rate_below_size(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    if (now->value[RATE] > declared->value[SIZE]) return pd_fail(err, PD_INVALID_ARGUMENT, "rate above size");
    return PD_OK;
}

static const pd_optimizer_ops row = {
    .name = "row", .about = "for this test", .hypers = hypers_of_a_row, .check = rate_below_size
};

static pd_hypers h;
static pd_error err;

static int set_up(void **state)
{
    (void)state;
    pd_hypers_init(&h, &row);
    memset(&err, 0, sizeof err);
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

static void reads(const char *name, const char *text, int index, double value)
{
    assert_int_equal(set(name, text), PD_OK);
    assert_true(h.value[index] == value);
}

EACH_TEST(set_up, tear_down);

HOLDS(begins_with_the_presets, assert_true(h.row == &row && h.value[RATE] == 0.5 && h.value[SIZE] == 128 &&
                                           h.value[FAST] == 1 && h.value[GRAFT] == 1));

TEST(refuses_upstreams_name_with_ours)
{
    assert_int_equal(set("pace", "fast"), PD_NOT_FOUND);
    assert_string_equal(err.text, "row has no hyperparameter pace; set mode: a word (upstream: pace)");
}

TEST(reads_reals)
{
    reads("rate", "1e-3", RATE, 1e-3);
    reads("rate", "10", RATE, 10);
}

TEST(reads_whole_numbers)
{
    reads("size", "4096", SIZE, 4096);
    assert_int_equal(set("size", "1.5"), PD_INVALID_ARGUMENT);
    assert_int_equal(set("size", "99999999999999999999"), PD_INVALID_ARGUMENT);
}

TEST(reads_flags_in_three_spellings)
{
    static const char *const yes[] = { "yes", "true", "1" }, *const no[] = { "no", "false", "0" };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(set("fast", no[i]), PD_OK);
        assert_true(h.value[FAST] == 0);
        assert_int_equal(set("fast", yes[i]), PD_OK);
        assert_true(h.value[FAST] == 1);
    }
    assert_int_equal(set("fast", "2"), PD_INVALID_ARGUMENT);
}

TEST(reads_choices_by_their_whole_name)
{
    reads("graft", "adam", GRAFT, 2);
    assert_int_equal(set("graft", "ada"), PD_INVALID_ARGUMENT);
    assert_int_equal(set("graft", "sgd|adam"), PD_INVALID_ARGUMENT);
    assert_int_equal(set("graft", ""), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "none|sgd|adam"));
}

TEST(reads_choices_whatever_their_case)
{
    reads("graft", "Adam", GRAFT, 2);
    reads("graft", "NONE", GRAFT, 0);
}

/* Python configurations write flags as True or False: use_nesterov=True. */
TEST(reads_flags_whatever_their_case)
{
    reads("fast", "False", FAST, 0);
    reads("fast", "True", FAST, 1);
}

TEST(reads_a_list_with_and_without_brackets)
{
    static const char *const texts[] = { "0.5,0.25", "(0.5, 0.25)", "[0.5,0.25]", "( 0.5 ,0.25 )" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint64_t mask = 1;
        pd_hypers_init(&h, &row);
        assert_int_equal(pd_hypers_set_which(&h, "betas", texts[i], &mask, &err), PD_OK);
        assert_true(h.value[BETA0] == 0.5 && h.value[BETA1] == 0.25);
        assert_true(mask == (1 | 1ull << BETA0 | 1ull << BETA1));
    }
    assert_int_equal(set("betas[1]", "0.125"), PD_OK);
    assert_true(h.value[BETA0] == 0.5 && h.value[BETA1] == 0.125);
}

TEST(a_list_needs_all_its_numbers)
{
    static const char *const texts[] = { "0.5", "(0.5)", "0.5,0.25,0.125", "", "0.5,", "(0.5", "()", "0.5,nan" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(set("betas", texts[i]), PD_INVALID_ARGUMENT);
    assert_true(h.value[BETA0] == 0.9 && h.value[BETA1] == 0.99);
}

TEST(a_list_that_spreads_takes_one_number_for_all_and_leaves_the_rest_as_preset)
{
    assert_int_equal(set("root", "4"), PD_OK);
    assert_true(h.value[ROOT0] == 4 && h.value[ROOT1] == 4 && h.value[ROOT2] == 4);
    assert_int_equal(set("root", "[2,1]"), PD_OK);
    assert_true(h.value[ROOT0] == 2 && h.value[ROOT1] == 1 && h.value[ROOT2] == 0);
    assert_int_equal(set("root", "[2,1,3,4]"), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "a number, or at most 3 numbers"));
}

TEST(a_list_that_fails_in_the_middle_sets_nothing)
{
    assert_int_equal(set("betas", "linear_warmup(peak=0.5,warmup_steps=10),2"), PD_OUT_OF_RANGE);
    assert_true(h.value[BETA0] == 0.9 && h.scheduled == 0 && h.schedules == NULL);
    assert_int_equal(set("betas", "linear_warmup(peak=0.5,warmup_steps=10),0.5"), PD_OK);
    assert_true(h.scheduled == 1ull << BETA0 && h.value[BETA1] == 0.5);
}

TEST(a_choice_takes_what_belongs_to_it)
{
    assert_int_equal(set("graft", "SGD(beta=0.75)"), PD_OK);
    assert_true(h.value[GRAFT] == 1 && h.value[GRAFT_BETA] == 0.75);
    assert_int_equal(set("graft", "adam()"), PD_OK);
    assert_true(h.value[GRAFT] == 2 && h.value[GRAFT_BETA] == 0.75);
    assert_int_equal(set("graft", "sgd(gamma=1)"), PD_NOT_FOUND);
    assert_int_equal(set("graft", "sgd(0.5)"), PD_INVALID_ARGUMENT);
    assert_true(h.value[GRAFT] == 2);
}

TEST(refuses_what_is_not_a_number)
{
    static const char *const texts[] = { "", " ", " 1", "1 ", "fast", "1,5", "nan", "inf", "1e999", "0x", "--1" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(set("rate", texts[i]), PD_INVALID_ARGUMENT);
        assert_int_equal(set("size", texts[i]), PD_INVALID_ARGUMENT);
    }
    assert_true(h.value[RATE] == 0.5 && h.value[SIZE] == 128);
}

TEST(refuses_what_is_out_of_range)
{
    assert_int_equal(set("rate", "10.000001"), PD_OUT_OF_RANGE);
    assert_int_equal(set("size", "0"), PD_OUT_OF_RANGE);
    assert_non_null(strstr(err.text, "1 to 4096"));
    assert_true(h.value[RATE] == 0.5 && h.value[SIZE] == 128);
}

TEST(refuses_an_unknown_name_with_the_known_ones)
{
    assert_int_equal(set("momentum", "1"), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "momentum"));
    assert_non_null(strstr(err.text, "rate, size, fast, graft, lag, cut, betas[0]"));
}

TEST(survives_texts_that_are_too_long)
{
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(set(text, "1"), PD_NOT_FOUND);
    assert_int_equal(set("rate", text), PD_INVALID_ARGUMENT);
}

TEST(writes_what_it_reads_back_to_the_same_bits)
{
    static const double values[] = { 0.1, 1.0 / 3, 1e-300, 0, 7, 0x1.fffffffffffffp1, 5e-324 };
    char text[64];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        h.value[RATE] = values[i];
        assert_ptr_equal(pd_hypers_text(&h, RATE, text, sizeof text), text);
        h.value[RATE] = -1;
        assert_int_equal(set("rate", text), PD_OK);
        assert_true(h.value[RATE] == values[i]);
    }
}

TEST(writes_the_shortest_text)
{
    char text[64];
    h.value[RATE] = 0.1;
    assert_string_equal(pd_hypers_text(&h, RATE, text, sizeof text), "0.1");
    assert_string_equal(pd_hypers_text(&h, SIZE, text, sizeof text), "128");
    assert_string_equal(pd_hypers_text(&h, FAST, text, sizeof text), "yes");
    assert_string_equal(pd_hypers_text(&h, GRAFT, text, sizeof text), "sgd");
}

TEST(reads_and_writes_the_word_for_the_least_value)
{
    char text[64];
    reads("lag", "Ready", LAG, -1);
    reads("lag", "ready", LAG, -1);
    assert_string_equal(pd_hypers_text(&h, LAG, text, sizeof text), "ready");
    assert_int_equal(set("lag", "0"), PD_OK);
    assert_string_equal(pd_hypers_text(&h, LAG, text, sizeof text), "0");
    reads("cut", "never", CUT, 0);
    assert_string_equal(pd_hypers_text(&h, CUT, text, sizeof text), "never");
    assert_int_equal(set("cut", "0.5"), PD_OK);
    assert_string_equal(pd_hypers_text(&h, CUT, text, sizeof text), "0.5");
}

TEST(says_the_range_with_the_word)
{
    assert_int_equal(set("lag", "soon"), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "lag of row: expected a whole number from 0 to 100, or ready, got \"soon\"");
    assert_int_equal(set("lag", "101"), PD_OUT_OF_RANGE);
    assert_string_equal(err.text, "lag of row: 101 is outside its range, 0 to 100, or ready");
    assert_int_equal(set("lag", "-2"), PD_OUT_OF_RANGE);
    assert_int_equal(set("cut", "x"), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "cut of row: expected a finite number from 0 to 1000000000, or never, got \"x\"");
    assert_int_equal(set("size", "ready"), PD_INVALID_ARGUMENT);
}

static double at(const pd_hypers *hypers, int index, int64_t count)
{
    double value[PD_MAX_HYPERS];

    pd_hypers_at(hypers, count, value);
    return value[index];
}

TEST(a_schedule_is_followed_from_count_0_on)
{
    reads("rate", "linear_warmup(peak=8,warmup_steps=4)", RATE, 2);
    for (int count = 0; count < 6; count++) assert_true(at(&h, RATE, count) == (count < 4 ? 2 * (count + 1) : 8));
    assert_true(at(&h, SIZE, 3) == 128 && at(&h, FAST, 3) == 1 && at(&h, GRAFT, 3) == 1);
}

TEST(several_schedules_are_followed_at_once)
{
    assert_int_equal(set("rate", "table(1,2,3)"), PD_OK);
    assert_int_equal(set("lag", "piecewise(5,2:7)"), PD_OK);
    assert_int_equal(set("fast", "table(1,0)"), PD_OK);
    assert_true(at(&h, RATE, 2) == 3 && at(&h, LAG, 2) == 7 && at(&h, FAST, 2) == 0 && at(&h, LAG, 1) == 5 &&
                at(&h, FAST, 0) == 1);
}

TEST(a_plain_value_ends_a_schedule)
{
    char text[64];
    assert_int_equal(set("rate", "table(1,2,3)"), PD_OK);
    assert_int_equal(set("rate", "4"), PD_OK);
    assert_true(h.value[RATE] == 4 && at(&h, RATE, 1) == 4);
    assert_string_equal(pd_hypers_text(&h, RATE, text, sizeof text), "4");
}

TEST(the_schedule_set_last_is_followed)
{
    char text[64];
    assert_int_equal(set("rate", "table(1,2,3)"), PD_OK);
    assert_int_equal(set("lag", "table(9,8)"), PD_OK);
    assert_int_equal(set("rate", "table(4,5,6)"), PD_OK);
    assert_true(h.value[RATE] == 4 && at(&h, RATE, 1) == 5 && at(&h, LAG, 1) == 8);
    assert_string_equal(pd_hypers_text(&h, RATE, text, sizeof text), "table(4,5,6)");
    assert_string_equal(pd_hypers_text(&h, LAG, text, sizeof text), "table(9,8)");
}

TEST(whole_numbers_and_flags_are_rounded_to)
{
    assert_int_equal(set("lag", "linear(init=0,end=10,steps=40)"), PD_OK);
    assert_true(at(&h, LAG, 3) == 1 && at(&h, LAG, 5) == 1 && at(&h, LAG, 39) == 10);
    assert_int_equal(set("lag", "table(1,2.5)"), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "expected whole numbers, got 2.5 in table(1,2.5)"));
}

TEST(fixed_values_and_words_take_no_schedule)
{
    assert_int_equal(set("size", "table(64,128)"), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "size of row takes no schedule: it is fixed while the job runs");
    assert_int_equal(set("mode", "table(0,1)"), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "mode of row takes no schedule: it is a word");
    assert_true(h.scheduled == 0 && h.value[SIZE] == 128 && h.value[GRAFT] == 1);
}

TEST(every_value_of_a_schedule_lies_in_the_range)
{
    static const struct {
        const char *text, *number;
    } cases[] = {
        { "linear_warmup(peak=11,warmup_steps=3)", "is 11 at count 2, outside its range, 0 to 10" },
        { "linear(init=0,end=-0.5,steps=3)", "is -0.5 at count 3, outside" },
        { "cosine(peak=12,steps=100,warmup_steps=7,init=1)", "is 12 at count 7, outside" },
        { "cosine(peak=1,steps=100,end=-1e-9)", "is -1e-09 at count 100, outside" },
        { "polynomial(init=1,end=10.5,power=2,steps=4,begin=3)", "is 10.5 at count 7, outside" },
        { "warmup_linear(peak=1,warmup_steps=2,steps=9,end=-2)", "is -2 at count 9, outside" },
        { "inverse_sqrt(peak=10.25,warmup_steps=9)", "is 10.25 at count 8, outside" },
        { "rsqrt(base=22,warmup_steps=4)", "is 11 at count 0, outside" },
        { "table(1,2,11,3)", "is 11 at count 2, outside" },
        { "piecewise(1,50:-1,60:1)", "is -1 at count 50, outside" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (set("rate", cases[i].text) != PD_OUT_OF_RANGE) fail_msg("%s", cases[i].text);
        if (strstr(err.text, cases[i].number) == NULL) fail_msg("%s", err.text);
    }
    assert_true(h.scheduled == 0 && h.schedules == NULL && h.value[RATE] == 0.5);
}

TEST(a_refused_schedule_names_its_hyperparameter)
{
    assert_int_equal(set("rate", "cosin(peak=1)"), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "rate of row: there is no schedule cosin; there are: linear_warmup"));
    assert_int_equal(set("momentum", "cosin(peak=1)"), PD_NOT_FOUND);
}

TEST(checks_wherever_a_schedule_turns)
{
    assert_int_equal(set("size", "4"), PD_OK);
    assert_int_equal(set("rate", "cosine(peak=4,steps=9,warmup_steps=3)"), PD_OK);
    assert_int_equal(pd_hypers_check(&h, &err), PD_OK);
    assert_int_equal(set("rate", "cosine(peak=5,steps=9,warmup_steps=3)"), PD_OK);
    assert_int_equal(pd_hypers_check(&h, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "rate above size, at count 3 of a schedule");
    assert_int_equal(set("rate", "5"), PD_OK);
    assert_int_equal(set("rate", "1"), PD_OK);
    assert_int_equal(pd_hypers_check(&h, &err), PD_OK);
}

TEST(a_copy_changes_nothing_of_the_original)
{
    pd_hypers copy;
    assert_int_equal(set("rate", "table(1,2,3)"), PD_OK);
    copy = h;
    assert_true(at(&copy, RATE, 1) == 2);
    assert_int_equal(pd_hypers_set(&copy, "rate", "7", &err), PD_OK);
    assert_true(at(&copy, RATE, 1) == 7 && at(&h, RATE, 1) == 2);
    assert_int_equal(pd_hypers_set(&copy, "lag", "table(3,4)", &err), PD_OK);
    assert_int_equal(pd_hypers_set(&copy, "rate", "table(8,9)", &err), PD_OK);
    assert_true(at(&copy, RATE, 1) == 9 && at(&copy, LAG, 1) == 4 && at(&h, RATE, 1) == 2 && at(&h, LAG, 1) == 0);
    pd_hypers_free(&copy);
    assert_true(at(&h, RATE, 1) == 2 && copy.scheduled == 0);
}

TEST(freeing_a_copy_frees_nothing_of_the_original)
{
    pd_hypers copy;
    assert_int_equal(set("rate", "table(1,2,3)"), PD_OK);
    copy = h;
    pd_hypers_free(&copy);
    pd_hypers_free(&copy);
    assert_true(at(&h, RATE, 2) == 3);
}

TEST(a_copy_stays_good_when_the_original_is_set_anew)
{
    pd_hypers copy;
    assert_int_equal(set("rate", "table(1,2,3)"), PD_OK);
    copy = h;
    assert_int_equal(set("rate", "table(4,5,6)"), PD_OK);
    assert_int_equal(set("rate", "5"), PD_OK);
    assert_true(at(&copy, RATE, 1) == 2 && at(&h, RATE, 1) == 5);
}

TEST(a_schedule_is_written_whole_however_long)
{
    char schedule[5000] = "table(1", room[8];
    for (size_t n = strlen(schedule); n + 8 < sizeof schedule; n += 2) strcpy(schedule + n, ",2");
    strcat(schedule, ")");
    assert_int_equal(set("rate", schedule), PD_OK);
    assert_string_equal(pd_hypers_text(&h, RATE, room, sizeof room), schedule);
}

TEST(without_memory_a_schedule_changes_nothing)
{
    int64_t n;
    assert_int_equal(set("rate", "table(1,2,3)"), PD_OK);
    for (n = 0;; n++) {
        int rc;
        oom_arm(n);
        rc = set("rate", "piecewise(4,1:5)");
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_true(h.value[RATE] == 1 && at(&h, RATE, 1) == 2);
    }
    assert_true(n > 0 && at(&h, RATE, 1) == 5);
}

TEST(checks_several_values_at_once)
{
    assert_int_equal(pd_hypers_check(&h, &err), PD_OK);
    h.value[SIZE] = 1;
    h.value[RATE] = 2;
    assert_int_equal(pd_hypers_check(&h, &err), PD_INVALID_ARGUMENT);
}

TEST(a_step_may_change_only_what_is_per_step)
{
    pd_hypers now = h;
    now.value[RATE] = 0.25;
    now.value[GRAFT] = 2;
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_OK);
    now.value[SIZE] = 64;
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "size"));
    assert_non_null(strstr(err.text, "128"));
    assert_non_null(strstr(err.text, "64"));
}

TEST(a_step_is_checked_against_what_was_declared)
{
    pd_hypers now;
    h.value[SIZE] = 5;
    now = h;
    now.value[RATE] = 6;
    assert_int_equal(pd_hypers_check_step(&h, &now, &err), PD_INVALID_ARGUMENT);
}

TEST(finds_every_row_of_the_table_by_name)
{
    size_t n, rows = 0;
    for (const pd_optimizer_ops *r; (r = pd_optim_at(rows)) != NULL; rows++) {
        assert_ptr_equal(pd_optim_find(pd_optimizer_name(r)), r);
        assert_true(strlen(pd_optimizer_about(r)) > 0);
        for (size_t i = 0; pd_optimizer_hypers(r, &n) != NULL && i < n; i++) {
            assert_int_equal(pd_hypers_find(r, pd_optimizer_hypers(r, &n)[i].name), i);
            assert_true(strlen(pd_optimizer_hypers(r, &n)[i].help) > 0);
        }
        assert_true(n <= PD_MAX_HYPERS);
    }
    assert_true(rows > 0);
    assert_null(pd_optim_find("nothing"));
    assert_null(pd_optim_at(rows + 1));
}

TEST(presets_pass_their_own_checks)
{
    for (size_t r = 0; pd_optim_at(r) != NULL; r++) {
        size_t n;
        const pd_hyper *hypers = pd_optimizer_hypers(pd_optim_at(r), &n);
        pd_hypers_init(&h, pd_optim_at(r));
        assert_int_equal(pd_hypers_check(&h, &err), PD_OK);
        for (size_t i = 0; i < n; i++) {
            char text[64];
            assert_int_equal(set(hypers[i].name, pd_hypers_text(&h, (int)i, text, sizeof text)), PD_OK);
            assert_true(h.value[i] == hypers[i].preset);
        }
    }
}
