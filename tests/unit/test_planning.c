/* Tests a large first declaration that is planned in slices. Each Declare is answered once, whatever happens in
 * between, and other jobs continue. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

enum { N = 40, WORLD = 3, CONN = 10, ELEMENTS = 70 };
static char texts[N][32];
static const char *names[N];
static pd_shape shapes[N];

static void name_all(void)
{
    for (int i = 0; i < N; i++) {
        snprintf(texts[i], sizeof texts[i], "layer.%d", i);
        names[i] = texts[i];
        shapes[i] = (pd_shape){ 1, { ELEMENTS } };
    }
}

/* Returns a configuration with such short time slices that each slice plans about one parameter. */
static pd_store_config slices(void)
{
    pd_store_config config = rig_config();

    config.batch_ns = 2000;
    return config;
}

static pd_request *declare_request(rig *r, uint32_t rank, uint64_t conn)
{
    pd_request *request = pd_request_new(PD_REQ_DECLARE, rig_ticket(r, conn));

    request->job = r->job;
    request->rank = rank;
    request->u.declare.n = N;
    request->u.declare.params = calloc(N, sizeof(pd_param_decl));
    for (int i = 0; i < N; i++)
        request->u.declare.params[i] =
            (pd_param_decl){ .name = strdup(names[i]), .shape = shapes[i], .pull_dtype = PD_F32 };
    return request;
}

static uint64_t welcomed; /* number of answers before the first answer to a Declare of the job */
static uint32_t other;

/* Sets up a small job that trains, and a job of WORLD ranks. All ranks are welcomed, and the Declare of rank 0 is
 * being planned, with some slices still to come. */
static void set_up(rig *r)
{
    pd_store_config config = slices();

    rig_new(r, &config);
    other = rig_start(r, "other", 1, 50, &(int64_t){ 5 }, 1, NULL, NULL);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_int_equal(rig_hello(r, "job", rank, WORLD, CONN + rank, CONN + rank, "job_linger=3600", "* adam lr=1"),
                         PD_OK);
    welcomed = r->answered;
    rig_apply(r, declare_request(r, 0, CONN));
    while (inside_job(r->store, r->job)->steps.account.used == 0) assert_true(pd_store_work(r->store, r->now));
    for (int i = 0; i < 20; i++) assert_true(pd_store_work(r->store, r->now));
    rig_absorb(r);
    assert_int_equal(r->answered, welcomed);
}

/* Lets the store work until it has given one more answer. Returns the code of the answer. */
static int next_answer(rig *r)
{
    uint64_t answered = r->answered;

    while (r->answered == answered) {
        bool more = pd_store_work(r->store, r->now);
        rig_absorb(r);
        assert_true(more || r->answered > answered);
    }
    assert_int_equal(r->answered, answered + 1);
    return r->error.code;
}

/* Checks that the store holds nothing of the job that was planned: its counters are those of the other job. */
static void assert_nothing_is_left(const rig *r)
{
    const pd_job *job = inside_job(r->store, other);

    assert_int_equal(r->store->budget.used, job != NULL ? job->steps.account.used : 0);
    assert_int_equal(r->store->ingest.n_ranks, job != NULL ? 1 : 0);
}

static int send(rig *r, pd_request_kind kind, uint32_t rank)
{
    pd_request *request =
        pd_request_new(kind, kind == PD_REQ_LOST ? (pd_ticket){ CONN + rank, 0 } : rig_ticket(r, CONN + rank));

    request->job = r->job;
    request->rank = rank;
    return rig_apply(r, request);
}

static int drop(rig *r)
{
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(r, 99));

    request->u.info.job_name = strdup("job");
    return rig_apply(r, request);
}

FIXTURE(rig, set_up, rig_free);

TEST(declares_of_other_ranks_wait_for_the_planning, rig *r)
{
    rig_apply(r, declare_request(r, 1, CONN + 1));
    rig_apply(r, declare_request(r, 2, CONN + 2));
    assert_int_equal(r->answered, welcomed);
    for (uint32_t rank = 0; rank < WORLD; rank++) assert_int_equal(next_answer(r), PD_OK);
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->n_params, N);
}

