/* Tests the optimizer's part of a job image: its bytes are restored, and state of another optimizer is refused. */
#include "test.h"
#include "batch.h"
#include "lone_step.h"
#include "save.h"
#include "state.h"

enum { ROWS = 6, COLUMNS = 4, ELEMENTS = ROWS * COLUMNS };

typedef struct setting {
    const char *name, *value;
} setting;

/* With root_delay 2, the roots of a step are used two steps later. So some roots are computed and not yet used when
 * the image is made. */
static const setting late_roots[] = {
    { "block_size", "4" }, { "preconditioning_compute_steps", "2" }, { "root_delay", "2" }, { NULL, NULL }
};
static const setting no_setting[] = { { NULL, NULL } };
static const pd_shape matrix = { 2, { ROWS, COLUMNS } };

static pd_optim *make(const char *row, const setting *settings, pd_shape shape)
{
    pd_declaration declaration = { .name = "w", .shape = shape };
    double stats[PD_MAX_MODEL_STATS];
    pd_optim *optim;
    pd_error err = { 0 };

    pd_hypers_init(&declaration.hypers, pd_optim_find(row));
    for (; settings->name != NULL; settings++)
        assert_int_equal(pd_hypers_set(&declaration.hypers, settings->name, settings->value, &err), PD_OK);
    pd_model_stats_of(declaration.hypers.row, &declaration, 1, stats);
    assert_int_equal(pd_optim_new(&optim, &declaration, stats, &err), PD_OK);
    return optim;
}

/* Takes the next step with a gradient that depends only on the step number. */
static void step(pd_optim *optim, float *weights)
{
    float gradient[ELEMENTS];

    for (int i = 0; i < ELEMENTS; i++) gradient[i] = sinf((float)(i + 1) * (float)(pd_optim_count(optim) + 1));
    lone_step(optim, &(pd_step_io){ .gradient = gradient, .before = weights, .after = weights }, 1);
}

static pd_optim *stepped(const char *row, const setting *settings, int steps, float *weights)
{
    pd_optim *optim = make(row, settings, matrix);

    for (int i = 0; i < ELEMENTS; i++) weights[i] = (float)i / ELEMENTS;
    for (int i = 0; i < steps; i++) step(optim, weights);
    return optim;
}

static uint8_t *image_of(pd_optim *optim, size_t *n)
{
    pd_archive archive;
    uint8_t *image;

    pd_archive_begin_write(&archive);
    pd_optim_visit(&archive, optim);
    assert_int_equal(pd_archive_end(&archive, &image, n, NULL), PD_OK);
    return image;
}

static int read_image(pd_optim *optim, const uint8_t *image, size_t n, pd_error *err)
{
    pd_archive archive;

    pd_archive_begin_read(&archive, image, n);
    pd_optim_visit(&archive, optim);
    return pd_archive_end(&archive, NULL, NULL, err);
}

TEST(state_that_was_read_writes_the_same_bytes)
{
    float w[ELEMENTS];

    for (int steps = 0; steps < 6; steps++) {
        pd_optim *a = stepped("scalable_shampoo", late_roots, steps, w);
        pd_optim *b = make("scalable_shampoo", late_roots, matrix);
        size_t n, m;
        uint8_t *image = image_of(a, &n), *again;
        assert_int_equal(read_image(b, image, n, NULL), PD_OK);
        again = image_of(b, &m);
        assert_int_equal(n, m);
        assert_memory_equal(image, again, n);
        free(image);
        free(again);
        pd_optim_free(a);
        pd_optim_free(b);
    }
}

TEST(roots_that_are_not_adopted_yet_are_in_the_state)
{
    float w[ELEMENTS], v[ELEMENTS];
    pd_optim *a = stepped("scalable_shampoo", late_roots, 3, w), *b = make("scalable_shampoo", late_roots, matrix);
    size_t n;
    uint8_t *image;

    assert_non_null(a->saved.oldest);
    image = image_of(a, &n);
    assert_int_equal(read_image(b, image, n, NULL), PD_OK);
    memcpy(v, w, sizeof v);
    for (int i = 0; i < 4; i++) {
        step(a, w);
        step(b, v);
        assert_memory_equal(v, w, sizeof v);
    }
    free(image);
    pd_optim_free(a);
    pd_optim_free(b);
}

