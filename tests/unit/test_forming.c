/* Tests launches that are formed again while the job lives: a later generation takes over the job, also with another
 * number of workers. */
#include "test.h"
#include "durable_job.h"
#include "generation.h"
#include "rig.h"
#include "store_inside.h"

enum { N = 100, CONN = 10 };
static const char *const names[] = { "p" };
static const pd_shape shapes[] = { { 1, { N } } };
static const char *options;
static const char *rules = "* sgd lr=1";

/* Says Hello as a process of the rig's generation. Its nonce is also the number of its connection. */
static int hello(rig *r, uint32_t rank, uint32_t world, uint64_t nonce)
{
    return rig_hello(r, "job", rank, world, nonce, nonce, options, rules);
}

static int declare(rig *r, uint32_t rank, uint64_t nonce)
{
    return rig_declare(r, r->job, rank, nonce, names, shapes, NULL, 1, PD_F32);
}

static void join(rig *r, uint32_t rank, uint32_t world, uint64_t nonce)
{
    if (hello(r, rank, world, nonce) != PD_OK || declare(r, r->rank, nonce) != PD_OK)
        fail_msg("rank %u: %s", rank, r->error.text);
}

/* Lets all workers of a launch join. Rank i has the nonce `nonce` + i. */
static void launch(rig *r, uint64_t generation, uint32_t world, uint64_t nonce)
{
    r->generation = generation;
    for (uint32_t rank = 0; rank < world; rank++) join(r, rank, world, nonce + rank);
}

static void begin_with(rig *r, const pd_store_config *config, const char *with, uint64_t generation, uint32_t world)
{
    static const float zeros[N];

    options = with;
    rig_new(r, config);
    launch(r, generation, world, CONN);
    assert_int_equal(rig_init(r, r->job, CONN, 0, zeros, N), PD_OK);
    rig_work(r);
}

static void begin(rig *r, const char *with, uint64_t generation, uint32_t world)
{
    pd_store_config config = durable_config();

    begin_with(r, &config, with, generation, world);
}

static pd_job *job_of(const rig *r)
{
    return inside_find(r->store, "job");
}

static int push(rig *r, uint32_t rank, uint64_t conn, uint64_t step)
{
    float g[N];
    int rc;

    for (int i = 0; i < N; i++) g[i] = (float)(1 << rank);
    rc = rig_push(r, r->job, rank, conn, step, 0, g, N);
    rig_work(r);
    return rc;
}

/* Takes steps `first` to `last` with all workers of a launch. */
static void train(rig *r, uint32_t world, uint64_t nonce, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++) {
        for (uint32_t rank = 0; rank < world; rank++) assert_int_equal(push(r, rank, nonce + rank, step), PD_OK);
        assert_int_equal(job_of(r)->steps.params[0].saved.step, step);
    }
}

static double weight(rig *r)
{
    return (double)((const float *)job_of(r)->steps.params[0].current->at[PD_F32])[0];
}

static void expect(const rig *r, int code, const char *part)
{
    if (r->error.code != code || strstr(r->error.text, part) == NULL)
        fail_msg("%d \"%s\" is not %d \"%s\"", r->error.code, r->error.text, code, part);
}

static void check_2_3_1(const char *with)
{
    rig r;

    begin(&r, with, 1, 2);
    train(&r, 2, CONN, 1, 3);
    launch(&r, 2, 3, 20);
    assert_false(r.created);
    assert_int_equal(r.steps[0], 3);
    assert_int_equal(r.formed, 2);
    train(&r, 3, 20, 4, 6);
    launch(&r, 5, 1, 30);
    train(&r, 1, 30, 7, 8);
    assert_true(fabs(weight(&r) + 3 * 1.5 + 3 * 7 / 3.0 + 2) < 1e-5);
    assert_int_equal(r.store->jobs.n, 1);
    rig_free(&r);
}

TEST(launches_of_2_and_3_and_1_workers_go_on_from_the_last_step)
{
    check_2_3_1(NULL);
    check_2_3_1("checkpoint_every=2");
    check_2_3_1("durability=log checkpoint_every=2");
    check_2_3_1("on_lost_worker=shrink");
    check_2_3_1("staleness=1");
}

