/* Tests checkpoints: how they are made while a job trains, and that a job restored from one ends with the same bits as
 * a job that was not interrupted. */
#include "test.h"
#include "checkpoint_state.h"
#include "course.h"
#include "durable_job.h"
#include "optimizer.h"
#include "plan_bytes.h"
#include "rig.h"
#include "store_inside.h"
#include "optimizer_ops.h"

WITH_THREADS();

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SEEDS = 1 }; /* few cases, since sanitizers are slow */
#else
enum { SEEDS = 2 };
#endif

static void finish_tasks(rig *r)
{
    while (r->n_tasks > 0) rig_finish_task(r, 0);
}

/* Takes one step. If the preconditioner tasks of the rig are lazy, some of them come back later than the step. */
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
    pd_store_config config = durable_config();

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

/* Makes a new store from the last checkpoint that the rig's disk has, as a daemon does that was killed. Returns the
 * step of the checkpoint. */
static uint64_t crash(rig *r, const course *p)
{
    pd_store_config config = durable_config();
    rig next;

    config.threads = 1 + (int)(r->last_id % 3);
    rig_new(&next, &config);
    if (rig_restore(&next, r) != PD_OK) fail_msg("%s", next.error.text);
    rig_free(r);
    *r = next;
    course_join(r, p);
    return inside_job(r->store, r->job)->checkpointing.durable_step;
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

TEST(every_optimizer_goes_on_from_a_checkpoint_with_the_same_bits)
{
    for (const pd_optimizer_ops *const *row = pd_optimizer_table; *row != NULL; row++) {
        char rule[96];
        snprintf(rule, sizeof rule, "* %s", pd_optimizer_name(*row));
        if (strcmp(pd_optimizer_name(*row), "scalable_shampoo") == 0)
            strcat(rule, " root_delay=1"); /* with the default root_delay, the bits would depend on timing */
        if (strcmp(pd_optimizer_name(*row), "adafactor") == 0) strcat(rule, " learning_rate=0.01");
        if (strcmp(pd_optimizer_name(*row), "delayed_nesterov") == 0) strcat(rule, " period=4 spread=0.1");
        check(&(course){ .options = "checkpoint_every=4", .rules = rule }, false, (uint64_t)(row - pd_optimizer_table));
    }
}

TEST(results_of_roots_that_come_after_the_cut_join_the_checkpoint)
{
    char rule[256];

    for (int delay = 0; delay <= 3; delay++) {
        snprintf(rule, sizeof rule,
                 "* scalable_shampoo block_size=16 learning_rate=0.01 preconditioning_compute_steps=3 "
                 "start_preconditioning_step=2 root_delay=%d",
                 delay);
        check(&(course){ .options = "checkpoint_every=4", .rules = rule }, true, 100 + (uint64_t)delay);
        snprintf(rule, sizeof rule,
                 "* shampoo max_preconditioner_dim=16 precondition_frequency=%d betas=0.9,0.99 grafting_config=SGD "
                 "epsilon=1e-4 root_delay=%d",
                 delay > 2 ? 3 : 2,
                 delay > 2   ? 3
                 : delay > 2 ? 2
                             : delay);
        check(&(course){ .options = "checkpoint_every=4", .rules = rule }, true, 200 + (uint64_t)delay);
        snprintf(rule, sizeof rule, "* kron max_size_triangular=64 preconditioner_update_probability=0.3 root_delay=%d",
                 delay > 1 ? 1 : delay);
        check(&(course){ .options = "checkpoint_every=4", .rules = rule }, true, 300 + (uint64_t)delay);
    }
}

TEST(coded_and_wide_slots_come_back_from_a_checkpoint)
{
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

TEST(groups_ranges_absences_clipping_and_overrides_survive_a_checkpoint)
{
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
        /* About every second step is an outlier. */
        check(&(course){ .rules = "* adam", .options = "checkpoint_every=4 skip_outlier=1" }, false, 45 + seed);
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

/* A cut while the job trains. The first checkpoint is that of the initial weights. */

TEST(a_parameter_rests_at_the_multiple_until_the_others_reach_it)
{
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=2");
    durable_job_step(&r, 1);
    for (uint32_t rank = 0; rank < 2; rank++) durable_job_push(&r, rank, 0, 2);
    rig_work(&r);
    for (uint32_t rank = 0; rank < 2; rank++) durable_job_push(&r, rank, 0, 3);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), 2);
    assert_int_equal(r.kept, 1);
    for (uint32_t rank = 0; rank < 2; rank++) durable_job_push(&r, rank, 1, 2);
    rig_work(&r);
    assert_int_equal(r.kept, 2);
    assert_int_equal(r.durable, 2);
    assert_int_equal(durable_job_step_of(&r, 0), 3);
    assert_int_equal(r.disk->params[0].step, 2);
    rig_free(&r);
}

TEST(parameters_that_lag_too_long_are_taken_at_their_own_steps)
{
    pd_store_config config = durable_config();
    rig r, next;

    durable_job_start(&r, &config, "checkpoint_every=2");
    durable_job_step(&r, 1);
    for (uint32_t rank = 0; rank < 2; rank++) durable_job_push(&r, rank, 0, 2);
    rig_work(&r);
    for (uint32_t rank = 0; rank < 2; rank++) durable_job_push(&r, rank, 0, 3);
    durable_job_push(&r, 0, 1, 2);
    rig_work(&r);
    rig_sleep(&r, 9.9);
    rig_work(&r);
    assert_int_equal(r.kept, 1);
    rig_sleep(&r, 0.2);
    rig_work(&r);
    assert_int_equal(r.kept, 2);
    assert_int_equal(r.disk->step, 1);
    assert_int_equal(r.disk->params[0].step, 2);
    assert_int_equal(r.disk->params[1].step, 1);
    assert_int_equal(durable_job_step_of(&r, 0), 3);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, &r), PD_OK);
    assert_int_equal(inside_find(next.store, "job")->ranks[0].saved.step, 2);
    rig_free(&next);
    rig_free(&r);
}

