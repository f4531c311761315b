/* Tests the decisions in the WAL of a job in the store: after a crash, steps that are repeated take the course that
 * they took, whatever the order in which roots come back now. */
#include "test.h"
#include "wal.h"
#include "course.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { OPERATOR = 90 };

/* The published weights of each step. */
typedef struct history {
    float weights[COURSE_STEPS + 1][COURSE_PARAMS][COURSE_MOST];
} history;

static void finish_tasks(rig *r)
{
    while (r->n_tasks > 0) rig_finish_task(r, 0);
}

static void start(rig *r, const course *p)
{
    pd_store_config config = durable_config();

    rig_new(r, &config);
    course_join(r, p);
    course_initialise(r, p);
}

static const pd_param *param_of(const rig *r, uint32_t i)
{
    return &inside_job(r->store, r->job)->steps.params[i];
}

static void note_weights(const rig *r, history *h, uint64_t step)
{
    for (uint32_t i = 0; i < COURSE_PARAMS; i++)
        memcpy(h->weights[step][i], param_of(r, i)->current->at[PD_F32],
               (size_t)param_of(r, i)->elements * sizeof(float));
}

/* Takes a step. Preconditioner tasks come back at random, but for some; if the step waits for one, all come back. */
static void take_step(rig *r, const course *p, uint64_t step, uint64_t *seed)
{
    size_t left = rig_random(seed) % 12;

    course_step_to(r, p, step, COURSE_WORLD * COURSE_PARAMS);
    while (r->n_tasks > left) rig_finish_task(r, rig_random(seed) % r->n_tasks);
    rig_work(r);
    for (uint32_t i = 0; i < COURSE_PARAMS; i++)
        if (durable_job_step_of(r, i) < step) finish_tasks(r);
    rig_work(r);
    for (uint32_t i = 0; i < COURSE_PARAMS; i++) assert_int_equal(durable_job_step_of(r, i), step);
}

static void train(rig *r, const course *p, uint64_t first, uint64_t last, uint64_t *seed, history *h)
{
    for (uint64_t step = first; step <= last; step++) {
        take_step(r, p, step, seed);
        if (h != NULL) note_weights(r, h, step);
    }
}

/* Makes a new store from the last checkpoint and the decisions of the rig `r`, which is freed. */
static void crash(rig *r, const course *p)
{
    pd_store_config config = durable_config();
    rig next;

    rig_new(&next, &config);
    next.lazy_tasks = r->lazy_tasks;
    if (rig_restore(&next, r) != PD_OK) fail_msg("%s", next.error.text);
    if (rig_read_decisions(&next, r) != PD_OK) fail_msg("%s", next.error.text);
    memcpy(next.decisions, r->decisions, sizeof next.decisions);
    next.n_decisions = r->n_decisions;
    r->n_decisions = 0;
    next.disk = r->disk;
    r->disk = NULL;
    rig_free(r);
    *r = next;
    course_join(r, p);
}

static bool same_weights_of(const rig *r, const history *h, uint64_t step, uint32_t i)
{
    return memcmp(h->weights[step][i], param_of(r, i)->current->at[PD_F32],
                  (size_t)param_of(r, i)->elements * sizeof(float)) == 0;
}

/* Returns whether all parameters have the weights that they had after the step. */
static bool same_weights(const rig *r, const history *h, uint64_t step)
{
    bool same = true;

    for (uint32_t i = 0; i < COURSE_PARAMS; i++) same = same && same_weights_of(r, h, step, i);
    return same;
}

static void repeat(rig *r, const course *p, uint64_t first, uint64_t last, uint64_t *seed, const history *h)
{
    for (uint64_t step = first; step <= last; step++) {
        take_step(r, p, step, seed);
        if (!same_weights(r, h, step)) fail_msg("step %d has other weights than before the crash", (int)step);
    }
}

static const course ready = {
    .options = "checkpoint_every=8",
    .rules =
        "* shampoo max_preconditioner_dim=16 precondition_frequency=2 start_preconditioning_step=2 root_delay=ready"
};

