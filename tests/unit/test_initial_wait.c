/* Tests initial weights that do not arrive. The error that workers get when they pull names the missing ranks. It
 * comes one step_timeout after the last weights arrived. */
#include "test.h"
#include "rig.h"

enum { SIZE = 200, WORLD = 2 };
static const char *const names[] = { "p0", "p1" };
static const pd_shape shapes[] = { { 1, { SIZE } }, { 1, { 5 } } };
static const int64_t sizes[] = { SIZE, 5 };

/* Joins rank `rank` on connection 10 + rank and declares both parameters. The tests set a step_timeout of 2 s. */
static void join(rig *r, uint32_t rank, const char *options)
{
    assert_int_equal(rig_hello(r, "j", rank, WORLD, 10 + rank, 10 + rank, options, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, names, shapes, NULL, 2, PD_F32), PD_OK);
}

static void initialise(rig *r, uint32_t param)
{
    float values[SIZE] = { 0 };

    assert_int_equal(rig_init(r, r->job, 10, param, values, sizes[param]), PD_OK);
}

static void assert_told(rig *r, uint64_t times, const char *part)
{
    assert_int_equal(r->timed_out, times);
    assert_int_equal(r->timeout.code, PD_DEADLINE_EXCEEDED);
    assert_int_equal(r->timed_out_step, 0);
    if (strstr(r->timeout.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", r->timeout.text, part);
}

FIXTURE(rig, rig_make, rig_free);

TEST(a_rank_0_that_never_came_is_named, rig *r)
{
    join(r, 1, "step_timeout=2s");
    rig_sleep(r, 1.9);
    assert_int_equal(r->timed_out, 0);
    rig_sleep(r, 0.2);
    assert_told(r, 1, "rank 0 (never came): no initial weights received of p0 (and of 1 more parameter) for 2 s");
}

TEST(a_rank_0_that_died_before_it_sent_its_weights_is_named, rig *r)
{
    pd_request *lost = pd_request_new(PD_REQ_LOST, (pd_ticket){ 10, 0 });

    join(r, 0, "step_timeout=2s");
    join(r, 1, "step_timeout=2s");
    lost->job = r->job;
    rig_apply(r, lost);
    rig_sleep(r, 2.1);
    assert_told(r, 1, "rank 0 (host:10, lost 2 s ago)");
}

TEST(the_deadline_is_reported_again_after_another_step_timeout, rig *r)
{
    join(r, 1, "step_timeout=2s");
    rig_sleep(r, 2.1);
    rig_sleep(r, 1.8);
    assert_int_equal(r->timed_out, 1);
    rig_sleep(r, 0.3);
    assert_told(r, 2, "rank 0 (never came)");
}

TEST(weights_that_come_put_the_deadline_off, rig *r)
{
    join(r, 0, "step_timeout=2s");
    rig_sleep(r, 1.5);
    initialise(r, 0);
    rig_sleep(r, 1.5);
    assert_int_equal(r->timed_out, 0);
    rig_sleep(r, 0.6);
    assert_told(r, 1, "rank 0 (host:10, connected): no initial weights received of p1 for 2 s");
}

TEST(nobody_is_told_once_all_weights_are_there, rig *r)
{
    join(r, 0, "step_timeout=2s");
    initialise(r, 0);
    initialise(r, 1);
    for (int i = 0; i < 5; i++) rig_sleep(r, 2.1);
    assert_int_equal(r->timed_out, 0);
}

/* A worker that declares long after the weights arrived does not wait for weights, so it gets no timeout. */
TEST(a_worker_that_comes_after_the_weights_is_told_nothing, rig *r)
{
    join(r, 0, "step_timeout=2s");
    initialise(r, 0);
    initialise(r, 1);
    rig_sleep(r, 2.1);
    join(r, 1, "step_timeout=2s");
    rig_sleep(r, 2.1);
    assert_int_equal(r->timed_out, 0);
}

/* The mean of initial weights is computed in a round, whose deadline begins with its first contribution. Without a
 * contribution there is no timeout. */
TEST(a_mean_of_which_nothing_has_come_is_not_overdue, rig *r)
{
    join(r, 1, "step_timeout=2s initial_weights=mean");
    rig_sleep(r, 10);
    assert_int_equal(r->timed_out, 0);
}

TEST(a_mean_is_overdue_once_and_not_twice, rig *r)
{
    rig_frame *frame;
    float values[64] = { 0 };

    join(r, 1, "step_timeout=2s initial_weights=mean");
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 1, 11, 0);
    rig_piece(frame, 0, PD_F32, 0, 64, values);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
    rig_sleep(r, 2.1);
    assert_int_equal(r->timed_out, 1);
    assert_non_null(strstr(r->timeout.text, "rank 0 (never came)"));
    assert_non_null(strstr(r->timeout.text, "contributed"));
}

TEST(a_rank_that_never_came_is_named_though_its_range_is_not_known, rig *r)
{
    rig_frame *frame;
    float values[64] = { 0 };
    static const pd_shape shape = { 1, { 128 } };

    assert_int_equal(rig_hello(r, "j", 0, WORLD, 10, 10, "step_timeout=2s", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare_range(r, 0, 10, "p", &shape, (rig_range){ 0, 64 }), PD_OK);
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 0, 10, 0);
    rig_piece(frame, 0, PD_F32, 0, 64, values);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
    rig_sleep(r, 2.1);
    assert_told(r, 1, "rank 1 (never came)");
}
