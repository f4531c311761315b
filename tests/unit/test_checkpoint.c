/* Tests checkpoints: how they are made while a job trains, and that a job restored from one ends with the same bits as a
 * job that was not interrupted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "course.h"
#include "optimizer.h"
#include "plan_bytes.h"
#include "rig.h"
#include "store_inside.h"
#include "table.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SEEDS = 1 }; /* few cases, since sanitizers are slow */
#else
enum { SEEDS = 4 };
#endif

static pd_store_config keeping(void)
{
    pd_store_config config = rig_config();

    config.keeps = true;
    return config;
}

/* ---- a job that is restored ends with the same bits ---- */

static void finish_tasks(rig *r)
{
    while (r->n_tasks > 0) rig_finish_task(r, 0);
}

/* Takes one step. If the root tasks of the rig are lazy, some of them come back later than the step. */
static void take_step(rig *r, const course *p, uint64_t step, uint64_t *seed)
{
    course_step_to(r, p, step, COURSE_WORLD * COURSE_PARAMS);
    while (r->n_tasks > 0 && rig_random(seed) % 3 != 0) rig_finish_task(r, rig_random(seed) % r->n_tasks);
    for (uint32_t i = 0; i < COURSE_PARAMS; i++)
        if (inside_job(r->store, r->job)->steps.params[i].saved.step < step) finish_tasks(r);
    rig_work(r);
}

static void start(rig *r, const course *p, int threads)
{
    pd_store_config config = keeping();

    config.threads = threads;
    rig_new(r, &config);
    course_join(r, p);
    course_initialise(r, p);
}

static void train(rig *r, const course *p, uint64_t first, uint64_t last, uint64_t *seed)
{
    for (uint64_t step = first; step <= last; step++) {
        course_operate(r, p, step);
        take_step(r, p, step, seed);
    }
}

/* Makes a new store from the last checkpoint that the rig's disk has, as a daemon does that was killed. Returns the step
 * of the checkpoint. */
static uint64_t crash(rig *r, const course *p)
{
    pd_store_config config = keeping();
    rig next;

    config.threads = 1 + (int)(r->last_id % 3);
    rig_new(&next, &config);
    if (rig_restore(&next, r) != PD_OK) fail_msg("%s", next.error.text);
    rig_free(r);
    *r = next;
    course_join(r, p);
    return inside_job(r->store, r->job)->keeping.durable_step;
}

/* Trains a job that is killed at a random step and one that is not, and compares them. The option checkpoint_every of
 * the course must be 4. */
static void check(const course *p, bool lazy, uint64_t seed)
{
    uint64_t at = 5 + rig_random(&seed) % (COURSE_STEPS - 6), step;
    rig a, b;

    start(&a, p, 1);
    start(&b, p, 2);
    b.lazy_tasks = lazy;
    train(&a, p, 1, COURSE_STEPS, &seed);
    train(&b, p, 1, at, &seed);
    finish_tasks(&b);
    course_step_to(&b, p, at + 1, (uint32_t)(rig_random(&seed) % (COURSE_WORLD * COURSE_PARAMS)));
    assert_int_equal(b.durable, at / 4 * 4);
    step = crash(&b, p);
    assert_int_equal(step, at / 4 * 4);
    b.lazy_tasks = lazy;
    train(&b, p, step + 1, COURSE_STEPS, &seed);
    finish_tasks(&b);
    rig_work(&b);
    course_compare(&a, &b);
    rig_free(&a);
    rig_free(&b);
}

static void every_optimizer_goes_on_from_a_checkpoint_with_the_same_bits(void **state)
{
    (void)state;
    for (const pd_row *const *row = pd_rows; *row != NULL; row++) {
        char rule[96];
        snprintf(rule, sizeof rule, "* %s", pd_row_name(*row));
        if (strcmp(pd_row_name(*row), "scalable_shampoo") == 0)
            strcat(rule, " root_delay=1"); /* with the default root_delay, the bits would depend on timing */
        if (strcmp(pd_row_name(*row), "adafactor") == 0) strcat(rule, " learning_rate=0.01");
        check(&(course){ .options = "checkpoint_every=4", .rules = rule }, false, (uint64_t)(row - pd_rows));
    }
}

