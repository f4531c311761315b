/* Tests memory that runs out at any allocation of the store: an error is reported, nothing is lost, and work continues
 * when memory is available. */
#include "test.h"
#include "coupled_row.h"
#include "optimizer.h"
#include "rig.h"

enum { WORLD = 2, N = 3, MOST = 150 };
static const int64_t sizes[N] = { MOST, 64, 5 };
static const char *const names[N] = { "p0", "p1", "p2" };
static const pd_shape shapes[N] = { { 1, { MOST } }, { 1, { 64 } }, { 1, { 5 } } };
static const pd_optimizer_ops *rows[] = { &coupled_row, NULL, NULL };
static const char *const both_rules[] = { "p2 sgd lr=1;* coupled block_size=50 interval=1 root_delay=1",
                                          "* coupled block_size=50 interval=1 root_delay=0" };
static const char *rules; /* one of them */

static pd_store_config configuration(void)
{
    pd_store_config config = rig_config();

    rows[1] = pd_optim_find("sgd");
    config.rows = rows;
    return config;
}

/* Applies the request and lets its n-th allocation fail. Returns whether there was an n-th allocation. */
static bool apply_short_of_memory(rig *r, pd_request *request, int64_t n)
{
    bool failed;

    r->error.code = PD_OK;
    oom_arm(n);
    pd_store_apply(r->store, request, r->now);
    failed = oom_disarm();
    rig_absorb(r);
    return failed;
}

static bool work_short_of_memory(rig *r, int64_t n)
{
    bool failed;

    oom_arm(n);
    while (pd_store_work(r->store, r->now)) continue;
    failed = oom_disarm();
    rig_absorb(r);
    return failed;
}

static pd_request *hello_request(rig *r, uint32_t rank)
{
    pd_request *request = pd_request_new(PD_REQ_HELLO, rig_ticket(r, 10 + rank));
    char *rule = strdup(rules), *rest = NULL;

    request->rank = rank;
    request->u.hello.job_name = strdup("job");
    request->u.hello.label = strdup("host:1");
    request->u.hello.world_size = WORLD;
    request->u.hello.nonce = 10 + rank;
    request->u.hello.rules = calloc(2, sizeof(char *));
    for (char *one = strtok_r(rule, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest))
        request->u.hello.rules[request->u.hello.n_rules++] = strdup(one);
    free(rule);
    return request;
}

static pd_request *declare_request(rig *r, uint32_t rank, pd_dtype pull)
{
    pd_request *request = pd_request_new(PD_REQ_DECLARE, rig_ticket(r, 10 + rank));

    request->job = r->job;
    request->rank = rank;
    request->u.declare.n = N;
    request->u.declare.params = calloc(N, sizeof(pd_param_decl));
    for (int p = 0; p < N; p++)
        request->u.declare.params[p] =
            (pd_param_decl){ .name = strdup(names[p]), .shape = shapes[p], .pull_dtype = pull };
    return request;
}

/* Makes a request with the data of all parameters in one frame. A push also sends a hyperparameter. */
static pd_request *data_request(rig *r, pd_request_kind kind, uint32_t rank, uint64_t step)
{
    rig_frame *frame = rig_frame_new(r, kind, r->job, rank, 10 + rank, step);

    for (uint32_t p = 0; p < N; p++) {
        float values[MOST];
        rig_noise(10 * p + rank + 100 * step, values, sizes[p]);
        for (int64_t first = 0; first < sizes[p]; first += 64)
            rig_piece(frame, p, PD_F32, first, sizes[p] - first < 64 ? sizes[p] - first : 64, values + first);
    }
    if (kind == PD_REQ_PUSH) rig_hyper(frame, "lr", "0.5");
    return rig_request(frame);
}

/* Copies the published weights of all parameters to `out`, one parameter after the other. */
static void read_weights(rig *r, float *out)
{
    for (uint32_t p = 0; p < N; p++) {
        memcpy(out, rig_weights(r, r->job, p), (size_t)sizes[p] * sizeof(float));
        out += sizes[p];
    }
}

/* Makes a request for is_refused_and_then_taken, which checks that the request is refused while its n-th allocation
 * fails, and accepted when no allocation fails. */
typedef pd_request *maker(rig *r);

static void is_refused_and_then_taken(rig *r, maker *make)
{
    for (int64_t n = 0;; n++) {
        uint64_t answered = r->answered;
        bool failed = apply_short_of_memory(r, make(r), n);
        assert_int_equal(r->answered, answered + 1);
        if (!failed) break;
        if (r->error.code != PD_OK) assert_int_equal(r->error.code, PD_NO_MEMORY);
    }
    assert_int_equal(r->error.code, PD_OK);
}

