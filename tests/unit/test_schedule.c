/* Tests schedules of hyperparameters against their formulas. */
#include <float.h>

#include "test.h"
#include "schedule.h"

static pd_error err;

static pd_schedule *schedule(const char *text)
{
    pd_schedule *made = NULL;

    if (pd_schedule_read(&made, text, &err) != PD_OK) fail_msg("%s: %s", text, err.text);
    assert_string_equal(made->text, text);
    return made;
}

static double at(const char *text, int64_t count)
{
    pd_schedule *s = schedule(text);
    double value = pd_schedule_at(s, count);

    pd_schedule_free(s);
    return value;
}

static void is_near(double a, double b)
{
    if (!(fabs(a - b) <= 4 * DBL_EPSILON * fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

static int refused(const char *text)
{
    pd_schedule *made = NULL;
    int rc = pd_schedule_read(&made, text, &err);

    assert_null(made);
    return rc;
}

static void refused_with(const char *text, const char *words)
{
    assert_int_equal(refused(text), PD_INVALID_ARGUMENT);
    if (strstr(err.text, words) == NULL) fail_msg("%s: \"%s\" does not say \"%s\"", text, err.text, words);
}

TEST(linear_warmup_gives_its_first_share_in_the_first_step)
{
    static const char text[] = "linear_warmup(peak=0.2,warmup_steps=4)";
    is_near(at(text, 0), 0.2 / 4);
    is_near(at(text, 1), 0.2 * 2 / 4);
    is_near(at(text, 2), 0.2 * 3 / 4);
    assert_true(at(text, 3) == 0.2 && at(text, 4) == 0.2 && at(text, INT64_MAX) == 0.2);
}

TEST(warmup_linear_comes_down_to_its_end_and_stays)
{
    static const char text[] = "warmup_linear(peak=0.5,warmup_steps=5,steps=20,end=0.1)";
    is_near(at(text, 0), 0.5 / 5);
    assert_true(at(text, 4) == 0.5 && at(text, 5) == 0.5);
    is_near(at(text, 6), 0.1 + 0.4 * 14 / 15);
    is_near(at(text, 19), 0.1 + 0.4 / 15);
    assert_true(at(text, 20) == 0.1 && at(text, 1000) == 0.1);
    assert_true(at("warmup_linear(peak=0.5,warmup_steps=0,steps=2)", 0) == 0.5);
}

TEST(linear_goes_from_one_value_to_the_other)
{
    static const char text[] = "linear(init=1,end=3,steps=8,begin=4)";
    assert_true(at(text, 0) == 1 && at(text, 4) == 1);
    is_near(at(text, 5), 1.25);
    is_near(at(text, 11), 2.75);
    assert_true(at(text, 12) == 3 && at(text, 99) == 3);
    assert_true(at("linear(init=1,end=3,steps=8)", 4) == 2);
}

TEST(polynomial_has_a_power)
{
    static const char text[] = "polynomial(init=0.8,end=0.2,power=2.5,steps=10,begin=3)";
    assert_true(at(text, 3) == 0.8 && at(text, 13) == 0.2 && at(text, 14) == 0.2);
    for (int count = 4; count < 13; count++) is_near(at(text, count), 0.2 + 0.6 * pow(1 - (count - 3) / 10.0, 2.5));
}

TEST(cosine_warms_up_and_comes_down)
{
    static const char text[] = "cosine(peak=0.9,steps=50,warmup_steps=10,init=0.3,end=0.1,exponent=1.5)";
    for (int count = 0; count < 10; count++) is_near(at(text, count), 0.3 + 0.6 * count / 10);
    for (int count = 10; count < 50; count++)
        is_near(at(text, count), 0.1 + 0.8 * pow((1 + cos(M_PI * (count - 10) / 40)) / 2, 1.5));
    assert_true(at(text, 10) == 0.9 && at(text, 50) == 0.1 && at(text, 5000) == 0.1);
}

TEST(cosine_without_a_warmup_begins_at_its_peak)
{
    assert_true(at("cosine(peak=0.9,steps=50)", 0) == 0.9);
    assert_true(fabs(at("cosine(peak=0.9,steps=50)", 25) - 0.45) < 1e-15);
    assert_true(at("cosine(peak=0.9,steps=50)", 50) == 0);
}

TEST(inverse_sqrt_halves_in_four_times_the_warmup)
{
    static const char text[] = "inverse_sqrt(peak=0.4,warmup_steps=100)";
    is_near(at(text, 0), 0.4 / 100);
    is_near(at(text, 49), 0.2);
    assert_true(at(text, 99) == 0.4);
    is_near(at(text, 100), 0.4 * sqrt(100 / 101.0));
    is_near(at(text, 399), 0.2);
}

TEST(rsqrt_is_flat_until_its_warmup_is_over)
{
    static const char text[] = "rsqrt(base=2,warmup_steps=9)";
    is_near(at(text, 0), 2.0 / 3);
    is_near(at(text, 9), 2.0 / 3);
    is_near(at(text, 16), 0.5);
}

/* Upstream passes 1 to the schedule in the first step, where our count is 0. */
TEST(the_update_probability_is_flat_then_decays_down_to_its_least)
{
    static const char all[] = "precond_update_prob_schedule()",
                      own[] = "precond_update_prob_schedule(max_prob=0.5,min_prob=0.01,decay=0.01,flat_start=20)";
    assert_true(at(all, 0) == 1 && at(all, 499) == 1);
    is_near(at(all, 500), exp(-0.001));
    is_near(at(all, 3999), exp(-3.5));
    assert_true(at(all, 4005) > 0.03 && at(all, 4006) == 0.03 && at(all, 1000000) == 0.03);
    assert_true(at(own, 0) == 0.5 && at(own, 19) == 0.5);
    is_near(at(own, 99), 0.5 * exp(-0.8));
    assert_true(at(own, 2000) == 0.01);
    is_near(at("precond_update_prob_schedule(min_prob=0,decay=3,flat_start=2)", 2), exp(-3));
    is_near(at("precond_update_prob_schedule(decay=0.5,flat_start=-0.5)", 0), exp(-0.75));
    for (int64_t count = 0; count < 5000; count += 7) assert_true(at(all, count) == pd_schedule_anneal(count));
}

TEST(piecewise_changes_at_its_counts)
{
    static const char text[] = "piecewise(0.1,10:0.01,20:0.05,1000:-2)";
    assert_true(at(text, 0) == 0.1 && at(text, 9) == 0.1 && at(text, 10) == 0.01 && at(text, 19) == 0.01 &&
                at(text, 20) == 0.05);
    assert_true(at(text, 999) == 0.05 && at(text, 1000) == -2 && at(text, INT64_MAX) == -2);
    assert_true(at("piecewise(7)", 0) == 7 && at("piecewise(7)", 5) == 7);
}

TEST(piecewise_agrees_with_a_walk_from_the_start)
{
    char text[4096] = "piecewise(0";
    pd_schedule *s;
    int value = 0;
    for (int i = 1; i < 200; i++) snprintf(text + strlen(text), sizeof text - strlen(text), ",%d:%d", i * i, i);
    strcat(text, ")");
    s = schedule(text);
    for (int count = 0; count < 41000; count++) {
        while (value < 199 && (value + 1) * (value + 1) <= count) value++;
        assert_true(pd_schedule_at(s, count) == value);
    }
    pd_schedule_free(s);
}

TEST(a_table_holds_its_last_value)
{
    assert_true(at("table(0.1,0.05,1e-2)", 0) == 0.1 && at("table(0.1,0.05,1e-2)", 1) == 0.05 &&
                at("table(0.1,0.05,1e-2)", 2) == 0.01);
    assert_true(at("table(0.1,0.05,1e-2)", 3) == 0.01 && at("table(0.1,0.05,1e-2)", INT64_MAX) == 0.01 &&
                at("table(3)", 0) == 3);
}

typedef struct shape {
    const char *text;
    int rises, falls; /* the value rises until count `rises`, and falls from count `falls` on */
    int end;          /* count from which the value is constant; 0: never */
} shape;

static const shape shapes[] = {
    { "linear_warmup(peak=0.3,warmup_steps=37)", 36, 1000, 36 },
    { "warmup_linear(peak=0.3,warmup_steps=37,steps=300,end=0.1)", 36, 37, 300 },
    { "linear(init=0.7,end=0.1,steps=90,begin=20)", 0, 20, 110 },
    { "linear(init=0.1,end=0.7,steps=90,begin=20)", 110, 110, 110 },
    { "polynomial(init=0.7,end=0.1,power=3,steps=90,begin=20)", 0, 20, 110 },
    { "polynomial(init=0.7,end=0.1,power=0.5,steps=90)", 0, 0, 90 },
    { "cosine(peak=0.7,steps=300,warmup_steps=40,end=0.05)", 40, 40, 300 },
    { "cosine(peak=0.7,steps=300,warmup_steps=40,init=0.1,end=0.05,exponent=0.3)", 40, 40, 300 },
    { "inverse_sqrt(peak=0.7,warmup_steps=41)", 40, 40, 0 },
    { "rsqrt(base=0.7,warmup_steps=41)", 0, 41, 0 },
    { "precond_update_prob_schedule(max_prob=0.7,min_prob=0.1,decay=0.01,flat_start=41)", 0, 40, 240 },
    { "precond_update_prob_schedule(max_prob=0.7,min_prob=0.1,decay=0.01,flat_start=-2.5)", 0, 0, 195 },
};

TEST(formulas_rise_fall_and_end_where_they_should)
{
    for (const shape *it = shapes; it < shapes + sizeof shapes / sizeof *shapes; it++) {
        pd_schedule *s = schedule(it->text);
        for (int count = 1; count < 1000; count++) {
            double before = pd_schedule_at(s, count - 1), now = pd_schedule_at(s, count);
            if (count <= it->rises && !(now >= before)) fail_msg("%s falls at %d", it->text, count);
            if (count > it->falls && !(now <= before)) fail_msg("%s rises at %d", it->text, count);
            if (it->end > 0 && count > it->end && now != before) fail_msg("%s changes at %d", it->text, count);
            if (it->end == 0 && count > it->falls && now == before) fail_msg("%s stands still at %d", it->text, count);
        }
        pd_schedule_free(s);
    }
}

/* Between two counts, the value never changes by more than in the steepest part of the curve. So there is no jump at
 * the end of a warm-up. */
TEST(formulas_do_not_jump)
{
    for (const shape *it = shapes; it < shapes + sizeof shapes / sizeof *shapes; it++) {
        pd_schedule *s = schedule(it->text);
        double most = strstr(it->text, "power=0.5") != NULL || strstr(it->text, "exponent=0.3") != NULL ? 0.2 : 0.025;
        for (int count = 1; count < 1000; count++)
            if (fabs(pd_schedule_at(s, count) - pd_schedule_at(s, count - 1)) > most)
                fail_msg("%s jumps at %d", it->text, count);
        pd_schedule_free(s);
    }
}

TEST(corners_bound_every_value)
{
    for (const shape *it = shapes; it < shapes + sizeof shapes / sizeof *shapes; it++) {
        pd_schedule *s = schedule(it->text);
        double least = INFINITY, most = -INFINITY;
        int64_t count;
        for (size_t i = 0; pd_schedule_corner(s, i, &count); i++) {
            assert_true(count >= 0);
            least = fmin(least, pd_schedule_at(s, count));
            most = fmax(most, pd_schedule_at(s, count));
        }
        for (count = 0; count < 2000; count++)
            assert_true(pd_schedule_at(s, count) >= least && pd_schedule_at(s, count) <= most);
        pd_schedule_free(s);
    }
}

TEST(corners_of_a_list_are_all_its_values)
{
    pd_schedule *table = schedule("table(5,6,7)"), *piecewise = schedule("piecewise(5,10:6,30:7)");
    int64_t count;
    for (size_t i = 0; i < 3; i++) {
        assert_true(pd_schedule_corner(table, i, &count) && pd_schedule_at(table, count) == 5 + (double)i);
        assert_true(pd_schedule_corner(piecewise, i, &count) && pd_schedule_at(piecewise, count) == 5 + (double)i);
    }
    assert_false(pd_schedule_corner(table, 3, &count));
    assert_false(pd_schedule_corner(piecewise, 3, &count));
    pd_schedule_free(table);
    pd_schedule_free(piecewise);
}

TEST(equal_ends_give_a_constant_to_the_bit)
{
    pd_schedule *s = schedule("cosine(peak=0.1,steps=977,warmup_steps=31,init=0.1,end=0.1)");
    for (int count = 0; count < 1000; count++) assert_true(pd_schedule_at(s, count) == 0.1);
    pd_schedule_free(s);
}

TEST(a_kind_it_does_not_have_gets_the_list)
{
    refused_with("cosin(peak=1,steps=2)",
                 "there is no schedule cosin; there are: linear_warmup, warmup_linear, linear, polynomial, cosine, "
                 "inverse_sqrt, rsqrt, precond_update_prob_schedule, piecewise, table");
    refused_with("(1)", "there are:");
    refused_with("", "there are:");
    refused_with("cosine", "parenthesis");
    refused_with("cosine(", "parenthesis");
    refused_with("cosine(peak=1,steps=2", "parenthesis");
    refused_with("table(1)x", "parenthesis");
}

TEST(arguments_are_named_by_what_the_kind_has)
{
    refused_with("cosine(steps=2)",
                 "missing argument \"peak\"; the form is cosine(peak=,steps=,warmup_steps=0,init=0,end=0,exponent=1)");
    refused_with("cosine(peak=1,step=2)", "unknown argument \"step\"");
    refused_with("cosine(peak=1,steps=2,peak=3)", "given twice: argument \"peak\"");
    refused_with("cosine(0.1,100)", "expected name=value, got \"0.1\"");
    refused_with("cosine()", "missing argument \"peak\"");
    refused_with("cosine(peak=1,,steps=2)", "expected name=value, got \"\"");
}

TEST(arguments_are_numbers)
{
    static const char *const texts[] = { "", "x", "nan", "inf", "1e999", " 1", "1 ", "1)", "0x", "1=2" };
    char text[200];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(text, sizeof text, "linear_warmup(peak=%s,warmup_steps=2)", texts[i]);
        refused_with(text, "peak of linear_warmup: expected a finite number, got");
        snprintf(text, sizeof text, "linear_warmup(warmup_steps=%s,peak=2)", texts[i]);
        refused_with(text, "warmup_steps of linear_warmup: expected a whole number, got");
        snprintf(text, sizeof text, "table(1,%s)", texts[i]);
        refused_with(text, "expected a finite number, got");
        snprintf(text, sizeof text, "piecewise(1,%s:2)", texts[i]);
        refused_with(text, "expected a count, got");
    }
    refused_with("linear_warmup(peak=1,warmup_steps=2.5)", "expected a whole number, got \"2.5\"");
}

TEST(arguments_have_ranges)
{
    static const char *const texts[] = { "linear_warmup(peak=1,warmup_steps=0)",
                                         "cosine(peak=1,steps=0)",
                                         "cosine(peak=1,steps=5,warmup_steps=-1)",
                                         "cosine(peak=1,steps=5,exponent=0)",
                                         "polynomial(init=1,end=0,power=0,steps=4)",
                                         "polynomial(init=1,end=0,power=-1,steps=4)",
                                         "linear(init=1,end=0,steps=0)",
                                         "linear(init=1,end=0,steps=9223372036854775807)",
                                         "rsqrt(base=1e301,warmup_steps=1)",
                                         "rsqrt(base=1,warmup_steps=0)" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (refused(texts[i]) != PD_OUT_OF_RANGE) fail_msg("%s", texts[i]);
    assert_string_equal(err.text, "warmup_steps of rsqrt: 0 is outside its range, 1 to 9007199254740992");
}

TEST(steps_count_the_warmup_too)
{
    refused_with("cosine(peak=1,steps=10,warmup_steps=10)", "expected more than warmup_steps = 10, got 10");
    refused_with("warmup_linear(peak=1,steps=10,warmup_steps=12)", "expected more than warmup_steps = 12, got 10");
    pd_schedule_free(schedule("cosine(peak=1,steps=10,warmup_steps=9)"));
}

TEST(counts_of_a_piecewise_one_ascend)
{
    refused_with("piecewise(1,10:2,10:3)", "expected ascending counts from 1 on, got \"10\"");
    refused_with("piecewise(1,0:2)", "ascend");
    refused_with("piecewise(1,-5:2)", "ascend");
    refused_with("piecewise(5:1,10:2)", "expected no count before the first value, got \"5:1\"");
    refused_with("piecewise(1,2)", "expected a count before the value \"2\"");
    refused_with("piecewise(1,2:)", "expected a finite number, got");
    refused_with("piecewise()", "expected a finite number, got");
    refused_with("table()", "expected a finite number, got \"\"");
    refused_with("table(1,,2)", "expected a finite number, got");
    refused_with("table(1,2,)", "expected a finite number, got");
}

TEST(long_texts_are_cut_in_messages_and_not_in_values)
{
    enum { VALUES = 20000 };
    char *text = malloc(VALUES * 8 + 16);
    size_t used = (size_t)sprintf(text, "table(0");
    pd_schedule *s;
    for (int i = 1; i < VALUES; i++) used += (size_t)sprintf(text + used, ",%d", i);
    strcpy(text + used, ")");
    s = schedule(text);
    for (int i = 0; i < VALUES; i++) assert_true(pd_schedule_at(s, i) == i);
    pd_schedule_free(s);
    text[used] = '\0';
    assert_int_equal(refused(text), PD_INVALID_ARGUMENT);
    text[6] = 'x';
    strcpy(text + used, ")");
    assert_int_equal(refused(text), PD_INVALID_ARGUMENT);
    free(text);
}

TEST(without_memory_it_says_so)
{
    static const char *const texts[] = { "cosine(peak=1,steps=5)", "table(1,2,3)", "piecewise(1,2:3)" };
    for (int i = 0; i < 3; i++) {
        int64_t n = 0;
        for (;; n++) {
            pd_schedule *s = NULL;
            bool failed;
            int rc;
            oom_arm(n);
            rc = pd_schedule_read(&s, texts[i], &err);
            failed = oom_disarm();
            pd_schedule_free(s);
            if (!failed) break;
            assert_int_equal(rc, PD_NO_MEMORY);
            assert_null(s);
        }
        assert_true(n >= 3);
    }
}
