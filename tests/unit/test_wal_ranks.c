/* Tests that the WAL of a job has which ranks have left for good: a Leave is answered when the disk has it, and the
 * rank has left after a crash, too. */
#include "test.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { NEW = 40, NEWEST = 41 }; /* connections and nonces of later processes of rank 1 */
static const char *const options = "checkpoint_every=2";

/* Makes a job of two ranks with a durable checkpoint of step 2. */
static int set_up(void **state)
{
    pd_store_config config = durable_config();
    rig *r = malloc(sizeof *r);

    assert_non_null(r);
    durable_job_start(r, &config, options);
    durable_job_step(r, 1);
    durable_job_step(r, 2);
    assert_int_equal(r->durable, 2);
    *state = r;
    return 0;
}

EACH_TEST(set_up, rig_tear_down);

static void leave(rig *r, uint32_t rank)
{
    assert_int_equal(rig_ask_as(r, PD_REQ_LEAVE, rank, DURABLE_CONN + rank, 0), PD_OK);
}

static int come(rig *r, uint32_t rank, uint64_t nonce)
{
    return rig_hello(r, "job", rank, 2, nonce, nonce, options, "* adam");
}

static void crash(rig *r)
{
    pd_store_config config = durable_config();

    rig_crash(r, &config);
    r->job = r->job != 0 ? r->job : 1;
}

static pd_rank_state state_of(const rig *r, uint32_t rank)
{
    return inside_job(r->store, 1)->ranks[rank].state;
}

TEST(a_leave_is_answered_when_the_disk_has_it, rig *r)
{
    uint64_t before;

    r->lazy_wal = true;
    before = r->answered;
    leave(r, 1);
    assert_int_equal(r->answered, before);
    assert_int_equal(state_of(r, 1), PD_RANK_LEFT);
    rig_write_record(r);
    assert_int_equal(r->answered, before + 1);
    assert_int_equal(r->answer, PD_EFF_OK);
}

TEST(a_leave_is_answered_although_the_disk_fails, rig *r)
{
    uint64_t before = r->answered;

    r->wal_error = "the disk is full";
    leave(r, 1);
    assert_int_equal(r->answered, before + 1);
    assert_int_equal(r->answer, PD_EFF_OK);
}

TEST(a_leave_is_answered_although_the_disk_is_silent, rig *r)
{
    uint64_t before = r->answered;

    r->lazy_wal = true;
    leave(r, 1);
    rig_sleep(r, 9);
    assert_int_equal(r->answered, before);
    rig_sleep(r, 2);
    assert_int_equal(r->answered, before + 1);
    assert_int_equal(r->answer, PD_EFF_OK);
    rig_write_record(r);
}

TEST(a_rank_that_has_left_has_left_after_a_crash, rig *r)
{
    leave(r, 1);
    crash(r);
    assert_int_equal(state_of(r, 0), PD_RANK_LOST);
    assert_int_equal(state_of(r, 1), PD_RANK_LEFT);
    crash(r); /* the record is still there */
    assert_int_equal(state_of(r, 1), PD_RANK_LEFT);
}

TEST(a_job_that_all_have_left_is_over_after_a_crash, rig *r)
{
    r->lazy_disk = true; /* the checkpoint that says so is not written */
    leave(r, 0);
    leave(r, 1);
    r->lazy_disk = false;
    crash(r);
    assert_true(pd_job_is_over(inside_job(r->store, 1)));
}

TEST(a_rank_that_has_come_back_is_expected_after_a_crash, rig *r)
{
    leave(r, 1);
    assert_int_equal(come(r, 1, NEW), PD_OK);
    rig_work(r);
    crash(r);
    assert_int_equal(state_of(r, 1), PD_RANK_LOST);
    assert_int_equal(inside_job(r->store, 1)->left, 0);
}

/* Rank 0 has not got the answer to its barrier before the crash. Rank 1 was past it, and does not come again. */
TEST(a_barrier_that_ranks_have_passed_before_they_left_is_passed, rig *r)
{
    uint64_t answered;

    assert_int_equal(rig_ask_as(r, PD_REQ_BARRIER, 1, DURABLE_CONN + 1, 1), PD_OK);
    assert_int_equal(rig_ask_as(r, PD_REQ_BARRIER, 0, DURABLE_CONN, 1), PD_OK);
    leave(r, 1);
    crash(r);
    assert_int_equal(come(r, 0, DURABLE_CONN), PD_OK);
    answered = r->answered;
    assert_int_equal(rig_ask_as(r, PD_REQ_BARRIER, 0, DURABLE_CONN, 1), PD_OK);
    assert_int_equal(r->answered, answered + 1);
}

/* The state of step 4 has that rank 1 came back, which no record has: the disk failed then. The record of its Leave is
 * still there after the crash. */
TEST(a_leave_before_the_state_was_copied_is_not_repeated, rig *r)
{
    leave(r, 1);
    r->wal_error = "the disk is full";
    assert_int_equal(come(r, 1, DURABLE_CONN + 1), PD_OK);
    rig_work(r);
    r->wal_error = NULL;
    r->lazy_wal = true;
    durable_job_join(r, options);
    durable_job_step(r, 3);
    durable_job_step(r, 4);
    assert_int_equal(r->durable, 4);
    assert_true(r->n_decisions > 0);
    crash(r);
    assert_int_equal(state_of(r, 1), PD_RANK_LOST);
}

/* ---- processes that the checkpoint does not have ---- */

static int come_back(rig *r, uint64_t nonce)
{
    int rc;

    r->rejoins = true;
    r->means = inside_job(r->store, 1)->saved.creator;
    rc = come(r, 1, nonce);
    r->rejoins = false;
    return rc;
}

/* The process NEW took the rank after the checkpoint, and still runs when NEWEST has replaced it. */
TEST(a_process_that_had_the_rank_before_a_crash_does_not_take_it_from_its_successor, rig *r)
{
    assert_int_equal(come(r, 1, NEW), PD_OK);
    crash(r);
    assert_int_equal(come(r, 1, NEWEST), PD_OK);
    assert_int_equal(come_back(r, NEW), PD_ABORTED);
    assert_non_null(strstr(r->error.text, "was taken over by another process"));
    assert_int_equal(come_back(r, NEWEST), PD_OK);
}

TEST(a_process_that_had_the_rank_before_a_crash_comes_back_to_it, rig *r)
{
    assert_int_equal(come(r, 1, NEW), PD_OK);
    crash(r);
    assert_int_equal(come_back(r, NEW), PD_OK);
    assert_int_equal(come(r, 1, NEWEST), PD_OK);
    assert_int_equal(come_back(r, NEW), PD_ABORTED);
}
