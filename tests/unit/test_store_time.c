/* Tests the effects of time in the store: overdue rounds, turns among jobs, draining. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

enum { N = 4 };
static const int64_t sizes[N] = { 8, 8, 8, 8 };

static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    config.batch_ns = 1; /* so short that a batch is one chunk or one step */
    rig_new(r, &config);
}

static int push(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param)
{
    float g[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };

    return rig_push(r, job, rank, conn, step, param, g, 8);
}

static void lose(rig *r, uint32_t job, uint32_t rank, uint64_t conn)
{
    pd_request *request = pd_request_new(PD_REQ_LOST, (pd_ticket){ conn, 0 });

    request->job = job;
    request->rank = rank;
    strcpy(request->u.lost.reason, "silent for 30 s");
    rig_apply(r, request);
}

FIXTURE(rig, set_up, rig_free);

TEST(an_overdue_round_names_who_is_missing, rig *r)
{
    uint32_t job = rig_start(r, "a", 3, 10, sizes, N, "step_timeout=20", NULL);

    for (uint32_t p = 0; p < N; p++) push(r, job, 0, 10, 1, p);
    push(r, job, 1, 11, 1, 0);
    rig_work(r);
    rig_sleep(r, 6);
    lose(r, job, 2, 12);
    assert_true(pd_store_next_tick(r->store) == r->now + 14000000000);
    rig_sleep(r, 13.9);
    assert_int_equal(r->timed_out, 0);
    rig_sleep(r, 0.1);
    assert_int_equal(r->timed_out, 1);
    assert_int_equal(r->timed_out_step, 1);
    assert_int_equal(r->timeout.code, PD_DEADLINE_EXCEEDED);
    assert_string_equal(r->timeout.text,
                        "rank 2 (host:12, lost 14 s ago) has not contributed to step 1 of p0 (and 3 more parameters) "
                        "for 20 s; contributions so far are kept, push again to keep waiting");
    assert_non_null(strstr(r->warning, "rank 2"));
}

TEST(ranks_that_have_gone_are_named_before_those_that_are_connected, rig *r)
{
    uint32_t job = rig_start(r, "a", 3, 10, sizes, N, "step_timeout=20", NULL);

    push(r, job, 0, 10, 1, 0);
    lose(r, job, 2, 12);
    rig_sleep(r, 20);
    assert_ptr_equal(strstr(r->timeout.text, "rank 2 (host:12, lost 20 s ago), rank 1 (host:11, connected) have not"),
                     r->timeout.text);
}

/* The round of p1 waits for rank 2, which is lost. This round is reported first, although the round of p0 is older.
 * Rank 1 may be unable to send p0 while its contribution to p1 takes up memory. */
TEST(a_round_that_misses_a_rank_that_has_gone_is_reported_before_an_older_one, rig *r)
{
    uint32_t job = rig_start(r, "a", 3, 10, sizes, N, "step_timeout=20", NULL);

    push(r, job, 0, 10, 1, 0);
    push(r, job, 2, 12, 1, 0);
    push(r, job, 0, 10, 1, 1);
    push(r, job, 1, 11, 1, 1);
    lose(r, job, 2, 12);
    rig_sleep(r, 20);
    assert_ptr_equal(
        strstr(r->timeout.text, "rank 2 (host:12, lost 20 s ago) has not contributed to step 1 of p1 (and 1 more"),
        r->timeout.text);
}

TEST(several_missing_ranks_are_all_named, rig *r)
{
    uint32_t job = rig_start(r, "a", 3, 10, sizes, 1, "step_timeout=1", NULL);

    push(r, job, 1, 11, 1, 0);
    rig_sleep(r, 1);
    assert_non_null(strstr(
        r->timeout.text,
        "rank 0 (host:10, connected), rank 2 (host:12, connected) have not contributed to step 1 of p0 for 1 s"));
}

TEST(it_is_reported_once_a_period_and_logged_once, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, N, "step_timeout=10", NULL);
    uint64_t warnings = r->warnings;

    for (uint32_t p = 0; p < N; p++) {
        push(r, job, 0, 10, 1, p);
        rig_sleep(r, 1);
    }
    for (int second = 4; second < 40; second++) rig_sleep(r, 1);
    assert_int_equal(r->timed_out, 4); /* reported after 10, 20, 30 and 40 seconds */
    assert_int_equal(r->warnings, warnings + 1);
}

TEST(reports_never_follow_each_other_at_once, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, NULL, NULL);
    pd_job *of = inside_job(r->store, job);

    of->steps.values.at[PD_JOB_KEY_STEP_TIMEOUT] = 1; /* 1 ns, which Hello would refuse */
    push(r, job, 0, 10, 1, 0);
    rig_sleep(r, 1);
    assert_int_equal(r->timed_out, 1);
    assert_true(pd_store_next_tick(r->store) == r->now + PD_STEP_TIMEOUT_LEAST_NS);
    of->steps.values.at[PD_JOB_KEY_STEP_TIMEOUT] = 1000000000;
}