static void check_ready(const course *p, uint64_t seed, history *h)
{
    uint64_t last = 17 + rig_random(&seed) % 6, from;
    rig r;

    start(&r, p);
    r.lazy_tasks = true;
    train(&r, p, 1, last, &seed, h);
    assert_true(r.disk->step < last);
    for (int times = 0; times < 2; times++) {
        from = r.disk->step;
        crash(&r, p);
        assert_int_equal(durable_job_step_of(&r, 0), from);
        repeat(&r, p, from + 1, last, &seed, h);
        assert_int_equal(inside_job(r.store, r.job)->steps.wal->decisions.n_read, 0);
    }
    train(&r, p, last + 1, COURSE_STEPS, &seed, NULL);
    finish_tasks(&r);
    rig_free(&r);
}

TEST(steps_take_the_roots_again_that_they_took)
{
    const course other = { .options = "checkpoint_every=8 nonfinite_scope=job",
                           .rules = "* scalable_shampoo block_size=16 learning_rate=0.01 "
                                    "preconditioning_compute_steps=1 start_preconditioning_step=1 root_delay=ready" };
    history *h = malloc(sizeof *h);

    for (uint64_t seed = 1; seed <= 5; seed++) {
        check_ready(&ready, seed, h);
        check_ready(&other, 100 + seed, h);
    }
    free(h);
}

TEST(without_the_records_steps_would_take_other_roots)
{
    history *h = malloc(sizeof *h);
    uint64_t seed = 2;
    bool same = true;
    rig r;

    start(&r, &ready);
    r.lazy_tasks = true;
    train(&r, &ready, 1, 20, &seed, h);
    for (size_t i = 0; i < r.n_decisions; i++) pd_wal_record_free(r.decisions[i]);
    r.n_decisions = 0;
    crash(&r, &ready);
    for (uint64_t step = r.disk->step + 1; step <= 20; step++) {
        take_step(&r, &ready, step, &seed);
        same = same && same_weights(&r, h, step);
    }
    assert_false(same);
    finish_tasks(&r);
    rig_free(&r);
    free(h);
}

/* Takes three steps: the tasks of step 1 are replaced by those of step 2, whose results step 3 takes. */
static void take_three(rig *r, const course *p, history *h)
{
    size_t n;

    for (uint64_t step = 1; step <= 3; step++) {
        course_step_to(r, p, step, COURSE_WORLD * COURSE_PARAMS);
        rig_work(r);
        assert_int_equal(durable_job_step_of(r, 0), step);
        note_weights(r, h, step);
        n = r->n_tasks;
        for (size_t i = 0; step == 2 && i < n / 2; i++) rig_replace_task(r, 0);
        if (step == 2) finish_tasks(r);
    }
    finish_tasks(r);
}

static size_t count_replaceable(const rig *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_tasks; i++) n += pd_task_replaceable(r->tasks[i]);
    return n;
}

TEST(tasks_that_were_replaced_need_not_run_in_repeated_steps)
{
    const course each = { .options = "checkpoint_every=8",
                          .rules = "* scalable_shampoo block_size=16 learning_rate=0.01 "
                                   "preconditioning_compute_steps=1 start_preconditioning_step=1 root_delay=ready" };
    history *h = malloc(sizeof *h);
    rig r;

    start(&r, &each);
    r.lazy_tasks = true;
    take_three(&r, &each, h);
    assert_int_equal(r.disk->step, 0);
    crash(&r, &each);
    course_step_to(&r, &each, 1, COURSE_WORLD * COURSE_PARAMS);
    rig_work(&r);
    assert_true(r.n_tasks > 0);
    assert_int_equal(count_replaceable(&r), r.n_tasks);
    while (r.n_tasks > 0) rig_replace_task(&r, 0);
    course_step_to(&r, &each, 2, COURSE_WORLD * COURSE_PARAMS);
    rig_work(&r);
    assert_true(r.n_tasks > 0);
    assert_int_equal(count_replaceable(&r), 0); /* step 3 takes their results */
    course_step_to(&r, &each, 3, COURSE_WORLD * COURSE_PARAMS);
    finish_tasks(&r);
    rig_work(&r);
    assert_true(same_weights(&r, h, 3));
    finish_tasks(&r);
    rig_free(&r);
    free(h);
}