TEST(a_set_in_slices_is_the_set_at_once, void *given)
{
    rig *r = given, at_once;
    pd_store_config config = rig_config();

    next_answer(r);
    rig_new(&at_once, &config);
    rig_hello(&at_once, "job", 0, WORLD, CONN, CONN, "job_linger=3600", "* adam lr=1");
    assert_int_equal(rig_apply(&at_once, declare_request(&at_once, 0, CONN)), PD_OK);
    assert_int_equal(inside_job(at_once.store, at_once.job)->steps.account.used,
                     inside_job(r->store, r->job)->steps.account.used);
    assert_int_equal(inside_job(at_once.store, at_once.job)->steps.quotas[0].reserve,
                     inside_job(r->store, r->job)->steps.quotas[0].reserve);
    rig_free(&at_once);
}

TEST(a_set_that_is_refused_in_the_middle_lets_the_next_one_be_planned, rig *r)
{
    pd_request *good = declare_request(r, 1, CONN + 1), *bad = declare_request(r, 2, CONN + 2);

    free(bad->u.declare.params[N - 1].name);
    bad->u.declare.params[N - 1].name = strdup(names[0]);
    send(r, PD_REQ_LOST, 0);
    rig_apply(r, bad);
    rig_apply(r, good);
    assert_int_equal(next_answer(r), PD_ABORTED); /* answers the Declare of rank 0, whose connection is lost */
    assert_int_equal(next_answer(r), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r->error.text, "layer.0 is declared twice"));
    assert_int_equal(next_answer(r), PD_OK);
}

TEST(a_lost_rank_is_not_planned_for_any_more, rig *r)
{
    send(r, PD_REQ_LOST, 0);
    rig_apply(r, declare_request(r, 1, CONN + 1));
    assert_int_equal(next_answer(r), PD_ABORTED);
    assert_int_equal(next_answer(r), PD_OK);
}

TEST(a_rank_that_leaves_is_not_planned_for_any_more, rig *r)
{
    assert_int_equal(send(r, PD_REQ_LEAVE, 0), PD_OK);
    assert_int_equal(next_answer(r), PD_ABORTED);
    rig_work(r);
    assert_nothing_is_left(r);
}

TEST(a_rank_that_is_taken_over_declares_anew, rig *r)
{
    rig_hello(r, "job", 0, WORLD, 77, 77, "job_linger=3600", "* adam lr=1");
    rig_apply(r, declare_request(r, 0, 77));
    assert_int_equal(next_answer(r), PD_ABORTED);
    assert_int_equal(next_answer(r), PD_OK);
}

TEST(a_job_without_workers_ends_in_the_middle, rig *r)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) send(r, PD_REQ_LOST, rank);
    rig_sleep(r, 0.001);
    assert_int_equal(r->gone, 1);
    assert_int_equal(r->answered, welcomed + 1);
    assert_int_equal(r->error.code, PD_ABORTED);
    assert_nothing_is_left(r);
}

TEST(a_job_dropped_in_the_middle_answers_all, rig *r)
{
    rig_apply(r, declare_request(r, 1, CONN + 1));
    rig_apply(r, declare_request(r, 2, CONN + 2));
    drop(r);
    assert_int_equal(r->answered, welcomed + 3 + 1);
    rig_work(r);
    assert_int_equal(r->answered, welcomed + 3 + 1);
    assert_nothing_is_left(r);
}

TEST(a_job_being_planned_shows_no_parameters, rig *r)
{
    assert_int_equal(rig_ask(r, PD_INFO_PARAMS, "job")->n_params, 0);
    assert_int_equal(rig_set(r, "job", "*", "lr=0.5", 0), PD_NOT_FOUND);
    assert_int_equal(next_answer(r), PD_OK);
}

