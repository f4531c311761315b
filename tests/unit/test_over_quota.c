/* Tests ranks that wait for ingest memory (the memory of received frames). The store keeps contributions that
 * arrived early and sums them later. If a connection waits for memory, the store must at once sum the contributions
 * that use this memory. */
#include "test.h"
#include "rig.h"

enum { CHUNK = 1024, FRAME = CHUNK * 4, FRAMES = 16 };
static const int64_t sizes[] = { 4 * CHUNK };

/* Sets up a store whose ingest budget has room for 16 frames. */
static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    config.chunk_elements = CHUNK;
    config.ingest_bytes = FRAMES * FRAME;
    rig_new(r, &config);
}

/* Starts a job of two ranks on connections conn and conn + 1. */
static uint32_t start(rig *r, const char *job, uint64_t conn)
{
    return rig_start(r, job, 2, conn, sizes, 1, NULL, NULL);
}

/* Pushes the first n chunks of the parameter from one rank. */
static void push(rig *r, uint32_t job, uint32_t rank, uint64_t conn, int64_t n)
{
    static float values[4 * CHUNK];

    rig_noise(rank, values, 4 * CHUNK);
    assert_int_equal(rig_push(r, job, rank, conn, 1, 0, values, n * CHUNK), PD_OK);
    rig_work(r);
}

/* Reports that the connection of a rank waits for memory: for the whole ingest budget if `budget` is set, otherwise
 * for the rank's own quota. */
static void note_stalled(rig *r, uint32_t job, uint32_t rank, uint64_t conn, bool budget)
{
    pd_request *request = pd_request_new(PD_REQ_STALLED, (pd_ticket){ conn, 0 });

    assert_non_null(request);
    request->job = job;
    request->rank = rank;
    request->u.stalled.budget = budget;
    assert_int_equal(rig_apply(r, request), PD_OK);
}

static void stall(rig *r, uint32_t job, uint32_t rank, uint64_t conn, bool budget)
{
    note_stalled(r, job, rank, conn, budget);
    rig_work(r);
}

/* Pushes a frame from rank 0, then makes `rank` wait for memory. Returns how many frames the store still holds. */
static int held_after_stall(rig *r, uint32_t rank, bool budget)
{
    uint32_t job = start(r, "j", 10);

    push(r, job, 0, 10, 1);
    stall(r, job, rank, 10 + rank, budget);
    return (int)r->buffers_out;
}

FIXTURE(rig, set_up, rig_free);

TEST(a_frame_is_held_while_nobody_waits_for_memory, rig *r)
{
    push(r, start(r, "j", 10), 0, 10, 1);
    assert_int_equal(r->buffers_out, 1);
}

HOLDS_FOR(rig *r, what_a_rank_holds_is_summed_when_its_connection_waits,
          assert_int_equal(held_after_stall(r, 0, false), 0));

HOLDS_FOR(rig *r, a_rank_that_waits_for_its_own_share_has_nothing_of_others_summed,
          assert_int_equal(held_after_stall(r, 1, false), 1));

HOLDS_FOR(rig *r, a_rank_that_waits_for_the_whole_budget_has_what_others_hold_summed,
          assert_int_equal(held_after_stall(r, 1, true), 0));

TEST(a_rank_that_waits_for_the_whole_budget_has_what_other_jobs_hold_summed, rig *r)
{
    uint32_t job = start(r, "j", 10), other = start(r, "k", 20);

    push(r, job, 0, 10, 1);
    stall(r, other, 1, 21, true);
    assert_int_equal(r->buffers_out, 0);
}

/* The frame is scanned first, and held after that. */
TEST(what_a_rank_will_hold_is_summed_when_its_connection_waits, rig *r)
{
    static float values[CHUNK];
    uint32_t job = rig_start(r, "j", 2, 10, sizes, 1, "nonfinite=reject", NULL);

    assert_int_equal(rig_push(r, job, 0, 10, 1, 0, values, CHUNK), PD_OK);
    note_stalled(r, job, 0, 10, false);
    assert_int_equal(r->buffers_out, 1);
    rig_work(r);
    assert_int_equal(r->buffers_out, 0);
}

TEST(an_operator_who_waits_for_the_whole_budget_has_what_ranks_hold_summed, rig *r)
{
    push(r, start(r, "j", 10), 0, 10, 1);
    stall(r, 0, 0, 99, true);
    assert_int_equal(r->buffers_out, 0);
}

TEST(frames_are_held_again_when_the_wait_is_over, rig *r)
{
    uint32_t job = start(r, "j", 10), other = start(r, "k", 20);

    push(r, job, 0, 10, 1);
    stall(r, job, 0, 10, true);
    assert_int_equal(r->buffers_out, 0);
    push(r, other, 0, 20, 1);
    assert_int_equal(r->buffers_out, 1);
}

TEST(a_connection_that_has_lost_its_rank_waits_for_nothing, rig *r)
{
    uint32_t job = start(r, "j", 10);

    push(r, job, 0, 10, 1);
    stall(r, job, 0, 99, true);
    assert_int_equal(r->buffers_out, 1);
}

TEST(a_wait_of_a_job_that_has_gone_is_nobodys, rig *r)
{
    uint64_t answered;

    push(r, start(r, "j", 10), 0, 10, 1);
    answered = r->answered;
    stall(r, 77, 0, 10, true);
    assert_true(r->answered == answered);
}

/* Rank 0 holds three of 16 frames. This is within its quota while job j alone has declared, with two ranks. It is
 * over its quota once job k has also declared, with four ranks. */
TEST(a_rank_is_over_its_quota_when_another_job_has_declared, rig *r)
{
    static const char *const names[] = { "p" };
    static const pd_shape shapes[] = { { 1, { CHUNK } } };

    push(r, start(r, "j", 10), 0, 10, 3);
    assert_int_equal(r->buffers_out, 3);
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_int_equal(rig_hello(r, "k", rank, 4, 20 + rank, 20 + rank, NULL, "* sgd lr=1"), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, 20 + rank, names, shapes, NULL, 1, PD_F32), PD_OK);
    }
    rig_work(r);
    assert_int_equal(r->buffers_out, 0);
}