/* Restores a job from a checkpoint whose first parameter is a step ahead of the others, and compares it with a job that
 * was not interrupted. */
static void check_uneven(const course *p)
{
    uint64_t seed = 1;
    rig a, b;

    start(&a, p, 1);
    start(&b, p, 1);
    train(&a, p, 1, COURSE_STEPS, &seed);
    train(&b, p, 1, 3, &seed);
    for (uint32_t rank = 0; rank < COURSE_WORLD; rank++) course_push(&b, p, rank, 0, 4);
    rig_work(&b);
    for (uint32_t rank = 0; rank < COURSE_WORLD; rank++) course_push(&b, p, rank, 0, 5);
    rig_work(&b);
    assert_int_equal(b.kept, 1);
    rig_sleep(&b, 11);
    rig_work(&b);
    assert_int_equal(b.disk->params[0].step, 4);
    assert_int_equal(b.disk->params[1].step, 3);
    assert_int_equal(durable_job_step_of(&b, 0), 5);
    assert_int_equal(crash(&b, p), 3);
    train(&b, p, 4, COURSE_STEPS, &seed);
    course_compare(&a, &b);
    rig_free(&a);
    rig_free(&b);
}

TEST(a_job_goes_on_from_uneven_steps_with_the_same_bits)
{
    check_uneven(&(course){ .options = "checkpoint_every=4", .rules = "* adam", .overrides = true });
    check_uneven(&(course){ .options = "checkpoint_every=4", .rules = "* kron" });
    check_uneven(&(course){ .options = "checkpoint_every=4 aggregate=median", .rules = "* adamw" });
}

TEST(a_step_that_is_under_way_too_long_costs_the_checkpoint)
{
    const course p = { .options = "checkpoint_every=2",
                       .rules = "layer.weight shampoo max_preconditioner_dim=16 precondition_frequency=1;* adam" };
    uint64_t seed = 1;
    rig r;

    start(&r, &p, 1);
    train(&r, &p, 1, 1, &seed);
    r.lazy_tasks = true;
    course_step_to(&r, &p, 2, COURSE_WORLD * COURSE_PARAMS);
    assert_int_equal(durable_job_step_of(&r, 0), 1);
    assert_int_equal(durable_job_step_of(&r, 1), 2);
    rig_sleep(&r, 11);
    rig_work(&r);
    assert_int_equal(r.kept, 1);
    assert_non_null(strstr(r.warning, "step 2 of layer.weight is still under way"));
    finish_tasks(&r);
    rig_work(&r);
    r.lazy_tasks = false;
    train(&r, &p, 3, 4, &seed);
    assert_int_equal(r.durable, 4);
    rig_free(&r);
}