TEST(a_job_whose_steps_have_no_choice_writes_nothing)
{
    const course p = {
        .options = "checkpoint_every=4",
        .rules =
            "* shampoo max_preconditioner_dim=16 root_delay=2 precondition_frequency=2 start_preconditioning_step=2"
    };
    uint64_t seed = 1;
    rig r;

    start(&r, &p);
    train(&r, &p, 1, COURSE_STEPS, &seed, NULL);
    assert_int_equal(r.decisions_written, 0);
    rig_free(&r);
}

TEST(entries_that_a_checkpoint_has_are_given_up)
{
    uint64_t seed = 3;
    rig r;

    start(&r, &ready);
    r.lazy_tasks = true;
    train(&r, &ready, 1, COURSE_STEPS, &seed, NULL);
    finish_tasks(&r);
    rig_work(&r);
    assert_true(r.decisions_written > 10);
    assert_true(r.n_decisions < r.decisions_written / 2);
    rig_free(&r);
}

TEST(a_failing_disk_stops_the_records_until_the_next_checkpoint)
{
    history *h = malloc(sizeof *h);
    uint64_t seed = 5, before;
    rig r;

    start(&r, &ready);
    r.lazy_tasks = true;
    train(&r, &ready, 1, 4, &seed, h);
    r.wal_error = "the disk is full";
    train(&r, &ready, 5, 7, &seed, h);
    assert_non_null(strstr(r.warning, "decisions not written: the disk is full"));
    r.wal_error = NULL;
    before = r.decisions_written;
    train(&r, &ready, 8, 19, &seed, h);
    assert_true(r.decisions_written > before);
    crash(&r, &ready);
    repeat(&r, &ready, r.disk->step + 1, 19, &seed, h);
    finish_tasks(&r);
    rig_free(&r);
    free(h);
}

TEST(a_job_that_comes_back_from_an_older_checkpoint_uses_no_record)
{
    uint64_t seed = 9;
    pd_store_config config = durable_config();
    pd_checkpoint_image *older;
    rig r, next;

    start(&r, &ready);
    r.lazy_tasks = true;
    train(&r, &ready, 1, 10, &seed, NULL);
    older = checkpoint_copy(r.disk);
    assert_non_null(older);
    train(&r, &ready, 11, 20, &seed, NULL);
    finish_tasks(&r);
    rig_work(&r);
    assert_true(r.disk != NULL && older->step < r.disk->step && r.n_decisions > 0);
    pd_checkpoint_image_free(r.disk);
    r.disk = older;
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, &r), PD_OK);
    assert_int_equal(rig_read_decisions(&next, &r), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(next.error.text, "decisions after the checkpoint of step"));
    assert_int_equal(inside_find(next.store, "job")->steps.wal->decisions.n_read, 0);
    rig_free(&next);
    rig_free(&r);
}

TEST(a_checkpoint_that_is_cut_while_steps_are_repeated_keeps_their_records)
{
    history *h = malloc(sizeof *h);
    uint64_t seed = 11;
    rig r;

    start(&r, &ready);
    r.lazy_tasks = true;
    train(&r, &ready, 1, 15, &seed, h);
    crash(&r, &ready);
    repeat(&r, &ready, 9, 10, &seed, h);
    r.lazy_disk = true;
    assert_int_equal(rig_checkpoint(&r, "job", OPERATOR, 11, 60), PD_OK);
    repeat(&r, &ready, 11, 11, &seed, h);
    finish_tasks(&r); /* the checkpoint has them */
    rig_work(&r);
    repeat(&r, &ready, 12, 15, &seed, h);
    train(&r, &ready, 16, 16, &seed, NULL); /* makes records of its own */
    rig_write_checkpoint(&r);
    r.lazy_disk = false;
    assert_int_equal(r.disk->step, 11);
    train(&r, &ready, 17, 17, &seed, NULL);
    crash(&r, &ready);
    repeat(&r, &ready, 12, 15, &seed, h);
    finish_tasks(&r);
    rig_free(&r);
    free(h);
}

