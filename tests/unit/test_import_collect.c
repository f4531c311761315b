/* Tests an import of saved state while a round collects contributions. The state is in place before the step begins, or
 * it is refused and nothing changes. Collected contributions stay. */
#include "test.h"
#include "collecting.h"
#include "import.h"
#include "rig.h"
#include "store_inside.h"

enum { CONN = 10, OPERATOR = 99, WORLD = 4, N = 700, STEPS = 2 };

static void start(rig *r, int how, bool over_quota)
{
    static const int64_t two[] = { N, 70 };
    pd_store_config config = rig_config();

    config.chunk_elements = 128;
    config.batch_ns = 1; /* so short that each batch runs one unit of work */
    if (over_quota) config.ingest_bytes = WORLD * 4096;
    rig_new(r, &config);
    r->job = rig_start(r, "j", WORLD, CONN, two, 2, collecting[how], "* sgd lr=0.5 momentum=0.9");
}

static void push(rig *r, uint32_t rank, uint64_t step)
{
    static float values[N];

    rig_noise(rank + 10 * step, values, N);
    rig_push(r, r->job, rank, CONN + rank, step, 0, values, N);
    rig_push(r, r->job, rank, CONN + rank, step, 1, values, 70);
}

static pd_request *request_of(rig *r, pd_import_act act, const char *param)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(r, OPERATOR));

    request->u.import.act = act;
    request->u.import.job_name = strdup("j");
    request->u.import.param = strdup(param);
    request->u.import.slot = strdup("momentum_buffer");
    request->u.import.number = request->u.import.block = -1;
    request->u.import.value = 7;
    return request;
}

static int bring(rig *r, const char *param, int64_t n)
{
    pd_request *request = request_of(r, PD_IMPORT_PIECE, param);
    float *at = rig_payload(r, OPERATOR, (size_t)n * sizeof *at, &request->u.import.buffer);

    request->u.import.shape = (pd_shape){ 1, { n } };
    request->u.import.count = n;
    rig_noise(99, at, n);
    return rig_apply(r, request);
}

static void stage(rig *r)
{
    assert_int_equal(rig_apply(r, request_of(r, PD_IMPORT_BEGIN, "")), PD_OK);
    assert_int_equal(bring(r, "p0", N), PD_OK);
    assert_int_equal(bring(r, "p1", 70), PD_OK);
    assert_int_equal(rig_apply(r, request_of(r, PD_IMPORT_COUNT, "p0")), PD_OK);
    assert_int_equal(rig_apply(r, request_of(r, PD_IMPORT_COUNT, "p1")), PD_OK);
}

/* Commits the import. Returns PD_OK if the store has begun to write the state. */
static int commit(rig *r)
{
    return rig_apply(r, request_of(r, PD_IMPORT_COMMIT, ""));
}

typedef struct remains {
    float weights[N + 70];
    double momenta[N + 70];
    int64_t count[2];
    uint64_t step[2];
} remains;

static void look(rig *r, remains *out)
{
    static const int64_t sizes[] = { N, 70 }, at[] = { 0, N };

    memset(out, 0, sizeof *out);
    for (int p = 0; p < 2; p++) {
        const pd_optim *optim = inside_job(r->store, r->job)->steps.params[p].optim;
        pd_part part;
        memcpy(out->weights + at[p], rig_weights(r, r->job, (uint32_t)p), (size_t)sizes[p] * sizeof(float));
        assert_true(pd_plan_part(pd_optim_plan(optim), "momentum_buffer", -1, -1, &part));
        pd_optim_read_part(optim, &part, out->momenta + at[p]);
        out->count[p] = pd_optim_count(optim);
        out->step[p] = r->versions[r->job][p].step;
    }
}

static void run(rig *r, int64_t batches)
{
    for (; batches > 0 && pd_store_work(r->store, r->now); batches--) continue;
    rig_absorb(r);
}

static void one_round(rig *r, uint64_t step)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        push(r, rank, step);
        rig_work(r);
    }
}

/* Computes the weights and state that are expected after all steps. With `imports`, the import is committed before
 * step 1; otherwise there is no import. */
static void reference(int how, bool imports, remains *out)
{
    rig r;

    start(&r, how, false);
    if (imports) {
        stage(&r);
        assert_int_equal(commit(&r), PD_OK);
        rig_work(&r);
    }
    for (uint64_t step = 1; step <= STEPS; step++) one_round(&r, step);
    look(&r, out);
    rig_free(&r);
}

