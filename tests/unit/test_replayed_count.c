/* Tests that the store counts contributions to steps that a restart has lost. */
#include "test.h"
#include "durable_job.h"

enum { CHECKPOINT = 2, NEW_CONN = 78 }; /* NEW_CONN: connection of a new process at rank 1 */

static const char options[] = "checkpoint_every=2";

static uint64_t replayed(rig *r)
{
    return rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].replayed;
}

static uint64_t contributions(rig *r)
{
    return rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].contributions;
}

/* Makes a store that has gone back to step 2 of a job whose workers have seen step `seen` closed. The workers join. */
static void come_back(rig *r, uint64_t seen)
{
    pd_store_config config = durable_config();
    rig before;

    durable_job_start(&before, &config, options);
    for (uint64_t step = 1; step <= CHECKPOINT; step++) durable_job_step(&before, step);
    assert_int_equal(before.durable, CHECKPOINT);
    assert_int_equal(replayed(&before), 0);
    rig_new(r, &config);
    assert_int_equal(rig_restore(r, &before), PD_OK);
    rig_free(&before);
    r->seen = seen;
    durable_job_join(r, options);
}

TEST(contributions_to_steps_that_were_lost_are_counted)
{
    uint64_t before;
    rig r;

    come_back(&r, CHECKPOINT + 2);
    before = contributions(&r);
    durable_job_step(&r, CHECKPOINT + 1);
    assert_int_equal(replayed(&r), contributions(&r) - before);
    durable_job_step(&r, CHECKPOINT + 2);
    assert_int_equal(replayed(&r), contributions(&r) - before);
    durable_job_step(&r, CHECKPOINT + 3); /* nobody has seen this one before */
    assert_int_equal(contributions(&r) - before, 3 * (replayed(&r) / 2));
    rig_free(&r);
}

TEST(a_restart_that_loses_no_step_counts_nothing)
{
    rig r;

    come_back(&r, CHECKPOINT);
    durable_job_step(&r, CHECKPOINT + 1);
    assert_int_equal(replayed(&r), 0);
    rig_free(&r);
}

/* Rank 1 is a new process, which has seen nothing. */
TEST(each_rank_counts_by_what_its_process_has_seen)
{
    static const char *const names[] = { "p0", "p1" };
    const pd_shape shapes[] = { { 1, { durable_job_sizes[0] } }, { 1, { durable_job_sizes[1] } } };
    float values[256] = { 0 };
    uint64_t both;
    rig r;

    come_back(&r, CHECKPOINT + 1);
    durable_job_push(&r, 0, 0, CHECKPOINT + 1);
    both = replayed(&r);
    assert_true(both > 0);
    r.seen = 0;
    assert_int_equal(rig_hello(&r, "job", 1, 2, NEW_CONN, NEW_CONN, options, "* adam"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 1, NEW_CONN, names, shapes, NULL, 2, PD_F32), PD_OK);
    assert_int_equal(rig_push(&r, r.job, 1, NEW_CONN, CHECKPOINT + 1, 0, values, durable_job_sizes[0]), PD_OK);
    assert_int_equal(replayed(&r), both);
    rig_free(&r);
}

/* A process that rewinds knows of fewer steps when it connects again. */
TEST(a_process_that_connects_again_has_seen_as_much_as_before)
{
    rig r;

    come_back(&r, CHECKPOINT + 1);
    r.seen = CHECKPOINT;
    durable_job_join(&r, options);
    durable_job_step(&r, CHECKPOINT + 1);
    assert_true(replayed(&r) > 0);
    rig_free(&r);
}

TEST(duplicates_are_not_counted)
{
    uint64_t once;
    rig r;

    come_back(&r, CHECKPOINT + 1);
    durable_job_push(&r, 0, 0, CHECKPOINT + 1);
    once = replayed(&r);
    durable_job_push(&r, 0, 0, CHECKPOINT + 1);
    assert_int_equal(replayed(&r), once);
    rig_free(&r);
}
