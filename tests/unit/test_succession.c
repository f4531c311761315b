/* Tests what becomes of a job when a Hello comes for its name: every row of the table of PROTOCOL.md, section 7. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

enum { SIZE = 10, OLD = 10, NEW = 20 };
static const int64_t sizes[] = { SIZE };

static void end_rank(rig *r, pd_request_kind kind, uint32_t rank)
{
    pd_request *request = pd_request_new(kind, rig_ticket(r, OLD + rank));

    assert_non_null(request);
    request->job = r->job;
    request->rank = rank;
    (void)rig_apply(r, request);
}

static void leave(rig *r, uint32_t rank)
{
    end_rank(r, PD_REQ_LEAVE, rank);
}

static void lose(rig *r, uint32_t rank)
{
    end_rank(r, PD_REQ_LOST, rank);
}

static void step(rig *r, uint32_t world)
{
    float ones[SIZE];

    for (int i = 0; i < SIZE; i++) ones[i] = 1;
    for (uint32_t rank = 0; rank < world; rank++)
        assert_int_equal(rig_push(r, r->job, rank, OLD + rank, 1, 0, ones, SIZE), PD_OK);
    rig_work(r);
    assert_int_equal(rig_versions(r, r->job, 0)->step, 1);
}

/* Starts job "j" of two workers of the run `run` (NULL: not known), and takes one step. */
static void start(rig *r, const char *run)
{
    r->run = run;
    rig_start(r, "j", 2, OLD, sizes, 1, NULL, NULL);
    step(r, 2);
}

/* A new process comes for a rank. */
static int hello(rig *r, uint32_t rank, const char *run)
{
    r->run = run;
    return rig_hello(r, "j", rank, 2, NEW + rank, NEW + rank, NULL, "* sgd lr=1");
}

static void expect(const rig *r, int code, const char *part)
{
    assert_int_equal(r->error.code, code);
    if (strstr(r->error.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", r->error.text, part);
}

static void expect_continued(const rig *r, uint32_t job)
{
    assert_int_equal(r->answer, PD_EFF_HELLO);
    assert_false(r->created);
    assert_int_equal(r->job, job);
}

static void expect_anew(const rig *r, uint32_t job)
{
    assert_int_equal(r->answer, PD_EFF_HELLO);
    assert_true(r->created);
    assert_int_not_equal(r->job, job);
    assert_int_equal(r->gone_job, job);
}

FIXTURE(rig, rig_make, rig_free);

TEST(who_resumes_takes_a_rank_over_from_a_process_that_lives, rig *r)
{
    start(r, "monday");
    r->intent = PD_INTENT_RESUME;
    assert_int_equal(hello(r, 0, "tuesday"), PD_OK);
    expect_continued(r, r->job);
    assert_int_equal(r->fenced_conn, OLD);
}

TEST(who_resumes_continues_a_job_that_is_over, rig *r)
{
    uint32_t job;

    start(r, "monday");
    job = r->job;
    leave(r, 0);
    leave(r, 1);
    r->intent = PD_INTENT_RESUME;
    assert_int_equal(hello(r, 1, "tuesday"), PD_OK);
    expect_continued(r, job);
}

TEST(a_job_that_was_resumed_belongs_to_the_run_that_did_so, rig *r)
{
    uint32_t job;

    start(r, "monday");
    job = r->job;
    r->intent = PD_INTENT_RESUME;
    assert_int_equal(hello(r, 0, "tuesday"), PD_OK);
    r->intent = PD_INTENT_BY_RUN;
    assert_int_equal(hello(r, 1, "monday"), PD_ALREADY_EXISTS);
    assert_int_equal(hello(r, 1, "tuesday"), PD_OK);
    expect_continued(r, job);
}

TEST(a_newcomer_begins_a_job_that_is_over_anew, rig *r)
{
    static const char *const runs[] = { "tuesday", "monday", NULL };

    for (size_t i = 0; i < 3; i++) {
        uint32_t job;
        start(r, i == 2 ? NULL : "monday");
        job = r->job;
        leave(r, 1);
        leave(r, 0);
        assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].state, "over");
        assert_int_equal(hello(r, 1, runs[i]), PD_OK);
        expect_anew(r, job);
        assert_int_equal(hello(r, 0, runs[i]), PD_OK);
        expect_continued(r, r->job);
        rig_sleep(r, 0);
        for (uint32_t rank = 0; rank < 2; rank++) {
            pd_request *lost = pd_request_new(PD_REQ_LOST, rig_ticket(r, NEW + rank));
            lost->job = r->job;
            lost->rank = rank;
            (void)rig_apply(r, lost);
        }
        rig_sleep(r, 1); /* nothing was declared, so the new job ends */
    }
}

TEST(a_hello_that_describes_no_valid_job_leaves_a_job_that_is_over_alone, rig *r)
{
    start(r, NULL);
    leave(r, 0);
    leave(r, 1);
    assert_int_equal(rig_hello(r, "j", 0, 2, NEW, NEW, "colour=red", NULL), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n_jobs, 1);
    assert_int_equal(r->gone, 0);
}

