/* Tests that a job goes back to an earlier checkpoint, and continues with the bits of a job that never did. */
#include "test.h"
#include "checkpoint_policy.h"
#include "course.h"
#include "durable_job.h"
#include "oom.h"
#include "rig.h"
#include "store_inside.h"

static const course courses[] = {
    { .options = "checkpoint_every=4 checkpoint_keep=9", .rules = "* adamw lr=0.01", .overrides = true },
    { .options = "checkpoint_every=4 checkpoint_keep=9 durability=log",
      .rules = "layer* shampoo lr=0.1 max_preconditioner_dim=8 root_delay=1;* adam" },
    { .options = "checkpoint_every=4 checkpoint_keep=9 clip_global_norm=0.5 nonfinite_scope=job",
      .rules = "* sgd lr=0.1 momentum=0.9",
      .ranged = true,
      .absent = true },
};
enum { COURSES = sizeof courses / sizeof courses[0] };

static void step_to(rig *r, const course *p, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++) {
        course_operate(r, p, step);
        course_step_to(r, p, step, COURSE_WORLD * COURSE_PARAMS);
    }
}

static void start(rig *r, const course *p)
{
    pd_store_config config = durable_config();

    rig_new(r, &config);
    r->keeps_older = true;
    course_join(r, p);
    course_initialise(r, p);
}

static pd_job *the_job(const rig *r)
{
    return inside_find(r->store, "job");
}

static void compare_with_undisturbed(rig *r, const course *p)
{
    rig other;

    start(&other, p);
    step_to(&other, p, 1, COURSE_STEPS);
    course_compare(r, &other);
    rig_free(&other);
}

TEST(a_job_that_went_back_ends_with_the_bits_of_one_that_did_not)
{
    for (int i = 0; i < COURSES; i++) {
        const course *p = &courses[i];
        rig r;

        start(&r, p);
        step_to(&r, p, 1, 14);
        assert_int_equal(rig_go_back(&r, "job", 0, 200, 8, 0), PD_OK);
        assert_int_equal(pd_steps_least(&the_job(&r)->steps), 8);
        course_join(&r, p);
        step_to(&r, p, 9, 18);
        assert_int_equal(rig_go_back(&r, NULL, 1, COURSE_CONN + 1, 12, the_job(&r)->life), PD_OK);
        course_join(&r, p);
        step_to(&r, p, 13, COURSE_STEPS);
        assert_int_equal(the_job(&r)->counts.went_back, 2);
        compare_with_undisturbed(&r, p);
        rig_free(&r);
    }
}

/* A restart after that finds the new steps on the disk, not those that were taken before. */
TEST(a_restart_continues_after_the_step_to_which_the_job_went_back)
{
    for (int i = 0; i < COURSES; i++) {
        const course *p = &courses[i];
        pd_store_config config = durable_config();
        rig r;

        start(&r, p);
        step_to(&r, p, 1, 14);
        assert_int_equal(rig_go_back(&r, "job", 0, 200, 8, 0), PD_OK);
        rig_crash(&r, &config);
        assert_int_equal(pd_steps_least(&the_job(&r)->steps), 8);
        course_join(&r, p);
        step_to(&r, p, 9, 11);
        rig_crash(&r, &config);
        course_join(&r, p);
        step_to(&r, p, pd_steps_least(&the_job(&r)->steps) + 1, COURSE_STEPS);
        compare_with_undisturbed(&r, p);
        rig_free(&r);
    }
}

/* The mirror has the steps that were taken back only as they were before. */
TEST(a_job_that_goes_back_tells_no_later_step_of_its_mirror)
{
    const course *p = &courses[0];
    rig r;

    start(&r, p);
    step_to(&r, p, 1, 14);
    the_job(&r)->checkpointing.mirrored_step = 12;
    assert_int_equal(rig_go_back(&r, "job", 0, 200, 8, 0), PD_OK);
    assert_int_equal(the_job(&r)->checkpointing.mirrored_step, 8);
    course_join(&r, p);
    step_to(&r, p, 9, 14);
    the_job(&r)->checkpointing.mirrored_step = 4;
    assert_int_equal(rig_go_back(&r, "job", 0, 200, 8, 0), PD_OK);
    assert_int_equal(the_job(&r)->checkpointing.mirrored_step, 4);
    rig_free(&r);
}