TEST(a_push_before_the_answer_is_refused, rig *r)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, 0, CONN, 1);
    float values[64] = { 0 };

    rig_piece(frame, 0, PD_F32, 0, 64, values);
    assert_int_equal(rig_send(r, frame), PD_FAILED_PRECONDITION);
    assert_int_equal(next_answer(r), PD_OK);
}

/* The steps of the other job close while the large declaration is being planned. */
TEST(other_jobs_step_between_the_slices, rig *r)
{
    for (uint64_t step = 1; step <= 3; step++) {
        assert_int_equal(rig_push(r, other, 0, 50, step, 0, (float[5]){ 1, 1, 1, 1, 1 }, 5), PD_OK);
        for (int i = 0; i < 8; i++) pd_store_work(r->store, r->now);
        rig_absorb(r);
        assert_int_equal(rig_versions(r, other, 0)->step, step);
    }
    assert_int_equal(r->answered, welcomed); /* the large declaration is not answered yet */
    assert_int_equal(next_answer(r), PD_OK);
}

/* Sets up the first of two shards of a job, which both ranks have joined. */
static void join_shard(rig *r, const pd_store_config *config)
{
    rig_new(r, config);
    r->shards = 2;
    other = 0;
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(rig_hello(r, "job", rank, 2, CONN + rank, CONN + rank, "nonfinite_scope=job", "* adam lr=1"),
                         PD_OK);
}

TEST(portions_of_a_set_in_slices_are_those_of_a_set_at_once)
{
    pd_store_config config = rig_config(), some = slices();
    rig r, at_once;

    join_shard(&r, &some);
    join_shard(&at_once, &config);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const pd_job *job = inside_job(r.store, r.job), *same = inside_job(at_once.store, at_once.job);
        rig_apply(&r, declare_request(&r, rank, CONN + rank));
        assert_int_equal(next_answer(&r), PD_OK);
        assert_int_equal(rig_apply(&at_once, declare_request(&at_once, rank, CONN + rank)), PD_OK);
        assert_int_equal(r.n_places, N);
        assert_int_equal(at_once.n_places, N);
        for (size_t k = 0; k < N; k++) {
            assert_int_equal(r.places[k].shard, at_once.places[k].shard);
            assert_int_equal(r.places[k].own, at_once.places[k].own);
        }
        assert_true(job->steps.n_params > 0 && job->steps.n_params < N);
        assert_int_equal(job->steps.n_params, same->steps.n_params);
        assert_int_equal(job->steps.map, same->steps.map);
        assert_int_equal(job->steps.account.used, same->steps.account.used);
    }
    rig_free(&at_once);
    rig_free(&r);
}

TEST(a_shard_refuses_a_name_that_comes_twice)
{
    pd_store_config config = slices();
    pd_request *bad;
    rig r;

    join_shard(&r, &config);
    bad = declare_request(&r, 0, CONN);
    free(bad->u.declare.params[N - 1].name);
    bad->u.declare.params[N - 1].name = strdup(names[0]);
    rig_apply(&r, bad);
    assert_int_equal(next_answer(&r), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "layer.0 is declared twice"));
    assert_nothing_is_left(&r);
    rig_free(&r);
}

TEST(memory_of_a_shard_may_be_short_in_any_slice)
{
    pd_store_config config = slices();
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        rig r;
        pd_request *requests[2];

        join_shard(&r, &config);
        for (uint32_t rank = 0; rank < 2; rank++) requests[rank] = declare_request(&r, rank, CONN + rank);
        oom_arm(n);
        for (uint32_t rank = 0; rank < 2; rank++) {
            pd_store_apply(r.store, requests[rank], r.now);
            while (pd_store_work(r.store, r.now)) continue;
        }
        failed = oom_disarm();
        rig_absorb(&r);
        assert_int_equal(r.answered, 4);
        for (uint32_t rank = 0; rank < 2; rank++) {
            if (inside_job(r.store, r.job)->steps.quotas[rank].declared) continue;
            assert_true(failed);
            rig_apply(&r, declare_request(&r, rank, CONN + rank));
            assert_int_equal(next_answer(&r), PD_OK);
        }
        assert_int_equal(r.n_places, N);
        rig_free(&r);
    }
}