/* Plays these events in order. All ranks except the last `late` ones contribute. The store runs `batches` batches of
 * work. The import is committed, and *answer becomes the error code of the commit. The late ranks contribute.
 *
 * Returns false if the round had closed before the commit. */
static bool committed_after(int how, bool over_quota, uint32_t late, int64_t batches, remains *out, int *answer)
{
    uint64_t committed;
    bool open;
    rig r;

    start(&r, how, over_quota);
    committed = r.store->budget.used;
    stage(&r);
    for (uint32_t rank = 0; rank < WORLD - late; rank++) push(&r, rank, 1);
    run(&r, batches);
    open = r.versions[r.job][0].step == 0 && r.versions[r.job][1].step == 0;
    *answer = commit(&r);
    if (late > 0) run(&r, 1); /* the state may be half written when the late ranks contribute */
    for (uint32_t rank = WORLD - late; rank < WORLD; rank++) push(&r, rank, 1);
    rig_work(&r);
    one_round(&r, 2);
    look(&r, out);
    if (*answer == PD_OK) assert_int_equal(r.store->budget.used, committed);
    assert_int_equal(r.buffers_out, 0);
    assert_int_equal(r.warnings, 0);
    rig_free(&r);
    return open;
}

static void sweep(int how, bool over_quota, uint32_t late)
{
    static remains before, never, got;
    int answer, taken = 0;

    reference(how, true, &before);
    reference(how, false, &never);
    assert_memory_not_equal(before.weights, never.weights, sizeof never.weights);
    for (int64_t n = 0; committed_after(how, over_quota, late, n, &got, &answer); n++) {
        assert_true(answer == PD_OK || answer == PD_FAILED_PRECONDITION);
        assert_memory_equal(&got, answer == PD_OK ? &before : &never, sizeof got);
        taken += answer == PD_OK;
        if (late > 0 && n == 8) break; /* 8 batches do all work that is possible without the late ranks */
    }
    assert_true(taken > 1); /* at least two commits were accepted, one of them in the middle of the aggregation */
}

TEST(state_imported_while_a_round_collects_is_in_place_before_its_step)
{
    for (int i = 0; i < 2 * COLLECTING; i++) sweep(i / 2, i % 2 == 1, 2);
}

TEST(state_imported_while_an_aggregate_is_computed_is_in_place_before_the_step_or_refused)
{
    for (int i = 0; i < 2 * COLLECTING; i++) sweep(i / 2, i % 2 == 1, 0);
}

/* The n-th allocation fails while the imported state is written. The written state must be the same as with enough
 * memory, and contributions must wait until memory is available. */
TEST(running_out_of_memory_while_state_is_written_loses_neither_state_nor_contributions)
{
    static remains before, got;
    rig r;

    for (int how = 0; how < COLLECTING; how++) {
        bool failed = true;
        reference(how, true, &before);
        for (int64_t n = 0; failed; n++) {
            start(&r, how, true);
            stage(&r);
            for (uint32_t rank = 0; rank < WORLD; rank++) push(&r, rank, 1);
            run(&r, 1);
            assert_int_equal(commit(&r), PD_OK);
            oom_arm(n);
            while (pd_store_work(r.store, r.now)) continue;
            failed = oom_disarm();
            for (int i = 0; i < 5; i++) {
                rig_absorb(&r);
                rig_sleep(&r, 1.0);
                rig_work(&r);
            }
            one_round(&r, 2);
            look(&r, &got);
            assert_memory_equal(&got, &before, sizeof got);
            rig_free(&r);
        }
    }
}

TEST(a_job_may_be_dropped_while_state_is_written_beside_a_round)
{
    rig r;

    for (int i = 0; i < 2 * COLLECTING; i++)
        for (int64_t batches = 0; batches < 4; batches++) {
            pd_request *drop;
            start(&r, i / 2, i % 2 == 1);
            stage(&r);
            for (uint32_t rank = 0; rank < WORLD; rank++) push(&r, rank, 1);
            run(&r, 1);
            assert_int_equal(commit(&r), PD_OK);
            run(&r, batches);
            drop = pd_request_new(PD_REQ_DROP, rig_ticket(&r, 1));
            drop->u.info.job_name = strdup("j");
            rig_apply(&r, drop);
            assert_int_equal(r.buffers_out, 0);
            assert_int_equal(r.store->budget.used, 0);
            rig_free(&r);
        }
}