static void results_of_roots_that_come_after_the_cut_join_the_checkpoint(void **state)
{
    char rule[256];
    (void)state;

    for (int delay = 0; delay <= 3; delay++) {
        snprintf(rule, sizeof rule,
                 "* scalable_shampoo block_size=16 learning_rate=0.01 "
                 "preconditioning_compute_steps=3 start_preconditioning_step=2 root_delay=%d",
                 delay);
        check(&(course){ .options = "checkpoint_every=4", .rules = rule }, true, 100 + (uint64_t)delay);
        snprintf(rule, sizeof rule,
                 "* shampoo max_preconditioner_dim=16 precondition_frequency=%d betas=0.9,0.99 "
                 "grafting_config=SGD epsilon=1e-4 root_delay=%d",
                 delay > 2 ? 3 : 2, delay > 2 ? 3 : delay > 2 ? 2 : delay);
        check(&(course){ .options = "checkpoint_every=4", .rules = rule }, true, 200 + (uint64_t)delay);
        snprintf(rule, sizeof rule, "* kron max_size_triangular=64 preconditioner_update_probability=0.3 root_delay=%d",
                 delay > 1 ? 1 : delay);
        check(&(course){ .options = "checkpoint_every=4", .rules = rule }, true, 300 + (uint64_t)delay);
    }
}

static void coded_and_wide_slots_come_back_from_a_checkpoint(void **state)
{
    (void)state;
    check(&(course){ .options = "checkpoint_every=4",
                     .rules = "* scalable_shampoo block_size=16 best_effort_memory_usage_reduction=yes root_delay=2 "
                              "preconditioning_compute_steps=4" },
          true, 1);
    check(&(course){ .options = "checkpoint_every=4",
                     .rules = "* shampoo preconditioner_dtype=float64 max_preconditioner_dim=16 "
                              "precondition_frequency=2 root_delay=1" },
          true, 2);
    check(&(course){ .options = "checkpoint_every=4", .rules = "* kron mu_dtype=bfloat16" }, false, 3);
}

static void groups_ranges_absences_clipping_and_overrides_survive_a_checkpoint(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        check(&(course){ .options = "checkpoint_every=4", .rules = "* kron", .absent = true }, false, 10 + seed);
        check(&(course){ .options = "checkpoint_every=4", .rules = "* adam", .ranged = true, .absent = true }, false,
              20 + seed);
        check(&(course){ .rules = "layer* adam lr=0.1;* sgd momentum=0.9",
                         .options = "checkpoint_every=4 clip_global_norm=0.5",
                         .overrides = true },
              false, 30 + seed);
        check(&(course){ .rules = "* adam", .options = "checkpoint_every=4 aggregate=median", .ranged = true }, false,
              40 + seed);
        check(&(course){ .rules = "* adam",
                         .options = "checkpoint_every=4 aggregate=weighted_mean nonfinite_scope=job seed=3",
                         .ranged = true },
              false, 50 + seed);
        check(&(course){ .rules = "* shampoo",
                         .options = "checkpoint_every=4 nonfinite_scope=job aggregate=adasum_vdot",
                         .absent = true },
              true, 60 + seed);
    }
}

/* ---- a cut while the job trains ---- */

static const int64_t two[] = { 200, 100 };

static void send(rig *r, uint32_t rank, uint32_t param, uint64_t step)
{
    float values[256];

    rig_noise(step * 100 + rank * 10 + param, values, 256);
    assert_int_equal(rig_push(r, r->job, rank, 10 + rank, step, param, values, two[param]), PD_OK);
}

static void send_all(rig *r, uint64_t step)
{
    for (uint32_t param = 0; param < 2; param++)
        for (uint32_t rank = 0; rank < 2; rank++) send(r, rank, param, step);
    rig_work(r);
}

/* Starts a job of two ranks and two parameters. */
static void begin(rig *r, const pd_store_config *config, const char *options)
{
    rig_new(r, config);
    rig_start(r, "job", 2, 10, two, 2, options, "* adam");
}

static uint64_t step_of(const rig *r, uint32_t param)
{
    return inside_job(r->store, r->job)->steps.params[param].saved.step;
}

static void a_parameter_rests_at_the_multiple_until_the_others_reach_it(void **state)
{
    pd_store_config config = keeping();
    rig r;

    (void)state;
    begin(&r, &config, "checkpoint_every=2");
    send_all(&r, 1);
    for (uint32_t rank = 0; rank < 2; rank++) send(&r, rank, 0, 2);
    rig_work(&r);
    for (uint32_t rank = 0; rank < 2; rank++) send(&r, rank, 0, 3);
    rig_work(&r);
    assert_int_equal(step_of(&r, 0), 2);
    assert_int_equal(r.kept, 0);
    for (uint32_t rank = 0; rank < 2; rank++) send(&r, rank, 1, 2);
    rig_work(&r);
    assert_int_equal(r.kept, 1);
    assert_int_equal(r.durable, 2);
    assert_int_equal(step_of(&r, 0), 3);
    assert_int_equal(r.disk->params[0].step, 2);
    rig_free(&r);
}

