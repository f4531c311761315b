/* Tests ends of steps (close_step) in jobs where not every rank counts in every step. */
#include <math.h>

#include "test.h"
#include "fragment.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 3, CONN = 10, N = 100 };

/* Begins a job of WORLD ranks and two parameters, whose steps take two ranks. */
static void start(rig *r, const char *options)
{
    static const int64_t sizes[] = { N, N };
    pd_store_config config = rig_config();

    rig_new(r, &config);
    r->job = rig_start(r, "job", WORLD, CONN, sizes, 2, options, "* sgd lr=1");
    rig_work(r);
}

/* Lets a rank push parameter 0 for the step, and end the step. */
static void push_and_end(rig *r, uint32_t rank, uint64_t step)
{
    rig_frame *end;
    float g[N];

    for (int i = 0; i < N; i++) g[i] = (float)(rank + 1);
    assert_int_equal(rig_push(r, r->job, rank, CONN + rank, step, 0, g, N), PD_OK);
    end = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
    rig_last(end);
    assert_int_equal(rig_send(r, end), PD_OK);
    rig_work(r);
}

static const pd_fragment_rank *rank_of(const rig *r, uint32_t rank)
{
    return &inside_job(r->store, r->job)->steps.fragments[0].ranks[rank];
}

static bool is_whole(const rig *r, uint32_t rank)
{
    return pd_fragment_is_whole(&inside_job(r->store, r->job)->steps.fragments[0], rank);
}

static uint64_t step_of(rig *r)
{
    return rig_versions(r, r->job, 0)->step;
}

/* A worker sends its steps again, while others have gone on without it: the end of step 1 comes when four steps are
 * closed, and its push for step 3 is young enough for the next one. */
TEST(the_end_of_a_step_that_comes_late_does_not_end_the_steps_after_it)
{
    rig r;

    start(&r, "rounds=quorum quorum=2 staleness=2");
    for (uint64_t step = 1; step <= 4; step++)
        for (uint32_t rank = 0; rank < 2; rank++) push_and_end(&r, rank, step);
    assert_int_equal(step_of(&r), 4);
    push_and_end(&r, 2, 1);
    assert_int_equal(r.filed, PD_FILED_LATE);
    push_and_end(&r, 2, 3);
    assert_true(is_whole(&r, 2));
    push_and_end(&r, 0, 5);
    assert_int_equal(step_of(&r), 5);
    assert_int_equal(rank_of(&r, 2)->saved.counted, 5);
    rig_free(&r);
}

TEST(an_end_that_comes_again_changes_nothing)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    push_and_end(&r, 1, 1);
    push_and_end(&r, 1, 1);
    assert_true(is_whole(&r, 1));
    push_and_end(&r, 0, 1);
    push_and_end(&r, 1, 1);
    assert_int_equal(r.filed, PD_FILED_COUNTED);
    assert_int_equal(step_of(&r), 1);
    assert_int_equal(rank_of(&r, 1)->step, 0);
    rig_free(&r);
}

/* The operator removes a rank whose push is whole, but whose step is not taken. Its process comes back, and is at the
 * same step. */
TEST(what_a_removed_rank_had_ended_is_ended_again_when_it_comes_back)
{
    static const char *const names[] = { "p0", "p1" };
    const pd_shape shapes[] = { { 1, { N } }, { 1, { N } } };
    rig r;

    start(&r, "rounds=quorum quorum=2 on_lost_worker=shrink min_workers=1");
    push_and_end(&r, 2, 1);
    pd_fragments_remove(&inside_job(r.store, r.job)->steps, 2, false);
    assert_false(is_whole(&r, 2));
    assert_int_equal(rig_hello(&r, "job", 2, WORLD, CONN + 2, CONN + 2,
                               "rounds=quorum quorum=2 on_lost_worker=shrink min_workers=1", "* sgd lr=1"),
                     PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 2, CONN + 2, names, shapes, NULL, 2, PD_F32), PD_OK);
    push_and_end(&r, 2, 1);
    assert_true(is_whole(&r, 2));
    rig_free(&r);
}

/* Lets a rank end the step, without a gradient. Returns the code of the answer. */
static int end_only(rig *r, uint32_t rank, uint64_t step)
{
    rig_frame *end = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
    int rc;

    rig_last(end);
    rc = rig_send(r, end);
    rig_work(r);
    return rc;
}

TEST(a_refused_push_of_a_step_that_is_taken_without_the_rank_does_not_hold_up_its_next_step)
{
    const float spoiled[N] = { NAN };
    rig r;

    start(&r, "rounds=quorum quorum=2 staleness=1 nonfinite=reject");
    assert_int_equal(rig_push(&r, r.job, 2, CONN + 2, 1, 0, spoiled, N), PD_OK);
    rig_work(&r); /* looks at the values */
    assert_int_equal(r.error.code, PD_INVALID_ARGUMENT);
    push_and_end(&r, 0, 1);
    push_and_end(&r, 1, 1);
    assert_int_equal(step_of(&r), 1);
    assert_int_equal(end_only(&r, 2, 2), PD_OK);
    assert_true(is_whole(&r, 2));
    rig_free(&r);
}