static int worker_goes_back(rig *r, uint64_t step)
{
    return rig_go_back(r, NULL, 1, COURSE_CONN + 1, step, the_job(r)->life);
}

/* Records lead to it from the checkpoint of step 12. */
TEST(a_worker_lets_a_job_go_back_to_a_step_of_its_log)
{
    const course *p = &courses[1];
    pd_store_config config = durable_config();
    rig r;

    start(&r, p);
    step_to(&r, p, 1, 15);
    assert_int_equal(rig_go_back(&r, "job", 0, 200, 14, 0), PD_NOT_FOUND);
    assert_int_equal(worker_goes_back(&r, 16), PD_NOT_FOUND);
    assert_int_equal(worker_goes_back(&r, 15), PD_OK);
    course_join(&r, p);
    assert_int_equal(worker_goes_back(&r, 14), PD_OK);
    assert_int_equal(pd_steps_least(&the_job(&r)->steps), 14);
    assert_int_equal(the_job(&r)->checkpointing.durable_step, 14);
    course_join(&r, p);
    step_to(&r, p, 15, 15);
    assert_int_equal(the_job(&r)->checkpointing.durable_step, 15);
    rig_crash(&r, &config);
    assert_int_equal(pd_steps_least(&the_job(&r)->steps), 15);
    course_join(&r, p);
    assert_int_equal(worker_goes_back(&r, 13), PD_OK);
    course_join(&r, p);
    step_to(&r, p, 14, COURSE_STEPS);
    compare_with_undisturbed(&r, p);
    rig_free(&r);
}

/* A worker joins before the first checkpoint, and does not declare its parameters again. It must know that each step
 * that becomes durable later is one to which the shard can go back. */
TEST(a_job_with_a_log_goes_back_to_steps_of_it_before_its_first_checkpoint_is_made)
{
    const course *p = &courses[1];
    pd_store_config config = durable_config();
    uint64_t first, last;
    rig r;

    rig_new(&r, &config);
    r.keeps_older = true;
    course_join(&r, p);
    assert_true(pd_checkpoint_policy_replays(the_job(&r), &first, &last));
    assert_true(first == UINT64_MAX);
    assert_int_equal(worker_goes_back(&r, 0), PD_NOT_FOUND);
    course_initialise(&r, p);
    step_to(&r, p, 1, 6);
    assert_true(pd_checkpoint_policy_replays(the_job(&r), &first, &last));
    assert_int_equal(first, 4);
    rig_free(&r);
}

TEST(a_job_without_a_log_goes_back_to_no_step_between_checkpoints)
{
    uint64_t first, last;
    rig r;

    start(&r, &courses[0]);
    assert_false(pd_checkpoint_policy_replays(the_job(&r), &first, &last));
    assert_int_equal(first, 0);
    rig_free(&r);
}

/* The disk has the record of step 14 only later. */
TEST(a_job_goes_back_to_a_step_of_its_log_once_the_disk_has_it)
{
    const course *p = &courses[1];
    rig r;

    start(&r, p);
    step_to(&r, p, 1, 13);
    r.lazy_wal = true;
    step_to(&r, p, 14, 15);
    assert_int_equal(worker_goes_back(&r, 14), RIG_NO_ANSWER);
    assert_true(the_job(&r)->goes_back);
    while (r.n_logging > 0) rig_write_record(&r);
    rig_work(&r);
    while (r.n_logging > 0) rig_write_record(&r);
    rig_work(&r);
    r.lazy_wal = false;
    assert_int_equal(r.error.code, PD_OK);
    assert_int_equal(pd_steps_least(&the_job(&r)->steps), 14);
    course_join(&r, p);
    step_to(&r, p, 15, COURSE_STEPS);
    compare_with_undisturbed(&r, p);
    rig_free(&r);
}

static void set_up(rig *r)
{
    start(r, &courses[0]);
    step_to(r, &courses[0], 1, 14);
}
FIXTURE(rig, set_up, rig_free);

