/* Tests a process that returns to a server that may have lost its job. The process finds the job or learns that there
 * is none, and never creates it. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD = 2, CONN = 10, NONCE = 10 };
static const int64_t sizes[] = { 3 };

static int rejoin(rig *r, uint32_t rank, const char *options)
{
    int rc;

    r->rejoins = true;
    rc = rig_hello(r, "job", rank, WORLD, NONCE + rank, CONN + rank, options, "* sgd lr=1");
    r->rejoins = false;
    return rc;
}

static void a_job_that_is_not_there_is_not_created(void **state)
{
    rig *r = *state;

    assert_int_equal(rejoin(r, 0, NULL), PD_NOT_FOUND);
    assert_non_null(strstr(r->error.text, "the job job"));
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n_jobs, 0);
}

static void a_job_that_is_there_is_joined(void **state)
{
    rig *r = *state;
    uint32_t job = rig_start(r, "job", WORLD, CONN, sizes, 1, NULL, NULL);

    assert_int_equal(rejoin(r, 1, NULL), PD_OK);
    assert_int_equal(r->job, job);
    assert_false(r->created);
}

static void every_welcome_tells_who_created_the_job(void **state)
{
    rig *r = *state;

    rig_start(r, "job", WORLD, CONN, sizes, 1, NULL, NULL);
    assert_int_equal(r->creator, NONCE);
    rejoin(r, 1, NULL);
    assert_int_equal(r->creator, NONCE);
    assert_int_equal(rig_hello(r, "other", 0, 1, 77, 50, NULL, NULL), PD_OK);
    assert_int_equal(r->creator, 77);
}

/* Only rank 0's start_step counts. A rank that rejoins takes the step of the job, whatever start_step it sends. */
static void who_rejoins_takes_the_jobs_start_step(void **state)
{
    rig *r = *state;

    assert_int_equal(rig_hello(r, "job", 0, WORLD, NONCE, CONN, "start_step=41", "* sgd lr=1"), PD_OK);
    assert_int_equal(rejoin(r, 1, "start_step=7"), PD_OK);
    assert_int_equal(rejoin(r, 1, "aggregate=sum"), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "aggregate"));
}

static int join_anew(rig *r, const char *options)
{
    return rig_hello(r, "job", 1, WORLD, 99, 60, options, "* sgd lr=1");
}

static void a_new_process_that_names_no_step_may_join_once_there_are_weights(void **state)
{
    rig *r = *state;

    assert_int_equal(rig_hello(r, "job", 0, WORLD, NONCE, CONN, "start_step=41", "* sgd lr=1"), PD_OK);
    assert_int_equal(join_anew(r, NULL), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "start_step = 41"));
    rig_start(r, "job", WORLD, CONN, sizes, 1, "start_step=41", NULL);
    assert_int_equal(join_anew(r, NULL), PD_OK);
    assert_int_equal(join_anew(r, "start_step=40"), PD_FAILED_PRECONDITION);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_job_that_is_not_there_is_not_created),
        CASE(a_job_that_is_there_is_joined),
        CASE(every_welcome_tells_who_created_the_job),
        CASE(who_rejoins_takes_the_jobs_start_step),
        CASE(a_new_process_that_names_no_step_may_join_once_there_are_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
