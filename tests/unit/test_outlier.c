/* Tests the key skip_outlier: which steps are skipped, that all parameters skip them, and that a restart decides as the
 * server before. */
#include "test.h"
#include "clipped.h"
#include "global_clip.h"
#include "job_keys.h"
#include "global_clip.h"
#include "rig.h"
#include "store_inside.h"

static pd_outlier_norms fill(uint64_t from, uint64_t to, double norm)
{
    pd_outlier_norms norms = { 0 };

    for (uint64_t step = from; step <= to; step++) pd_outlier_note(&norms, step, norm);
    return norms;
}

static bool is(const pd_outlier_norms *norms, uint64_t step, double norm)
{
    double median;
    size_t n;

    return pd_outlier_is(norms, step, norm, 10, &median, &n);
}

FIXTURE(clipped_set_up, rig_tear_down);

TEST(fewer_than_eight_norms_make_no_step_an_outlier)
{
    pd_outlier_norms norms = fill(1, 7, 1);

    assert_false(is(&norms, 8, 1e30));
    pd_outlier_note(&norms, 8, 1);
    assert_true(is(&norms, 9, 1e30));
}

TEST(a_norm_beyond_the_factor_times_the_median_is_an_outlier)
{
    pd_outlier_norms norms = fill(1, 100, 2);

    assert_false(is(&norms, 101, 20));
    assert_true(is(&norms, 101, nextafter(20, 21)));
}

TEST(the_median_is_not_moved_by_a_few_outliers)
{
    pd_outlier_norms norms = fill(1, 63, 1);

    for (uint64_t step = 10; step <= 39; step++) pd_outlier_note(&norms, step, 1e20);
    assert_true(is(&norms, 64, 11));
}

TEST(a_lasting_change_of_scale_passes_after_half_of_the_steps)
{
    pd_outlier_norms norms = fill(1, 100, 1);
    uint64_t step = 101;

    for (; is(&norms, step, 1000); step++) pd_outlier_note(&norms, step, 1000);
    assert_int_equal(step, 101 + 32);
}

TEST(steps_that_are_long_ago_do_not_count)
{
    pd_outlier_norms norms = fill(1, 100, 1);

    assert_true(is(&norms, 156, 1000)); /* 8 norms are left, of steps 93 to 100 */
    assert_false(is(&norms, 157, 1000));
}

TEST(a_step_that_is_taken_again_is_judged_as_before)
{
    pd_outlier_norms norms = fill(1, 100, 1), before = norms;
    double a, b;
    size_t n, m;

    pd_outlier_is(&norms, 101, 5, 10, &a, &n);
    pd_outlier_note(&norms, 101, 5);
    pd_outlier_is(&norms, 101, 5, 10, &b, &m);
    assert_true(a == b && n == m && n == 63);
    pd_outlier_note(&before, 101, 5);
    assert_memory_equal(&norms, &before, sizeof norms);
}

TEST(norms_that_are_not_finite_and_a_median_of_zero_make_no_outlier)
{
    pd_outlier_norms norms = fill(1, 100, 0);

    assert_false(is(&norms, 101, 1e30));
    pd_outlier_note(&norms, 101, INFINITY);
    pd_outlier_note(&norms, 101, NAN);
    assert_int_equal(norms.step[101 % PD_OUTLIER_STEPS], 101 - PD_OUTLIER_STEPS);
}

static void push_all(rig *r, uint32_t job, uint64_t step, float scale)
{
    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_scaled(r, job, 0, 10, step, p, clipped_sizes[p], scale);
    rig_work(r);
}

static void assert_outcomes(const rig *r, uint32_t job, uint64_t step, pd_outcome outcome)
{
    for (uint32_t p = 0; p < CLIPPED; p++) {
        assert_int_equal(rig_versions(r, job, p)->step, step);
        assert_int_equal(rig_versions(r, job, p)->outcome, outcome);
    }
}