TEST(workers_are_told_to_connect_again, void *given)
{
    rig *r = given;
    uint64_t life = the_job(r)->life;

    assert_int_equal(rig_go_back(r, NULL, 0, COURSE_CONN, 12, life), PD_OK);
    assert_int_equal(r->fenced.code, PD_UNAVAILABLE);
    assert_non_null(strstr(r->fenced.text, "goes back from step 14 to step 12: connect again"));
    assert_int_equal(r->goodbye.code, PD_UNAVAILABLE);
    assert_int_not_equal(the_job(r)->life, life);
    assert_int_equal(the_job(r)->saved.creator, r->creator);
    assert_int_equal(the_job(r)->connected, 0);
}

TEST(the_job_lists_the_steps_to_which_it_can_go_back, void *given)
{
    rig *r = given;
    const pd_kept_steps *kept = &the_job(r)->checkpointing.kept;

    assert_int_equal(kept->n, 4);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(kept->at[i], 12 - 4 * i);
    assert_int_equal(rig_go_back(r, "job", 0, 200, 8, 0), PD_OK);
    kept = &the_job(r)->checkpointing.kept;
    assert_int_equal(kept->n, 3);
    assert_int_equal(kept->at[0], 8);
}

TEST(who_is_slower_than_another_one_is_told_to_look_again, void *given)
{
    rig *r = given;
    uint64_t life = the_job(r)->life;

    assert_int_equal(rig_go_back(r, "job", 0, 200, 8, 0), PD_OK);
    course_join(r, &courses[0]);
    assert_int_equal(rig_go_back(r, NULL, 0, COURSE_CONN, 4, life), PD_ABORTED);
    assert_non_null(strstr(r->error.text, "is at step 8: look again"));
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 8);
}

/* Another worker may have been told meanwhile that step 12 is durable on all shards. */
TEST(a_step_that_became_durable_after_the_look_is_not_taken_back, void *given)
{
    rig *r = given;

    assert_int_equal(the_job(r)->checkpointing.durable_step, 12);
    r->looked = 1 + 8;
    assert_int_equal(worker_goes_back(r, 8), PD_ABORTED);
    assert_non_null(strstr(r->error.text, "step 12 of job job is durable now, and 8 was the last when you looked"));
    assert_int_equal(worker_goes_back(r, 4), PD_ABORTED);
    assert_false(the_job(r)->goes_back);
    r->looked = 1 + 12;
    assert_int_equal(worker_goes_back(r, 8), PD_OK);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 8);
    course_join(r, &courses[0]);
    r->looked = 1 + 4;
    assert_int_equal(worker_goes_back(r, 8), PD_OK);
}

/* A worker that has looked while another one brought the shards together would undo that, and so on. */
TEST(a_job_that_has_got_nothing_since_stays, void *given)
{
    uint64_t life;
    rig *r = given;

    assert_int_equal(worker_goes_back(r, 8), PD_OK);
    course_join(r, &courses[0]);
    life = the_job(r)->life;
    assert_int_equal(worker_goes_back(r, 8), PD_OK);
    assert_int_equal(the_job(r)->life, life);
    assert_int_equal(the_job(r)->counts.went_back, 1);
    course_step_to(r, &courses[0], 9, 1);
    assert_int_equal(worker_goes_back(r, 8), PD_OK);
    assert_true(the_job(r)->life != life);
    assert_int_equal(the_job(r)->counts.went_back, 2);
}

/* Step 12 need not be durable on all shards: another one may just have been at it, and go back further if it is
 * killed. */
TEST(a_job_that_goes_back_keeps_what_other_shards_can_go_back_to, void *given)
{
    pd_checkpoint_policy *checkpointing = &the_job(given)->checkpointing;

    checkpointing->floored = true;
    checkpointing->common = 8;
    checkpointing->floor = 4;
    assert_int_equal(worker_goes_back(given, 12), PD_OK);
    checkpointing = &the_job(given)->checkpointing;
    assert_true(checkpointing->floored);
    assert_int_equal(checkpointing->common, 8);
    assert_int_equal(checkpointing->floor, 4);
    course_join(given, &courses[0]);
    assert_int_equal(worker_goes_back(given, 4), PD_OK);
    checkpointing = &the_job(given)->checkpointing;
    assert_int_equal(checkpointing->common, 4);
    assert_int_equal(checkpointing->floor, 4);
}

