/* The example's picture, as text: what must be in it, and what must not break it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "curve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];
static char picture[200000];

/* What was written last. */
static const char *read_picture(void)
{
    FILE  *file;
    size_t n;

    assert_non_null(file = fopen(path, "r"));
    n = fread(picture, 1, sizeof picture - 1, file);
    assert_true(n < sizeof picture - 1);
    picture[n] = '\0';
    fclose(file);
    return picture;
}

static const char *draw(const curve *c)
{
    assert_int_equal(curve_write(c, path, "a < b & c", "sub", NULL), PD_OK);
    return read_picture();
}

static int occurrences(const char *text, const char *word)
{
    int n = 0;
    while ((text = strstr(text, word)) != NULL) n++, text++;
    return n;
}

static int setup(void **state)
{
    int fd;
    (void)state;
    strcpy(path, "/tmp/paramd-curve-XXXXXX");
    assert_true((fd = mkstemp(path)) >= 0);
    return close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static void draws_each_line_within_the_picture(void **state)
{
    curve c = { 0 };
    const char *points;
    (void)state;
    for (int step = 1; step <= 5000; step++) curve_add(&c, CURVE_LOSS, step, 2.3 * exp(-step / 500.0));
    for (int epoch = 1; epoch <= 5; epoch++) {
        curve_add(&c, CURVE_TEST_LOSS, 1000 * epoch, 0.5);
        curve_add(&c, CURVE_ACCURACY, 1000 * epoch, 80.0 + epoch);
    }
    points = draw(&c);
    assert_int_equal(occurrences(points, "<polyline"), 4);      /* loss, smoothed loss, test loss, accuracy */
    assert_int_equal(occurrences(points, "<circle"), 10);
    assert_non_null(strstr(points, ">85.00 %</text>"));
    assert_true(strlen(points) < 60000);                        /* many steps do not make a heavy picture */
    while ((points = strstr(points, "points=\"")) != NULL) {
        double x, y;
        int    used;
        for (points += 8; sscanf(points, "%lf,%lf%n", &x, &y, &used) == 2; points += used)
            assert_true(x >= 74 && x <= 846.05 && y >= 100 && y <= 541);
    }
    curve_free(&c);
}

static void a_loss_that_grows_over_decades_has_labels_that_can_be_read(void **state)
{
    (void)state;
    for (int decades = 1; decades <= 300; decades *= 4) {
        curve c = { 0 };
        int labels;
        curve_add(&c, CURVE_LOSS, 1, 2.3);
        curve_add(&c, CURVE_LOSS, 2, 2.3 * pow(10.0, decades));
        draw(&c);
        labels = occurrences(picture, "text-anchor=\"end\" font-size=\"12\"");
        if (labels < 3 || labels > 25) fail_msg("%d decades: %d labels", decades, labels);
        curve_free(&c);
    }
}

static void leaves_out_what_is_not_finite(void **state)
{
    curve c = { 0 };
    (void)state;
    assert_int_equal(curve_add(&c, CURVE_LOSS, 1, (double)NAN), PD_OK);
    assert_int_equal(curve_add(&c, CURVE_LOSS, 2, (double)INFINITY), PD_OK);
    assert_int_equal(c.line[CURVE_LOSS].n, 0);
    assert_int_equal(curve_add(&c, CURVE_LOSS, 3, 0.0), PD_OK);         /* no logarithm, but a value */
    assert_null(strstr(draw(&c), "nan"));
    assert_null(strstr(picture, "inf"));
    curve_free(&c);
}

static void an_empty_curve_is_a_picture_too(void **state)
{
    curve c = { 0 };
    (void)state;
    assert_int_equal(occurrences(draw(&c), "<polyline"), 0);
    assert_null(strstr(picture, "nan"));
    assert_string_equal(picture + strlen(picture) - 7, "</svg>\n");
}

static void text_is_escaped(void **state)
{
    curve c = { 0 };
    (void)state;
    assert_non_null(strstr(draw(&c), ">a &#60; b &#38; c</text>"));
}

static void a_long_subtitle_takes_two_lines(void **state)
{
    static const char words[] = "an_optimizer with_one=1 with_another=2 and_many=3 more_of=4 them=5 until_nobody_could=6 read_them_on=7 one_line=8 of_the=9 picture=10";
    curve c = { 0 };
    (void)state;
    assert_int_equal(curve_write(&c, path, "t", words, NULL), PD_OK);
    read_picture();
    assert_int_equal(occurrences(picture, "y=\"58.0\""), 1);
    assert_int_equal(occurrences(picture, "y=\"76.0\""), 1);
    assert_int_equal(occurrences(picture, "an_optimizer with_one=1"), 1);
    assert_non_null(strstr(picture, "picture=10</text>"));
    assert_int_equal(occurrences(picture, "read_them_on=7"), 1);        /* nothing lost, nothing twice */
    draw(&c);
    assert_int_equal(occurrences(picture, "y=\"76.0\""), 0);
}

static void says_when_the_file_cannot_be_written(void **state)
{
    curve    c = { 0 };
    pd_error err;
    (void)state;
    assert_int_equal(curve_write(&c, "/nonexistent/x.svg", "t", "s", &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "/nonexistent/x.svg"));
    assert_int_equal(curve_write(&c, "/dev/full", "t", "s", &err), PD_UNAVAILABLE);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(draws_each_line_within_the_picture),
        CASE(a_loss_that_grows_over_decades_has_labels_that_can_be_read), CASE(leaves_out_what_is_not_finite),
        CASE(an_empty_curve_is_a_picture_too),
        CASE(text_is_escaped),
        CASE(a_long_subtitle_takes_two_lines),
        CASE(says_when_the_file_cannot_be_written),
    };
    return cmocka_run_group_tests_name("curve", tests, NULL, NULL);
}