/* Takes a step of one parameter alone. Preconditioner tasks come back at random. */
static void take_alone(rig *r, const course *p, uint32_t param, uint64_t step, uint64_t *seed)
{
    size_t left = rig_random(seed) % 12;

    for (uint32_t rank = 0; rank < COURSE_WORLD; rank++) course_push(r, p, rank, param, step);
    rig_work(r);
    while (r->n_tasks > left) rig_finish_task(r, rig_random(seed) % r->n_tasks);
    rig_work(r);
    if (durable_job_step_of(r, param) < step) finish_tasks(r);
    rig_work(r);
    assert_int_equal(durable_job_step_of(r, param), step);
}

/* Lets records fail and begin anew while parameter 1 has steps to repeat: parameter 0 takes step 7, which it had not
 * taken before the crash. */
static void fail_while_steps_are_repeated(rig *r, const course *p, uint64_t *seed)
{
    r->wal_error = "the disk is full";
    take_alone(r, p, 0, 7, seed);
    assert_non_null(strstr(r->warning, "decisions not written: the disk is full"));
    r->wal_error = NULL;
    for (uint32_t i = 0; i < COURSE_PARAMS; i++)
        for (uint64_t step = i == 0 ? 8 : 7; step <= 8; step++) take_alone(r, p, i, step, seed);
    finish_tasks(r); /* the checkpoint has them */
    rig_work(r);
    assert_int_equal(r->disk->step, 8);
    assert_true(pd_wal_repeats(&inside_job(r->store, r->job)->steps));
    take_alone(r, p, 1, 9, seed);
    for (uint64_t step = 9; step <= 12; step++) take_alone(r, p, 0, step, seed);
    assert_true(r->decisions[0]->step == r->decisions[0]->base + 1 && r->decisions[0]->step > 2);
}

TEST(records_that_begin_anew_have_those_of_steps_to_repeat)
{
    course p = ready;
    history *h = malloc(sizeof *h);
    uint64_t seed = 7;
    rig r;

    p.options = "checkpoint_every=1000";
    start(&r, &p);
    r.lazy_tasks = true;
    train(&r, &p, 1, 6, &seed, h);
    for (uint64_t step = 7; step <= 20; step++) {
        take_alone(&r, &p, 1, step, &seed);
        note_weights(&r, h, step);
    }
    crash(&r, &p);
    repeat(&r, &p, 1, 6, &seed, h);
    fail_while_steps_are_repeated(&r, &p, &seed);
    crash(&r, &p);
    for (uint64_t step = 9; step <= 20; step++) {
        take_alone(&r, &p, 1, step, &seed);
        if (!same_weights_of(&r, h, step, 1)) fail_msg("step %d has other weights than before the crash", (int)step);
    }
    finish_tasks(&r);
    rig_free(&r);
    free(h);
}

/* Reads the decisions with allocation n failing. Returns whether it failed. */
static bool read_without_memory(const rig *r, int64_t n)
{
    pd_store_config config = durable_config();
    bool failed;
    rig next;
    int rc;

    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, r), PD_OK);
    oom_arm(n);
    rc = rig_read_decisions(&next, r);
    failed = oom_disarm();
    assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
    assert_true((inside_find(next.store, "job")->steps.wal->decisions.n_read > 0) == !failed);
    rig_free(&next);
    return failed;
}

