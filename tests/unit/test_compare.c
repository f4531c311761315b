/* The picture of several optimizers, as text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "compare.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static char picture[200000];

static int setup(void **state)
{
    int fd;
    (void)state;
    strcpy(path, "/tmp/paramd-compare-XXXXXX");
    assert_true((fd = mkstemp(path)) >= 0);
    return close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static const char *draw_some(const compare_side *side, int sides, double level)
{
    FILE  *file;
    size_t n;

    assert_int_equal(compare_write(side, sides, level, path, "a < b", "sub", NULL), PD_OK);
    assert_non_null(file = fopen(path, "r"));
    n = fread(picture, 1, sizeof picture - 1, file);
    picture[n] = '\0';
    fclose(file);
    return picture;
}

static const char *draw(const compare_side side[2], double level) { return draw_some(side, 2, level); }

static int occurrences(const char *text, const char *word)
{
    int n = 0;
    while ((text = strstr(text, word)) != NULL) n++, text++;
    return n;
}

/* `seeds` runs of 40 points that fall to about `end`. */
static void fill(compare_side *side, const char *name, int seeds, double end)
{
    *side = (compare_side){ .name = name, .n_seeds = seeds };
    for (int s = 0; s < seeds; s++)
        for (int i = 1; i <= 40; i++) plot_add(&side->seed[s], 10 * i, (end + 2.0 * exp(-i / 5.0)) * (1.0 + 0.02 * s));
}

static void empty(compare_side side[2])
{
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < side[k].n_seeds; s++) plot_free(&side[k].seed[s]);
}

static void shows_every_seed_and_two_medians_within_the_picture(void **state)
{
    compare_side side[2];
    const char  *points;
    (void)state;
    fill(&side[0], "momentum SGD", 5, 0.2);
    fill(&side[1], "second <order>", 3, 0.1);
    points = draw(side, 0.0);
    assert_int_equal(occurrences(points, "<polyline"), 5 + 3 + 2);
    assert_non_null(strstr(points, "momentum SGD"));
    assert_non_null(strstr(points, "second &#60;order&#62;"));
    assert_int_equal(occurrences(points, "stroke-dasharray"), 0);       /* no level asked for */
    while ((points = strstr(points, "points=\"")) != NULL) {
        double x, y;
        int    used;
        for (points += 8; sscanf(points, "%lf,%lf%n", &x, &y, &used) == 2; points += used)
            assert_true(x >= 74 && x <= 846.05 && y >= 100 && y <= 501);
    }
    empty(side);
}

static void the_median_lies_between_the_seeds(void **state)
{
    compare_side side[2];
    plot_points  median = { 0 };
    (void)state;
    fill(&side[0], "a", 5, 0.2);
    fill(&side[1], "b", 2, 0.2);
    assert_int_equal(compare_median(&side[0], &median), PD_OK);
    assert_int_equal(median.n, 40);
    for (size_t i = 0; i < 40; i++) assert_float_equal(median.value[i], side[0].seed[2].value[i], 1e-12);
    plot_free(&median);
    assert_int_equal(compare_median(&side[1], &median), PD_OK);         /* of an even number: the mean of the two in the middle */
    assert_float_equal(median.value[7], 0.5 * (side[1].seed[0].value[7] + side[1].seed[1].value[7]), 1e-12);
    plot_free(&median);
    empty(side);
}

static void a_run_that_diverged_shortens_the_median_only(void **state)
{
    compare_side side[2];
    plot_points  median = { 0 };
    (void)state;
    fill(&side[0], "a", 5, 0.2);
    fill(&side[1], "b", 5, 0.2);
    side[1].seed[4].n = 3;
    assert_int_equal(compare_median(&side[1], &median), PD_OK);
    assert_int_equal(median.n, 3);
    plot_free(&median);
    side[1].seed[0].n = 0;
    assert_null(strstr(draw(side, 0.25), "nan"));
    assert_null(strstr(picture, "inf"));
    empty(side);
}

