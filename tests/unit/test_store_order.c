/* Tests that the store computes the same bits for any arrival order, amount of memory, number of threads and element
 * type, and with late preconditioner tasks. */
#include "test.h"
#include "coupled_row.h"
#include "convert.h"
#include "optimizer.h"
#include "rig.h"

enum { WORLD = 4, N = 5, MOST = 1000, STEPS = 4, CHUNK = 64 };
static const int64_t sizes[N] = { 200, 64, 3, MOST, 129 };

typedef struct run {
    uint64_t ingest; /* bytes; 0: plenty */
    int threads;
    pd_dtype dtype; /* of the pushes */
    const char *options, *rules;
    uint64_t shuffle; /* seed of the arrival order */
    bool late_tasks;  /* preconditioner tasks come back late, in random order */
} run;

static void gradient(float *out, uint32_t rank, uint64_t step, uint32_t param)
{
    rig_noise(1000 * step + 10 * param + rank, out, sizes[param]);
}

/* A chunk that a rank pushes. */
typedef struct arrival {
    uint32_t rank, param;
    int64_t first;
    uint64_t step;
} arrival;

static size_t chunks_of_step(arrival *out, uint64_t step)
{
    size_t n = 0;

    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (uint32_t p = 0; p < N; p++)
            for (int64_t first = 0; first < sizes[p]; first += CHUNK) out[n++] = (arrival){ rank, p, first, step };
    return n;
}

static void shuffle(arrival *at, size_t n, uint64_t *seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = rig_random(seed) % i;
        arrival swap = at[i - 1];
        at[i - 1] = at[j];
        at[j] = swap;
    }
}

static int push(rig *r, uint32_t job, const arrival *a, pd_dtype dtype)
{
    float values[MOST];
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, a->rank, 10 + a->rank, a->step);
    int64_t left = sizes[a->param] - a->first;

    gradient(values, a->rank, a->step, a->param);
    rig_piece(frame, a->param, dtype, a->first, left < CHUNK ? left : CHUNK, values + a->first);
    rig_weight(frame, a->rank + 1.5, a->rank == 2);
    return rig_send(r, frame);
}

static void finish_tasks(rig *r, uint64_t *seed)
{
    while (r->n_tasks > 0) {
        rig_finish_task(r, rig_random(seed) % r->n_tasks);
        rig_work(r);
    }
}

static void one_step(rig *r, uint32_t job, const run *how, uint64_t step, uint64_t *seed)
{
    arrival order[256];
    size_t n = chunks_of_step(order, step);

    if (how->shuffle > 0) shuffle(order, n, seed);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(push(r, job, &order[i], how->dtype), PD_OK);
        if (rig_random(seed) % 3 == 0) rig_work(r);
    }
    rig_work(r);
    finish_tasks(r, seed);
}

/* Trains for STEPS steps. Copies all weights to `weights`, one parameter after the other. Returns the number of
 * weights. */
static size_t train(const run *how, float *weights)
{
    static const pd_optimizer_ops *rows[] = { &coupled_row, NULL, NULL };
    pd_store_config config = rig_config();
    uint64_t seed = how->shuffle;
    size_t at = 0;
    uint32_t job;
    rig r;

    rows[1] = pd_optim_find("sgd");
    config.rows = rows;
    config.threads = how->threads > 0 ? how->threads : 1;
    if (how->ingest > 0) config.ingest_bytes = how->ingest;
    rig_new(&r, &config);
    r.lazy_tasks = how->late_tasks;
    job = rig_start(&r, "job", WORLD, 10, sizes, N, how->options,
                    how->rules != NULL ? how->rules : "* sgd lr=0.1 momentum=0.9");
    for (uint64_t step = 1; step <= STEPS; step++) one_step(&r, job, how, step, &seed);
    for (uint32_t p = 0; p < N; p++) {
        assert_int_equal(r.versions[job][p].step, STEPS);
        memcpy(weights + at, rig_weights(&r, job, p), (size_t)sizes[p] * sizeof(float));
        at += (size_t)sizes[p];
    }
    rig_free(&r);
    return at;
}

static void assert_same(const run *a, const run *b)
{
    static float x[4096], y[4096];
    size_t n = train(a, x);

    assert_int_equal(train(b, y), n);
    assert_memory_equal(x, y, n * sizeof(float));
}

/* Checks that the sums depend on the order of the ranks. Otherwise the tests below could not fail. */
TEST(sums_of_these_gradients_depend_on_the_order)
{
    float g[WORLD][MOST];
    int differ = 0;

    for (uint32_t rank = 0; rank < WORLD; rank++) gradient(g[rank], rank, 1, 3);
    for (int i = 0; i < MOST; i++) {
        float up = ((g[0][i] + g[1][i]) + g[2][i]) + g[3][i], down = ((g[3][i] + g[2][i]) + g[1][i]) + g[0][i];
        differ += up != down;
    }
    assert_true(differ > MOST / 20);
}

