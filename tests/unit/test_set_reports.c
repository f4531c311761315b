/* Tests what is said, in the log and to workers, of steps in which not all ranks count. */
#include "test.h"
#include "fragment.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 4, CONN = 10, N = 100 };

static void start(rig *r, const char *options, const char *rule)
{
    static const int64_t sizes[] = { N, N, N };
    pd_store_config config = rig_config();

    rig_new(r, &config);
    r->job = rig_start(r, "job", WORLD, CONN, sizes, 3, options, rule);
    rig_work(r);
}

static void push(rig *r, uint32_t rank, uint64_t step)
{
    float g[N] = { 1 };

    for (uint32_t param = 0; param < 3; param++)
        assert_int_equal(rig_push(r, r->job, rank, CONN + rank, step, param, g, N), PD_OK);
    rig_work(r);
}

static void end_connection(rig *r, pd_request_kind how, uint32_t rank)
{
    pd_request *request = pd_request_new(how, rig_ticket(r, CONN + rank));

    request->job = r->job;
    request->rank = rank;
    rig_apply(r, request);
    rig_work(r);
}

static void check_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", text, part);
}

TEST(an_overdue_step_is_named_once_and_not_by_its_parameters)
{
    rig r;

    start(&r, "rounds=quorum quorum=3 step_timeout=10s", "* sgd lr=1");
    end_connection(&r, PD_REQ_LOST, 3);
    push(&r, 0, 1);
    rig_sleep(&r, 11);
    assert_int_equal(r.timed_out, 1);
    assert_int_equal(r.timed_out_step, 1);
    check_says(r.timeout.text, "step 1 has waited for 11 s for 2 more of a quorum of 3 workers: rank 3 (");
    check_says(r.timeout.text, "lost 11 s ago), rank 1 (");
    assert_null(strstr(r.timeout.text, "parameter"));
    rig_free(&r);
}

TEST(an_overdue_step_that_needs_all_says_how_many_are_missing)
{
    rig r;

    start(&r, "rounds=quorum quorum=all staleness=1 step_timeout=10s", "* sgd lr=1");
    push(&r, 0, 1);
    push(&r, 1, 1);
    rig_sleep(&r, 11);
    check_says(r.timeout.text, "step 1 has waited for 11 s for 2 more of 4 workers: rank 2 (");
    rig_free(&r);
}

TEST(an_overdue_step_below_min_workers_says_how_many_members_are_missing)
{
    rig r;

    start(&r, "rounds=quorum quorum=1 min_workers=2 max_workers=4 step_timeout=10s", "* sgd lr=1");
    for (uint32_t rank = 1; rank < WORLD; rank++) pd_fragments_remove(&inside_job(r.store, r.job)->steps, rank, true);
    push(&r, 0, 1);
    rig_sleep(&r, 11);
    check_says(r.timeout.text, "for members: the job has 1, and needs 2 (min_workers)");
    rig_free(&r);
}

TEST(a_step_with_a_quorum_does_not_need_a_rank_that_has_left)
{
    rig r;

    start(&r, "rounds=quorum quorum=3 on_lost_worker=wait", "* sgd lr=1");
    end_connection(&r, PD_REQ_LEAVE, 3);
    push(&r, 0, 1);
    rig_sleep(&r, 5);
    assert_int_equal(r.timed_out, 0);
    end_connection(&r, PD_REQ_LEAVE, 2);
    rig_sleep(&r, 5);
    assert_true(r.timed_out > 0);
    check_says(r.timeout.text, "has left job job for good");
    rig_free(&r);
}

/* Takes `steps` steps with ranks 0 and 1. Rank 2 sends each of its pushes after the step was taken. */
static void take_steps_without_rank_2(rig *r, uint64_t from, uint64_t steps)
{
    for (uint64_t step = from; step < from + steps; step++) {
        push(r, 0, step);
        push(r, 1, step);
        push(r, 2, step);
    }
}

TEST(a_worker_that_is_always_late_is_told_so_after_100_steps_and_then_after_200)
{
    rig r;

    start(&r, "rounds=quorum quorum=2", "* sgd lr=0.01");
    take_steps_without_rank_2(&r, 1, 99);
    assert_int_equal(r.warnings, 0);
    take_steps_without_rank_2(&r, 100, 1);
    assert_int_equal(r.warnings, 1);
    check_says(r.warning, "rank 2: pushes, but has not counted in the last 100 steps, and in 0 % of all 100");
    take_steps_without_rank_2(&r, 101, 99);
    assert_int_equal(r.warnings, 1);
    take_steps_without_rank_2(&r, 200, 1);
    assert_int_equal(r.warnings, 2);
    rig_free(&r);
}

TEST(a_worker_that_pushes_nothing_is_not_called_late)
{
    rig r;

    start(&r, "rounds=quorum quorum=2", "* sgd lr=0.01");
    take_steps_without_rank_2(&r, 1, 100);
    assert_null(strstr(r.warning, "rank 3"));
    rig_free(&r);
}

static char warning[480];

static uint64_t warnings_at_the_start(const char *options, const char *rule)
{
    uint64_t warnings;
    rig r;

    start(&r, options, rule);
    warnings = r.warnings;
    snprintf(warning, sizeof warning, "%s", r.warning);
    rig_free(&r);
    return warnings;
}

TEST(nesterov_momentum_with_a_large_rate_and_a_small_quorum_is_warned_of)
{
    static const char diloco[] = "* sgd lr=0.7 momentum=0.9 nesterov=yes";

    assert_int_equal(warnings_at_the_start("rounds=async", diloco), 1);
    check_says(warning, "a step takes 1 contribution, so 4 workers take up to 4 times as many steps");
    check_says(warning, "sgd with Nesterov momentum and lr = 0.7 may diverge");
    assert_int_equal(warnings_at_the_start("rounds=quorum quorum=2", diloco), 1);
    assert_int_equal(warnings_at_the_start("rounds=async",
                                           "* sgd lr=linear_warmup(peak=0.7,warmup_steps=9) momentum=0.9 nesterov=yes"),
                     1);
}

TEST(other_optimizers_and_larger_quorums_are_not_warned_of)
{
    assert_int_equal(warnings_at_the_start("rounds=quorum quorum=3", "* sgd lr=0.7 momentum=0.9 nesterov=yes"), 0);
    assert_int_equal(warnings_at_the_start("rounds=async", "* sgd lr=0.07 momentum=0.9 nesterov=yes"), 0);
    assert_int_equal(warnings_at_the_start("rounds=async", "* sgd lr=0.7"), 0);
    assert_int_equal(warnings_at_the_start("rounds=async", "* delayed_nesterov lr=0.7 period=4"), 0);
    assert_int_equal(warnings_at_the_start(NULL, "* sgd lr=0.7 momentum=0.9 nesterov=yes"), 0);
}