static const course with_roots = {
    .options = "checkpoint_every=4",
    .rules = "* shampoo max_preconditioner_dim=16 precondition_frequency=2 start_preconditioning_step=2 root_delay=2"
};

/* Trains a job up to step 4, whose roots are still at the preconditioner pool. */
static void train_to_roots(rig *r, const course *p)
{
    uint64_t seed = 1;

    start(r, p, 1);
    train(r, p, 1, 3, &seed);
    r->lazy_tasks = true;
    course_step_to(r, p, 4, COURSE_WORLD * COURSE_PARAMS);
}

TEST(the_checkpoint_waits_for_roots_and_the_steps_do_not)
{
    rig r;

    train_to_roots(&r, &with_roots);
    assert_true(r.n_tasks > 1);
    course_step_to(&r, &with_roots, 5, COURSE_WORLD * COURSE_PARAMS);
    assert_int_equal(durable_job_step_of(&r, 0), 5);
    while (r.n_tasks > 1) rig_finish_task(&r, r.n_tasks - 1);
    assert_int_equal(r.kept, 1);
    rig_finish_task(&r, 0);
    rig_work(&r);
    assert_int_equal(r.kept, 2);
    assert_int_equal(r.disk->step, 4);
    rig_free(&r);
}

TEST(a_job_may_end_while_its_checkpoint_waits_for_roots)
{
    rig r;

    train_to_roots(&r, &with_roots);
    assert_true(r.n_tasks > 1);
    rig_free(&r);
}

/* Tasks that were replaced before they ran come back, too. */
TEST(roots_that_are_used_when_they_are_ready_do_not_hold_the_checkpoint)
{
    const course p = { .options = "checkpoint_every=4",
                       .rules = "* scalable_shampoo block_size=16 learning_rate=0.01 preconditioning_compute_steps=1 "
                                "start_preconditioning_step=1 root_delay=ready" };
    rig r;

    train_to_roots(&r, &p);
    assert_true(r.n_tasks > 1);
    for (uint64_t step = 5; step <= 6; step++) course_step_to(&r, &p, step, COURSE_WORLD * COURSE_PARAMS);
    assert_int_equal(r.kept, 1);
    finish_tasks(&r);
    rig_work(&r);
    assert_int_equal(r.kept, 2);
    crash(&r, &p);
    for (uint64_t step = 5; step <= 6; step++) course_step_to(&r, &p, step, COURSE_WORLD * COURSE_PARAMS);
    assert_int_equal(durable_job_step_of(&r, 0), 6);
    rig_free(&r);
}

static uint32_t copied(const rig *r)
{
    return inside_job(r->store, r->job)->checkpointing.making->copied;
}

TEST(parameters_are_copied_in_slices_and_go_on_one_by_one)
{
    pd_store_config config = durable_config();
    rig r;

    config.batch_ns = 1;
    durable_job_start(&r, &config, "checkpoint_every=1");
    for (uint32_t i = 0; i < 4; i++) durable_job_push(&r, i % 2, i / 2, 1);
    while (durable_job_step_of(&r, 0) + durable_job_step_of(&r, 1) < 2) (void)pd_store_work(r.store, r.now);
    assert_int_equal(copied(&r), 0);
    (void)pd_store_work(r.store, r.now);
    assert_int_equal(copied(&r), 1);
    (void)pd_store_work(r.store, r.now);
    rig_work(&r);
    assert_int_equal(r.durable, 1);
    rig_free(&r);
}

TEST(a_slow_disk_skips_multiples_and_says_so)
{
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=2");
    r.lazy_disk = true;
    for (uint64_t step = 1; step <= 4; step++) durable_job_step(&r, step);
    assert_non_null(r.checkpointing);
    assert_int_equal(durable_job_step_of(&r, 0), 4);
    assert_non_null(strstr(r.warning, "no checkpoint of step 4"));
    rig_write_checkpoint(&r);
    assert_int_equal(r.durable, 2);
    for (uint64_t step = 5; step <= 6; step++) durable_job_step(&r, step);
    rig_write_checkpoint(&r);
    assert_int_equal(r.durable, 6);
    rig_free(&r);
}

/* Returns how many warnings the checkpoints of the next n steps give. */
static uint64_t warnings_of_steps(rig *r, uint64_t *step, uint64_t n)
{
    uint64_t before = r->warnings;

    for (uint64_t i = 0; i < n; i++) durable_job_step(r, ++*step);
    return r->warnings - before;
}

