/* Tests that a shard whose stream of steps has ended with an error of the disk keeps the records before the error:
 * other shards may have to go back to their steps. */
#include "test.h"
#include "checkpoint_policy.h"
#include "cluster.h"
#include "course.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"
#include "wal.h"

static const course logged = { .options = "checkpoint_every=4 checkpoint_keep=9 durability=log",
                               .rules = "* adamw lr=0.01" };

static pd_job *the_job(const rig *r)
{
    return inside_find(r->store, "job");
}

static void step_to(rig *r, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++) course_step_to(r, &logged, step, COURSE_WORLD * COURSE_PARAMS);
}

static void start(rig *r)
{
    pd_store_config config = durable_config();

    rig_new(r, &config);
    r->keeps_older = true;
    course_join(r, &logged);
    course_initialise(r, &logged);
}

/* Takes 9 steps, from step 7 on as one of two shards: checkpoints of earlier steps are of a job alone, which continues
 * without verdicts. The record of step 7 is not written, and a checkpoint of step 7 follows. */
static void set_up(rig *r)
{
    start(r);
    step_to(r, 1, 6);
    the_job(r)->steps.shards = 2;
    r->wal_error = "No space left on device";
    step_to(r, 7, 7);
    r->wal_error = NULL;
    step_to(r, 8, 9);
}

FIXTURE(rig, set_up, rig_free);

static int goes_back(rig *r, uint64_t step)
{
    return rig_go_back(r, NULL, 1, COURSE_CONN + 1, step, the_job(r)->life);
}

/* Tells the shard a step to which, as workers know, all shards can go back. */
static void tell_common(rig *r, uint64_t step)
{
    pd_checkpoint_policy *checkpointing = &the_job(r)->checkpointing;

    assert_true(pd_kept_steps_has(&checkpointing->kept, step));
    checkpointing->floored = checkpointing->common > 0;
    checkpointing->floor = checkpointing->common;
    checkpointing->common = step;
}

static void compare_with_undisturbed(rig *r)
{
    rig other;

    start(&other);
    step_to(&other, 1, COURSE_STEPS);
    course_compare(r, &other);
    rig_free(&other);
}

TEST(records_that_a_stream_has_left_stay_reachable, rig *r)
{
    uint64_t first, last;

    assert_non_null(strstr(r->warning, "continue once no shard of the cluster can have to go back before it"));
    assert_true(pd_kept_steps_has(&the_job(r)->checkpointing.kept, 7));
    assert_true(pd_checkpoint_policy_replays(the_job(r), &first, &last));
    assert_int_equal(first, 4);
    assert_int_equal(last, 6);
    assert_int_equal(goes_back(r, 6), PD_OK);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 6);
    course_join(r, &logged);
    step_to(r, 7, COURSE_STEPS);
    compare_with_undisturbed(r);
}

TEST(a_step_after_the_records_is_out_of_reach, rig *r)
{
    step_to(r, 10, 10);
    assert_int_equal(goes_back(r, 9), PD_NOT_FOUND);
    assert_int_equal(goes_back(r, 7), PD_OK);
}

TEST(steps_after_the_records_are_reported_as_durable_but_not_as_unbroken, rig *r)
{
    assert_int_equal(r->durable, 8);
    assert_int_equal(pd_checkpoint_policy_unbroken(the_job(r)), 8);
}

TEST(a_stream_that_is_whole_is_unbroken_from_its_first_checkpoint_on)
{
    rig r;

    start(&r);
    step_to(&r, 1, 6);
    assert_int_equal(r.durable, 6);
    assert_int_equal(pd_checkpoint_policy_unbroken(the_job(&r)), 4);
    rig_free(&r);
}

