/* Tests the owners of jobs: which identity a job counts for, when it counts no more, and what is too much. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "course.h"
#include "kept_job.h"
#include "oom.h"
#include "rig.h"
#include "store_inside.h"

static void take_roles(rig *r, const char *text)
{
    pd_request *request = pd_request_new(PD_REQ_ROLES, (pd_ticket){ 0, 0 });

    assert_non_null(request);
    assert_int_equal(pd_roles_parse(&request->u.roles, text, strlen(text), "roles", NULL), PD_OK);
    pd_store_apply(r->store, request, r->now);
}

static int hello_as(rig *r, const char *identity, const char *job, uint64_t conn)
{
    r->identity = identity;
    return rig_hello(r, job, 0, 1, conn, conn, NULL, "* sgd lr=1");
}

static int drop(rig *r, const char *job)
{
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(r, 900));

    assert_non_null(request);
    request->u.info.job_name = strdup(job);
    return rig_apply(r, request);
}

static int declare(rig *r, uint64_t conn, int64_t elements)
{
    static const char *const names[] = { "w" };
    const pd_shape shapes[] = { { 1, { elements } } };

    return rig_declare(r, r->job, 0, conn, names, shapes, NULL, 1, PD_F32);
}

static void a_job_counts_for_its_creator_until_it_ends(void **state)
{
    rig *r = *state;

    take_roles(r, "* push *\nquota * jobs=1\n");
    assert_int_equal(hello_as(r, "token:a", "a1", 1), PD_OK);
    assert_int_equal(hello_as(r, "token:a", "a2", 2), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(hello_as(r, "token:b", "b1", 3), PD_OK);
    assert_int_equal(drop(r, "a1"), PD_OK);
    assert_int_equal(hello_as(r, "token:a", "a2", 4), PD_OK);
    assert_int_equal(hello_as(r, "token:b", "b2", 5), PD_RESOURCE_EXHAUSTED);
}

static void another_worker_of_a_job_does_not_count(void **state)
{
    rig *r = *state;

    take_roles(r, "* push *\nquota token:b jobs=0\n");
    r->identity = "token:a";
    assert_int_equal(rig_hello(r, "j", 0, 2, 1, 1, NULL, "* sgd lr=1"), PD_OK);
    r->identity = "token:b";
    assert_int_equal(rig_hello(r, "j", 1, 2, 2, 2, NULL, "* sgd lr=1"), PD_OK);
}

static void bytes_of_all_jobs_of_an_identity_are_counted_together_and_given_back(void **state)
{
    rig *r = *state;

    take_roles(r, "* push *\nquota token:a bytes=300k\n");
    assert_int_equal(hello_as(r, "token:a", "a1", 1), PD_OK);
    assert_int_equal(declare(r, 1, 10000), PD_OK); /* 160 kB and more */
    assert_int_equal(hello_as(r, "token:a", "a2", 2), PD_OK);
    assert_int_equal(declare(r, 2, 10000), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r->error.text, "of 307200 allowed for token:a, "));
    assert_non_null(strstr(r->error.text, "(bytes= of its quota in server.roles)"));
    assert_int_equal(drop(r, "a1"), PD_OK);
    assert_int_equal(declare(r, 2, 10000), PD_OK);
}

static void new_roles_change_the_limits_of_jobs_that_exist(void **state)
{
    rig *r = *state;

    take_roles(r, "* push *\nquota token:a bytes=1k\n");
    assert_int_equal(hello_as(r, "token:a", "a1", 1), PD_OK);
    assert_int_equal(declare(r, 1, 10000), PD_RESOURCE_EXHAUSTED);
    take_roles(r, "* push *\n");
    assert_int_equal(declare(r, 1, 10000), PD_OK);
}

/* ---- restored jobs ---- */

static const course plain = { .options = "checkpoint_every=2", .rules = "* sgd lr=0.1" };