TEST(without_memory_a_control_log_is_not_read_by_halves)
{
    uint64_t seed = 4;
    int64_t n = 0;
    rig r;

    start(&r, &ready);
    r.lazy_tasks = true;
    train(&r, &ready, 1, 12, &seed, NULL);
    assert_int_equal(rig_set(&r, "job", "layer*", "lr=0.03", 14), PD_OK);
    while (read_without_memory(&r, n)) n++;
    assert_true(n > 20);
    finish_tasks(&r);
    rig_free(&r);
}

static const course partial = { .options = "checkpoint_every=8 rounds=quorum quorum=2 grace=1s", .rules = "* adam" };

/* Takes a step in which parameter 1 gets no contribution of a rank before the deadline, or in which all ranks push,
 * the late rank first. */
static void take_late_step(rig *r, uint64_t step, uint32_t late, bool all)
{
    if (all) course_push(r, &partial, late, 1, step);
    for (uint32_t i = 0; i < COURSE_PARAMS; i++)
        for (uint32_t rank = 0; rank < COURSE_WORLD; rank++)
            if (rank != late || i != 1) course_push(r, &partial, rank, i, step);
    rig_work(r);
    if (!all) rig_sleep(r, 2);
    rig_work(r);
    assert_int_equal(durable_job_step_of(r, 1), step);
}

TEST(a_round_counts_the_ranks_again_that_it_counted)
{
    history *h = malloc(sizeof *h);
    rig r;

    start(&r, &partial);
    for (uint64_t step = 1; step <= 14; step++) {
        take_late_step(&r, step, step == 11 ? 0 : 2, step != 11 && step != 13);
        note_weights(&r, h, step);
    }
    assert_int_equal(r.decisions_written, 2);
    for (int times = 0; times < 2; times++) {
        crash(&r, &partial);
        for (uint64_t step = 9; step <= 14; step++) {
            take_late_step(&r, step, step == 11 ? 0 : 2, true);
            if (!same_weights(&r, h, step)) fail_msg("step %d has other weights than before the crash", (int)step);
        }
        assert_int_equal(r.decisions_written, 0); /* the records of repeated rounds are on the disk already */
    }
    rig_free(&r);
    free(h);
}

TEST(a_recorded_rank_is_waited_for)
{
    rig r;

    start(&r, &partial);
    for (uint64_t step = 1; step <= 12; step++) take_late_step(&r, step, 0, step != 12);
    crash(&r, &partial);
    for (uint64_t step = 9; step <= 11; step++) take_late_step(&r, step, 0, true);
    for (uint32_t i = 0; i < COURSE_PARAMS; i++)
        for (uint32_t rank = 0; rank < 2; rank++) course_push(&r, &partial, rank, i, 12);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 1), 11);
    for (uint32_t i = 0; i < COURSE_PARAMS; i++) course_push(&r, &partial, 2, i, 12);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 1), 12);
    assert_null(strstr(r.warning, "takes another course"));
    rig_free(&r);
}

TEST(a_disk_that_is_too_slow_for_records_costs_few_checkpoints)
{
    course p = ready;
    uint64_t seed = 1, kept, warnings;
    rig r;

    p.options = "checkpoint_every=1000";
    start(&r, &p);
    r.lazy_tasks = true;
    train(&r, &p, 1, 3, &seed, NULL);
    r.lazy_wal = true;
    kept = r.kept;
    warnings = r.warnings;
    train(&r, &p, 4, 100, &seed, NULL);
    assert_non_null(strstr(r.warning, "bytes of decisions wait for the disk"));
    if (r.kept - kept > 6) fail_msg("%d checkpoints in 100 steps", (int)(r.kept - kept));
    assert_true(r.warnings - warnings <= 6);
    finish_tasks(&r);
    rig_free(&r);
}