TEST(who_only_joins_waits_until_rank_0_begins_a_job_that_is_over_anew, rig *r)
{
    start(r, NULL);
    leave(r, 0);
    leave(r, 1);
    r->joins = true;
    assert_int_equal(hello(r, 1, NULL), PD_UNAVAILABLE);
    expect(r, PD_UNAVAILABLE, "rank 1 of job j waits for rank 0, which creates the job");
    r->joins = false;
    assert_int_equal(hello(r, 0, NULL), PD_OK);
    assert_true(r->created);
    r->joins = true;
    assert_int_equal(hello(r, 1, NULL), PD_OK);
    assert_false(r->created);
}

TEST(a_process_that_rejoins_does_not_begin_a_job_that_is_over_anew, rig *r)
{
    start(r, NULL);
    leave(r, 0);
    leave(r, 1);
    r->rejoins = true;
    assert_int_equal(hello(r, 1, NULL), PD_NOT_FOUND);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n_jobs, 1);
}

TEST(a_process_whose_leave_was_not_answered_comes_back_to_its_job, rig *r)
{
    uint32_t job;

    start(r, NULL);
    job = r->job;
    leave(r, 1);
    leave(r, 0);
    r->rejoins = true;
    r->means = r->creator;
    assert_int_equal(rig_hello(r, "j", 0, 2, OLD, 30, NULL, "* sgd lr=1"), PD_OK);
    expect_continued(r, job);
}

TEST(while_the_server_drains_a_job_that_is_over_stays, rig *r)
{
    start(r, NULL);
    leave(r, 0);
    leave(r, 1);
    assert_true(rig_drain(r, 99, 1));
    assert_int_equal(hello(r, 0, NULL), PD_UNAVAILABLE);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n_jobs, 1);
}

TEST(a_process_of_the_same_run_takes_a_rank_over_from_one_that_lives, rig *r)
{
    uint32_t job;

    start(r, "monday");
    job = r->job;
    assert_int_equal(hello(r, 0, "monday"), PD_OK);
    expect_continued(r, job);
    assert_int_equal(r->fenced_conn, OLD);
}

TEST(a_process_of_the_same_run_takes_a_rank_that_was_left, rig *r)
{
    uint32_t job;

    start(r, "monday");
    job = r->job;
    leave(r, 0);
    assert_int_equal(hello(r, 0, "monday"), PD_OK);
    expect_continued(r, job);
}

TEST(another_run_is_kept_out_of_a_job_in_training_and_hears_who_holds_it, rig *r)
{
    start(r, "monday");
    assert_int_equal(hello(r, 1, "tuesday"), PD_ALREADY_EXISTS);
    expect(r, PD_ALREADY_EXISTS, "job j is in training: rank 1 (host:11, connected) of another run holds it");
    expect(r, PD_ALREADY_EXISTS, "PARAMD_RESUME=1");
    lose(r, 1);
    assert_int_equal(hello(r, 1, "tuesday"), PD_ALREADY_EXISTS); /* another rank is connected */
    expect(r, PD_ALREADY_EXISTS, "rank 0 (host:10, connected) of another run holds it");
    assert_int_equal(r->fenced_conn, 0);
}

TEST(another_run_waits_for_a_job_that_is_about_to_end, rig *r)
{
    uint32_t job;

    start(r, "monday");
    job = r->job;
    leave(r, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(hello(r, rank, "tuesday"), PD_UNAVAILABLE);
        expect(r, PD_UNAVAILABLE, "job j is about to end: rank 1 (host:11, connected) has not left it yet");
    }
    leave(r, 1);
    assert_int_equal(hello(r, 0, "tuesday"), PD_OK);
    expect_anew(r, job);
}

TEST(another_run_is_told_of_a_job_whose_workers_are_lost, rig *r)
{
    start(r, "monday");
    lose(r, 1);
    rig_sleep(r, 5);
    lose(r, 0);
    assert_int_equal(hello(r, 0, "tuesday"), PD_FAILED_PRECONDITION);
    expect(r, PD_FAILED_PRECONDITION,
           "job j at step 1 belongs to another run, whose workers are gone: rank 0 (host:10, lost 0 s ago)");
    expect(r, PD_FAILED_PRECONDITION, "PARAMD_RESUME=0");
    r->joins = true;
    assert_int_equal(hello(r, 1, "tuesday"), PD_UNAVAILABLE);
}

TEST(rank_0_of_another_run_may_begin_a_job_whose_workers_are_lost_anew, rig *r)
{
    uint32_t job;

    start(r, "monday");
    job = r->job;
    lose(r, 0);
    lose(r, 1);
    r->intent = PD_INTENT_ANEW;
    assert_int_equal(hello(r, 1, "tuesday"), PD_UNAVAILABLE);
    expect(r, PD_UNAVAILABLE, "rank 1 of job j waits for rank 0");
    assert_int_equal(hello(r, 0, "tuesday"), PD_OK);
    expect_anew(r, job);
    assert_int_equal(hello(r, 1, "tuesday"), PD_OK);
    expect_continued(r, r->job);
}

