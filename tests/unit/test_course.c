/* What all trainings of the quickstart's model share: the schedule and the look at a whole set of images. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "counter.h"
#include "course.h"

#include <stdlib.h>

static void the_rate_falls_from_the_first_to_almost_nothing(void **state)
{
    (void)state;
    assert_float_equal(course_rate(0.4, 0, 100), 0.4, 1e-12);
    assert_float_equal(course_rate(0.4, 50, 100), 0.2, 1e-12);
    for (uint64_t step = 0; step < 99; step++) assert_true(course_rate(0.4, step, 100) > course_rate(0.4, step + 1, 100));
    assert_in_range((int)(course_rate(0.4, 99, 100) * 1e6), 1, 1000);
}

/* Images in number that is no multiple of the chunk: each counts once. */
static void the_loss_is_the_mean_over_all_images(void **state)
{
    enum { N = COURSE_CHUNK + 37 };
    dataset set = { .in_file = N, .total = N, .n = N, .world = 1 };
    float  *x = malloc(sizeof *x * N * DATASET_PIXELS);
    uint8_t label[N];
    mlp     net;
    double  accuracy, loss;
    int     correct;

    (void)state;
    assert_non_null(x);
    assert_non_null(set.pixels = malloc(N * DATASET_PIXELS));
    assert_non_null(set.labels = malloc(N));
    assert_non_null(set.order = malloc(N * sizeof *set.order));
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t p = 0; p < DATASET_PIXELS; p++) set.pixels[i * DATASET_PIXELS + p] = (uint8_t)counter_below(256, 1, 2, i * DATASET_PIXELS + p);
        set.labels[i] = (uint8_t)(i % 10);
        set.order[i] = i;
    }
    assert_int_equal(mlp_new(&net, course_widths, N), PD_OK);
    mlp_init(&net, 1);
    dataset_take(&set, 0, N, x, label);
    loss = mlp_evaluate(&net, x, label, N, &correct);
    assert_float_equal(course_evaluate(&net, &set, x, label, &accuracy), loss, 1e-5 * loss);
    assert_float_equal(accuracy, (double)correct / N, 1e-12);
    mlp_free(&net);
    dataset_free(&set);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_falls_from_the_first_to_almost_nothing),
        cmocka_unit_test(the_loss_is_the_mean_over_all_images),
    };
    return cmocka_run_group_tests_name("course", tests, NULL, NULL);
}
