/* Tests that a job that is restored from a checkpoint and the records of its WAL has the same bits as a job that was
 * not interrupted, and ends with the same bits. */
#include "test.h"
#include "course.h"
#include "durable_job.h"
#include "optimizer.h"
#include "rig.h"
#include "store_inside.h"
#include "optimizer_ops.h"

static void finish_tasks(rig *r)
{
    while (r->n_tasks > 0) rig_finish_task(r, 0);
}

static void start(rig *r, const course *p, int threads)
{
    pd_store_config config = durable_config();

    config.threads = threads;
    rig_new(r, &config);
    course_join(r, p);
    course_initialise(r, p);
}

/* Takes one step. If the preconditioner tasks of the rig are lazy, some of them come back later than the step. */
static void take_step(rig *r, const course *p, uint64_t step, uint64_t *seed)
{
    course_operate(r, p, step);
    course_step_to(r, p, step, COURSE_WORLD * COURSE_PARAMS);
    while (r->n_tasks > 0 && rig_random(seed) % 3 != 0) rig_finish_task(r, rig_random(seed) % r->n_tasks);
    for (uint32_t i = 0; i < COURSE_PARAMS; i++)
        if (durable_job_step_of(r, i) < step) finish_tasks(r);
    rig_work(r);
}

static void train(rig *r, const course *p, uint64_t first, uint64_t last, uint64_t *seed)
{
    for (uint64_t step = first; step <= last; step++) take_step(r, p, step, seed);
}

/* Makes a new store from the last checkpoint of the rig's disk and the records of its WAL. */
static void come_back(rig *next, const rig *r, int threads)
{
    pd_store_config config = durable_config();

    config.threads = threads;
    rig_new(next, &config);
    if (rig_restore(next, r) != PD_OK) fail_msg("%s", next->error.text);
    if (rig_replay(next, r) != PD_OK) fail_msg("%s", next->error.text);
}

static void compare_jobs(const pd_job *a, const pd_job *b)
{
    assert_memory_equal(&a->saved, &b->saved, sizeof a->saved);
    for (uint32_t i = 0; i < COURSE_PARAMS; i++) {
        const pd_param *x = &a->steps.params[i], *y = &b->steps.params[i];
        assert_memory_equal(&x->saved, &y->saved, sizeof x->saved);
        assert_int_equal(x->current->version, y->current->version);
        assert_memory_equal(x->current->at[PD_F32], y->current->at[PD_F32], (size_t)x->elements * sizeof(float));
        course_compare_slots(x->optim, y->optim);
    }
}

static void crash(rig *r, const course *p, uint64_t at)
{
    int threads = 1 + (int)(r->last_id % 3);
    rig next;

    assert_int_equal(r->durable, at);
    come_back(&next, r, threads);
    compare_jobs(inside_job(r->store, r->job), inside_find(next.store, "job"));
    for (size_t i = 0; i < r->n_records; i++) next.records[i] = r->records[i];
    next.n_records = r->n_records;
    r->n_records = 0;
    next.disk = r->disk;
    r->disk = NULL;
    rig_free(r);
    *r = next;
    course_join(r, p);
}

/* Trains a job that is killed at a random step and one that is not, and compares them right after the crash and at the
 * end. The job is killed once more a few steps later, before its next checkpoint. */
static void check(const course *p, bool lazy, uint64_t seed)
{
    uint64_t at = 5 + rig_random(&seed) % (COURSE_STEPS - 10);
    rig a, b;

    start(&a, p, 1);
    start(&b, p, 2);
    b.lazy_tasks = lazy;
    train(&a, p, 1, COURSE_STEPS, &seed);
    train(&b, p, 1, at, &seed);
    finish_tasks(&b);
    rig_work(&b);
    crash(&b, p, at);
    b.lazy_tasks = lazy;
    train(&b, p, at + 1, at + 3, &seed);
    finish_tasks(&b);
    rig_work(&b);
    crash(&b, p, at + 3);
    b.lazy_tasks = lazy;
    train(&b, p, at + 4, COURSE_STEPS, &seed);
    finish_tasks(&b);
    rig_work(&b);
    course_compare(&a, &b);
    assert_int_equal(b.durable, COURSE_STEPS);
    rig_free(&a);
    rig_free(&b);
}