TEST(what_cannot_be_is_refused_in_words, void *given)
{
    rig *r = given, other;

    assert_int_equal(rig_go_back(r, "job", 0, 200, 10, 0), PD_NOT_FOUND);
    assert_non_null(strstr(r->error.text, "no checkpoint of step 10, but of 12, 8, 4, 0"));
    assert_int_equal(rig_go_back(r, "jot", 0, 200, 8, 0), PD_NOT_FOUND);
    assert_int_equal(rig_go_back(r, NULL, 0, COURSE_CONN + 7, 8, the_job(r)->life), PD_ABORTED);
    rig_drain(r, 200, 5);
    assert_int_equal(rig_go_back(r, "job", 0, 200, 8, 0), PD_UNAVAILABLE);
    rig_make(&other);
    course_join(&other, &courses[0]);
    assert_int_equal(rig_go_back(&other, "job", 0, 200, 8, 0), PD_FAILED_PRECONDITION);
    rig_free(&other);
}

/* The checkpoint is damaged, say. */
TEST(an_error_of_the_disk_changes_nothing, void *given)
{
    rig *r = given;
    uint64_t life = the_job(r)->life;

    r->disk_error = "weights.safetensors: its XXH3 differs";
    assert_int_equal(rig_go_back(r, "job", 0, 200, 8, 0), PD_UNAVAILABLE);
    assert_non_null(strstr(r->error.text, "its XXH3 differs"));
    r->disk_error = NULL;
    assert_int_equal(the_job(r)->life, life);
    assert_int_equal(r->gone, 0);
    step_to(r, &courses[0], 15, COURSE_STEPS);
    assert_int_equal(r->durable, 28);
    compare_with_undisturbed(r, &courses[0]);
}

TEST(the_job_trains_without_checkpoints_while_the_disk_reads, void *given)
{
    rig *r = given;

    r->lazy_back = true;
    assert_int_equal(rig_go_back(r, "job", 0, 200, 8, 0), RIG_NO_ANSWER);
    step_to(r, &courses[0], 15, 17);
    assert_int_equal(r->durable, 12);
    assert_int_equal(rig_go_back(r, "job", 0, 201, 8, 0), PD_ABORTED);
    rig_go_back_ordered(r);
    assert_int_equal(r->error.code, PD_OK);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 8);
    r->lazy_back = false;
    course_join(r, &courses[0]);
    step_to(r, &courses[0], 9, COURSE_STEPS);
    assert_int_equal(r->durable, 28);
    compare_with_undisturbed(r, &courses[0]);
}

static void drop(rig *r)
{
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(r, 201));

    request->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(r, request), PD_OK);
}

TEST(a_job_that_is_dropped_meanwhile_stays_dropped, void *given)
{
    rig *r = given;

    r->lazy_back = true;
    assert_int_equal(rig_go_back(r, "job", 0, 200, 8, 0), RIG_NO_ANSWER);
    drop(r);
    rig_go_back_ordered(r);
    assert_int_equal(r->error.code, PD_ABORTED);
    assert_null(the_job(r));
}

TEST(a_request_that_waits_too_long_is_refused, void *given)
{
    rig *r = given;

    r->lazy_back = true;
    assert_int_equal(rig_go_back(r, "job", 0, 200, 8, 0), RIG_NO_ANSWER);
    rig_sleep(r, 61);
    assert_int_equal(r->error.code, PD_DEADLINE_EXCEEDED);
    rig_go_back_ordered(r);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 8);
}

/* The checkpoint of step 16 is on its way to the disk. */
TEST(a_checkpoint_under_way_ends_first, void *given)
{
    rig *r = given;

    r->lazy_disk = true;
    step_to(r, &courses[0], 15, 16);
    assert_non_null(r->checkpointing);
    assert_int_equal(rig_go_back(r, "job", 0, 200, 8, 0), RIG_NO_ANSWER);
    rig_write_checkpoint(r);
    rig_work(r);
    assert_int_equal(r->error.code, PD_OK);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 8);
    r->lazy_disk = false;
}