TEST(a_disk_that_fails_for_long_is_logged_ever_less_often)
{
    pd_store_config config = durable_config();
    uint64_t step = 0;
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=1");
    r.disk_error = "No space left on device";
    assert_int_equal(warnings_of_steps(&r, &step, 1), 1);
    assert_null(strstr(r.warning, "in a row"));
    assert_int_equal(warnings_of_steps(&r, &step, 15), 4); /* the failures 2, 4, 8 and 16 */
    assert_non_null(strstr(r.warning, "step 16"));
    assert_non_null(strstr(r.warning, "(16 in a row)"));
    r.disk_error = NULL;
    assert_int_equal(warnings_of_steps(&r, &step, 1), 0);
    assert_int_equal(r.durable, 17);
    r.disk_error = "No space left on device";
    assert_int_equal(warnings_of_steps(&r, &step, 1), 1);
    rig_free(&r);
}

TEST(a_disk_that_fails_is_reported_and_tried_again)
{
    pd_store_config config = durable_config();
    const pd_job_info *info;
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=2");
    r.disk_error = "No space left on device";
    for (uint64_t step = 1; step <= 2; step++) durable_job_step(&r, step);
    assert_int_equal(r.durable, 0);
    assert_non_null(strstr(r.warning, "No space left on device"));
    info = rig_ask(&r, PD_INFO_JOBS, NULL)->jobs;
    assert_string_equal(info->durability, "checkpoint");
    assert_string_equal(info->checkpoint_error, "No space left on device");
    r.disk_error = NULL;
    for (uint64_t step = 3; step <= 4; step++) durable_job_step(&r, step);
    assert_int_equal(r.durable, 4);
    rig_sleep(&r, 2);
    info = rig_ask(&r, PD_INFO_JOBS, NULL)->jobs;
    assert_int_equal(info->durable_step, 4);
    assert_int_equal(info->checkpoint_age_ms, 2000);
    assert_true(info->checkpoint_bytes > 0);
    assert_string_equal(info->checkpoint_error, "");
    rig_free(&r);
}

/* Tells the store, as the mirror thread does, up to which step the mirror has the job. */
static void mirror_up_to(rig *r, uint64_t step)
{
    pd_request *request = pd_request_new(PD_REQ_MIRRORED, (pd_ticket){ 0, 0 });

    request->u.mirrored.job_name = strdup("job");
    request->u.mirrored.creator = inside_find(r->store, "job")->saved.creator;
    request->u.mirrored.step = step;
    pd_store_apply(r->store, request, r->now);
    rig_absorb(r);
}

TEST(durable_steps_are_told_with_those_of_the_mirror)
{
    pd_store_config config = durable_config();
    rig r;

    config.mirrors = true;
    durable_job_start(&r, &config, "checkpoint_every=2");
    for (uint64_t step = 1; step <= 4; step++) durable_job_step(&r, step);
    assert_int_equal(r.durable, 4);
    assert_int_equal(r.mirrored, 1); /* it has nothing */
    mirror_up_to(&r, 2);
    assert_int_equal(r.durable, 4);
    assert_int_equal(r.mirrored, 3);
    for (uint64_t step = 5; step <= 6; step++) durable_job_step(&r, step);
    assert_int_equal(r.durable, 6);
    assert_int_equal(r.mirrored, 3);
    rig_free(&r);
}

TEST(a_mirror_that_lacks_many_checkpoints_does_not_count)
{
    pd_store_config config = durable_config();
    uint64_t newest = 20;
    pd_kept_steps *kept;
    rig r;

    config.mirrors = true;
    durable_job_start(&r, &config, "checkpoint_every=2");
    kept = &inside_find(r.store, "job")->checkpointing.kept;
    for (kept->n = 0; kept->n <= PD_MIRROR_LACKS; kept->n++) kept->at[kept->n] = newest - kept->n;
    mirror_up_to(&r, newest - PD_MIRROR_LACKS);
    assert_int_equal(r.mirrored, PD_MIRROR_LAGS);
    mirror_up_to(&r, newest - PD_MIRROR_LACKS + 1);
    assert_int_equal(r.mirrored, newest - PD_MIRROR_LACKS + 2);
    rig_free(&r);
}

TEST(without_a_mirror_durable_steps_are_told_alone)
{
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "checkpoint_every=2");
    for (uint64_t step = 1; step <= 2; step++) durable_job_step(&r, step);
    assert_int_equal(r.durable, 2);
    assert_int_equal(r.mirrored, 0);
    rig_free(&r);
}

