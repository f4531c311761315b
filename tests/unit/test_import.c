/* Tests that imported optimizer state takes effect whole or not at all. */
#include "test.h"
#include "import.h"
#include "rig.h"
#include "store_inside.h"

/* The test's job has a matrix of 8 x 4 and a vector of 6, both with scalable_shampoo. Their state consists of
 * momenta of the whole parameter, and of statistics and preconditioners for each dimension. */
static const char rules[] =
    "* scalable_shampoo learning_rate=0.1 block_size=8 best_effort_shape_interpretation=no graft_type=SGD";
enum { OPERATOR = 99 };
static const pd_shape shapes[] = { { 2, { 8, 4 } }, { 1, { 6 } } };
static const char *const names[] = { "m", "v" };
enum { MATRIX, VECTOR, PARAMS };

typedef struct fixture {
    rig r;
    uint32_t job;
    uint64_t buffers; /* number of payload buffers allocated so far */
} fixture;

static void set_up(fixture *f)
{
    pd_store_config config = rig_config();
    float weights[32] = { 0 };

    rig_new(&f->r, &config);
    assert_int_equal(rig_hello(&f->r, "j", 0, 1, 1, 1, NULL, rules), PD_OK);
    f->job = f->r.job;
    assert_int_equal(rig_declare(&f->r, f->job, 0, 1, names, shapes, NULL, PARAMS, PD_F32), PD_OK);
    assert_int_equal(rig_init(&f->r, f->job, 1, MATRIX, weights, 32), PD_OK);
    assert_int_equal(rig_init(&f->r, f->job, 1, VECTOR, weights, 6), PD_OK);
}

static void tear_down(fixture *f)
{
    rig_free(&f->r);
}

static pd_request *request_of(fixture *f, pd_import_act act, const char *param, const char *slot)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(&f->r, OPERATOR));

    request->u.import.act = act;
    request->u.import.job_name = strdup("j");
    request->u.import.param = strdup(param);
    request->u.import.slot = strdup(slot);
    request->u.import.number = request->u.import.block = -1;
    return request;
}

static int begin(fixture *f)
{
    return rig_apply(&f->r, request_of(f, PD_IMPORT_BEGIN, "", ""));
}

static int commit(fixture *f, bool partial)
{
    pd_request *request = request_of(f, PD_IMPORT_COMMIT, "", "");
    uint64_t answered = f->r.answered;

    request->u.import.partial = partial;
    rig_apply(&f->r, request);
    rig_work(&f->r);
    assert_int_equal(f->r.answered, answered + 1);
    return f->r.error.code;
}

static int count(fixture *f, const char *param, int64_t value)
{
    pd_request *request = request_of(f, PD_IMPORT_COUNT, param, "");

    request->u.import.value = value;
    return rig_apply(&f->r, request);
}

/* Imports elements [first, first + n) of a slot. Element i has the value `value` + i. */
static int piece(fixture *f, const char *param, const char *slot, int number, int block, pd_shape shape, int64_t first,
                 int64_t n, float value)
{
    pd_request *request = request_of(f, PD_IMPORT_PIECE, param, slot);
    size_t bytes = (size_t)n * sizeof(float);

    request->u.import.number = number;
    request->u.import.block = block;
    request->u.import.shape = shape;
    request->u.import.first = first;
    request->u.import.count = n;
    if (n > 0) {
        float *at = rig_payload(&f->r, OPERATOR, bytes, &request->u.import.buffer);
        for (int64_t i = 0; i < n; i++) at[i] = value + (float)(first + i);
    }
    return rig_apply(&f->r, request);
}

static int whole(fixture *f, const char *param, const char *slot, int number, pd_shape shape, float value)
{
    int64_t n = 0;

    (void)pd_shape_elements(&shape, &n);
    return piece(f, param, slot, number, -1, shape, 0, n, value);
}