#define LOG "durability=log checkpoint_every=50"

TEST(every_optimizer_repeats_its_steps_with_the_same_bits)
{
    for (const pd_optimizer_ops *const *row = pd_optimizer_table; *row != NULL; row++) {
        char rule[96];
        snprintf(rule, sizeof rule, "* %s", pd_optimizer_name(*row));
        if (strcmp(pd_optimizer_name(*row), "scalable_shampoo") == 0) strcat(rule, " root_delay=1");
        if (strcmp(pd_optimizer_name(*row), "adafactor") == 0) strcat(rule, " learning_rate=0.01");
        if (strcmp(pd_optimizer_name(*row), "delayed_nesterov") == 0) strcat(rule, " period=4 spread=0.1");
        check(&(course){ .options = LOG, .rules = rule }, false, (uint64_t)(row - pd_optimizer_table));
    }
}

TEST(roots_that_are_used_later_are_repeated)
{
    char rule[256];

    for (int delay = 0; delay <= 3; delay++) {
        snprintf(rule, sizeof rule,
                 "* scalable_shampoo block_size=16 learning_rate=0.01 preconditioning_compute_steps=3 "
                 "start_preconditioning_step=2 root_delay=%d",
                 delay);
        check(&(course){ .options = LOG, .rules = rule }, true, 100 + (uint64_t)delay);
        snprintf(rule, sizeof rule,
                 "* shampoo max_preconditioner_dim=16 precondition_frequency=%d betas=0.9,0.99 grafting_config=SGD "
                 "epsilon=1e-4 root_delay=%d",
                 delay > 2 ? 3 : 2, delay);
        if (delay <= 2) check(&(course){ .options = LOG, .rules = rule }, true, 200 + (uint64_t)delay);
    }
    check(&(course){ .options = LOG,
                     .rules = "* kron max_size_triangular=64 preconditioner_update_probability=0.3 root_delay=1" },
          true, 300);
}

TEST(groups_ranges_absences_clipping_and_overrides_are_repeated)
{
    check(&(course){ .options = LOG, .rules = "* kron", .absent = true }, false, 10);
    check(&(course){ .options = LOG, .rules = "* adam", .ranged = true, .absent = true }, false, 20);
    check(&(course){ .rules = "layer* adam lr=0.1;* sgd momentum=0.9",
                     .options = LOG " clip_global_norm=0.5",
                     .overrides = true },
          false, 30);
    check(&(course){ .rules = "* adam", .options = LOG " aggregate=median", .ranged = true }, false, 40);
    check(&(course){ .rules = "* adam", .options = LOG " skip_outlier=1" }, false, 45); /* half of the steps */
    check(&(course){ .rules = "* adam", .options = LOG " aggregate=weighted_mean nonfinite_scope=job seed=3" }, false,
          50);
    check(
        &(course){ .rules = "* shampoo", .options = LOG " nonfinite_scope=job aggregate=adasum_vdot", .absent = true },
        true, 60);
    check(&(course){ .rules = "* scalable_shampoo block_size=16 root_delay=2 preconditioning_compute_steps=4 "
                              "best_effort_memory_usage_reduction=yes",
                     .options = LOG },
          true, 70);
}

static const course ready = {
    .options = LOG,
    .rules =
        "* shampoo max_preconditioner_dim=16 precondition_frequency=2 start_preconditioning_step=2 root_delay=ready"
};

TEST(roots_are_used_in_the_steps_in_which_they_were_ready)
{
    for (uint64_t seed = 1; seed <= 6; seed++) {
        rig a, next;
        uint64_t drawn = seed;

        start(&a, &ready, 1);
        a.lazy_tasks = true;
        for (uint64_t step = 1; step <= 20; step++) {
            course_step_to(&a, &ready, step, COURSE_WORLD * COURSE_PARAMS);
            while (a.n_tasks > 0 && rig_random(&drawn) % 2 == 0) rig_finish_task(&a, rig_random(&drawn) % a.n_tasks);
            rig_work(&a);
        }
        assert_int_equal(a.durable, 20);
        come_back(&next, &a, 2);
        compare_jobs(inside_job(a.store, a.job), inside_find(next.store, "job"));
        rig_free(&next);
        rig_free(&a);
    }
}