static pd_request *hello_0(rig *r)
{
    return hello_request(r, 0);
}
static pd_request *hello_1(rig *r)
{
    return hello_request(r, 1);
}
static pd_request *declare_0(rig *r)
{
    return declare_request(r, 0, PD_F32);
}
static pd_request *declare_1(rig *r)
{
    return declare_request(r, 1, PD_BF16);
}
static pd_request *params_info(rig *r)
{
    pd_request *request = pd_request_new(PD_REQ_INFO, rig_ticket(r, 1));
    request->u.info.what = PD_INFO_PARAMS;
    request->u.info.job_name = strdup("job");
    return request;
}

static void init_all(rig *r)
{
    rig_apply(r, data_request(r, PD_REQ_INIT, 0, 0));
    rig_work(r);
    assert_int_equal(r->error.code, PD_OK);
}

static void set_up(rig *r, const pd_store_config *config)
{
    rig_new(r, config);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        rig_apply(r, hello_request(r, rank));
        rig_apply(r, declare_request(r, rank, PD_F32));
    }
    init_all(r);
}

TEST(hello_is_refused_whole)
{
    pd_store_config config = configuration();
    rig r;

    rig_new(&r, &config);
    for (int64_t n = 0;; n++) {
        bool failed = apply_short_of_memory(&r, hello_0(&r), n);
        if (r.error.code == PD_OK) { /* accepted: at most a log line was lost */
            if (!failed) break;
            pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(&r, 1));
            rig_apply(&r, drop);
        } else {
            assert_true(failed);
            assert_int_equal(r.error.code, PD_NO_MEMORY);
            assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->n_jobs, 0);
        }
    }
    is_refused_and_then_taken(&r, hello_1);
    rig_free(&r);
}

TEST(declare_is_refused_whole)
{
    pd_store_config config = configuration();
    rig r;

    rig_new(&r, &config);
    rig_apply(&r, hello_0(&r));
    rig_apply(&r, hello_1(&r));
    for (int64_t n = 0;; n++) {
        bool failed = apply_short_of_memory(&r, declare_0(&r), n);
        if (r.error.code == PD_OK) break;
        assert_true(failed);
        assert_int_equal(r.error.code, PD_NO_MEMORY);
        assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs[0].params, 0);
        assert_int_equal(pd_store_count_bytes(r.store).state, 0);
    }
    assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs[0].params, N);
    is_refused_and_then_taken(&r, declare_1);
    rig_free(&r);
}

/* The second rank wants another element type after the weights were published. Then the weights are published again
 * in that type, or the rank is refused. */
TEST(a_late_element_type_is_refused_or_published)
{
    pd_store_config config = configuration();
    float before[256], after[256];
    rig r;

    rig_new(&r, &config);
    rig_apply(&r, hello_0(&r));
    rig_apply(&r, declare_0(&r));
    init_all(&r);
    read_weights(&r, before);
    rig_apply(&r, hello_1(&r));
    is_refused_and_then_taken(&r, declare_1);
    read_weights(&r, after);
    assert_memory_equal(before, after, (MOST + 64 + 5) * sizeof(float));
    for (uint32_t p = 0; p < N; p++) assert_non_null(r.versions[r.job][p].published->at[PD_BF16]);
    rig_free(&r);
}

TEST(init_is_refused_and_can_be_sent_again)
{
    pd_store_config config = configuration();
    rig r;

    for (int64_t n = 0;; n++) {
        bool failed;
        rig_new(&r, &config);
        rig_apply(&r, hello_0(&r));
        rig_apply(&r, declare_0(&r));
        rig_apply(&r, data_request(&r, PD_REQ_INIT, 0, 0));
        failed = work_short_of_memory(&r, n);
        assert_int_equal(r.buffers_out, 0);
        if (r.error.code != PD_OK) {
            assert_int_equal(r.error.code, PD_NO_MEMORY);
            init_all(&r);
        }
        for (uint32_t p = 0; p < N; p++) assert_non_null(rig_weights(&r, r.job, p));
        rig_free(&r);
        if (!failed) break;
    }
}

TEST(push_is_refused_whole)
{
    pd_store_config config = configuration();
    rig r;

    set_up(&r, &config);
    for (int64_t n = 0;; n++) {
        bool failed = apply_short_of_memory(&r, data_request(&r, PD_REQ_PUSH, 0, 1), n);
        if (!failed) break;
        assert_int_equal(r.error.code, PD_NO_MEMORY);
        assert_int_equal(r.buffers_out, 0);
        assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs[0].contributions, 0);
    }
    assert_int_equal(r.error.code, PD_OK);
    rig_free(&r);
}

