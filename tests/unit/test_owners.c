/* Tests the owners of jobs: which identity a job counts for, when it counts no more, and what is too much. */
#define _GNU_SOURCE /* memmem */
#include "test.h"
#include "course.h"
#include "durable_job.h"
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

FIXTURE(rig, rig_make, rig_free);

TEST(a_job_counts_for_its_creator_until_it_ends, rig *r)
{
    take_roles(r, "* push *\nquota * jobs=1\n");
    assert_int_equal(hello_as(r, "token:a", "a1", 1), PD_OK);
    assert_int_equal(hello_as(r, "token:a", "a2", 2), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(hello_as(r, "token:b", "b1", 3), PD_OK);
    assert_int_equal(drop(r, "a1"), PD_OK);
    assert_int_equal(hello_as(r, "token:a", "a2", 4), PD_OK);
    assert_int_equal(hello_as(r, "token:b", "b2", 5), PD_RESOURCE_EXHAUSTED);
}

TEST(another_worker_of_a_job_does_not_count, rig *r)
{
    take_roles(r, "* push *\nquota token:b jobs=0\n");
    r->identity = "token:a";
    assert_int_equal(rig_hello(r, "j", 0, 2, 1, 1, NULL, "* sgd lr=1"), PD_OK);
    r->identity = "token:b";
    assert_int_equal(rig_hello(r, "j", 1, 2, 2, 2, NULL, "* sgd lr=1"), PD_OK);
}

TEST(bytes_of_all_jobs_of_an_identity_are_counted_together_and_given_back, rig *r)
{
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

static void leave(rig *r, uint32_t job, uint64_t conn)
{
    pd_request *request = pd_request_new(PD_REQ_LEAVE, rig_ticket(r, conn));

    assert_non_null(request);
    request->job = job;
    assert_int_equal(rig_apply(r, request), PD_OK);
}

TEST(jobs_of_an_identity_that_are_over_make_room_in_its_quota_of_jobs, rig *r)
{
    take_roles(r, "* push *\nquota * jobs=1\n");
    assert_int_equal(hello_as(r, "token:a", "a1", 1), PD_OK);
    assert_int_equal(declare(r, 1, 100), PD_OK);
    leave(r, r->job, 1);
    assert_int_equal(hello_as(r, "token:b", "b1", 2), PD_OK);
    assert_int_equal(hello_as(r, "token:b", "b2", 3), PD_RESOURCE_EXHAUSTED); /* a's job does not count for b */
    assert_int_equal(r->gone, 0);
    assert_int_equal(hello_as(r, "token:a", "a2", 4), PD_OK);
    assert_int_equal(r->gone, 1);
}

TEST(jobs_of_an_identity_that_are_over_make_room_in_its_quota_of_bytes, rig *r)
{
    take_roles(r, "* push *\nquota token:a bytes=300k\n");
    assert_int_equal(hello_as(r, "token:a", "a1", 1), PD_OK);
    assert_int_equal(declare(r, 1, 10000), PD_OK); /* 160 kB and more */
    leave(r, r->job, 1);
    assert_int_equal(hello_as(r, "token:a", "a2", 2), PD_OK);
    assert_int_equal(r->gone, 0);
    assert_int_equal(declare(r, 2, 10000), PD_OK);
    assert_int_equal(r->gone, 1);
}

TEST(another_identity_does_not_begin_a_job_that_is_over_anew, rig *r)
{
    take_roles(r, "* push *\n");
    assert_int_equal(hello_as(r, "token:a", "j", 1), PD_OK);
    assert_int_equal(declare(r, 1, 100), PD_OK);
    leave(r, r->job, 1);
    assert_int_equal(hello_as(r, "token:b", "j", 2), PD_PERMISSION_DENIED);
    assert_non_null(strstr(r->error.text, "job j belongs to another identity: token:b may not end it"));
    assert_int_equal(hello_as(r, "token:a", "j", 3), PD_OK);
    assert_true(r->created);
}

TEST(new_roles_change_the_limits_of_jobs_that_exist, rig *r)
{
    take_roles(r, "* push *\nquota token:a bytes=1k\n");
    assert_int_equal(hello_as(r, "token:a", "a1", 1), PD_OK);
    assert_int_equal(declare(r, 1, 10000), PD_RESOURCE_EXHAUSTED);
    take_roles(r, "* push *\n");
    assert_int_equal(declare(r, 1, 10000), PD_OK);
}

static void push_scalar(rig *r, uint32_t job, uint64_t conn, uint64_t step)
{
    const float one[] = { 1 };

    assert_int_equal(rig_push(r, job, 0, conn, step, 0, one, 1), PD_OK);
}

TEST(an_identity_with_many_jobs_has_no_more_turns_than_one_with_one, rig *r)
{
    enum { MANY = 6 };
    const int64_t sizes[] = { 1 };
    uint32_t jobs[MANY], lone;
    uint64_t before;

    take_roles(r, "* push *\n");
    r->identity = "token:a";
    for (uint32_t i = 0; i < MANY; i++) {
        const char name[] = { 'a', (char)('0' + i), '\0' };
        jobs[i] = rig_start(r, name, 1, 10 + i, sizes, 1, NULL, NULL);
    }
    r->identity = "token:b";
    lone = rig_start(r, "b", 1, 50, sizes, 1, NULL, NULL);
    rig_work(r);
    before = r->batches;
    for (uint32_t i = 0; i < MANY; i++) push_scalar(r, jobs[i], 10 + i, 1);
    for (uint64_t step = 1; step <= 2; step++) {
        push_scalar(r, lone, 50, step);
        for (int turn = 0; turn < 2; turn++) (void)pd_store_work(r->store, r->now);
        rig_absorb(r);
    }
    for (uint64_t step = 0; step < 2; step++)
        assert_int_equal((r->batch_jobs[before + 2 * step] == lone) + (r->batch_jobs[before + 2 * step + 1] == lone),
                         1);
    rig_work(r);
    for (uint32_t i = 0; i < MANY; i++) assert_int_equal(rig_versions(r, jobs[i], 0)->step, 1);
}

static const course plain = { .options = "checkpoint_every=2", .rules = "* sgd lr=0.1" };

/* Trains a job, whose workers have this identity, until the rig's disk has a checkpoint of it. The server has roles, or
 * none if `roles` is NULL. */
static void train(rig *r, const char *roles, const char *identity)
{
    pd_store_config config = durable_config();

    rig_new(r, &config);
    if (roles != NULL) take_roles(r, roles);
    r->identity = identity;
    course_join(r, &plain);
    course_initialise(r, &plain);
    for (uint64_t step = 1; step <= 2; step++) course_step_to(r, &plain, step, COURSE_WORLD * COURSE_PARAMS);
    assert_int_equal(r->durable, 2);
}

/* Restores the job from the disk of another rig, in a store with these roles; NULL: none. */
static void restore(rig *r, const rig *from, const char *roles)
{
    pd_store_config config = durable_config();

    rig_new(r, &config);
    if (roles != NULL) take_roles(r, roles);
    if (rig_restore(r, from) != PD_OK) fail_msg("%s", r->error.text);
}

/* Rank 0 of a job of `world` ranks says Hello, as a process with this nonce. */
static int come_as(rig *r, const char *identity, uint32_t world, uint64_t nonce)
{
    r->identity = identity;
    return rig_hello(r, "job", 0, world, nonce, nonce, plain.options, plain.rules);
}

static const char one_job[] = "* push *\nquota * jobs=1\n";

TEST(a_restored_job_counts_for_its_creator_before_anybody_comes_back)
{
    rig before, after;

    train(&before, one_job, "token:a");
    restore(&after, &before, one_job);
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(hello_as(&after, "token:b", "new", 73), PD_OK);
    assert_int_equal(come_as(&after, "token:c", COURSE_WORLD, 74), PD_OK);
    assert_int_equal(hello_as(&after, "token:c", "other", 75), PD_OK);
    assert_int_equal(drop(&after, "job"), PD_OK);
    assert_int_equal(hello_as(&after, "token:a", "another", 76), PD_OK);
    rig_free(&after);
    rig_free(&before);
}

TEST(roles_that_come_after_the_restore_count_restored_jobs)
{
    rig before, after;

    train(&before, one_job, "token:a");
    restore(&after, &before, NULL);
    take_roles(&after, one_job);
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_RESOURCE_EXHAUSTED);
    rig_free(&after);
    rig_free(&before);
}

TEST(a_server_without_roles_passes_the_owner_on)
{
    rig before, between, after;

    train(&before, one_job, "token:a");
    restore(&between, &before, NULL);
    between.identity = "token:a";
    course_join(&between, &plain);
    for (uint64_t step = 3; step <= 4; step++) course_step_to(&between, &plain, step, COURSE_WORLD * COURSE_PARAMS);
    assert_int_equal(between.durable, 4);
    restore(&after, &between, one_job);
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_RESOURCE_EXHAUSTED);
    rig_free(&after);
    rig_free(&between);
    rig_free(&before);
}

