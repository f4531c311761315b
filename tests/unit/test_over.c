/* Tests jobs that are over: a restart of the server keeps them so, and they end when others need their place or their
 * memory. */
#include "test.h"
#include "exporting.h"
#include "durable_job.h"
#include "rig.h"
#include "store_inside.h"

enum { SIZE = 1000, CONN = 10, NEW = 50, OPERATOR = 99 };
static const int64_t sizes[] = { SIZE };

static void leave(rig *r, uint32_t job, uint32_t rank, uint64_t conn)
{
    pd_request *request = pd_request_new(PD_REQ_LEAVE, rig_ticket(r, conn));

    assert_non_null(request);
    request->job = job;
    request->rank = rank;
    assert_int_equal(rig_apply(r, request), PD_OK);
    rig_work(r);
}

static void crash(rig *r)
{
    pd_store_config config = durable_config();
    rig next;

    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, r), PD_OK);
    rig_free(r);
    *r = next;
}

static void durable_set_up(rig *r)
{
    pd_store_config config = durable_config();

    durable_job_start(r, &config, "checkpoint_every=3");
    for (uint64_t step = 1; step <= 4; step++) durable_job_step(r, step);
    assert_int_equal(r->kept, 2); /* of steps 0 and 3 */
}

FIXTURE(rig, durable_set_up, rig_free);

TEST(a_job_that_is_over_has_a_checkpoint_of_its_last_step, rig *r)
{
    leave(r, r->job, 0, DURABLE_CONN);
    assert_int_equal(r->kept, 2);
    leave(r, r->job, 1, DURABLE_CONN + 1);
    assert_int_equal(r->kept, 3);
    assert_int_equal(r->durable, 4);
}

TEST(a_job_that_is_over_stays_so_after_a_restart, rig *r)
{
    uint64_t creator = r->creator;

    leave(r, r->job, 0, DURABLE_CONN);
    leave(r, r->job, 1, DURABLE_CONN + 1);
    crash(r);
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].state, "over");
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].step_least, 4);
    r->run = "tuesday";
    assert_int_equal(rig_hello(r, "job", 0, 2, NEW, NEW, NULL, "* adam"), PD_OK);
    assert_true(r->created);
    assert_int_not_equal(r->creator, creator);
    assert_int_equal(r->ended, 1); /* the disk forgets the first one */
}

TEST(a_job_of_which_one_rank_has_left_remembers_it_after_a_restart, rig *r)
{
    leave(r, r->job, 0, DURABLE_CONN);
    assert_int_equal(rig_checkpoint(r, "job", OPERATOR, 0, 30), PD_OK);
    rig_work(r);
    crash(r);
    assert_string_equal(rig_ask(r, PD_INFO_WORKERS, "job")->workers[0].state, "left");
    assert_string_equal(rig_ask(r, PD_INFO_WORKERS, "job")->workers[1].state, "lost");
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].state, "lingering");
}

TEST(a_restart_keeps_the_run_of_the_job, rig *r)
{
    crash(r);
    r->run = "tuesday";
    assert_int_equal(rig_hello(r, "job", 0, 2, NEW, NEW, NULL, "* adam"), PD_FAILED_PRECONDITION);
    r->run = "launch";
    assert_int_equal(rig_hello(r, "job", 0, 2, NEW, NEW, NULL, "* adam"), PD_OK);
    assert_false(r->created);
}

TEST(who_resumes_a_job_that_is_over_after_a_restart_gets_its_last_step, rig *r)
{
    leave(r, r->job, 0, DURABLE_CONN);
    leave(r, r->job, 1, DURABLE_CONN + 1);
    crash(r);
    r->run = "tuesday";
    r->intent = PD_INTENT_RESUME;
    durable_job_join(r, "checkpoint_every=3");
    durable_job_step(r, 5);
    assert_int_equal(durable_job_step_of(r, 0), 5);
}