TEST(the_processes_of_the_launch_before_are_sent_away_and_stay_out)
{
    rig r;

    begin(&r, NULL, 1, 2);
    train(&r, 2, CONN, 1, 1);
    r.generation = 2;
    assert_int_equal(hello(&r, 0, 3, 20), PD_OK);
    assert_int_equal(r.fenced_conn, CONN + 1);
    assert_int_equal(r.fenced.code, PD_ABORTED);
    expect(&r, PD_OK, "");
    assert_int_equal(push(&r, 1, CONN + 1, 2), PD_ABORTED);
    r.generation = 1;
    assert_int_equal(hello(&r, 1, 2, CONN + 1), PD_FAILED_PRECONDITION);
    expect(&r, PD_FAILED_PRECONDITION,
           "job job was formed again as generation 2, and this worker is of generation 1: it stays out");
    r.generation = 0;
    assert_int_equal(hello(&r, 1, 3, CONN + 1), PD_ABORTED);
    rig_free(&r);
}

TEST(a_launch_of_the_same_number_takes_over_the_ranks)
{
    uint32_t number;
    rig r;

    begin(&r, NULL, 1, 2);
    train(&r, 2, CONN, 1, 2);
    number = r.job;
    launch(&r, 2, 2, 20);
    assert_int_equal(r.job, number);
    assert_int_equal(r.steps[0], 2);
    assert_int_equal(push(&r, 0, CONN, 3), PD_ABORTED);
    train(&r, 2, 20, 3, 4);
    r.generation = 0;
    assert_int_equal(hello(&r, 1, 2, CONN + 1), PD_ABORTED);
    rig_free(&r);
}

TEST(a_later_launch_may_follow_one_whose_generation_is_not_known)
{
    rig r;

    begin(&r, NULL, 0, 2);
    train(&r, 2, CONN, 1, 2);
    launch(&r, 1764410000000, 3, 20);
    train(&r, 3, 20, 3, 4);
    rig_free(&r);
}

TEST(the_workers_of_a_later_launch_wait_until_no_step_is_under_way)
{
    pd_store_config config = durable_config();
    rig r;

    rules = "* shampoo lr=0.1 max_preconditioner_dim=16 root_delay=1";
    begin_with(&r, &config, NULL, 1, 2);
    r.lazy_tasks = true;
    train(&r, 2, CONN, 1, 1);
    assert_true(r.n_tasks > 0);
    r.generation = 2;
    assert_int_equal(hello(&r, 0, 3, 20), PD_UNAVAILABLE);
    expect(&r, PD_UNAVAILABLE, "retry when it has ended");
    assert_int_equal(r.fenced_conn, CONN + 1);
    assert_int_equal(hello(&r, 1, 3, 21), PD_UNAVAILABLE);
    while (r.n_tasks > 0) rig_finish_task(&r, 0);
    rig_work(&r);
    r.lazy_tasks = false;
    launch(&r, 2, 3, 20);
    assert_int_equal(r.steps[0], 1);
    train(&r, 3, 20, 2, 3);
    rules = "* sgd lr=1";
    rig_free(&r);
}

TEST(what_the_launch_before_has_given_to_an_open_step_does_not_count)
{
    rig r;

    begin(&r, NULL, 1, 2);
    train(&r, 2, CONN, 1, 1);
    assert_int_equal(push(&r, 0, CONN, 2), PD_OK);
    launch(&r, 2, 3, 20);
    assert_int_equal(r.buffers_out, 0);
    train(&r, 3, 20, 2, 2);
    assert_true(fabs(weight(&r) + 1.5 + 7 / 3.0) < 1e-6);
    rig_free(&r);
}

TEST(a_later_launch_of_an_elastic_job_begins_with_its_own_members)
{
    rig r;

    begin(&r, "min_workers=1 max_workers=6", 1, 4);
    train(&r, 4, CONN, 1, 1);
    assert_int_equal(push(&r, 3, CONN + 3, 2), PD_OK);
    launch(&r, 2, 2, 20);
    assert_int_equal(r.members, 3);
    assert_int_equal(r.buffers_out, 0);
    train(&r, 2, 20, 2, 3);
    rig_free(&r);
}

TEST(a_later_launch_of_fewer_workers_needs_no_more_than_these)
{
    rig r;

    begin(&r, "max_workers=6", 1, 4);
    train(&r, 4, CONN, 1, 1);
    launch(&r, 2, 2, 20);
    train(&r, 2, 20, 2, 3);
    r.generation = 3;
    assert_int_equal(hello(&r, 0, 7, 30), PD_INVALID_ARGUMENT);
    assert_int_equal(push(&r, 0, 20, 4), PD_OK);
    rig_free(&r);
}

TEST(a_later_launch_whose_workers_take_any_rank_begins_with_rank_0)
{
    rig r;

    begin(&r, "min_workers=1 max_workers=6", 1, 3);
    train(&r, 3, CONN, 1, 1);
    r.any_rank = true;
    r.generation = 2;
    for (uint32_t rank = 0; rank < 2; rank++) {
        join(&r, 0, 0, 20 + rank);
        assert_int_equal(r.rank, rank);
    }
    assert_int_equal(r.members, 3);
    train(&r, 2, 20, 2, 3);
    rig_free(&r);
}