static int everything(fixture *f)
{
    static const pd_shape eight = { 2, { 8, 8 } }, four = { 2, { 4, 4 } }, six = { 2, { 6, 6 } };
    int rc = whole(f, "m", "momentum", -1, shapes[MATRIX], 100);

    if (rc == PD_OK) rc = whole(f, "m", "diagonal_momentum", -1, shapes[MATRIX], 200);
    if (rc == PD_OK) rc = whole(f, "m", "statistics", 0, eight, 300);
    if (rc == PD_OK) rc = whole(f, "m", "preconditioners", 0, eight, 400);
    if (rc == PD_OK) rc = whole(f, "m", "statistics", 1, four, 500);
    if (rc == PD_OK) rc = whole(f, "m", "preconditioners", 1, four, 600);
    if (rc == PD_OK) rc = whole(f, "v", "momentum", -1, shapes[VECTOR], 700);
    if (rc == PD_OK) rc = whole(f, "v", "diagonal_momentum", -1, shapes[VECTOR], 800);
    if (rc == PD_OK) rc = whole(f, "v", "statistics", 0, six, 900);
    return rc == PD_OK ? whole(f, "v", "preconditioners", 0, six, 1000) : rc;
}

static pd_job *job_of(fixture *f)
{
    return inside_job(f->r.store, f->job);
}

static double state_at(fixture *f, int param, const char *slot, int number, int64_t element)
{
    const pd_optim *optim = job_of(f)->steps.params[param].optim;
    double values[64];
    pd_part part;

    assert_true(pd_plan_part(pd_optim_plan(optim), slot, number, -1, &part));
    pd_optim_read_part(optim, &part, values);
    return values[element];
}

static void assert_untouched(fixture *f)
{
    assert_true(state_at(f, MATRIX, "momentum", -1, 5) == 0);
    assert_true(state_at(f, VECTOR, "preconditioners", 0, 0) == 1 && state_at(f, VECTOR, "preconditioners", 0, 1) == 0);
    assert_int_equal(pd_optim_count(job_of(f)->steps.params[MATRIX].optim), 0);
}

FIXTURE(fixture, set_up, tear_down);

TEST(committed_state_is_the_jobs_state, fixture *f)
{
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(everything(f), PD_OK);
    assert_int_equal(count(f, "m", 41), PD_OK);
    assert_untouched(f);
    assert_int_equal(commit(f, false), PD_OK);
    assert_true(state_at(f, MATRIX, "momentum", -1, 5) == 105 && state_at(f, MATRIX, "preconditioners", 1, 15) == 615);
    assert_true(state_at(f, VECTOR, "preconditioners", 0, 35) == 1035 &&
                state_at(f, VECTOR, "diagonal_momentum", -1, 0) == 800);
    assert_int_equal(pd_optim_count(job_of(f)->steps.params[MATRIX].optim), 41);
    assert_int_equal(pd_optim_count(job_of(f)->steps.params[VECTOR].optim), 0);
    assert_false(pd_import_writes(job_of(f)));
}

TEST(a_tensor_may_come_in_pieces, fixture *f)
{
    assert_int_equal(begin(f), PD_OK);
    for (int64_t i = 0; i < 32; i += 5)
        assert_int_equal(piece(f, "m", "momentum", -1, -1, shapes[MATRIX], i, 32 - i < 5 ? 32 - i : 5, 100), PD_OK);
    assert_int_equal(commit(f, true), PD_OK);
    for (int64_t i = 0; i < 32; i++) assert_true(state_at(f, MATRIX, "momentum", -1, i) == 100 + (double)i);
}

TEST(pieces_that_leave_a_hole_are_refused, fixture *f)
{
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(piece(f, "m", "momentum", -1, -1, shapes[MATRIX], 0, 8, 100), PD_OK);
    assert_int_equal(piece(f, "m", "momentum", -1, -1, shapes[MATRIX], 16, 8, 100), PD_INVALID_ARGUMENT);
    assert_int_equal(piece(f, "m", "momentum", -1, -1, shapes[MATRIX], 0, 8, 100), PD_INVALID_ARGUMENT);
    assert_int_equal(piece(f, "m", "momentum", -1, -1, shapes[MATRIX], 8, 25, 100), PD_INVALID_ARGUMENT);
    assert_int_equal(commit(f, true), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f->r.error.text, "of a tensor of 32 elements 8 have come"));
    assert_untouched(f);
}

