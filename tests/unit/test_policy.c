/* Tests a round policy other than sync: it closes at the deadline with the contributions that arrived, from at least
 * two ranks. */
#include "test.h"
#include "partial_policy.h"
#include "rig.h"
#include "store_inside.h"
#include "round.h"

enum { WORLD = 3, CONN = 10, N = 100 };

static void start(rig *r, const char *options)
{
    static const int64_t sizes[] = { N };
    pd_store_config config = rig_config();

    rig_new(r, &config);
    r->job = rig_start(r, "job", WORLD, CONN, sizes, 1, options, "* sgd lr=1");
    rig_work(r);
    inside_job(r->store, r->job)->steps.params[0].round.policy = &partial_policy;
}

static int push(rig *r, uint32_t rank, uint64_t step)
{
    float g[N];

    for (int i = 0; i < N; i++) g[i] = (float)(rank + 1);
    return rig_push(r, r->job, rank, CONN + rank, step, 0, g, N);
}

static double moved(rig *r, double before)
{
    return before - (double)rig_weights(r, r->job, 0)[0];
}

static void check_that_two_are_enough(const char *options, double expected)
{
    double before;
    rig r;

    start(&r, options);
    before = (double)rig_weights(&r, r.job, 0)[0];
    assert_int_equal(push(&r, 0, 1), PD_OK);
    assert_int_equal(push(&r, 2, 1), PD_OK);
    rig_work(&r);
    assert_int_equal(rig_versions(&r, r.job, 0)->step,
                     0); /* two contributions are there, but the deadline is not over */
    rig_sleep(&r, 2);
    rig_work(&r);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 1);
    assert_int_equal(r.timed_out, 0);
    assert_true(moved(&r, before) > expected - 1e-3 && moved(&r, before) < expected + 1e-3);
    rig_free(&r);
}

TEST(a_round_that_may_close_at_its_deadline_does)
{
    check_that_two_are_enough("step_timeout=1s", 2); /* the weights move by 2, the mean of ranks 0 and 2 */
    check_that_two_are_enough("step_timeout=1s aggregate=median", 2);
    check_that_two_are_enough("step_timeout=1s aggregate=sum", 4);
    check_that_two_are_enough("step_timeout=1s aggregate=adasum_vdot", 2); /* the contributions are parallel vectors,
                                                                            * so the result is about their mean */
}

TEST(one_rank_alone_is_reported_as_ever)
{
    rig r;

    start(&r, "step_timeout=1s");
    assert_int_equal(push(&r, 1, 1), PD_OK);
    rig_sleep(&r, 2);
    assert_int_equal(r.timed_out, 1);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 0);
    rig_free(&r);
}

TEST(the_closed_round_names_the_ranks_that_count)
{
    const pd_param *param;
    pd_counted *counted;
    rig r;

    start(&r, "step_timeout=1s");
    param = &inside_job(r.store, r.job)->steps.params[0];
    push(&r, 0, 1);
    push(&r, 2, 1);
    assert_int_equal(pd_round_counted(&param->round, &counted), PD_OK);
    assert_true(pd_counted_has(counted, 0));
    assert_false(pd_counted_has(counted, 1));
    assert_true(pd_counted_has(counted, 2));
    pd_counted_unref(counted);
    rig_free(&r);
}

TEST(a_late_push_changes_nothing)
{
    double before;
    rig r;

    start(&r, "step_timeout=1s");
    push(&r, 0, 1);
    push(&r, 2, 1);
    rig_sleep(&r, 2);
    rig_work(&r);
    before = (double)rig_weights(&r, r.job, 0)[0];
    assert_int_equal(push(&r, 1, 1), PD_OK);
    rig_work(&r);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 1);
    assert_true(moved(&r, before) == 0);
    for (uint32_t rank = 0; rank < WORLD; rank++) assert_int_equal(push(&r, rank, 2), PD_OK);
    rig_work(&r);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 2);
    rig_free(&r);
}