/* With checkpoint_keep = 1 the checkpoint under way replaces the one before. */
TEST(the_newest_checkpoint_is_that_under_way, void *given)
{
    rig *r = given;

    r->lazy_disk = true;
    step_to(r, &courses[0], 15, 16);
    assert_int_equal(rig_go_back(r, "job", 0, 200, PD_NEWEST, 0), RIG_NO_ANSWER);
    rig_write_checkpoint(r);
    rig_work(r);
    assert_int_equal(r->error.code, PD_OK);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 16);
    r->lazy_disk = false;
}

TEST(a_checkpoint_that_is_replaced_meanwhile_is_missing, void *given)
{
    rig *r = given;

    r->lazy_disk = true;
    step_to(r, &courses[0], 15, 16);
    assert_int_equal(rig_go_back(r, "job", 0, 200, 0, 0), RIG_NO_ANSWER);
    rig_forget_oldest(r);
    rig_write_checkpoint(r);
    rig_work(r);
    assert_int_equal(r->error.code, PD_NOT_FOUND);
    assert_false(the_job(r)->goes_back);
    r->lazy_disk = false;
}

static const course rooted = { .options = "checkpoint_every=4 checkpoint_keep=9",
                               .rules =
                                   "* shampoo lr=0.1 max_preconditioner_dim=8 precondition_frequency=2 root_delay=1" };

/* The preconditioner pool still computes for the job that goes back. */
TEST(workers_wait_until_the_memory_of_the_job_is_free)
{
    rig r;

    start(&r, &rooted);
    step_to(&r, &rooted, 1, 9);
    r.lazy_tasks = true;
    course_step_to(&r, &rooted, 10, COURSE_WORLD * COURSE_PARAMS);
    assert_true(r.n_tasks > 0);
    assert_int_equal(rig_go_back(&r, "job", 0, 200, 4, 0), RIG_NO_ANSWER);
    assert_null(the_job(&r));
    assert_int_equal(rig_hello(&r, "job", 0, COURSE_WORLD, COURSE_CONN, COURSE_CONN, NULL, rooted.rules),
                     PD_UNAVAILABLE);
    assert_non_null(strstr(r.error.text, "goes back to step 4: wait until it is loaded"));
    assert_int_equal(rig_go_back(&r, "job", 0, 201, 4, 0), PD_UNAVAILABLE);
    r.lazy_tasks = false;
    while (r.n_tasks > 0) rig_finish_task(&r, 0);
    rig_work(&r);
    assert_int_equal(r.error.code, PD_OK);
    course_join(&r, &rooted);
    step_to(&r, &rooted, 5, COURSE_STEPS);
    compare_with_undisturbed(&r, &rooted);
    rig_free(&r);
}

/* Loads the job in the smallest parts, and counts how often another job could have worked in between. */
TEST(other_jobs_have_their_turn_while_the_job_is_loaded)
{
    pd_store_config config = durable_config();
    const course *p = &courses[0];
    unsigned parts = 0;
    rig r;

    config.batch_ns = 1;
    rig_new(&r, &config);
    r.keeps_older = r.lazy_back = true;
    course_join(&r, p);
    course_initialise(&r, p);
    step_to(&r, p, 1, 9);
    assert_int_equal(rig_go_back(&r, "job", 0, 200, 4, 0), RIG_NO_ANSWER);
    rig_apply(&r, rig_answer_order(&r));
    assert_null(the_job(&r));
    for (; pd_store_work(r.store, r.now); parts++) rig_absorb(&r);
    rig_absorb(&r);
    assert_int_equal(pd_steps_least(&the_job(&r)->steps), 4);
    assert_true(parts >= 2 * COURSE_PARAMS);
    rig_free(&r);
}

enum { OTHER_CONN = 300 };

/* Lets a job go back to step 7. Its checkpoint of step 4 is loaded, and the record of step 5 is read. Each part of the
 * work is the smallest one. Returns the number of another job. */