TEST(memory_may_be_short_in_any_slice)
{
    for (int64_t n = 0;; n++) {
        pd_store_config config = slices();
        bool failed;
        int rc;
        rig r;
        pd_request *request;

        rig_new(&r, &config);
        other = 0;
        rig_hello(&r, "job", 0, 1, CONN, CONN, NULL, "* shampoo lr=1 max_preconditioner_dim=32");
        request = declare_request(&r, 0, CONN);
        oom_arm(n);
        pd_store_apply(r.store, request, r.now);
        while (pd_store_work(r.store, r.now)) continue;
        failed = oom_disarm();
        rig_absorb(&r);
        assert_int_equal(r.answered, 2);
        rc = r.error.code;
        assert_true(rc == PD_OK || (failed && rc == PD_NO_MEMORY));
        if (rc != PD_OK) {
            assert_nothing_is_left(&r);
            rig_apply(&r, declare_request(&r, 0, CONN));
            assert_int_equal(next_answer(&r), PD_OK);
        }
        rig_free(&r);
        if (!failed) break;
    }
}

/* Declares the parameters in a job of `world` ranks, which is over the limits of `config`. Checks that the refusal
 * allocates almost nothing. Returns the error. */
static pd_error refused_at_once(const pd_store_config *config, uint32_t world)
{
    pd_error err;
    int64_t before;
    pd_request *request;
    rig r;

    rig_new(&r, config);
    assert_int_equal(rig_hello(&r, "job", 0, world, CONN, CONN, NULL, "* sgd lr=1"), PD_OK);
    request = declare_request(&r, 0, CONN);
    before = oom_allocations();
    oom_forget_largest();
    pd_store_apply(r.store, request, r.now);
    assert_true(oom_allocations() - before <= 4); /* a line of the log, and three records of how far it has come */
    assert_true(oom_largest() <= 1024);
    rig_absorb(&r);
    err = r.error;
    rig_free(&r);
    return err;
}

TEST(a_set_beyond_the_ingest_budget_takes_no_memory)
{
    pd_store_config config = rig_config();
    pd_error err;

    config.ingest_bytes = 4096 * 4095ull;
    err = refused_at_once(&config, 4096);
    assert_int_equal(err.code, PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "its 4096 ranks, with frames of up to 4096 bytes, need 16777216 bytes of ingest "
                                     "budget, and there are 16773120"));
}

TEST(a_set_whose_records_exceed_the_limit_takes_no_memory)
{
    pd_store_config config = rig_config();
    pd_error err;

    config.max_total_bytes =
        4096ull * N * sizeof(pd_contribution); /* enough for half of the slot records: each parameter has two chunks */
    err = refused_at_once(&config, 4096);
    assert_int_equal(err.code, PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "limits.max_total_bytes"));
}

TEST(a_set_of_too_many_records_is_refused)
{
    static const int64_t large = (int64_t)4 << 20; /* a parameter of 2^18 chunks of 16 elements */
    pd_store_config config = rig_config();
    pd_error err;
    rig r;

    config.chunk_elements = 16;
    config.max_total_bytes = UINT64_MAX / 4;
    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "job", 0, 2048, CONN, CONN, NULL, "* sgd lr=1"), PD_OK);
    assert_int_equal(rig_declare(&r, r.job, 0, CONN, names, &(pd_shape){ 1, { large } }, NULL, 1, PD_F32),
                     PD_RESOURCE_EXHAUSTED);
    err = r.error;
    assert_non_null(strstr(err.text, "times 2048 workers"));
    rig_free(&r);
}

static int prepare(void **state)
{
    (void)state;
    name_all();
    return 0;
}

GROUP(prepare, NULL);