TEST(all_parameters_skip_an_outlier_and_nothing_changes, rig *r)
{
    uint32_t job = clipped_start(r, "skip_outlier=20", "p0 shampoo;p1 scalable_shampoo;p2 adam;* sgd lr=1");
    float before[300];

    for (uint64_t step = 1; step <= 12; step++) push_all(r, job, step, 1);
    assert_outcomes(r, job, 12, PD_STEPPED);
    memcpy(before, rig_weights(r, job, 2), sizeof before);
    push_all(r, job, 13, 1e20f);
    assert_outcomes(r, job, 13, PD_SKIPPED);
    assert_memory_equal(before, rig_weights(r, job, 2), sizeof before);
    assert_non_null(strstr(r->warning, "step 13 of all parameters is skipped: the norm of its gradients, 1."));
    assert_non_null(strstr(r->warning, "is more than 20 times (skip_outlier) the median of the last 12 norms, "));
    assert_int_equal(clipped_info(r)->outlier_steps, 1);
    assert_int_equal(clipped_info(r)->skipped, CLIPPED);
    for (uint64_t step = 14; step <= 30; step++) push_all(r, job, step, 1);
    assert_outcomes(r, job, 30, PD_STEPPED);
    assert_int_equal(clipped_info(r)->refused_steps, 0);
    for (int64_t i = 0; i < 300; i++) assert_true(isfinite(rig_weights(r, job, 2)[i]));
}

TEST(outliers_are_found_before_gradients_are_clipped, rig *r)
{
    uint32_t job = clipped_start(r, "skip_outlier=20 clip_global_norm=0.5", "* sgd lr=1");

    for (uint64_t step = 1; step <= 10; step++) push_all(r, job, step, 1);
    push_all(r, job, 11, 100);
    assert_outcomes(r, job, 11, PD_SKIPPED);
    push_all(r, job, 12, 1);
    assert_outcomes(r, job, 12, PD_STEPPED);
    assert_int_equal(clipped_info(r)->clipped_steps, 11);
    assert_int_equal(clipped_info(r)->outlier_steps, 1);
}

TEST(steps_without_a_gradient_have_no_norm, rig *r)
{
    uint32_t job = clipped_start(r, "skip_outlier=20", "* sgd lr=1");

    for (uint64_t step = 1; step <= 20; step++) {
        for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_absent(r, job, step, p);
        rig_work(r);
    }
    for (uint64_t step = 21; step <= 27; step++) push_all(r, job, step, 1);
    push_all(r, job, 28, 1e6f);
    assert_outcomes(r, job, 28, PD_STEPPED);
    push_all(r, job, 29, 1e9f);
    assert_outcomes(r, job, 29, PD_SKIPPED);
}

/* The image of a job is read by another server, which judges the next steps as the first one does. */
TEST(a_restart_judges_as_the_server_before, void *given)
{
    pd_store_config config = clipped_configuration();
    rig *r = given, other;
    uint32_t job = clipped_start(r, "skip_outlier=3", "* adam");
    uint8_t *image;
    size_t n;
    pd_error err;

    for (uint64_t step = 1; step <= 70; step++) push_all(r, job, step, step % 5 == 0 ? 2 : 1);
    assert_int_equal(pd_store_save_job(r->store, "job", &image, &n, &err), PD_OK);
    rig_new(&other, &config);
    assert_int_equal(pd_store_load_job(other.store, image, n, other.now, &err), PD_OK);
    free(image);
    assert_memory_equal(pd_global_clip_saved_of(&inside_job(r->store, job)->steps),
                        pd_global_clip_saved_of(&inside_job(other.store, 1)->steps), sizeof(pd_global_clip_saved));
    rig_free(&other);
}

TEST(the_key_takes_off_and_numbers_from_one)
{
    static const char *const good[] = { "off", "0", "1", "20", "1e30" }, *const bad[] = { "0.5", "-1", "2e30", "inf" };
    pd_error err;

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(pd_job_key_check("skip_outlier", good[i], &err), PD_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(pd_job_key_check("skip_outlier", bad[i], &err), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "expected a number from 1 to 1e+30, or off"));
    }
}