/* Starts a job of 2 ranks with `n` parameters of one element. */
static uint32_t start_many(rig *r, uint32_t n, const char *options)
{
    static char text[4096][8];
    static const char *names[4096];
    static pd_shape shapes[4096];
    const float one[] = { 1 };

    for (uint32_t p = 0; p < n; p++) {
        snprintf(text[p], sizeof text[p], "p%u", p);
        names[p] = text[p];
        shapes[p] = (pd_shape){ 1, { 1 } };
    }
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(r, "many", rank, 2, 10 + rank, 10 + rank, options, "* sgd lr=1"), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, names, shapes, NULL, n, PD_F32), PD_OK);
    }
    for (uint32_t p = 0; p < n; p++) assert_int_equal(rig_init(r, r->job, 10, p, one, 1), PD_OK);
    rig_work(r);
    return r->job;
}

TEST(reports_take_at_most_a_hundredth_of_the_time, rig *r)
{
    const float one[] = { 1 };
    uint32_t job = start_many(r, 4000, "step_timeout=10ms");

    assert_int_equal(rig_push(r, job, 0, 10, 1, 0, one, 1), PD_OK);
    rig_sleep(r, 0.011);
    assert_int_equal(r->timed_out, 1);
    for (int ms = 0; ms < 1700; ms++) rig_sleep(r, 0.001);
    assert_in_range(r->timed_out, 90, 110); /* a report of 4000 parameters takes about 0.17 ms */
}

TEST(a_report_of_missing_initial_weights_takes_no_more, rig *r)
{
    static const char *names[] = { "w" };
    pd_job *of;

    assert_int_equal(rig_hello(r, "a", 0, 1, 10, 10, "step_timeout=10ms", "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 10, names, (pd_shape[]){ { 1, { 4 } } }, NULL, 1, PD_F32), PD_OK);
    of = inside_job(r->store, r->job);
    of->steps.values.at[PD_JOB_KEY_STEP_TIMEOUT] = 1; /* 1 ns, which Hello would refuse */
    for (int ms = 0; ms < 1000; ms++) rig_sleep(r, 0.001);
    assert_in_range(r->timed_out, 90, 101);
    of->steps.values.at[PD_JOB_KEY_STEP_TIMEOUT] = 1000000000;
}

TEST(what_came_before_the_deadline_stands, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, "step_timeout=10", NULL);

    push(r, job, 0, 10, 1, 0);
    rig_sleep(r, 100);
    assert_int_equal(r->timed_out, 1);
    assert_int_equal(push(r, job, 0, 10, 1, 0), PD_OK);
    assert_int_equal(push(r, job, 1, 11, 1, 0), PD_OK);
    rig_work(r);
    assert_int_equal(r->versions[job][0].step, 1);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].contributions, 2);
    assert_true(pd_store_next_tick(r->store) == UINT64_MAX);
}

TEST(the_deadline_counts_from_the_first_contribution, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, 1, "step_timeout=10", NULL);

    assert_true(pd_store_next_tick(r->store) == UINT64_MAX);
    rig_sleep(r, 1000);
    push(r, job, 0, 10, 1, 0);
    assert_true(pd_store_next_tick(r->store) == r->now + 10000000000);
}

TEST(jobs_take_turns, rig *r)
{
    uint32_t large = rig_start(r, "large", 1, 10, sizes, N, NULL, NULL),
             small = rig_start(r, "small", 1, 20, sizes, 1, NULL, NULL);
    uint64_t before = r->batches;

    for (uint32_t p = 0; p < N; p++) push(r, large, 0, 10, 1, p);
    push(r, small, 0, 20, 1, 0);
    rig_work(r);
    assert_int_equal(r->batches - before, N + 1);
    assert_int_equal(r->batch_jobs[before], large);
    assert_int_equal(r->batch_jobs[before + 1], small); /* the small job is second, not behind the large one */
}

TEST(a_job_that_becomes_due_is_not_behind_one_that_always_is, rig *r)
{
    uint32_t large = rig_start(r, "large", 1, 10, sizes, N, NULL, NULL),
             small = rig_start(r, "small", 1, 20, sizes, 1, NULL, NULL);

    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t p = 0; p < N; p++) push(r, large, 0, 10, step, p);
        assert_true(pd_store_work(r->store, r->now)); /* a batch of the large job, which has more to do */
        push(r, small, 0, 20, step, 0);
        assert_true(pd_store_work(r->store, r->now));
        rig_absorb(r);
        assert_int_equal(r->versions[small][0].step, step);
        rig_work(r);
    }
}

TEST(a_batch_is_bounded, rig *r)
{
    uint32_t job = rig_start(r, "a", 1, 10, sizes, N, NULL, NULL);

    for (uint32_t p = 0; p < N; p++) push(r, job, 0, 10, 1, p);
    assert_true(pd_store_work(r->store, r->now));
    rig_absorb(r);
    assert_int_equal(r->versions[job][0].step, 1);
    assert_int_equal(r->versions[job][1].step, 0);
    rig_work(r);
    assert_int_equal(r->versions[job][N - 1].step, 1);
}

static void drain(rig *r, double seconds)
{
    pd_request *request = pd_request_new(PD_REQ_DRAIN, rig_ticket(r, 1));

    request->u.drain.deadline_ns = (uint64_t)(seconds * 1e9);
    rig_apply(r, request);
}

