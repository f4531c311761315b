/* Tests the weights to evaluate with as the store gives them: when it computes them, from what, and what becomes of
 * them. tests/e2e/test_evaluation_weights.c pulls and exports them. */
#include "test.h"
#include "coupled_row.h"
#include "exporting.h"
#include "optimizer_ops.h"
#include "rig.h"
#include "vectors.h"

enum { N = 300 };

static pd_optimizer_ops coupled; /* coupled_row, whose weights to evaluate with are its weights with the other sign */
static const pd_optimizer_ops *rows[] = { NULL, NULL, NULL, NULL };

static void negate(const pd_readout *readout)
{
    for (int64_t i = 0; i < readout->n; i++) readout->out[i] = -readout->weights[i];
}

static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    coupled = coupled_row;
    coupled.readout = negate;
    rows[0] = &coupled, rows[1] = pd_optim_find("schedule_free"), rows[2] = pd_optim_find("sgd");
    config.rows = rows;
    rig_new(r, &config);
}

FIXTURE(rig, set_up, rig_free);

static void ask(rig *r, uint32_t job, uint32_t param)
{
    pd_store_apply(r->store, pd_request_read_out(job, param), r->now);
    rig_absorb(r);
}

static void step(rig *r, uint32_t job, uint64_t number)
{
    float gradient[N];

    vectors_fill(gradient, N, (int)number);
    assert_int_equal(rig_push(r, job, 0, 10, number, 0, gradient, N), PD_OK);
    rig_work(r);
}

TEST(they_follow_from_weights_and_state_of_the_same_step, rig *r)
{
    static const int64_t n = N;
    pd_hypers h = vectors_hypers("schedule_free", OPTIONS("lr", "0.1"));
    pd_model *model = vectors_model(&h, &n, 1, 1);
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* schedule_free lr=0.1");
    float w[N], x[N], gradient[N];

    memcpy(w, rig_weights(r, job, 0), sizeof w);
    ask(r, job, 0);
    assert_memory_equal(rig_weights(r, job, 0), w, sizeof w);
    for (uint64_t s = 1; s <= 4; s++) {
        vectors_fill(gradient, N, (int)s);
        vectors_step(model, gradient, w, w, NULL);
        pd_model_read_out(model, 0, w, x);
        step(r, job, s);
        assert_memory_equal(rig_weights(r, job, 0), w, sizeof w);
        for (int again = 0; again < 2; again++) {
            ask(r, job, 0);
            assert_memory_equal(rig_weights(r, job, 0), x, sizeof x);
        }
    }
    assert_memory_not_equal(x, w, sizeof x);
    pd_model_free(model);
}

/* While a root is computed, the state is neither of the last step nor of the one under way. */
TEST(while_a_step_is_under_way_they_wait_for_its_end, rig *r)
{
    static const int64_t n = N;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* coupled block_size=300 interval=1");
    float before[N], after[N];
    uint64_t batches;

    memcpy(before, rig_weights(r, job, 0), sizeof before);
    r->lazy_tasks = true;
    step(r, job, 1);
    assert_int_equal(r->n_tasks, 1);
    batches = r->batches;
    ask(r, job, 0);
    ask(r, job, 0); /* one answer is for both */
    assert_int_equal(r->batches, batches);
    rig_finish_task(r, 0);
    rig_work(r);
    assert_int_equal(r->batches, batches + 2);
    assert_int_equal(rig_versions(r, job, 0)->step, 1);
    memcpy(after, rig_weights(r, job, 0), sizeof after);
    for (int i = 0; i < N; i++) after[i] = -after[i];
    assert_memory_not_equal(after, before, sizeof after);
    ask(r, job, 0);
    for (int i = 0; i < N; i++) after[i] = -after[i];
    assert_memory_equal(rig_weights(r, job, 0), after, sizeof after);
}