TEST(an_override_holds_again_from_the_step_from_which_it_held)
{
    const course p = { .options = "checkpoint_every=8", .rules = "* adam" };
    history *h = malloc(sizeof *h);
    uint64_t seed = 1;
    rig r;

    start(&r, &p);
    train(&r, &p, 1, 9, &seed, h);
    assert_int_equal(rig_set(&r, "job", "*", "lr=0.03", 0), PD_OK);
    train(&r, &p, 10, 11, &seed, h);
    assert_int_equal(rig_set(&r, "job", "layer*", "lr=0.5", 14), PD_OK);
    assert_int_equal(rig_set(&r, "job", "head*", "lr=", 0), PD_OK);
    train(&r, &p, 12, 15, &seed, h);
    assert_int_equal(r.disk->step, 8);
    for (int times = 0; times < 2; times++) {
        crash(&r, &p);
        repeat(&r, &p, 9, 15, &seed, h);
    }
    assert_int_equal(rig_set(&r, "job", "*", "lr=0.01", 0), PD_OK);
    train(&r, &p, 16, COURSE_STEPS, &seed, NULL);
    rig_free(&r);
    free(h);
}

/* Takes steps, after each of which all preconditioner tasks come back. */
static void train_promptly(rig *r, const course *p, uint64_t first, uint64_t last, uint64_t *seed)
{
    for (uint64_t step = first; step <= last; step++) {
        take_step(r, p, step, seed);
        finish_tasks(r);
    }
}

TEST(an_import_ends_the_repeating_of_roots_but_not_the_overrides)
{
    const course p = {
        .options = "checkpoint_every=8",
        .rules =
            "* shampoo max_preconditioner_dim=16 precondition_frequency=3 start_preconditioning_step=3 root_delay=ready"
    };
    uint64_t seed = 1, warnings;
    rig r;

    start(&r, &p);
    r.lazy_tasks = true;
    train_promptly(&r, &p, 1, 12, &seed);
    assert_int_equal(rig_set(&r, "job", "layer*", "lr=0.5", 20), PD_OK);
    train_promptly(&r, &p, 13, 14, &seed);
    crash(&r, &p);
    assert_true(pd_wal_repeats(&inside_job(r.store, r.job)->steps));
    durable_job_import_count(&r);
    assert_false(pd_wal_repeats(&inside_job(r.store, r.job)->steps));
    assert_int_equal(param_of(&r, 0)->overrides.n, 1);
    warnings = r.warnings;
    train_promptly(&r, &p, 9, 14, &seed);
    assert_int_equal(r.warnings, warnings); /* no step is compared with the past of another state */
    rig_free(&r);
}

TEST(records_from_before_an_import_do_not_come_back_with_another_crash)
{
    history *h = malloc(sizeof *h);
    rig r;

    start(&r, &partial);
    for (uint64_t step = 1; step <= 14; step++) take_late_step(&r, step, 2, step != 12);
    crash(&r, &partial);
    durable_job_import_count(&r);
    for (uint64_t step = 9; step <= 14; step++) {
        take_late_step(&r, step, 2, true);
        note_weights(&r, h, step);
    }
    assert_int_equal(r.disk->step, 8); /* the import has made a checkpoint due at once */
    crash(&r, &partial);
    for (uint64_t step = 9; step <= 14; step++) {
        take_late_step(&r, step, 2, true);
        if (!same_weights(&r, h, step)) fail_msg("step %d has other weights than before the crash", (int)step);
    }
    rig_free(&r);
    free(h);
}

TEST(an_override_survives_a_checkpoint_of_a_repeated_step_before_it)
{
    const course p = { .options = "checkpoint_every=8", .rules = "* adam" };
    history *h = malloc(sizeof *h);
    uint64_t seed = 1;
    rig r;

    start(&r, &p);
    train(&r, &p, 1, 13, &seed, h);
    assert_int_equal(rig_set(&r, "job", "*", "lr=0.5", 0), PD_OK);
    train(&r, &p, 14, 15, &seed, h);
    crash(&r, &p);
    repeat(&r, &p, 9, 11, &seed, h);
    assert_int_equal(rig_checkpoint(&r, "job", OPERATOR, 11, 60), PD_OK);
    rig_work(&r);
    assert_int_equal(r.disk->step, 11);
    crash(&r, &p);
    repeat(&r, &p, 12, 15, &seed, h);
    rig_free(&r);
    free(h);
}