TEST(nothing_is_half_loaded, fixture *f)
{
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(whole(f, "m", "momentum", -1, shapes[MATRIX], 100), PD_OK);
    assert_int_equal(commit(f, false), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f->r.error.text, "diagonal_momentum"));
    assert_untouched(f);
    assert_int_equal(commit(f, true), PD_OK);
    assert_true(state_at(f, MATRIX, "momentum", -1, 5) == 105);
}

TEST(state_that_the_job_does_not_keep_is_not_found, fixture *f)
{
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(whole(f, "x", "momentum", -1, shapes[MATRIX], 1), PD_NOT_FOUND);
    assert_int_equal(whole(f, "m", "exp_avg", -1, shapes[MATRIX], 1), PD_NOT_FOUND);
    assert_int_equal(whole(f, "m", "direction", -1, shapes[MATRIX], 1), PD_NOT_FOUND);
    assert_int_equal(whole(f, "m", "statistics", 2, shapes[MATRIX], 1), PD_NOT_FOUND);
    assert_int_equal(whole(f, "m", "statistics", 0, shapes[MATRIX], 1), PD_INVALID_ARGUMENT);
    assert_int_equal(count(f, "x", 1), PD_NOT_FOUND);
}

TEST(a_counter_never_goes_back, fixture *f)
{
    float gradient[32] = { 1 };

    assert_int_equal(rig_push(&f->r, f->job, 0, 1, 1, MATRIX, gradient, 32), PD_OK);
    rig_work(&f->r);
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(count(f, "m", 0), PD_INVALID_ARGUMENT);
    assert_int_equal(count(f, "m", -5), PD_INVALID_ARGUMENT);
    assert_int_equal(count(f, "m", 1), PD_OK);
}

TEST(of_counters_that_come_twice_the_larger_is_taken, fixture *f)
{
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(count(f, "m", 5), PD_OK);
    assert_int_equal(count(f, "m", 9), PD_OK);
    assert_int_equal(count(f, "m", 7), PD_OK);
    assert_int_equal(job_of(f)->import->n_counts, 1);
    assert_int_equal(commit(f, true), PD_OK);
    assert_int_equal(pd_optim_count(job_of(f)->steps.params[MATRIX].optim), 9);
    assert_int_equal(pd_optim_count(job_of(f)->steps.params[VECTOR].optim), 0);
}

TEST(only_the_connection_that_began_may_continue, fixture *f)
{
    assert_int_equal(whole(f, "m", "momentum", -1, shapes[MATRIX], 1), PD_FAILED_PRECONDITION);
    assert_int_equal(commit(f, true), PD_FAILED_PRECONDITION);
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(whole(f, "m", "momentum", -1, shapes[MATRIX], 1), PD_OK);
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(commit(f, true), PD_OK);
    assert_untouched(f);
}

/* Sends a commit while a preconditioner task of the job is at the preconditioner pool. Returns the number of answers
 * before it. */
static uint64_t commit_during_a_root(fixture *f)
{
    float gradient[32] = { 1 };
    pd_request *request;
    uint64_t answered;

    f->r.lazy_tasks = true;
    assert_int_equal(rig_push(&f->r, f->job, 0, 1, 1, MATRIX, gradient, 32), PD_OK);
    rig_work(&f->r);
    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(whole(f, "v", "momentum", -1, shapes[VECTOR], 1), PD_OK);
    request = request_of(f, PD_IMPORT_COMMIT, "", "");
    request->u.import.partial = true;
    answered = f->r.answered;
    rig_apply(&f->r, request);
    rig_sleep(&f->r, 1);
    return answered;
}