TEST(a_job_that_ends_meanwhile_answers_nobody, rig *r)
{
    static const int64_t n = N;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* coupled block_size=300 interval=1");
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(r, 1));

    r->lazy_tasks = true;
    step(r, job, 1);
    ask(r, job, 0);
    request->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(r, request), PD_OK);
    ask(r, job, 0);
    ask(r, job + 1, 0);
    rig_finish_task(r, 0);
}

static void watch(void *watcher, const pd_effect *effect)
{
    if (effect->kind == PD_EFF_CLOSED && effect->u.closed.at[0].read_out)
        *(pd_closed *)watcher = effect->u.closed.at[0];
}

TEST(without_an_average_they_are_the_published_weights, rig *r)
{
    static const int64_t n = N;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* sgd lr=1");
    pd_closed answer = { .published = (void *)r };

    r->watch = watch;
    r->watcher = &answer;
    step(r, job, 1);
    ask(r, job, 0);
    assert_true(answer.read_out && !answer.starved);
    assert_null(answer.published);
    assert_int_equal(answer.step, 1);
}

/* Weights to evaluate with that nobody has returned count as unread, as replaced weights do. */
TEST(they_are_counted_as_long_as_answers_refer_to_them, rig *r)
{
    static const int64_t n = N;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* schedule_free lr=0.1");
    uint64_t used;

    step(r, job, 1);
    ask(r, job, 0);
    used = pd_store_count_bytes(r->store).published_list;
    step(r, job, 2); /* the rig returns them when it gets others */
    step(r, job, 3);
    for (int i = 0; i < 50; i++) ask(r, job, 0);
    assert_true(pd_store_count_bytes(r->store).published_list <= used + 2 * N * sizeof(float));
}

/* Begins an export of the weights to evaluate with. Returns the code of the answer. */
static int begin_export(rig *r, bool may_stop)
{
    pd_request *request = export_request(r, "job", 1, PD_EXPORT_BEGIN);

    request->u.export.evaluates = true;
    request->u.export.may_stop = may_stop;
    request->u.export.wait_ns = 1000000000;
    return rig_apply(r, request);
}

TEST(an_export_of_them_quiesces_the_job, rig *r)
{
    static const int64_t n = N;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* schedule_free lr=0.1");
    float w[N], x[N];

    for (uint64_t s = 1; s <= 3; s++) step(r, job, s);
    memcpy(w, rig_weights(r, job, 0), sizeof w);
    ask(r, job, 0);
    memcpy(x, rig_weights(r, job, 0), sizeof x);
    assert_int_equal(begin_export(r, true), PD_OK);
    step(r, job, 4);
    assert_int_equal(rig_versions(r, job, 0)->step, 3);
    for (int first = 0; first < N; first += N / 3) { /* it is read in pieces */
        assert_int_equal(export_weights(r, "job", 1, "p0", first, N / 3), PD_OK);
        assert_memory_equal(r->exported.at, x + first, N / 3 * sizeof(float));
    }
    assert_memory_not_equal(x, w, sizeof x);
    assert_int_equal(export_end(r, "job", 1), PD_OK);
    rig_work(r);
    assert_int_equal(rig_versions(r, job, 0)->step, 4);
}

TEST(who_may_not_quiesce_a_job_exports_them_only_where_they_are_published, rig *r)
{
    static const int64_t n = N;
    uint32_t job = rig_start(r, "job", 1, 10, &n, 1, NULL, "* schedule_free lr=0.1");
    pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(r, 1));

    assert_int_equal(begin_export(r, false), PD_PERMISSION_DENIED);
    assert_non_null(strstr(r->error.text, "expected the role push or admin"));
    drop->u.info.job_name = strdup("job");
    assert_int_equal(rig_apply(r, drop), PD_OK);
    job = rig_start(r, "job", 1, 20, &n, 1, NULL, "* sgd lr=1");
    assert_int_equal(begin_export(r, false), PD_OK);
    assert_int_equal(export_weights(r, "job", 1, "p0", 0, N), PD_OK);
    assert_memory_equal(r->exported.at, rig_weights(r, job, 0), N * sizeof(float));
    assert_int_equal(export_end(r, "job", 1), PD_OK);
}