TEST(a_stream_begins_anew_once_no_shard_can_go_back_to_its_records, rig *r)
{
    tell_common(r, 4);
    step_to(r, 10, 10);
    assert_int_equal(the_job(r)->checkpointing.newest.step, 8);
    tell_common(r, 8);
    step_to(r, 11, 11);
    assert_in_range(the_job(r)->checkpointing.newest.step, 10, 11);
    assert_false(pd_wal_records_steps(&the_job(r)->steps));
    tell_common(r, the_job(r)->checkpointing.newest.step);
    step_to(r, 12, 13);
    assert_true(pd_wal_records_steps(&the_job(r)->steps));
    assert_int_equal(r->durable, 13);
    assert_int_equal(goes_back(r, 13), PD_OK);
}

TEST(while_a_stream_waits_it_causes_no_further_checkpoints, rig *r)
{
    uint64_t kept = r->kept;

    tell_common(r, 4);
    rig_work(r);
    tell_common(r, 8);
    for (int i = 0; i < 3; i++) rig_work(r);
    step_to(r, 10, 11);
    assert_int_equal(r->kept, kept + 1);
}

TEST(a_restarted_shard_still_has_the_records)
{
    pd_store_config config = cluster_config();
    cluster c;
    rig *r;

    config.keeps = true;
    cluster_start(&c, 2, 1, &config, cluster_small_model(),
                  "nonfinite_scope=job durability=log checkpoint_every=4 checkpoint_keep=9 split_bytes=512KiB",
                  "* sgd lr=0.05");
    r = c.shard[1];
    r->keeps_older = true;
    for (uint64_t step = 1; step <= 8; step++) {
        r->wal_error = step == 7 ? "No space left on device" : NULL;
        cluster_step(&c, step, 0, -1);
    }
    rig_crash(r, &config);
    r->shard = 1;
    r->shards = 2;
    r->cluster = c.number;
    assert_int_equal(cluster_join(&c, r, 0), PD_OK);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 8);
    assert_false(pd_wal_records_steps(&the_job(r)->steps));
    assert_int_equal(rig_go_back(r, NULL, 0, CLUSTER_CONN, 5, the_job(r)->life), PD_OK);
    assert_int_equal(pd_steps_least(&the_job(r)->steps), 5);
    cluster_free(&c);
}

TEST(a_daemon_alone_begins_its_stream_anew_at_once)
{
    rig r;

    start(&r);
    step_to(&r, 1, 6);
    r.wal_error = "No space left on device";
    step_to(&r, 7, 7);
    r.wal_error = NULL;
    step_to(&r, 8, 9);
    assert_int_equal(r.durable, 9);
    assert_true(pd_wal_records_steps(&the_job(&r)->steps));
    rig_free(&r);
}

/* Takes 6 steps, changes the state of the job, and takes 2 more. */
static void change_after_step_6(rig *r, uint32_t shards)
{
    start(r);
    step_to(r, 1, 6);
    the_job(r)->steps.shards = shards;
    pd_checkpoint_policy_now(the_job(r));
    the_job(r)->checkpointing.changes++;
    the_job(r)->checkpointing.steps.moved = "a test has changed the weights";
    step_to(r, 7, 8);
}

/* Another shard can have been killed before it had the change, and have come back to step 5. */
TEST(records_from_before_a_change_of_the_state_stay_reachable)
{
    uint64_t first, last;
    rig r;

    change_after_step_6(&r, 2);
    assert_true(pd_checkpoint_policy_replays(the_job(&r), &first, &last));
    assert_int_equal(first, 4);
    assert_int_equal(last, 6);
    assert_int_equal(goes_back(&r, 5), PD_OK);
    assert_int_equal(pd_steps_least(&the_job(&r)->steps), 5);
    course_join(&r, &logged);
    step_to(&r, 6, COURSE_STEPS);
    compare_with_undisturbed(&r);
    rig_free(&r);
}

TEST(a_daemon_alone_replaces_records_from_before_a_change_of_the_state)
{
    uint64_t first, last;
    rig r;

    change_after_step_6(&r, 1);
    step_to(&r, 9, 9);
    assert_true(pd_wal_records_steps(&the_job(&r)->steps));
    assert_true(pd_checkpoint_policy_replays(the_job(&r), &first, &last));
    assert_true(first > 6);
    assert_int_equal(r.durable, 9);
    rig_free(&r);
}