TEST(the_bytes_of_a_restored_job_count_for_its_creator)
{
    rig before, after;

    train(&before, one_job, "token:a");
    restore(&after, &before, "* push *\nquota token:a bytes=1k\n");
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_OK);
    assert_int_equal(declare(&after, 72, 10), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(after.error.text, "(bytes= of its quota in server.roles)"));
    rig_free(&after);
    rig_free(&before);
}

TEST(a_restored_rank_keeps_its_process_for_the_identity_that_had_it)
{
    rig before, after;

    train(&before, one_job, "token:a");
    restore(&after, &before, one_job);
    assert_int_equal(come_as(&after, "token:b", COURSE_WORLD, COURSE_CONN), PD_PERMISSION_DENIED);
    assert_non_null(strstr(after.error.text, "belongs to a process of another identity"));
    assert_int_equal(come_as(&after, "token:a", COURSE_WORLD, COURSE_CONN), PD_OK);
    rig_free(&after);
    rig_free(&before);
}

TEST(entries_of_the_log_know_identities_that_the_checkpoint_does_not)
{
    static const course logged = { .options = "durability=log checkpoint_every=100", .rules = "* sgd lr=0.1" };
    pd_store_config config = durable_config();
    rig before, after;

    rig_new(&before, &config);
    course_join(&before, &logged);
    course_initialise(&before, &logged);
    course_step_to(&before, &logged, 1, COURSE_WORLD * COURSE_PARAMS);
    before.identity = "token:a";
    course_join(&before, &logged);
    course_step_to(&before, &logged, 2, COURSE_WORLD * COURSE_PARAMS);
    assert_int_equal(before.durable, 2);
    assert_int_equal(before.disk->step, 0);
    restore(&after, &before, one_job);
    assert_int_equal(rig_replay(&after, &before), PD_OK);
    after.identity = "token:b";
    assert_int_equal(rig_hello(&after, "job", 0, COURSE_WORLD, COURSE_CONN, 80, logged.options, logged.rules),
                     PD_PERMISSION_DENIED);
    after.identity = "token:a";
    assert_int_equal(rig_hello(&after, "job", 0, COURSE_WORLD, COURSE_CONN, 81, logged.options, logged.rules), PD_OK);
    rig_free(&after);
    rig_free(&before);
}