TEST(a_commit_waits_for_a_pending_root_task, fixture *f)
{
    uint64_t answered = commit_during_a_root(f);

    assert_int_equal(f->r.answered, answered);
    while (f->r.n_tasks > 0) rig_finish_task(&f->r, 0);
    rig_work(&f->r);
    rig_sleep(&f->r, 0.1);
    rig_work(&f->r);
    assert_int_equal(f->r.answered, answered + 1);
    assert_int_equal(f->r.error.code, PD_OK);
    assert_true(state_at(f, VECTOR, "momentum", -1, 2) == 3);
}

TEST(a_commit_that_waits_too_long_is_refused_and_can_be_sent_again, fixture *f)
{
    uint64_t answered = commit_during_a_root(f);

    rig_sleep(&f->r, 10);
    assert_int_equal(f->r.answered, answered + 1);
    assert_int_equal(f->r.error.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f->r.error.text, "a step of m is under way, or a root of it"));
    while (f->r.n_tasks > 0) rig_finish_task(&f->r, 0);
    rig_work(&f->r);
    assert_int_equal(commit(f, true), PD_OK);
    assert_true(state_at(f, VECTOR, "momentum", -1, 2) == 3);
}

TEST(staged_bytes_are_counted_and_given_back, fixture *f)
{
    uint64_t before = f->r.store->budget.used;

    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(whole(f, "m", "momentum", -1, shapes[MATRIX], 1), PD_OK);
    assert_true(f->r.store->budget.used >= before + sizeof(float) * 32);
    f->r.store->budget.limit = f->r.store->budget.used;
    assert_int_equal(whole(f, "v", "momentum", -1, shapes[VECTOR], 1), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(commit(f, true), PD_OK);
    assert_int_equal(f->r.store->budget.used, before);
}

TEST(counters_take_bytes_once_and_give_them_back, fixture *f)
{
    uint64_t before = f->r.store->budget.used, limit = f->r.store->budget.limit, bytes = PARAMS * sizeof(int64_t);

    assert_int_equal(begin(f), PD_OK);
    f->r.store->budget.limit = before + bytes - 1;
    assert_int_equal(count(f, "m", 1), PD_RESOURCE_EXHAUSTED);
    f->r.store->budget.limit = limit;
    for (int i = 0; i < 3; i++) assert_int_equal(count(f, "m", 1), PD_OK);
    assert_int_equal(count(f, "v", 1), PD_OK);
    assert_int_equal(f->r.store->budget.used, before + bytes);
    assert_int_equal(commit(f, true), PD_OK);
    assert_int_equal(f->r.store->budget.used, before);
}

TEST(an_import_that_nobody_ends_is_dropped, fixture *f)
{
    uint64_t before = f->r.store->budget.used;

    assert_int_equal(begin(f), PD_OK);
    assert_int_equal(whole(f, "m", "momentum", -1, shapes[MATRIX], 1), PD_OK);
    rig_sleep(&f->r, 59);
    assert_int_not_equal(f->r.store->budget.used, before);
    rig_sleep(&f->r, 2);
    assert_int_equal(f->r.store->budget.used, before);
    assert_int_equal(commit(f, true), PD_FAILED_PRECONDITION);
}

TEST(without_memory_nothing_has_changed, fixture *f)
{
    bool survived = false;

    assert_int_equal(begin(f), PD_OK);
    for (int64_t at = 0; at < 50 && !survived; at++) {
        pd_request *request = request_of(f, PD_IMPORT_PIECE, "m", "momentum");
        int rc;
        request->u.import.shape = shapes[MATRIX];
        request->u.import.count = 32;
        memset(rig_payload(&f->r, OPERATOR, 32 * sizeof(float), &request->u.import.buffer), 0, 32 * sizeof(float));
        oom_arm(at);
        rc = rig_apply(&f->r, request);
        survived = !oom_disarm();
        assert_int_equal(rc, survived ? PD_OK : PD_NO_MEMORY);
    }
    assert_true(survived);
}