TEST(state_of_a_step_under_way_is_not_saved)
{
    float w[ELEMENTS] = { 0 }, g[ELEMENTS] = { 0 };
    pd_optim *optim = make("sgd", no_setting, matrix);

    assert_true(pd_optim_may_be_saved(optim));
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ .gradient = g, .before = w, .after = w }), PD_OK);
    assert_false(pd_optim_may_be_saved(optim));
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    assert_true(pd_optim_may_be_saved(optim));
    pd_optim_free(optim);
}

TEST(state_is_not_saved_while_a_root_is_away)
{
    float w[ELEMENTS] = { 0 }, g[ELEMENTS] = { 0 };
    pd_optim *optim = make("scalable_shampoo", late_roots, matrix);
    pd_task *task, *away = NULL;

    g[0] = 1;
    while (away == NULL) {
        assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ .gradient = g, .before = w, .after = w }), PD_OK);
        do {
            assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
            while ((task = pd_optim_capture(optim)) != NULL) {
                pd_task_run(task);
                if (away == NULL)
                    away = task;
                else
                    pd_optim_deliver(optim, task);
            }
        } while (!pd_optim_done(optim));
    }
    assert_false(pd_optim_may_be_saved(optim));
    pd_optim_deliver(optim, away);
    assert_true(pd_optim_may_be_saved(optim));
    pd_optim_free(optim);
}

/* Checks that `to` refuses an image of `from`, with an error that contains `text`. */
static void refuses(pd_optim *from, pd_optim *to, const char *text)
{
    pd_error err = { 0 };
    size_t n;
    uint8_t *image = image_of(from, &n);

    assert_int_equal(read_image(to, image, n, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, text) == NULL) fail_msg("expected \"%s\" in \"%s\"", text, err.text);
    free(image);
    pd_optim_free(from);
    pd_optim_free(to);
}

HOLDS(state_of_another_optimizer_is_refused,
      refuses(make("adam", no_setting, matrix), make("sgd", no_setting, matrix), "optimizer is sgd here, but adam"));

HOLDS(state_of_another_shape_is_refused,
      refuses(make("adam", no_setting, (pd_shape){ 2, { 4, 6 } }), make("adam", no_setting, matrix), "(4, 6)"));

TEST(a_root_from_a_later_step_is_refused)
{
    float w[ELEMENTS];
    pd_optim *from = stepped("scalable_shampoo", late_roots, 3, w);
    pd_optim *to = make("scalable_shampoo", late_roots, matrix);
    pd_error err = { 0 };
    size_t n;
    uint8_t *image;

    from->saved.oldest->task->view.count = 9;
    image = image_of(from, &n);
    assert_int_equal(read_image(to, image, n, &err), PD_DATA_LOSS);
    if (strstr(err.text, "invalid task 0 of step 9") == NULL) fail_msg("%s", err.text);
    free(image);
    pd_optim_free(from);
    pd_optim_free(to);
}

TEST(memory_that_fails_while_reading_is_an_error)
{
    float w[ELEMENTS];
    pd_optim *from = stepped("scalable_shampoo", late_roots, 3, w);
    size_t n;
    uint8_t *image = image_of(from, &n);
    int failed = 0;

    for (bool more = true; more; failed++) {
        pd_optim *to = make("scalable_shampoo", late_roots, matrix);
        int rc;
        oom_arm(failed);
        rc = read_image(to, image, n, NULL);
        more = oom_disarm();
        assert_int_equal(rc, more ? PD_NO_MEMORY : PD_OK);
        pd_optim_free(to);
    }
    assert_true(failed > 1);
    free(image);
    pd_optim_free(from);
}