TEST(an_operator_is_told_the_step_of_the_checkpoint_and_a_worker_the_durable_one)
{
    enum { OPERATOR = 99 };
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "durability=log checkpoint_every=0");
    for (uint64_t step = 1; step <= 2; step++) durable_job_step(&r, step);
    r.lazy_disk = true;
    assert_int_equal(rig_checkpoint(&r, "job", OPERATOR, 2, 60), PD_OK);
    durable_job_step(&r, 3);
    assert_int_equal(r.durable, 3); /* by its record */
    r.lazy_disk = false;
    rig_write_checkpoint(&r);
    rig_work(&r);
    assert_int_equal(r.disk->step, 2);
    assert_int_equal(r.checkpoint_step, 2);
    assert_int_equal(rig_checkpoint(&r, NULL, DURABLE_CONN, 3, 60), PD_OK);
    assert_int_equal(r.checkpoint_step, 3);
    assert_int_equal(r.disk->step, 2);
    assert_int_equal(rig_checkpoint(&r, "job", OPERATOR, 3, 60), PD_OK);
    rig_work(&r);
    assert_int_equal(r.disk->step, 3);
    assert_int_equal(r.checkpoint_step, 3);
    rig_free(&r);
}

TEST(an_operator_waits_for_a_checkpoint_of_the_step_although_its_record_is_durable)
{
    enum { OPERATOR = 99 };
    pd_store_config config = durable_config();
    rig r;

    durable_job_start(&r, &config, "durability=log checkpoint_every=2");
    r.lazy_disk = true;
    for (uint64_t step = 1; step <= 3; step++) durable_job_step(&r, step);
    assert_non_null(r.checkpointing);
    assert_int_equal(rig_checkpoint(&r, "job", OPERATOR, 3, 60), PD_OK);
    r.lazy_disk = false;
    rig_write_checkpoint(&r); /* of step 2 */
    rig_work(&r);
    assert_int_equal(r.disk->step, 3);
    assert_int_equal(r.checkpoint_step, 3);
    rig_free(&r);
}

TEST(what_an_operator_sets_is_in_a_checkpoint_of_the_next_step)
{
    pd_store_config config = durable_config();
    rig r, next;

    durable_job_start(&r, &config, "checkpoint_every=0");
    for (uint64_t step = 1; step <= 3; step++) durable_job_step(&r, step);
    assert_int_equal(r.kept, 0);
    assert_int_equal(rig_set(&r, "job", "*", "lr=0.125", 0), PD_OK);
    assert_int_equal(r.kept, 0);
    durable_job_step(&r, 4);
    assert_int_equal(r.kept, 1);
    assert_int_equal(r.durable, 4);
    durable_job_step(&r, 5);
    assert_int_equal(r.kept, 1);
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, &r), PD_OK);
    assert_int_equal(inside_find(next.store, "job")->steps.params[1].overrides.n, 1);
    rig_free(&next);
    rig_free(&r);
}

TEST(a_window_makes_checkpoints_more_frequent)
{
    pd_store_config config = durable_config();
    rig r;

    rig_new(&r, &config);
    r.window = 6;
    rig_start(&r, "job", 2, 10, durable_job_sizes, 2, "checkpoint_every=0", "* adam");
    for (uint64_t step = 1; step <= 6; step++) durable_job_step(&r, step);
    assert_int_equal(r.kept, 3); /* of the initial weights, and of steps 3 and 6 */
    assert_int_equal(r.durable, 6);
    rig_free(&r);
}

static uint64_t kept_before_the_first_step(uint32_t window, const char *option)
{
    pd_store_config config = durable_config();
    uint64_t kept;
    rig r;

    rig_new(&r, &config);
    r.window = window;
    rig_start(&r, "job", 2, 10, durable_job_sizes, 2, option, "* adam");
    rig_work(&r);
    kept = r.kept;
    rig_free(&r);
    return kept;
}

TEST(a_job_with_regular_checkpoints_or_a_window_keeps_the_weights_that_it_begins_with)
{
    assert_int_equal(kept_before_the_first_step(6, "checkpoint_every=0"), 1);
    assert_int_equal(kept_before_the_first_step(0, "checkpoint_every=50"), 1);
    assert_int_equal(kept_before_the_first_step(0, "checkpoint_every=0"), 0);
}