/* A small run: a job of one worker takes a step and leaves. Returns the number of its job. */
static uint32_t run_once(rig *r, const char *name, uint64_t conn)
{
    float values[SIZE] = { 1 };
    uint32_t job = rig_start(r, name, 1, conn, sizes, 1, NULL, "* adam");

    assert_int_equal(rig_push(r, job, 0, conn, 1, 0, values, SIZE), PD_OK);
    rig_work(r);
    assert_int_equal(rig_versions(r, job, 0)->step, 1);
    leave(r, job, 0, conn);
    return job;
}

static uint64_t bytes_of_one(void)
{
    pd_store_config config = rig_config();
    uint64_t bytes;
    rig r;

    rig_new(&r, &config);
    run_once(&r, "j", CONN);
    bytes = r.store->budget.used;
    rig_free(&r);
    return bytes;
}

TEST(many_small_runs_one_after_the_other_fit_where_one_fits)
{
    pd_store_config jobs = rig_config(), bytes = rig_config();
    const pd_store_config *limits[] = { &jobs, &bytes };
    char name[16];

    jobs.max_jobs = 1;
    bytes.max_total_bytes = bytes_of_one();
    for (int l = 0; l < 2; l++) {
        rig r;
        rig_new(&r, limits[l]);
        for (int i = 0; i < 30; i++) {
            snprintf(name, sizeof name, "fold%d", i);
            rig_sleep(&r, 0.001);
            run_once(&r, name, CONN + (uint64_t)i);
        }
        assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->n_jobs, 1);
        assert_int_equal(r.gone, 29);
        rig_free(&r);
    }
}

TEST(the_job_that_has_been_over_for_the_longest_time_ends_first)
{
    pd_store_config config = rig_config();
    uint32_t first, running;
    rig r;

    config.max_jobs = 3;
    rig_new(&r, &config);
    running = rig_start(&r, "running", 1, 30, sizes, 1, NULL, NULL);
    first = run_once(&r, "first", 10);
    rig_sleep(&r, 1);
    run_once(&r, "second", 11);
    rig_start(&r, "newcomer", 1, 40, sizes, 1, NULL, NULL);
    assert_int_equal(r.gone, 1);
    assert_int_equal(r.gone_job, first);
    rig_start(&r, "another", 1, 41, sizes, 1, NULL, NULL);
    assert_int_equal(r.gone, 2);
    assert_int_equal(rig_hello(&r, "last", 0, 1, 42, 42, NULL, NULL), PD_RESOURCE_EXHAUSTED); /* all are in training */
    assert_int_equal(rig_push(&r, running, 0, 30, 1, 0, (float[SIZE]){ 0 }, SIZE), PD_OK);
    rig_work(&r);
    rig_free(&r);
}

TEST(no_job_ends_for_one_that_would_not_fit_even_so)
{
    static const char *const names[] = { "p0" };
    pd_store_config config = rig_config();
    pd_shape shapes[] = { { 1, { 100 * SIZE } } };
    rig r;

    config.max_total_bytes = 2 * bytes_of_one();
    rig_new(&r, &config);
    run_once(&r, "small", 10);
    assert_int_equal(rig_hello(&r, "large", 0, 1, 20, 20, NULL, "* adam"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, 20, names, shapes, NULL, 1, PD_F32), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(r.gone, 0);
    rig_free(&r);
}

TEST(a_job_that_is_being_exported_does_not_end)
{
    pd_store_config config = rig_config();
    rig r;

    config.max_jobs = 1;
    rig_new(&r, &config);
    run_once(&r, "exported", 10);
    assert_int_equal(export_begin(&r, "exported", OPERATOR, false, 0), PD_OK);
    assert_int_equal(rig_hello(&r, "newcomer", 0, 1, 20, 20, NULL, NULL), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(export_end(&r, "exported", OPERATOR), PD_OK);
    assert_int_equal(rig_hello(&r, "newcomer", 0, 1, 20, 20, NULL, NULL), PD_OK);
    assert_int_equal(r.gone, 1);
    rig_free(&r);
}