static int barrier(rig *r, uint32_t rank, uint64_t conn, uint64_t sequence)
{
    uint64_t answered = r->answered;

    (void)rig_ask_as(r, PD_REQ_BARRIER, rank, conn, sequence);
    return r->answered > answered ? r->error.code : -1;
}

TEST(workers_of_two_launches_never_meet_at_a_barrier)
{
    rig r;

    begin(&r, NULL, 1, 3);
    assert_int_equal(barrier(&r, 1, CONN + 1, 1), -1);
    launch(&r, 2, 3, 20);
    assert_int_equal(barrier(&r, 0, 20, 1), -1);
    assert_int_equal(barrier(&r, 2, 22, 1), -1);
    assert_int_equal(barrier(&r, 1, 21, 1), PD_OK);
    rig_free(&r);
}

TEST(without_a_generation_the_number_changes_when_all_are_gone_for_long)
{
    rig r;

    begin(&r, "job_linger=100s reconnect_grace=5s", 0, 2);
    train(&r, 2, CONN, 1, 2);
    assert_int_equal(hello(&r, 0, 3, 20), PD_FAILED_PRECONDITION);
    for (uint32_t rank = 0; rank < 2; rank++) rig_ask_as(&r, PD_REQ_LOST, rank, CONN + rank, 0);
    rig_sleep(&r, 4);
    assert_int_equal(hello(&r, 0, 3, 20), PD_FAILED_PRECONDITION);
    rig_sleep(&r, 2);
    launch(&r, 0, 3, 20);
    assert_false(r.created);
    train(&r, 3, 20, 3, 4);
    rig_free(&r);
}

TEST(a_later_launch_of_another_run_is_refused)
{
    rig r;

    begin(&r, NULL, 1, 2);
    train(&r, 2, CONN, 1, 1);
    r.run = "another";
    r.generation = 2;
    assert_int_equal(hello(&r, 0, 2, 20), PD_ALREADY_EXISTS);
    assert_int_equal(r.fenced_conn, 0);
    rig_free(&r);
}

TEST(a_later_launch_with_other_options_changes_nothing)
{
    rig r;

    begin(&r, NULL, 1, 2);
    r.generation = 2;
    assert_int_equal(rig_hello(&r, "job", 0, 3, 20, 20, "aggregate=sum", rules), PD_FAILED_PRECONDITION);
    assert_int_equal(r.fenced_conn, 0);
    train(&r, 2, CONN, 1, 1);
    rig_free(&r);
}

TEST(a_restored_job_knows_its_generation)
{
    pd_store_config config = durable_config();
    rig r, next;

    begin(&r, "checkpoint_every=1", 4, 2);
    train(&r, 2, CONN, 1, 1);
    rig_new(&next, &config);
    if (rig_restore(&next, &r) != PD_OK) fail_msg("%s", next.error.text);
    next.generation = 3;
    assert_int_equal(hello(&next, 0, 2, 20), PD_FAILED_PRECONDITION);
    launch(&next, 5, 3, 30);
    train(&next, 3, 30, 2, 3);
    rig_free(&next);
    rig_free(&r);
}

/* Lets the n-th allocation fail while a later launch resizes the job. Returns whether there was one. */
static bool form_short_of_memory(int64_t n)
{
    pd_request *request;
    bool failed;
    rig r;

    begin(&r, NULL, 1, 2);
    train(&r, 2, CONN, 1, 1);
    request = pd_request_new(PD_REQ_HELLO, rig_ticket(&r, 20));
    request->u.hello.job_name = strdup("job");
    request->u.hello.label = strdup("host:20");
    request->u.hello.run = strdup("launch");
    request->u.hello.world_size = 3;
    request->u.hello.nonce = 20;
    request->u.hello.generation = 2;
    request->u.hello.rules = calloc(2, sizeof(char *));
    request->u.hello.rules[0] = strdup(rules);
    request->u.hello.n_rules = 1;
    r.error.code = PD_OK;
    oom_arm(n);
    pd_store_apply(r.store, request, r.now);
    failed = oom_disarm();
    rig_absorb(&r);
    if (r.error.code != PD_OK && r.error.code != PD_NO_MEMORY) fail_msg("%s", r.error.text);
    launch(&r, 2, 3, 20);
    assert_int_equal(r.steps[0], 1);
    train(&r, 3, 20, 2, 2);
    rig_free(&r);
    return failed;
}

TEST(a_launch_that_is_short_of_memory_may_try_again)
{
    int64_t n = 0;

    while (form_short_of_memory(n)) n++;
    assert_true(n > 10);
}