static void parameters_that_lag_too_long_are_taken_at_their_own_steps(void **state)
{
    pd_store_config config = keeping();
    rig r, next;

    (void)state;
    begin(&r, &config, "checkpoint_every=2");
    send_all(&r, 1);
    for (uint32_t rank = 0; rank < 2; rank++) send(&r, rank, 0, 2);
    rig_work(&r);
    for (uint32_t rank = 0; rank < 2; rank++) send(&r, rank, 0, 3);
    send(&r, 0, 1, 2);
    rig_work(&r);
    rig_sleep(&r, 9.9);
    rig_work(&r);
    assert_int_equal(r.kept, 0);
    rig_sleep(&r, 0.2);
    rig_work(&r);
    assert_int_equal(r.kept, 1);
    assert_int_equal(r.disk->step, 1);
    assert_int_equal(r.disk->params[0].step, 2);
    assert_int_equal(r.disk->params[1].step, 1);
    assert_int_equal(step_of(&r, 0), 3);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, &r), PD_OK);
    assert_int_equal(inside_find(next.store, "job")->ranks[0].saved.step, 2);
    rig_free(&next);
    rig_free(&r);
}

static void a_slow_disk_skips_multiples_and_says_so(void **state)
{
    pd_store_config config = keeping();
    rig r;

    (void)state;
    begin(&r, &config, "checkpoint_every=2");
    r.lazy_disk = true;
    for (uint64_t step = 1; step <= 4; step++) send_all(&r, step);
    assert_non_null(r.keeping);
    assert_int_equal(step_of(&r, 0), 4);
    assert_non_null(strstr(r.warning, "no checkpoint of step 4"));
    rig_kept(&r);
    assert_int_equal(r.durable, 2);
    for (uint64_t step = 5; step <= 6; step++) send_all(&r, step);
    rig_kept(&r);
    assert_int_equal(r.durable, 6);
    rig_free(&r);
}

static void a_disk_that_fails_is_reported_and_tried_again(void **state)
{
    pd_store_config config = keeping();
    const pd_job_info *info;
    rig r;

    (void)state;
    begin(&r, &config, "checkpoint_every=2");
    r.disk_error = "No space left on device";
    for (uint64_t step = 1; step <= 2; step++) send_all(&r, step);
    assert_int_equal(r.durable, 0);
    assert_non_null(strstr(r.warning, "No space left on device"));
    info = rig_ask(&r, PD_INFO_JOBS, NULL)->jobs;
    assert_string_equal(info->durability, "checkpoint");
    assert_string_equal(info->checkpoint_error, "No space left on device");
    r.disk_error = NULL;
    for (uint64_t step = 3; step <= 4; step++) send_all(&r, step);
    assert_int_equal(r.durable, 4);
    rig_sleep(&r, 2);
    info = rig_ask(&r, PD_INFO_JOBS, NULL)->jobs;
    assert_int_equal(info->durable_step, 4);
    assert_int_equal(info->checkpoint_age_ms, 2000);
    assert_true(info->checkpoint_bytes > 0);
    assert_string_equal(info->checkpoint_error, "");
    rig_free(&r);
}

static void a_window_makes_checkpoints_more_frequent(void **state)
{
    pd_store_config config = keeping();
    rig r;

    (void)state;
    rig_new(&r, &config);
    r.window = 6;
    rig_start(&r, "job", 2, 10, two, 2, "checkpoint_every=0", "* adam");
    for (uint64_t step = 1; step <= 6; step++) send_all(&r, step);
    assert_int_equal(r.kept, 2);
    assert_int_equal(r.durable, 6);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_goes_on_from_a_checkpoint_with_the_same_bits),
        cmocka_unit_test(results_of_roots_that_come_after_the_cut_join_the_checkpoint),
        cmocka_unit_test(coded_and_wide_slots_come_back_from_a_checkpoint),
        cmocka_unit_test(groups_ranges_absences_clipping_and_overrides_survive_a_checkpoint),
        cmocka_unit_test(a_parameter_rests_at_the_multiple_until_the_others_reach_it),
        cmocka_unit_test(parameters_that_lag_too_long_are_taken_at_their_own_steps),
        cmocka_unit_test(a_slow_disk_skips_multiples_and_says_so),
        cmocka_unit_test(a_disk_that_fails_is_reported_and_tried_again),
        cmocka_unit_test(a_window_makes_checkpoints_more_frequent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
