/* Tests requests that wait for a rank which has left for good: they fail at once, with an error that names the rank,
 * and a process that takes the rank lets the job go on. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

enum { SIZE = 100, CONN = 10, NEW = 30, WORLD = 3 };
static const int64_t sizes[] = { SIZE, SIZE };

static int push(rig *r, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param)
{
    float ones[SIZE];
    int rc;

    for (int i = 0; i < SIZE; i++) ones[i] = 1;
    rc = rig_push(r, r->job, rank, conn, step, param, ones, SIZE);
    rig_work(r);
    return rc;
}

static void push_all(rig *r, uint64_t step)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (uint32_t p = 0; p < 2; p++) assert_int_equal(push(r, rank, CONN + rank, step, p), PD_OK);
    assert_int_equal(rig_versions(r, r->job, 1)->step, step);
}

static int ask(rig *r, pd_request_kind kind, uint32_t rank, uint64_t sequence)
{
    pd_request *request = pd_request_new(kind, rig_ticket(r, CONN + rank));

    assert_non_null(request);
    request->job = r->job;
    request->rank = rank;
    if (kind == PD_REQ_BARRIER) request->u.barrier.sequence = sequence;
    return rig_apply(r, request);
}

/* Lets the deadlines that are due have their effect. Looks for ranks that have left are a moment apart. */
static void tick(rig *r)
{
    rig_sleep(r, 0.001);
}

static int set_up(void **state)
{
    rig *r;
    int rc = rig_set_up(state);

    r = *state;
    rig_start(r, "j", WORLD, CONN, sizes, 2, "step_timeout=1800s", NULL);
    push_all(r, 1);
    return rc;
}

EACH_TEST(set_up, rig_tear_down);

TEST(a_push_that_needs_a_rank_which_has_left_fails_at_once, rig *r)
{
    ask(r, PD_REQ_LEAVE, 0, 0);
    tick(r);
    assert_int_equal(r->timed_out, 0); /* nobody waits yet */
    push(r, 1, CONN + 1, 2, 0);
    tick(r);
    assert_int_equal(r->timed_out, 1);
    assert_int_equal(r->timed_out_step, 2);
    assert_int_equal(r->timeout.code, PD_FAILED_PRECONDITION);
    assert_string_equal(r->timeout.text,
                        "rank 0 (host:10) has left job j for good after step 1, and is still needed for step 2 of p0. "
                        "Likely causes: the ranks have different numbers of batches, or one has stopped early. Let all "
                        "take the same number of steps, or leave together. Contributions so far are kept");
    assert_int_equal(r->warnings, 1);
}

TEST(a_push_that_waits_when_a_rank_leaves_fails_at_once, rig *r)
{
    push(r, 1, CONN + 1, 2, 1);
    tick(r);
    assert_int_equal(r->timed_out, 0);
    ask(r, PD_REQ_LEAVE, 0, 0);
    tick(r);
    assert_int_equal(r->timed_out, 1);
}

TEST(a_round_that_the_rank_has_contributed_to_waits_for_the_others, rig *r)
{
    for (uint32_t p = 0; p < 2; p++) push(r, 0, CONN, 2, p);
    push(r, 1, CONN + 1, 2, 0);
    ask(r, PD_REQ_LEAVE, 0, 0);
    tick(r);
    rig_sleep(r, 100);
    assert_int_equal(r->timed_out, 0);
    push(r, 1, CONN + 1, 2, 1);
    for (uint32_t p = 0; p < 2; p++) push(r, 2, CONN + 2, 2, p);
    tick(r);
    assert_int_equal(r->timed_out, 0);
    assert_int_equal(rig_versions(r, r->job, 1)->step, 2);
}

TEST(who_asks_again_gets_the_same_answer_and_one_line_in_the_log, rig *r)
{
    ask(r, PD_REQ_LEAVE, 0, 0);
    for (uint64_t n = 1; n <= 5; n++) {
        push(r, 1, CONN + 1, 2, 0);
        tick(r);
        assert_int_equal(r->timed_out, n);
    }
    assert_int_equal(r->warnings, 1);
}

TEST(pulls_of_which_the_store_does_not_know_are_answered_within_a_second, rig *r)
{
    ask(r, PD_REQ_LEAVE, 0, 0);
    push(r, 1, CONN + 1, 2, 0);
    tick(r);
    for (int i = 2; i <= 4; i++) {
        rig_sleep(r, 1);
        assert_int_equal(r->timed_out, i);
    }
}