TEST(a_push_needs_no_memory_but_its_own)
{
    static const int64_t plain[] = { MOST, 64, 5 };
    pd_store_config config = rig_config();
    rig r;

    rig_new(&r, &config);
    r.job = rig_start(&r, "plain", 1, 10, plain, N, NULL, NULL);
    for (uint64_t step = 1; step <= 3; step++) {
        rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, 10, step);
        float values[64] = { 0 };
        pd_request *request;
        int64_t before;
        rig_piece(frame, 1, PD_F32, 0, 64, values);
        rig_piece(frame, 2, PD_F32, 0, 5, values);
        rig_absent(frame, 0);
        request = rig_request(frame);
        before = oom_allocations();
        pd_store_apply(r.store, request, r.now);
        assert_int_equal(oom_allocations(), before);
        rig_work(&r);
        assert_int_equal(r.versions[r.job][2].step, step);
    }
    rig_free(&r);
}

/* Takes two steps. The n-th allocation of the second step's work fails. Returns whether there was an n-th
 * allocation. */
static bool second_step(float *weights, int64_t n)
{
    pd_store_config config = configuration();
    bool failed;
    rig r;

    set_up(&r, &config);
    for (uint64_t step = 1; step <= 2; step++) {
        for (uint32_t rank = 0; rank < WORLD; rank++)
            assert_int_equal(rig_apply(&r, data_request(&r, PD_REQ_PUSH, rank, step)), PD_OK);
        if (step == 1) rig_work(&r);
    }
    failed = work_short_of_memory(&r, n);
    rig_work(&r); /* steps that waited for preconditioner tasks continue */
    if (r.versions[r.job][0].step < 2 || r.versions[r.job][2].step < 2) {
        assert_true(failed);
        for (int i = 0; i < 3 && (r.versions[r.job][0].step < 2 || r.versions[r.job][2].step < 2); i++) {
            assert_true(pd_store_next_tick(r.store) <= r.now + 1000000000);
            rig_sleep(&r, 1.0);
            rig_work(&r);
        }
        if (r.timed_out > 0) assert_int_equal(r.timeout.code, PD_RESOURCE_EXHAUSTED);
    }
    for (uint32_t p = 0; p < N; p++) assert_int_equal(r.versions[r.job][p].step, 2);
    assert_int_equal(r.buffers_out, 0);
    read_weights(&r, weights);
    rig_free(&r);
    return failed;
}

HOLDS(a_step_is_taken_later_with_the_same_bits, oom_assert_same(second_step, MOST + 64 + 5));

/* A root without memory counts as failed. The last good root is used instead, so the weights may differ. */
TEST(a_step_that_waits_for_its_roots_is_taken_later)
{
    float got[256];

    rules = both_rules[1];
    for (int64_t n = 0; second_step(got, n); n++) continue;
    rules = both_rules[0];
}

TEST(info_is_refused)
{
    pd_store_config config = configuration();
    rig r;

    set_up(&r, &config);
    is_refused_and_then_taken(&r, params_info);
    rig_free(&r);
}

static pd_request *set_all(rig *r)
{
    return rig_set_request(r, "job", "*", "lr=table(0.5,0.25,0.125)", 4);
}

TEST(a_set_is_refused_whole)
{
    pd_store_config config = configuration();
    rig r;

    set_up(&r, &config);
    for (int64_t n = 0;; n++) {
        bool failed = apply_short_of_memory(&r, set_all(&r), n);
        if (r.error.code == PD_OK) break; /* accepted: at most a log line was lost */
        assert_true(failed);
        assert_int_equal(r.error.code, PD_NO_MEMORY);
        assert_int_equal(rig_ask(&r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    }
    assert_int_equal(rig_ask(&r, PD_INFO_SETTINGS, "job")->n_settings, N);
    for (uint64_t step = 1; step <= 5; step++)
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            assert_int_equal(rig_apply(&r, data_request(&r, PD_REQ_PUSH, rank, step)), PD_OK);
            rig_work(&r);
        }
    rig_free(&r);
}

static pd_request *settings_info(rig *r)
{
    pd_request *request = params_info(r);

    request->u.info.what = PD_INFO_SETTINGS;
    return request;
}

TEST(a_list_of_settings_is_refused)
{
    pd_store_config config = configuration();
    rig r;

    set_up(&r, &config);
    assert_int_equal(rig_apply(&r, set_all(&r)), PD_OK);
    is_refused_and_then_taken(&r, settings_info);
    rig_free(&r);
}

static int prepare(void **state)
{
    (void)state;
    rules = both_rules[0];
    return 0;
}

GROUP(prepare, NULL);