static uint32_t begin_to_repeat(rig *r, const course *p)
{
    pd_store_config config = durable_config();
    uint32_t other;

    config.batch_ns = 1;
    rig_new(r, &config);
    other = rig_start(r, "other", 1, OTHER_CONN, &(int64_t){ 5 }, 1, "durability=none", NULL);
    r->keeps_older = true;
    course_join(r, p);
    course_initialise(r, p);
    step_to(r, p, 1, 8);
    r->lazy_back = true;
    assert_int_equal(worker_goes_back(r, 7), RIG_NO_ANSWER);
    rig_apply(r, rig_answer_order(r));
    rig_work(r);
    assert_null(the_job(r));
    pd_store_apply(r->store, rig_answer_order(r), r->now);
    return other;
}

TEST(other_jobs_train_while_steps_are_repeated)
{
    const course *p = &courses[1];
    uint64_t parts = 0, steps = 0;
    rig r;
    uint32_t other = begin_to_repeat(&r, p);

    for (; pd_store_work(r.store, r.now); parts++) {
        rig_absorb(&r);
        if (rig_versions(&r, other, 0)->step == steps)
            assert_int_equal(rig_push(&r, other, 0, OTHER_CONN, ++steps, 0, (float[5]){ 1, 1, 1, 1, 1 }, 5), PD_OK);
    }
    assert_null(the_job(&r));
    assert_true(parts >= 4 * COURSE_PARAMS);
    assert_true(steps >= COURSE_PARAMS);
    rig_absorb(&r);
    r.lazy_back = false;
    rig_go_back_ordered(&r);
    rig_work(&r);
    assert_int_equal(pd_steps_least(&the_job(&r)->steps), 7);
    course_join(&r, p);
    step_to(&r, p, 8, COURSE_STEPS);
    compare_with_undisturbed(&r, p);
    rig_free(&r);
}

TEST(a_server_may_stop_while_a_step_is_repeated)
{
    bool more = true;

    for (int parts = 0; more; parts++) {
        rig r;

        begin_to_repeat(&r, &courses[1]);
        for (int i = 0; more && i < parts; i++) more = pd_store_work(r.store, r.now);
        rig_absorb(&r);
        rig_free(&r);
    }
}

/* The daemon stops while the disk reads, while tasks are out, and while parts are read. */
TEST(a_server_that_stops_meanwhile_leaves_nothing_behind)
{
    for (int at = 0; at < 3; at++) {
        pd_store_config config = durable_config();
        rig r;

        config.batch_ns = 1;
        rig_new(&r, &config);
        r.keeps_older = true;
        course_join(&r, &rooted);
        course_initialise(&r, &rooted);
        step_to(&r, &rooted, 1, 9);
        r.lazy_tasks = at == 1;
        r.lazy_back = at != 1;
        course_step_to(&r, &rooted, 10, COURSE_WORLD * COURSE_PARAMS);
        assert_int_equal(rig_go_back(&r, "job", 0, 200, 4, 0), RIG_NO_ANSWER);
        if (at == 2) rig_apply(&r, rig_answer_order(&r));
        rig_free(&r);
    }
}

/* Lets the n-th allocation from now fail, while a request is applied and the store works. Returns whether there was
 * one. */
static bool apply_without_memory(rig *r, pd_request *request, int64_t n)
{
    bool failed;

    r->error.code = PD_OK;
    oom_arm(n);
    pd_store_apply(r->store, request, r->now);
    while (pd_store_work(r->store, r->now)) continue;
    failed = oom_disarm();
    rig_absorb(r);
    return failed;
}

TEST(a_request_without_memory_is_refused_and_changes_nothing, void *given)
{
    rig *r = given;
    bool failed = true;

    r->lazy_back = true;
    for (int64_t n = 0; failed; n++) {
        pd_request *request = pd_request_new(PD_REQ_GO_BACK, rig_ticket(r, 200));
        request->u.go_back.job_name = strdup("job");
        request->u.go_back.step = 8;
        failed = apply_without_memory(r, request, n);
        assert_int_equal(r->error.code, failed ? PD_NO_MEMORY : PD_OK);
        assert_true(the_job(r)->goes_back == !failed);
    }
    r->lazy_back = false;
    rig_go_back_ordered(r);
    course_join(r, &courses[0]);
    step_to(r, &courses[0], 9, COURSE_STEPS);
    compare_with_undisturbed(r, &courses[0]);
}