TEST(a_restored_job_without_an_owner_counts_for_the_identity_that_comes_first)
{
    rig before, after;

    train(&before, NULL, NULL);
    restore(&after, &before, one_job);
    assert_int_equal(come_as(&after, "token:a", COURSE_WORLD, 70), PD_OK);
    after.identity = "token:b";
    assert_int_equal(rig_hello(&after, "job", 1, COURSE_WORLD, 71, 71, plain.options, plain.rules), PD_OK);
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(hello_as(&after, "token:b", "new", 73), PD_OK);
    rig_free(&after);
    rig_free(&before);
}

TEST(only_its_owner_gives_a_restored_job_another_number_of_workers)
{
    rig before, after;

    train(&before, one_job, "token:a");
    restore(&after, &before, one_job);
    assert_int_equal(come_as(&after, "token:b", 1, 70), PD_PERMISSION_DENIED);
    assert_non_null(strstr(after.error.text, "may join it, but not form it again, or change their number"));
    assert_int_equal(come_as(&after, "token:a", 1, 71), PD_OK);
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(drop(&after, "job"), PD_OK);
    assert_int_equal(hello_as(&after, "token:a", "new", 73), PD_OK);
    rig_free(&after);
    rig_free(&before);
}

TEST(a_job_without_an_owner_has_one_after_it_has_changed_its_world)
{
    rig before, after;

    train(&before, NULL, NULL);
    restore(&after, &before, one_job);
    assert_int_equal(come_as(&after, "token:a", 1, 70), PD_OK);
    assert_int_equal(hello_as(&after, "token:a", "new", 72), PD_RESOURCE_EXHAUSTED);
    rig_free(&after);
    rig_free(&before);
}

TEST(an_identity_that_is_no_text_is_refused)
{
    pd_store_config config = durable_config();
    rig before, after;
    uint8_t *at;

    train(&before, one_job, "token:a");
    at = memmem(before.disk->head, before.disk->head_bytes, "token:a", 7);
    assert_non_null(at);
    at[3] = '\n';
    rig_new(&after, &config);
    assert_int_equal(rig_restore(&after, &before), PD_DATA_LOSS);
    assert_non_null(strstr(after.error.text, "not printable text"));
    rig_free(&after);
    rig_free(&before);
}

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
TEST(without_memory_a_job_has_an_owner_or_is_not_created, rig *r)
{
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