TEST(sums_in_rank_order_and_divides_once)
{
    static float weights[MOST], g[WORLD][MOST];
    pd_store_config config = rig_config();
    arrival order[256];
    uint64_t seed = 3;
    size_t n;
    rig r;
    uint32_t job;

    rig_new(&r, &config);
    job = rig_start(&r, "job", WORLD, 10, sizes, N, NULL, "* sgd lr=1");
    memcpy(weights, rig_weights(&r, job, 3), sizeof weights);
    n = chunks_of_step(order, 1);
    shuffle(order, n, &seed);
    for (size_t i = 0; i < n; i++) push(&r, job, &order[i], PD_F32);
    rig_work(&r);
    for (uint32_t rank = 0; rank < WORLD; rank++) gradient(g[rank], rank, 1, 3);
    for (int i = 0; i < MOST; i++) {
        float mean = (((g[0][i] + g[1][i]) + g[2][i]) + g[3][i]) / 4.0f;
        assert_true(rig_weights(&r, job, 3)[i] == weights[i] - mean);
    }
    rig_free(&r);
}

TEST(arrival_order_does_not_show)
{
    for (uint64_t seed = 1; seed <= 5; seed++)
        assert_same(&(run){ .dtype = PD_F32 }, &(run){ .dtype = PD_F32, .shuffle = seed });
}

/* With the smallest budget, each rank may have one chunk in flight, so contributions are summed as early as
 * possible. */
TEST(memory_does_not_show)
{
    for (uint64_t seed = 1; seed <= 5; seed++)
        assert_same(&(run){ .dtype = PD_F32 }, &(run){ .dtype = PD_F32, .shuffle = seed, .ingest = WORLD * 4096 });
}

TEST(threads_do_not_show)
{
    for (int threads = 2; threads <= 4; threads += 2) {
        assert_same(&(run){ .dtype = PD_F32 }, &(run){ .dtype = PD_F32, .threads = threads, .shuffle = 9 });
        assert_same(&(run){ .dtype = PD_F32, .rules = "* coupled block_size=50" },
                    &(run){ .dtype = PD_F32, .rules = "* coupled block_size=50", .threads = threads, .shuffle = 9 });
    }
}

TEST(half_gradients_are_reproducible_too)
{
    static const char *const how[] = { "aggregate=mean",        "aggregate=sum",         "aggregate=weighted_mean",
                                       "aggregate=radial_mean", "aggregate=adasum",      "aggregate=adasum_vdot",
                                       "aggregate=median",      "aggregate=trimmed_mean" };

    for (size_t i = 0; i < sizeof how / sizeof how[0]; i++)
        for (pd_dtype dtype = PD_F32; dtype <= PD_BF16; dtype++)
            assert_same(
                &(run){ .dtype = dtype, .options = how[i] },
                &(run){ .dtype = dtype, .options = how[i], .shuffle = 11, .ingest = WORLD * 4096, .threads = 2 });
}

TEST(late_root_tasks_do_not_show)
{
    static const char *const rules[] = { "* coupled block_size=50 interval=1 root_delay=0",
                                         "* coupled block_size=50 interval=2 root_delay=1",
                                         "* coupled block_size=50 interval=3 root_delay=3" };

    for (int i = 0; i < 3; i++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            assert_same(&(run){ .dtype = PD_F32, .rules = rules[i] },
                        &(run){ .dtype = PD_F32, .rules = rules[i], .shuffle = seed, .late_tasks = true });
}

/* Parameters with different optimizers share a batch, and each steps as it does alone. */
TEST(weights_equal_those_of_the_library)
{
    static float got[4096];
    pd_declaration decls[N];
    pd_model *model;
    pd_error err;
    size_t at = 0;
    static float weights[N][MOST], sums[N][MOST];

    train(&(run){ .dtype = PD_F32, .rules = "* coupled block_size=50 interval=2 root_delay=1" }, got);
    for (int p = 0; p < N; p++) {
        decls[p] = (pd_declaration){ .name = "p", .shape = { 1, { sizes[p] } } };
        pd_hypers_init(&decls[p].hypers, &coupled_row);
        assert_int_equal(pd_hypers_set(&decls[p].hypers, "block_size", "50", &err), PD_OK);
        assert_int_equal(pd_hypers_set(&decls[p].hypers, "interval", "2", &err), PD_OK);
        assert_int_equal(pd_hypers_set(&decls[p].hypers, "root_delay", "1", &err), PD_OK);
        rig_noise(7 + (uint64_t)p, weights[p], sizes[p]);
    }
    assert_int_equal(pd_model_new(&model, decls, N, 1, &err), PD_OK);
    for (uint64_t step = 1; step <= STEPS; step++) {
        pd_step_io io[N];
        for (uint32_t p = 0; p < N; p++) {
            float g[WORLD][MOST];
            for (uint32_t rank = 0; rank < WORLD; rank++) gradient(g[rank], rank, step, p);
            for (int i = 0; i < sizes[p]; i++) sums[p][i] = (((g[0][i] + g[1][i]) + g[2][i]) + g[3][i]) / 4.0f;
            io[p] = (pd_step_io){ .gradient = sums[p], .before = weights[p], .after = weights[p] };
        }
        assert_int_equal(pd_model_step(model, io, &err), PD_OK);
    }
    for (uint32_t p = 0; p < N; at += (size_t)sizes[p], p++)
        assert_memory_equal(got + at, weights[p], (size_t)sizes[p] * sizeof(float));
    pd_model_free(model);
}