TEST(contributions_stand_when_a_process_takes_the_rank, rig *r)
{
    ask(r, PD_REQ_LEAVE, 0, 0);
    for (uint32_t rank = 1; rank < WORLD; rank++)
        for (uint32_t p = 0; p < 2; p++) push(r, rank, CONN + rank, 2, p);
    tick(r);
    assert_true(r->timed_out > 0);
    r->timed_out = 0;
    assert_int_equal(rig_hello(r, "j", 0, WORLD, NEW, NEW, "step_timeout=1800s", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, NEW, (const char *[]){ "p0", "p1" },
                                 (pd_shape[]){ { 1, { SIZE } }, { 1, { SIZE } } }, NULL, 2, PD_F32),
                     PD_OK);
    for (uint32_t p = 0; p < 2; p++) push(r, 0, NEW, 2, p);
    tick(r);
    assert_int_equal(rig_versions(r, r->job, 0)->step, 2);
    assert_int_equal(rig_versions(r, r->job, 1)->step, 2);
    assert_int_equal(r->timed_out, 0);
}

/* Rank 0 has left, and a new process takes rank 1. */
static void start_rank_1_again(rig *r)
{
    ask(r, PD_REQ_LEAVE, 0, 0);
    ask(r, PD_REQ_LOST, 1, 0);
    assert_int_equal(rig_hello(r, "j", 1, WORLD, NEW, NEW, "step_timeout=1800s", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 1, NEW, (const char *[]){ "p0", "p1" },
                                 (pd_shape[]){ { 1, { SIZE } }, { 1, { SIZE } } }, NULL, 2, PD_F32),
                     PD_OK);
    push(r, 1, NEW, 2, 0);
    tick(r);
}

TEST(where_the_launch_is_started_again_a_rank_that_has_left_is_waited_for, rig *r)
{
    start_rank_1_again(r);
    assert_int_equal(r->timed_out, 0);
}

TEST(a_process_of_an_unknown_run_does_not_wait_for_a_rank_that_has_left, rig *r)
{
    r->run = NULL;
    start_rank_1_again(r);
    assert_true(r->timed_out > 0);
}

TEST(a_barrier_that_needs_a_rank_which_has_left_fails_at_once, rig *r)
{
    uint64_t answered;

    ask(r, PD_REQ_BARRIER, 1, 1);
    answered = r->answered;
    ask(r, PD_REQ_LEAVE, 0, 0);
    tick(r);
    assert_int_equal(r->answered, answered + 2);
    assert_int_equal(r->error.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "and is still needed for a barrier."));
    ask(r, PD_REQ_BARRIER, 2, 1);
    tick(r);
    assert_int_equal(r->answered, answered + 3);
}

TEST(requests_that_come_together_ask_for_one_look, rig *r)
{
    push(r, 1, CONN + 1, 2, 0);
    ask(r, PD_REQ_LEAVE, 0, 0);
    tick(r);
    r->timed_out = 0;
    for (int i = 0; i < 100; i++) {
        push(r, 1, CONN + 1, 2, 0);
        if (pd_store_next_tick(r->store) <= r->now) rig_sleep(r, 0);
    }
    assert_in_range(r->timed_out, 0, 1);
    tick(r);
    assert_int_equal(r->timed_out, 1);
}

TEST(a_barrier_that_was_refused_is_passed_when_a_process_takes_the_rank, rig *r)
{
    ask(r, PD_REQ_BARRIER, 1, 1);
    ask(r, PD_REQ_LEAVE, 0, 0);
    tick(r);
    assert_int_equal(rig_hello(r, "j", 0, WORLD, NEW, CONN, "step_timeout=1800s", "* sgd lr=1"), PD_OK);
    for (uint32_t rank = 1; rank < WORLD; rank++) ask(r, PD_REQ_BARRIER, rank, 1);
    assert_int_equal(ask(r, PD_REQ_BARRIER, 0, 1), PD_OK);
    assert_int_equal(r->answer, PD_EFF_OK);
}

TEST(a_job_without_connected_workers_reports_nothing, rig *r)
{
    push(r, 1, CONN + 1, 2, 0);
    for (uint32_t rank = 1; rank < WORLD; rank++) ask(r, PD_REQ_LOST, rank, 0);
    ask(r, PD_REQ_LEAVE, 0, 0);
    rig_sleep(r, 10);
    assert_int_equal(r->timed_out, 0);
}

TEST(initial_weights_of_a_rank_that_has_left_are_missed_at_once, rig *r)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(r, "k", rank, 2, CONN + rank, CONN + rank, NULL, "* sgd lr=1"), PD_OK);
        if (rank == 0) {
            assert_int_equal(rig_declare(r, r->job, rank, CONN + rank, (const char *[]){ "w" },
                                         (pd_shape[]){ { 1, { SIZE } } }, NULL, 1, PD_F32),
                             PD_OK);
            ask(r, PD_REQ_LEAVE, 0, 0);
        }
    }
    tick(r);
    r->timed_out = 0;
    rig_declare(r, r->job, 1, CONN + 1, (const char *[]){ "w" }, (pd_shape[]){ { 1, { SIZE } } }, NULL, 1, PD_F32);
    tick(r);
    assert_true(r->timed_out > 0);
    assert_int_equal(r->timeout.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(
        r->timeout.text,
        "rank 0 (host:10) has left job k for good after step 0, and is still needed for the initial weights of w."));
}