/* Trains a job until the rig's disk has a checkpoint of it. */
static void train(rig *r)
{
    pd_store_config config = kept_config();

    rig_new(r, &config);
    course_join(r, &plain);
    course_initialise(r, &plain);
    for (uint64_t step = 1; step <= 2; step++) course_step_to(r, &plain, step, COURSE_WORLD * COURSE_PARAMS);
    assert_int_equal(r->durable, 2);
}

static void a_restored_job_counts_for_the_identity_that_comes_back_first(void **state)
{
    pd_store_config config = kept_config();
    rig before, after;
    const char *name;

    (void)state;
    train(&before);
    name = before.disk->job;
    rig_new(&after, &config);
    take_roles(&after, "* push *\nquota * jobs=1\n");
    assert_int_equal(rig_restore(&after, &before), PD_OK);
    after.identity = "token:a";
    assert_int_equal(rig_hello(&after, name, 0, COURSE_WORLD, 70, 70, plain.options, plain.rules), PD_OK);
    after.identity = "token:b";
    assert_int_equal(rig_hello(&after, name, 1, COURSE_WORLD, 71, 71, plain.options, plain.rules), PD_OK);
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(hello_as(&after, "token:b", "new", 73), PD_OK);
    rig_free(&after);
    rig_free(&before);
}

static void a_restored_job_that_changes_its_world_has_an_owner_too(void **state)
{
    pd_store_config config = kept_config();
    rig before, after;
    const char *name;

    (void)state;
    train(&before);
    name = before.disk->job;
    rig_new(&after, &config);
    take_roles(&after, "* push *\nquota * jobs=1\n");
    assert_int_equal(rig_restore(&after, &before), PD_OK);
    after.identity = "token:a";
    assert_int_equal(rig_hello(&after, name, 0, 1, 70, 70, plain.options, plain.rules), PD_OK);
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(drop(&after, name), PD_OK);
    assert_int_equal(hello_as(&after, "token:a", "new", 73), PD_OK);
    rig_free(&after);
    rig_free(&before);
}

/* ---- no memory ---- */

static pd_request *hello_request(rig *r)
{
    pd_request *request = pd_request_new(PD_REQ_HELLO, rig_ticket(r, 10));

    assert_non_null(request);
    request->u.hello.job_name = strdup("a1");
    request->u.hello.label = strdup("x");
    request->u.hello.identity = strdup("token:a");
    request->u.hello.world_size = 1;
    request->u.hello.nonce = 10;
    return request;
}

/* A Hello that cannot get memory leaves neither a job nor an owner. What is left out, such as a line of the log, does
 * not refuse it. */
static void without_memory_a_job_has_an_owner_or_is_not_created(void **state)
{
    rig *r = *state;
    int refused = 0;
    bool failed = true;

    take_roles(r, "* push *\nquota * jobs=1\n");
    for (int64_t n = 0; failed; n++) {
        pd_request *request = hello_request(r);
        oom_arm(n);
        pd_store_apply(r->store, request, r->now);
        failed = oom_disarm();
        rig_absorb(r);
        assert_int_equal(r->store->jobs.n, r->error.code == PD_OK);
        assert_true((r->store->owners.table != NULL) == (r->error.code == PD_OK));
        refused += r->error.code != PD_OK;
        if (r->error.code == PD_OK) assert_int_equal(drop(r, "a1"), PD_OK);
        assert_null(r->store->owners.table);
    }
    assert_true(refused >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
        TEST(a_job_counts_for_its_creator_until_it_ends),
        TEST(another_worker_of_a_job_does_not_count),
        TEST(bytes_of_all_jobs_of_an_identity_are_counted_together_and_given_back),
        TEST(new_roles_change_the_limits_of_jobs_that_exist),
        TEST(without_memory_a_job_has_an_owner_or_is_not_created),
        cmocka_unit_test(a_restored_job_counts_for_the_identity_that_comes_back_first),
        cmocka_unit_test(a_restored_job_that_changes_its_world_has_an_owner_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