TEST(a_launch_that_starts_its_program_again_begins_the_job_of_a_later_generation_anew, rig *r)
{
    uint32_t job;

    start(r, "monday#10");
    job = r->job;
    lose(r, 1);
    assert_int_equal(hello(r, 1, "monday#2"), PD_ALREADY_EXISTS);
    expect(r, PD_ALREADY_EXISTS, "rank 0 (host:10, connected) holds it");
    lose(r, 0);
    assert_int_equal(hello(r, 1, "monday"), PD_UNAVAILABLE);
    assert_int_equal(hello(r, 0, "monday"), PD_OK);
    expect_anew(r, job);
    assert_int_equal(hello(r, 1, "monday"), PD_OK);
}

TEST(a_later_generation_and_another_launch_are_strangers, rig *r)
{
    static const char *const strangers[] = { "monday#3", "mon", "mon#1", "tuesday#1" };

    start(r, "monday#2");
    lose(r, 0);
    lose(r, 1);
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++)
        assert_int_equal(hello(r, 0, strangers[i]), PD_FAILED_PRECONDITION);
}

TEST(without_a_run_a_rank_is_not_taken_from_a_process_that_lives, rig *r)
{
    static const char *const runs[][2] = { { NULL, NULL }, { "monday", NULL }, { NULL, "tuesday" } };
    char name[16];

    for (int i = 0; i < 3; i++) {
        r->run = runs[i][0];
        snprintf(name, sizeof name, "j%d", i);
        rig_start(r, name, 2, OLD + 10 * (uint64_t)i, sizes, 1, NULL, NULL);
        r->run = runs[i][1];
        assert_int_equal(rig_hello(r, name, 0, 2, 99, 99, NULL, "* sgd lr=1"), PD_ALREADY_EXISTS);
        expect(r, PD_ALREADY_EXISTS, "connected) holds it");
    }
    assert_int_equal(r->fenced_conn, 0);
}

TEST(without_a_run_a_process_waits_for_a_rank_that_was_left, rig *r)
{
    uint32_t job;

    start(r, NULL);
    job = r->job;
    leave(r, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(hello(r, rank, NULL), PD_UNAVAILABLE);
        expect(r, PD_UNAVAILABLE, "rank 1 (host:11, connected) has not left it");
    }
    leave(r, 1);
    assert_int_equal(hello(r, 1, NULL), PD_OK);
    expect_anew(r, job);
}

TEST(without_a_run_a_process_takes_a_rank_that_was_lost, rig *r)
{
    uint32_t job;

    start(r, NULL);
    job = r->job;
    lose(r, 1);
    assert_int_equal(hello(r, 1, NULL), PD_OK);
    expect_continued(r, job);
}

TEST(without_a_run_a_job_with_a_connected_worker_is_not_begun_anew, rig *r)
{
    uint32_t job;

    start(r, NULL);
    job = r->job;
    lose(r, 0);
    r->intent = PD_INTENT_ANEW;
    assert_int_equal(hello(r, 0, NULL), PD_OK);
    expect_continued(r, job);
}

TEST(without_a_run_rank_0_may_begin_a_job_whose_workers_are_lost_anew, rig *r)
{
    uint32_t job;

    start(r, NULL);
    job = r->job;
    lose(r, 0);
    lose(r, 1);
    r->intent = PD_INTENT_ANEW;
    assert_int_equal(hello(r, 1, NULL), PD_UNAVAILABLE);
    assert_int_equal(hello(r, 0, NULL), PD_OK);
    expect_anew(r, job);
    assert_int_equal(hello(r, 1, NULL), PD_OK);
    expect_continued(r, r->job);
}

TEST(who_only_joins_waits_for_the_job_and_takes_its_start_step_and_seed, rig *r)
{
    r->joins = true;
    assert_int_equal(hello(r, 1, NULL), PD_UNAVAILABLE);
    r->joins = false;
    assert_int_equal(rig_hello(r, "j", 0, 2, OLD, OLD, "start_step=7 seed=3", "* sgd lr=1"), PD_OK);
    r->joins = true;
    assert_int_equal(rig_hello(r, "j", 1, 2, NEW, NEW, "start_step=9 seed=4", "* sgd lr=1"), PD_OK);
    r->joins = false;
    assert_int_equal(rig_hello(r, "j", 1, 2, NEW, 30, "start_step=7 seed=4", "* sgd lr=1"), PD_FAILED_PRECONDITION);
}

TEST(a_run_that_is_too_long_or_not_printable_is_refused, rig *r)
{
    char run[PD_RUN_MAX + 2];

    memset(run, 'a', sizeof run);
    run[PD_RUN_MAX + 1] = '\0';
    assert_int_equal(hello(r, 0, run), PD_INVALID_ARGUMENT);
    expect(r, PD_INVALID_ARGUMENT, "129 bytes, at most 128 are allowed");
    assert_int_equal(hello(r, 0, "a\nb"), PD_INVALID_ARGUMENT);
    run[PD_RUN_MAX] = '\0';
    assert_int_equal(hello(r, 0, run), PD_OK);
}