TEST(draining_finishes_what_is_under_way, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, N, NULL, NULL);
    uint64_t answered;

    push(r, job, 0, 10, 1, 0);
    answered = r->answered;
    drain(r, 30);
    assert_int_equal(r->answered, answered);
    assert_true(rig_ask(r, PD_INFO_STATUS, NULL)->draining);
    assert_int_equal(push(r, job, 0, 10, 1, 1), PD_OK); /* accepted: the step has begun, and this is another
                                                         * parameter of it */
    assert_int_equal(push(r, job, 1, 11, 1, 0), PD_OK);
    rig_work(r);
    assert_int_equal(push(r, job, 0, 10, 2, 0), PD_UNAVAILABLE);
    assert_non_null(strstr(r->error.text, "draining"));
    assert_int_equal(rig_hello(r, "b", 0, 1, 1, 20, NULL, NULL), PD_UNAVAILABLE);
    answered = r->answered;
    assert_int_equal(push(r, job, 1, 11, 1, 1), PD_OK);
    assert_int_equal(r->answered, answered);
    rig_work(r);
    assert_int_equal(r->answered, answered + 1);
    assert_int_equal(r->answer, PD_EFF_OK);
    assert_int_equal(r->versions[job][1].step, 1);
}

TEST(draining_lets_the_other_parameters_come_as_far, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, N, NULL, NULL);

    push(r, job, 0, 10, 1, 0);
    push(r, job, 1, 11, 1, 0);
    rig_work(r);
    drain(r, 30);
    assert_int_equal(push(r, job, 0, 10, 1, 1), PD_OK);
    assert_int_equal(push(r, job, 1, 11, 1, 1), PD_OK);
    assert_int_equal(push(r, job, 0, 10, 2, 0), PD_UNAVAILABLE);
    rig_work(r);
    assert_int_equal(r->versions[job][1].step, 1);
}

TEST(draining_ends_at_its_deadline, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, N, NULL, NULL);
    uint64_t answered;

    push(r, job, 0, 10, 1, 0);
    answered = r->answered;
    drain(r, 5);
    assert_true(pd_store_next_tick(r->store) == r->now + 5000000000);
    rig_sleep(r, 4.9);
    assert_int_equal(r->answered, answered);
    rig_sleep(r, 0.1);
    assert_int_equal(r->answered, answered + 1);
}

TEST(a_deadline_with_a_round_open_is_told_with_what_it_misses, rig *r)
{
    uint32_t job = rig_start(r, "a", 3, 10, sizes, N, NULL, NULL);

    push(r, job, 1, 11, 1, 2);
    drain(r, 5);
    rig_sleep(r, 5);
    assert_int_equal(r->error.code, PD_DEADLINE_EXCEEDED);
    assert_string_equal(r->error.text, "not drained: job a: step 1 of p2 still misses rank 0,2; contributions so far "
                                       "are kept, drain again to keep waiting");
}

TEST(a_held_step_names_the_parameter_that_it_waits_for, rig *r)
{
    uint32_t job = rig_start(r, "a", 1, 10, sizes, 2, "nonfinite_scope=job", NULL);

    push(r, job, 0, 10, 1, 0);
    rig_work(r);
    drain(r, 5);
    rig_sleep(r, 5);
    assert_int_equal(r->error.code, PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(r->error.text, "job a: step 1 of p1 still misses every rank;"));
}

TEST(a_job_without_connected_workers_is_not_waited_for, rig *r)
{
    uint32_t job = rig_start(r, "a", 2, 10, sizes, N, NULL, NULL);
    uint64_t answered;

    push(r, job, 0, 10, 1, 0);
    lose(r, job, 1, 11);
    answered = r->answered;
    drain(r, 1000);
    assert_int_equal(r->answered, answered); /* the next process of rank 1 may still complete the round of rank 0 */
    lose(r, job, 0, 10);
    assert_int_equal(r->answered, answered + 1);
    assert_int_equal(r->answer, PD_EFF_OK);
}

TEST(a_round_that_everybody_has_contributed_to_is_finished_although_they_are_gone, rig *r)
{
    uint32_t job = rig_start(r, "a", 1, 10, sizes, N, NULL, NULL);
    uint64_t answered;

    for (uint32_t p = 0; p < N; p++) push(r, job, 0, 10, 1, p);
    lose(r, job, 0, 10);
    answered = r->answered;
    drain(r, 1000);
    assert_int_equal(r->answered, answered);
    rig_work(r);
    assert_int_equal(r->answered, answered + 1);
    for (uint32_t p = 0; p < N; p++) assert_int_equal(r->versions[job][p].step, 1);
}

TEST(draining_an_idle_store_is_answered_at_once, rig *r)
{
    uint64_t answered = r->answered;

    rig_start(r, "a", 2, 10, sizes, N, NULL, NULL);
    answered = r->answered;
    drain(r, 5);
    assert_int_equal(r->answered, answered + 1);
    assert_int_equal(r->answer, PD_EFF_OK);
}