/* Lets the n-th allocation fail when the checkpoint has been read. Returns whether there was one. */
static bool load_without_memory(int64_t n)
{
    const course *p = &courses[1];
    bool failed;
    rig r;

    start(&r, p);
    step_to(&r, p, 1, 9);
    r.lazy_back = r.lazy_wal = true;
    assert_int_equal(rig_go_back(&r, "job", 0, 200, 4, 0), RIG_NO_ANSWER);
    failed = apply_without_memory(&r, rig_answer_order(&r), n);
    r.lazy_wal = r.lazy_back = false;
    while (r.n_logging > 0) rig_write_record(&r);
    rig_work(&r);
    rig_sleep(&r, 1.1);
    rig_work(&r);
    assert_int_equal(r.error.code, PD_OK);
    assert_int_equal(pd_steps_least(&the_job(&r)->steps), 4);
    course_join(&r, p);
    step_to(&r, p, 5, COURSE_STEPS);
    compare_with_undisturbed(&r, p);
    rig_free(&r);
    return failed;
}

TEST(a_job_without_memory_is_loaded_when_there_is_memory)
{
    int64_t n = 0;

    while (load_without_memory(n)) n += n < 20 ? 1 : 7;
    assert_true(n > 20);
}

/* Lets the n-th allocation fail while records are replayed. Returns whether there was one. */
static bool replay_without_memory(int64_t n)
{
    const course *p = &courses[1];
    bool failed;
    rig r;

    start(&r, p);
    step_to(&r, p, 1, 8);
    r.lazy_back = true;
    assert_int_equal(worker_goes_back(&r, 7), RIG_NO_ANSWER);
    rig_apply(&r, rig_answer_order(&r));
    rig_work(&r);
    assert_null(the_job(&r));
    failed = apply_without_memory(&r, rig_answer_order(&r), n);
    r.lazy_back = false;
    if (r.ordered != NULL) rig_go_back_ordered(&r);
    rig_sleep(&r, 1.1);
    for (int i = 0; i < 4; i++) rig_work(&r); /* each order is answered after one */
    assert_int_equal(pd_steps_least(&the_job(&r)->steps), 7);
    course_join(&r, p);
    step_to(&r, p, 8, 12);
    rig_free(&r);
    return failed;
}

/* If it took steps before, a restart would repeat those that the job took earlier, and other shards others. */
TEST(a_job_is_loaded_when_the_disk_has_dropped_its_log)
{
    for (int crashes = 0; crashes <= 1; crashes++) {
        const course *p = &courses[1];
        pd_store_config config = durable_config();
        rig r;

        start(&r, p);
        step_to(&r, p, 1, 15);
        r.wal_error = "sync: Input/output error";
        assert_int_equal(worker_goes_back(&r, 14), PD_OK);
        for (int i = 0; i < 4; i++) {
            assert_null(the_job(&r));
            rig_sleep(&r, 1.1);
            rig_work(&r);
        }
        r.wal_error = NULL;
        if (crashes) rig_crash(&r, &config);
        if (crashes) assert_int_equal(pd_steps_least(&the_job(&r)->steps), 15);
        rig_sleep(&r, 1.1);
        for (int i = 0; i < 4; i++) rig_work(&r);
        assert_int_equal(pd_steps_least(&the_job(&r)->steps), crashes ? 15 : 14);
        course_join(&r, p);
        step_to(&r, p, crashes ? 16 : 15, COURSE_STEPS);
        compare_with_undisturbed(&r, p);
        rig_free(&r);
    }
}

TEST(records_are_replayed_when_there_is_memory)
{
    int64_t n = 0;

    while (replay_without_memory(n)) n += n < 20 ? 1 : 7;
    assert_true(n > 20);
}
