/* Tests which shares of the data the store leases to ranks for their pushes, and when it counts them as used. */
#include "test.h"
#include "fragment.h"
#include "rig.h"
#include "shares.h"
#include "store_inside.h"

enum { N = 50, CONN = 10, PARAMS = 2 };
static const char *const names[PARAMS] = { "a", "b" };
static const pd_shape shapes[PARAMS] = { { 1, { N } }, { 1, { N } } };
static const float gradient[N];
/* Of the job that begin() has begun. groups: ranks 0 and 1 are a group, and so on. */
static const char *options;
static uint32_t world;
static bool groups;

static void join(rig *r, uint32_t rank)
{
    r->group = groups ? 1 + rank / 2 : 0;
    if (rig_hello(r, "job", rank, world, CONN + rank, CONN + rank, options, "* sgd lr=1") != PD_OK ||
        rig_declare(r, r->job, rank, CONN + rank, names, shapes, NULL, PARAMS, PD_F32) != PD_OK)
        fail_msg("rank %u: %s", rank, r->error.text);
}

/* Begins a job of n workers, each of which wants one share: rank 0 has share 0, rank 1 has share 1, and so on. */
static void begin_with(rig *r, uint32_t n, const char *with)
{
    rig_make(r);
    options = with;
    world = n;
    r->wants = 1;
    for (uint32_t rank = 0; rank < n; rank++) join(r, rank);
    for (uint32_t p = 0; p < PARAMS; p++) assert_int_equal(rig_init(r, r->job, CONN, p, gradient, N), PD_OK);
    rig_work(r);
}

static void begin(rig *r, const char *with)
{
    groups = false;
    begin_with(r, 2, with);
}

/* Expects that all that is leased to the rank are these `count` shares. */
static void expect_leased(const rig *r, uint32_t rank, uint64_t first, uint64_t count)
{
    pd_rank_leases leases;
    uint64_t n = 0;

    pd_shares_fill(inside_job(r->store, r->job)->steps.shares, rank, &leases);
    for (uint32_t i = 0; i < leases.n; i++) n += leases.ranges[i].count;
    assert_int_equal(n, count);
    assert_int_equal(leases.ranges[0].first, first);
}

/* Pushes one parameter. `carried`: its gradient has the data of the last push, which was late. */
static void push_one(rig *r, uint32_t rank, uint64_t step, uint32_t param, bool carried)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);

    rig_piece(frame, param, PD_F32, 0, N, gradient);
    if (carried) rig_carried(frame);
    (void)rig_send(r, frame);
    rig_work(r);
}

static void push(rig *r, uint32_t rank, uint64_t step, bool carried)
{
    for (uint32_t p = 0; p < PARAMS; p++) push_one(r, rank, step, p, carried);
}

/* Ends the rank's step, with a frame that says nothing of shares. */
static void end_step(rig *r, uint32_t rank, uint64_t step)
{
    uint32_t wants = r->wants;
    rig_frame *frame;

    r->wants = 0;
    frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
    r->wants = wants;
    rig_last(frame);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

TEST(a_rank_that_ends_its_step_gets_as_many_shares_as_its_push_wanted)
{
    rig r;

    begin(&r, "rounds=quorum quorum=1");
    r.wants = 3;
    push_one(&r, 0, 1, 0, false);
    end_step(&r, 0, 1);
    expect_leased(&r, 0, 2, 3);
    rig_free(&r);
}

TEST(a_rank_that_only_ends_a_step_gets_as_many_shares_as_it_wanted_before)
{
    rig r;

    begin(&r, "rounds=quorum quorum=1");
    end_step(&r, 0, 1);
    push(&r, 1, 1, false);
    expect_leased(&r, 0, 2, 1);
    rig_free(&r);
}

TEST(a_late_rank_that_carries_its_data_gets_one_lease_more)
{
    rig r;

    begin(&r, "rounds=quorum quorum=1");
    push_one(&r, 1, 1, 0, true);
    push(&r, 0, 1, false);
    expect_leased(&r, 1, 1, 1 + 1);
    rig_free(&r);
}

TEST(a_kept_push_has_no_data_of_a_lease_that_is_given_after_it)
{
    rig r;

    begin(&r, "rounds=quorum quorum=1 staleness=1");
    push_one(&r, 1, 1, 0, true);
    push(&r, 0, 1, false);
    expect_leased(&r, 1, 1, 1);
    rig_free(&r);
}

/* Its first push has nothing of a lease that it has not been told of, whose shares would be lost when it counts. */
TEST(a_process_gets_no_lease_more_for_a_push_of_the_one_before_it)
{
    rig r;

    begin(&r, "rounds=quorum quorum=1");
    push_one(&r, 1, 1, 0, true);
    assert_int_equal(rig_hello(&r, "job", 1, world, 20, 20, options, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 1, 20, names, shapes, NULL, PARAMS, PD_F32), PD_OK);
    push(&r, 0, 1, false);
    expect_leased(&r, 1, 1, 1);
    rig_free(&r);
}

/* Lets rank 1 begin to push for step 1, and say of which share. */
static void push_of(rig *r, uint64_t share)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, 1, CONN + 1, 1);

    rig_piece(frame, 0, PD_F32, 0, N, gradient);
    rig_share(frame, share);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

TEST(what_a_removed_rank_had_begun_to_push_does_not_count_when_it_comes_back)
{
    rig r;

    begin(&r, "rounds=async staleness=none on_lost_worker=shrink reconnect_grace=1s min_workers=1");
    push_of(&r, 1);
    (void)rig_ask_as(&r, PD_REQ_LOST, 1, CONN + 1, 0);
    rig_sleep(&r, 2);
    push(&r, 0, 1, false);
    expect_leased(&r, 0, 1, 1);
    join(&r, 1);
    push_of(&r, 1);
    assert_int_equal(r.filed, PD_FILED_LATE);
    push(&r, 1, 2, false);
    expect_leased(&r, 1, 3, 1);
    rig_free(&r);
}

TEST(a_rank_that_comes_again_before_its_last_step_is_taken_keeps_its_leases)
{
    rig r;

    groups = true;
    begin_with(&r, 4, "rounds=quorum quorum=2 on_lost_worker=shrink reconnect_grace=1s min_workers=1");
    for (uint32_t rank = 0; rank < 3; rank++) push(&r, rank, 1, false);
    (void)rig_ask_as(&r, PD_REQ_LOST, 1, CONN + 1, 0);
    rig_sleep(&r, 2);
    join(&r, 0);
    push(&r, 3, 1, false);
    expect_leased(&r, 0, 4, 1);
    rig_free(&r);
}