/* Nothing of the push was filed, since both chunks were refused. */
TEST(a_push_that_was_refused_whole_does_not_hold_up_the_ends_of_later_steps)
{
    float spoiled[N];
    rig r;

    for (int i = 0; i < N; i++) spoiled[i] = NAN;
    start(&r, "rounds=quorum quorum=2 staleness=1 nonfinite=reject");
    assert_int_equal(rig_push(&r, r.job, 2, CONN + 2, 1, 0, spoiled, N), PD_OK);
    rig_work(&r);
    assert_int_equal(r.error.code, PD_INVALID_ARGUMENT);
    push_and_end(&r, 0, 1);
    push_and_end(&r, 1, 1);
    end_only(&r, 2, 1); /* the push could still count, with age 1 */
    assert_int_equal(r.error.code, PD_FAILED_PRECONDITION);
    assert_int_equal(rig_push(&r, r.job, 2, CONN + 2, 2, 1, spoiled, N), PD_OK);
    end_only(&r, 2, 2); /* parameter 0 is left out, and nothing of it was refused in step 2 */
    assert_non_null(strstr(r.error.text, "p1: rank 2 cannot end step 2"));
    end_only(&r, 2, 3);
    assert_int_equal(rank_of(&r, 2)->step, 0); /* step 2 is not taken yet */
    push_and_end(&r, 0, 2);
    push_and_end(&r, 1, 2);
    end_only(&r, 2, 3);
    assert_true(is_whole(&r, 2));
    rig_free(&r);
}

/* The worker has sent the end of step 2 before it could read that its push for the step came too early. */
TEST(a_push_that_came_too_early_is_no_silence_when_its_step_is_collected)
{
    float g[N] = { 1 };
    rig r;

    start(&r, "rounds=quorum quorum=2 staleness=1");
    assert_int_equal(rig_push(&r, r.job, 2, CONN + 2, 2, 0, g, N), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r.error.text, "this push is for step 2, expected step 1"));
    push_and_end(&r, 0, 1);
    push_and_end(&r, 1, 1);
    assert_int_equal(step_of(&r), 1);
    assert_int_equal(end_only(&r, 2, 2), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r.error.text, "p0: rank 2 cannot end step 2: its push of this parameter was refused"));
    assert_int_equal(rank_of(&r, 2)->step, 0);
    push_and_end(&r, 2, 2);
    assert_true(is_whole(&r, 2));
    rig_free(&r);
}

TEST(a_process_is_not_held_up_by_a_push_of_an_earlier_one_that_came_too_early)
{
    static const char *const names[] = { "p0", "p1" };
    const pd_shape shapes[] = { { 1, { N } }, { 1, { N } } };
    const char *options = "rounds=quorum quorum=2 staleness=1";
    float g[N] = { 1 };
    rig_frame *end;
    rig r;

    start(&r, options);
    assert_int_equal(rig_push(&r, r.job, 2, CONN + 2, 2, 0, g, N), PD_FAILED_PRECONDITION);
    push_and_end(&r, 0, 1);
    push_and_end(&r, 1, 1);
    assert_int_equal(rig_hello(&r, "job", 2, WORLD, 20, 20, options, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 2, 20, names, shapes, NULL, 2, PD_F32), PD_OK);
    end = rig_frame_new(&r, PD_REQ_PUSH, r.job, 2, 20, 2);
    rig_last(end);
    assert_int_equal(rig_send(&r, end), PD_OK);
    assert_true(is_whole(&r, 2));
    rig_free(&r);
}

static void leave(rig *r, uint32_t rank)
{
    assert_int_equal(rig_ask_as(r, PD_REQ_LEAVE, rank, CONN + rank, 0), PD_OK);
    rig_work(r);
}

TEST(a_quorum_without_a_gradient_waits_for_a_rank_that_has_one)
{
    rig r;

    start(&r, "rounds=async damping=none");
    assert_int_equal(end_only(&r, 2, 1), PD_OK);
    assert_int_equal(step_of(&r), 0);
    push_and_end(&r, 0, 1);
    assert_int_equal(step_of(&r), 1);
    assert_int_equal(rank_of(&r, 2)->saved.counted, 1);
    rig_free(&r);
}

TEST(a_quorum_without_a_gradient_waits_no_longer_than_reconnect_grace)
{
    rig r;

    start(&r, "rounds=async reconnect_grace=3s");
    assert_int_equal(end_only(&r, 2, 1), PD_OK);
    rig_sleep(&r, 2);
    rig_work(&r);
    assert_int_equal(step_of(&r), 0);
    rig_sleep(&r, 2);
    rig_work(&r);
    assert_int_equal(step_of(&r), 1);
    rig_free(&r);
}

TEST(a_rank_without_a_gradient_waits_for_nobody_who_is_gone)
{
    rig r;

    start(&r, "rounds=async reconnect_grace=1h on_lost_worker=wait");
    leave(&r, 0);
    assert_int_equal(end_only(&r, 2, 1), PD_OK);
    assert_int_equal(step_of(&r), 0);
    leave(&r, 1);
    assert_int_equal(step_of(&r), 1);
    rig_free(&r);
}

/* Rank 2 has come to the end of its data, and ends steps alone. The others have given nothing that came too late. */
TEST(steps_without_a_gradient_make_nobody_late)
{
    rig r;

    start(&r, "rounds=async reconnect_grace=1ms");
    for (uint64_t step = 1; step <= 120; step++) {
        end_only(&r, 2, step);
        rig_sleep(&r, 0.002);
        rig_work(&r);
    }
    assert_int_equal(step_of(&r), 120);
    push_and_end(&r, 0, 1);
    assert_int_equal(r.warnings, 0);
    assert_int_equal(rank_of(&r, 0)->counts.missed, 0);
    rig_free(&r);
}
