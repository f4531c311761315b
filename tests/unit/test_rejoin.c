/* Tests a process that returns to a server that may have lost its job. The process finds the job or learns that there
 * is none, and never creates it. */
#include "test.h"
#include "rig.h"

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

FIXTURE(rig, rig_make, rig_free);

TEST(a_job_that_is_not_there_is_not_created, rig *r)
{
    assert_int_equal(rejoin(r, 0, NULL), PD_NOT_FOUND);
    assert_non_null(strstr(r->error.text, "the job job"));
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n_jobs, 0);
}

TEST(a_job_that_is_there_is_joined, rig *r)
{
    uint32_t job = rig_start(r, "job", WORLD, CONN, sizes, 1, NULL, NULL);

    assert_int_equal(rejoin(r, 1, NULL), PD_OK);
    assert_int_equal(r->job, job);
    assert_false(r->created);
}

TEST(every_welcome_tells_which_job_it_is, rig *r)
{
    uint64_t creator;

    rig_start(r, "job", WORLD, CONN, sizes, 1, NULL, NULL);
    creator = r->creator;
    assert_int_not_equal(creator, 0);
    rejoin(r, 1, NULL);
    assert_int_equal(r->creator, creator);
    assert_int_equal(rig_hello(r, "other", 0, 1, NONCE, 50, NULL, NULL), PD_OK);
    assert_int_not_equal(r->creator, creator);
}

/* Drops the job. The same process creates it again with the same Hello, and returns the creator of the new one. */
static uint64_t create_again(rig *r)
{
    pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(r, 1));

    assert_non_null(drop);
    drop->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(r, drop), PD_OK);
    assert_int_equal(rig_hello(r, "job", 0, WORLD, NONCE, CONN, NULL, "* sgd lr=1"), PD_OK);
    assert_true(r->created);
    return r->creator;
}

/* Returns the creator of the first job of a server that was started with this number. */
static uint64_t create_after(uint64_t start)
{
    pd_store_config config = rig_config();
    uint64_t creator;
    rig r;

    config.start = start;
    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "job", 0, WORLD, NONCE, CONN, NULL, "* sgd lr=1"), PD_OK);
    creator = r.creator;
    rig_free(&r);
    return creator;
}

TEST(a_job_that_its_creator_creates_again_is_another_job, rig *r)
{
    uint64_t first;

    rig_start(r, "job", WORLD, CONN, sizes, 1, NULL, NULL);
    first = r->creator;
    assert_int_not_equal(create_again(r), first);
    assert_int_not_equal(create_after(1), create_after(2));
}

/* Rank 1 had answers to its initial weights. Rank 0 had none, and creates the job again, on a server without it. */
TEST(who_was_in_the_first_job_does_not_rejoin_the_second, rig *r)
{
    rig_start(r, "job", WORLD, CONN, sizes, 1, NULL, NULL);
    r->means = r->creator;
    create_again(r);
    assert_int_equal(rejoin(r, 1, NULL), PD_NOT_FOUND);
    assert_non_null(strstr(r->error.text, "no longer on this server"));
    r->means = r->creator;
    assert_int_equal(rejoin(r, 1, NULL), PD_OK);
}

/* Only rank 0's start_step counts. A rank that rejoins takes the step of the job, whatever start_step it sends. */
TEST(who_rejoins_takes_the_jobs_start_step, rig *r)
{
    assert_int_equal(rig_hello(r, "job", 0, WORLD, NONCE, CONN, "start_step=41", "* sgd lr=1"), PD_OK);
    assert_int_equal(rejoin(r, 1, "start_step=7"), PD_OK);
    assert_int_equal(rejoin(r, 1, "aggregate=sum"), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "aggregate"));
}

static int join_anew(rig *r, const char *options)
{
    return rig_hello(r, "job", 1, WORLD, 99, 60, options, "* sgd lr=1");
}

TEST(a_new_process_that_names_no_step_may_join_once_there_are_weights, rig *r)
{
    assert_int_equal(rig_hello(r, "job", 0, WORLD, NONCE, CONN, "start_step=41", "* sgd lr=1"), PD_OK);
    assert_int_equal(join_anew(r, NULL), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "start_step = 41"));
    rig_start(r, "job", WORLD, CONN, sizes, 1, "start_step=41", NULL);
    assert_int_equal(join_anew(r, NULL), PD_OK);
    assert_int_equal(join_anew(r, "start_step=40"), PD_FAILED_PRECONDITION);
}