static void the_level_and_the_steps_to_it_are_written_where_they_are(void **state)
{
    compare_side side[2];
    (void)state;
    fill(&side[0], "a", 1, 0.2);
    fill(&side[1], "b", 1, 0.1);
    side[0].reached = 310;
    draw(side, 0.25);
    assert_non_null(strstr(picture, ">step 310</text>"));
    assert_int_equal(occurrences(picture, "stroke-dasharray"), 2);      /* the other never got there */
    side[1].reached = 120;
    draw(side, 0.25);
    assert_non_null(strstr(picture, ">step 120</text>"));
    assert_int_equal(occurrences(picture, "stroke-dasharray"), 3);
    empty(side);
}

/* Where the words stand. */
static double height_of(const char *words)
{
    const char *at = strstr(picture, words), *y = NULL;
    double height = 0;

    assert_non_null(at);
    for (const char *from = picture; (from = strstr(from, " y=\"")) != NULL && from < at; from++) y = from;
    assert_int_equal(sscanf(y, " y=\"%lf", &height), 1);
    return height;
}

static void four_sides_have_colours_and_lines_of_their_own(void **state)
{
    static const char *const name[COMPARE_MOST_SIDES] = { "sgd", "first", "second", "third" };
    compare_side side[COMPARE_MOST_SIDES];
    (void)state;
    for (int k = 0; k < COMPARE_MOST_SIDES; k++) {
        fill(&side[k], name[k], 1, 0.2 - 0.01 * k);
        side[k].reached = 300 + k;
    }
    draw_some(side, COMPARE_MOST_SIDES, 0.25);
    for (int k = 0; k < COMPARE_MOST_SIDES; k++) {
        char words[32];
        assert_non_null(strstr(picture, name[k]));
        snprintf(words, sizeof words, ">step %d</text>", 300 + k);
        assert_non_null(strstr(picture, words));
        for (int j = 0; j < k; j++) {
            char earlier[32];
            snprintf(earlier, sizeof earlier, ">step %d</text>", 300 + j);
            assert_true(fabs(height_of(words) - height_of(earlier)) >= 13);             /* the size of the letters */
        }
    }
    assert_int_equal(occurrences(picture, "#009e73"), 4);       /* line, legend, dashes, words */
    for (int k = 0; k < COMPARE_MOST_SIDES; k++) plot_free(&side[k].seed[0]);
}

static void no_curve_runs_through_the_words_about_steps(void **state)
{
    compare_side side[COMPARE_MOST_SIDES];
    double highest;
    const char *points;
    (void)state;
    for (int k = 0; k < COMPARE_MOST_SIDES; k++) {
        fill(&side[k], "one", 1, 0.2 / (k * k + 1));
        side[k].reached = 300 + k;
    }
    points = draw_some(side, COMPARE_MOST_SIDES, 0.25);
    highest = height_of(">step 303</text>") - 13;
    while ((points = strstr(points, "points=\"")) != NULL) {
        double x, y;
        int    used;
        for (points += 8; sscanf(points, "%lf,%lf%n", &x, &y, &used) == 2; points += used) assert_true(y < highest);
    }
    for (int k = 0; k < COMPARE_MOST_SIDES; k++) plot_free(&side[k].seed[0]);
}

static void says_when_the_file_cannot_be_written(void **state)
{
    compare_side side[2] = { { .name = "a" }, { .name = "b" } };
    pd_error     err;
    (void)state;
    assert_int_equal(compare_write(side, 2, 1.0, "/nonexistent/x.svg", "t", "s", &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "/nonexistent/x.svg"));
    assert_int_equal(compare_write(side, 2, 1.0, "/dev/full", "t", "s", &err), PD_UNAVAILABLE);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(shows_every_seed_and_two_medians_within_the_picture),
        CASE(the_median_lies_between_the_seeds),
        CASE(a_run_that_diverged_shortens_the_median_only),
        CASE(the_level_and_the_steps_to_it_are_written_where_they_are),
        CASE(four_sides_have_colours_and_lines_of_their_own),
        CASE(no_curve_runs_through_the_words_about_steps),
        CASE(says_when_the_file_cannot_be_written),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
