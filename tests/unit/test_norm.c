/* Jobs whose gradients are clipped together by their global norm. */
#include "clip.h"
#include "counting_row.h"
#include "limited_row.h"
#include "oom.h"
#include "rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 4, LARGE = 2 * PD_CLIP_RANGE + 500 };
static const int64_t sizes[N] = { 70, 3, 300, 1 }, large_sizes[N] = { LARGE, 5, 900, 64 };

static const pd_row **all_rows(void)
{
    static const char *const names[] = { "sgd", "adam", "shampoo", "scalable_shampoo" };
    static const pd_row *rows[8];

    for (int i = 0; i < 4; i++) rows[i] = pd_optim_find(names[i]);
    rows[4] = limited_row();
    rows[5] = values_row();
    rows[6] = &counting_row;
    return rows;
}

static pd_store_config configuration(void)
{
    pd_store_config config = rig_config();

    config.rows = all_rows();
    return config;
}

static int set_up(void **state)
{
    rig *r = calloc(1, sizeof *r);
    pd_store_config config = configuration();

    rig_new(r, &config);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rig_free(*state);
    free(*state);
    return 0;
}

static const rig_entry *entry(const rig *r, uint32_t job, uint32_t param) { return &r->board[job % RIG_JOBS][param]; }

static const pd_job_info *info_of(rig *r) { return &rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0]; }

/* ---- gradients ---- */

/* Of moderate size, so that optimizers' steps stay finite. */
static void gradient_of(uint32_t rank, uint64_t step, uint32_t param, float *out, int64_t n)
{
    uint64_t seed = 1 + param + 100 * step + 10000 * rank;

    for (int64_t i = 0; i < n; i++) out[i] = (float)((double)(int64_t)rig_random(&seed) * 0x1p-63);
}

static void push_scaled(rig *r, uint32_t job, uint32_t rank, uint64_t conn, uint64_t step, uint32_t param, int64_t n, float scale)
{
    float *g = malloc((size_t)n * sizeof *g);

    gradient_of(rank, step, param, g, n);
    for (int64_t i = 0; i < n; i++) g[i] *= scale;
    assert_int_equal(rig_push(r, job, rank, conn, step, param, g, n), PD_OK);
    free(g);
}

static void push(rig *r, uint32_t job, uint64_t step, uint32_t param) { push_scaled(r, job, 0, 10, step, param, sizes[param], 1); }

static void push_one(rig *r, uint32_t job, uint64_t step, uint32_t param, float value)
{
    float g[300] = { value };

    assert_int_equal(rig_push(r, job, 0, 10, step, param, g, sizes[param]), PD_OK);
}

static void push_absent(rig *r, uint32_t job, uint64_t step, uint32_t param)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, 0, 10, step);

    rig_absent(frame, param);
    assert_int_equal(rig_send(r, frame), PD_OK);
}

/* Their norm by another way. */
static double norm_of(uint64_t step, uint32_t first, uint32_t end)
{
    long double sum = 0;

    for (uint32_t p = first; p < end; p++) {
        float g[300];
        gradient_of(0, step, p, g, sizes[p]);
        for (int64_t i = 0; i < sizes[p]; i++) sum += (long double)g[i] * g[i];
    }
    return (double)sqrtl(sum);
}

static uint32_t start(rig *r, const char *options, const char *rules) { return rig_start(r, "job", 1, 10, sizes, N, options, rules); }

/* ---- the norm and the scale ---- */

static void the_norm_is_that_of_all_gradients_together(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=1e30", NULL);

    assert_true(info_of(r)->gradient_norm == 0);
    for (uint64_t step = 1; step <= 5; step++) {
        double norm = norm_of(step, 0, N);
        for (uint32_t p = 0; p < N; p++) push(r, job, step, p);
        rig_work(r);
        assert_true(fabs(info_of(r)->gradient_norm - norm) < 1e-14 * norm);
    }
    assert_int_equal(info_of(r)->clipped_steps, 0);
}

/* A job that clips against one that gets its gradients scaled by hand. */
static void training_equals_that_with_gradients_scaled_by_hand(void **state)
{
    static const char *const rules[] = { "* sgd lr=0.1 momentum=0.9", "* adam lr=0.01", "* shampoo lr=0.01 max_preconditioner_dim=64 precondition_frequency=1 start_preconditioning_step=1",
                                         "* scalable_shampoo learning_rate=0.01 block_size=64", "p0 adam lr=0.01;p2 scalable_shampoo learning_rate=0.01 block_size=64;* sgd lr=1" };
    rig *r = *state;

    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        char name[2][16];
        uint32_t clipped, plain;
        snprintf(name[0], 16, "clipped%zu", k);
        snprintf(name[1], 16, "plain%zu", k);
        clipped = rig_start(r, name[0], 1, 20 + 2 * k, sizes, N, "clip_global_norm=3.5", rules[k]);
        plain = rig_start(r, name[1], 1, 21 + 2 * k, sizes, N, NULL, rules[k]);
        for (uint64_t step = 1; step <= 4; step++) {
            float scale = 3.5f * fminf((float)(1 / 3.5), 1 / (float)norm_of(step, 0, N));
            for (uint32_t p = 0; p < N; p++) {
                push_scaled(r, clipped, 0, 20 + 2 * k, step, p, sizes[p], 1);
                push_scaled(r, plain, 0, 21 + 2 * k, step, p, sizes[p], scale);
            }
            rig_work(r);
        }
        for (uint32_t p = 0; p < N; p++) assert_memory_equal(rig_weights(r, clipped, p), rig_weights(r, plain, p), (size_t)sizes[p] * sizeof(float));
    }
}

static void a_step_within_the_limit_is_as_without_one(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=64", NULL), plain = rig_start(r, "plain", 1, 11, sizes, N, NULL, NULL);

    for (uint32_t p = 0; p < N; p++) {
        push(r, job, 1, p);
        push_scaled(r, plain, 0, 11, 1, p, sizes[p], 1);
    }
    rig_work(r);
    for (uint32_t p = 0; p < N; p++) assert_memory_equal(rig_weights(r, job, p), rig_weights(r, plain, p), (size_t)sizes[p] * sizeof(float));
}

static void steps_that_exceed_the_limit_are_counted(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=2", NULL);
    static const float value[] = { 2, 2.5f, 0, 100 };

    for (uint64_t step = 1; step <= 4; step++) {
        for (uint32_t p = 0; p < N; p++) push_one(r, job, step, p, p == 2 ? value[step - 1] : 0);
        rig_work(r);
        assert_true(info_of(r)->gradient_norm == value[step - 1]);
    }
    assert_int_equal(info_of(r)->clipped_steps, 2);
    assert_int_equal(info_of(r)->steps, 16);
}

/* ---- the same bits ---- */

typedef struct manner { int threads; double batch_ns; uint64_t chunk; bool backwards; } manner;

/* Two ranks, four steps, all weights behind one another. */
static void train(float *out, manner m)
{
    pd_store_config config = configuration();
    rig r;
    uint32_t job;

    config.threads = m.threads;
    config.batch_ns = m.batch_ns;
    config.chunk_elements = m.chunk;
    rig_new(&r, &config);
    job = rig_start(&r, "job", 2, 10, large_sizes, N, "clip_global_norm=7", "p1 limited lr=0.5 dampening=0.1;* sgd lr=0.1 momentum=0.5");
    for (uint64_t step = 1; step <= 4; step++) {
        for (uint32_t k = 0; k < 2 * N; k++) {
            uint32_t at = m.backwards ? 2 * N - 1 - k : k;
            push_scaled(&r, job, at / N, 10 + at / N, step, at % N, large_sizes[at % N], 1);
            if (m.backwards) rig_work(&r);
        }
        rig_work(&r);
    }
    for (uint32_t p = 0; p < N; p++, out += large_sizes[p - 1]) memcpy(out, rig_weights(&r, job, p), (size_t)large_sizes[p] * sizeof *out);
    rig_free(&r);
}

static void bits_do_not_depend_on_threads_batches_chunks_or_arrivals(void **state)
{
    static const manner manners[] = { { 1, 50e6, 65536, false }, { 3, 50e6, 65536, false }, { 1, 1, 65536, false }, { 2, 3e4, 65536, true }, { 4, 1e4, 4096, true } };
    size_t bytes = (LARGE + 5 + 900 + 64) * sizeof(float);
    float *first = malloc(bytes), *other = malloc(bytes);

    (void)state;
    train(first, manners[0]);
    for (size_t i = 1; i < sizeof manners / sizeof manners[0]; i++) {
        train(other, manners[i]);
        assert_memory_equal(first, other, bytes);
    }
    free(first);
    free(other);
}

/* Both cut gradients into the same ranges. */
static void the_library_gives_the_same_bits(void **state)
{
    static const char *const rules[] = { "* limited lr=0.5 dampening=0.1", "* sgd lr=0.5" };
    const pd_row *rows[] = { limited_row(), pd_optim_find("sgd") };
    float *gradient[N], *weights[N];

    (void)state;
    for (int k = 0; k < 2; k++) {
        pd_store_config config = configuration();
        pd_declaration params[N];
        pd_step_io io[N];
        pd_model *model;
        pd_error err;
        uint32_t job;
        rig r;
        config.chunk_elements = 65536;
        rig_new(&r, &config);
        job = rig_start(&r, "job", 1, 10, large_sizes, N, k == 0 ? NULL : "clip_global_norm=0.1", rules[k]);
        for (uint32_t p = 0; p < N; p++) {
            params[p] = (pd_declaration){ .name = "p", .shape = { 1, { (uint64_t)large_sizes[p] } } };
            pd_hypers_init(&params[p].hypers, rows[k]);
            assert_int_equal(pd_hypers_set(&params[p].hypers, "lr", "0.5", NULL), PD_OK);
            assert_int_equal(pd_hypers_set(&params[p].hypers, "dampening", k == 0 ? "0.1" : "0", NULL), PD_OK);
            gradient[p] = malloc((size_t)large_sizes[p] * sizeof(float));
            weights[p] = malloc((size_t)large_sizes[p] * sizeof(float));
            gradient_of(0, 1, p, gradient[p], large_sizes[p]);
            memcpy(weights[p], rig_weights(&r, job, p), (size_t)large_sizes[p] * sizeof(float));
            io[p] = (pd_step_io){ .gradient = gradient[p], .before = weights[p], .after = weights[p] };
            push_scaled(&r, job, 0, 10, 1, p, large_sizes[p], 1);
        }
        rig_work(&r);
        assert_int_equal(pd_model_new(&model, params, N, 2, &err), PD_OK);
        assert_int_equal(pd_model_clip(model, k == 0 ? 0 : 0.1, &err), PD_OK);
        assert_int_equal(pd_model_step(model, io, &err), PD_OK);
        assert_true(pd_model_norm(model) == info_of(&r)->gradient_norm);
        for (uint32_t p = 0; p < N; p++) {
            assert_memory_equal(rig_weights(&r, job, p), weights[p], (size_t)large_sizes[p] * sizeof(float));
            free(gradient[p]);
            free(weights[p]);
        }
        pd_model_free(model);
        rig_free(&r);
    }
}

/* ---- together ---- */

static void no_step_begins_before_all_gradients_are_there(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=1 step_timeout=10s", NULL);

    for (uint32_t p = 0; p < N; p++) {
        for (uint32_t q = 0; q < N; q++) assert_int_equal(entry(r, job, q)->step, 0);
        if (p == 3) {
            rig_sleep(r, 11);
            assert_non_null(strstr(r->timeout.text, "has not contributed to step 1 of p3 (and 2 more parameters) for 11 s, which step 1 of p0 waits for"));
        }
        push(r, job, 1, p);
        rig_work(r);
    }
    for (uint32_t q = 0; q < N; q++) assert_int_equal(entry(r, job, q)->outcome, PD_STEPPED);
    rig_sleep(r, 30);
    assert_int_equal(r->timed_out, 1);
}

static void a_large_job_leaves_others_their_turns(void **state)
{
    pd_store_config config = configuration();
    rig *r = *state, own;
    uint32_t job, small;
    bool was_first = false;

    (void)r;
    config.batch_ns = 2e4;                              /* two or three ranges of a norm */
    config.chunk_elements = 65536;
    rig_new(&own, &config);
    job = rig_start(&own, "large", 1, 10, large_sizes, N, "clip_global_norm=1", NULL);
    small = rig_start(&own, "small", 1, 20, sizes, N, NULL, NULL);
    for (uint32_t p = 0; p < N; p++) push_scaled(&own, job, 0, 10, 1, p, large_sizes[p], 1);
    while (info_of(&own)->gradient_norm == 0) {         /* until it is being scaled */
        assert_true(pd_store_work(own.store, own.now));
        rig_absorb(&own);
    }
    assert_int_equal(entry(&own, job, 0)->step, 0);
    for (uint32_t p = 0; p < N; p++) push_scaled(&own, small, 0, 20, 1, p, sizes[p], 1);
    while (pd_store_work(own.store, own.now)) {
        rig_absorb(&own);
        was_first = was_first || (entry(&own, small, 3)->step == 1 && entry(&own, job, 0)->step == 0);
    }
    rig_absorb(&own);
    assert_true(was_first);
    assert_int_equal(entry(&own, job, 0)->step, 1);
    rig_free(&own);
}

/* Turns that a step of the large job takes when a batch holds next to nothing. */
static int count_turns(const char *options)
{
    pd_store_config config = configuration();
    uint32_t job;
    int turns = 1;
    rig r;

    config.batch_ns = 1;
    config.chunk_elements = 65536;
    rig_new(&r, &config);
    job = rig_start(&r, "job", 1, 10, large_sizes, N, options, NULL);
    for (uint32_t p = 0; p < N; p++) push_scaled(&r, job, 0, 10, 1, p, large_sizes[p], 1);
    while (pd_store_work(r.store, r.now)) turns++;
    rig_absorb(&r);
    rig_free(&r);
    return turns;
}

static void a_turn_is_bounded(void **state)
{
    (void)state;
    assert_true(count_turns("clip_global_norm=1") >= count_turns(NULL) + 2 * (3 + 1 + 1 + 1));      /* ranges of 65,536 elements, each read twice */
}

static void a_job_that_is_dropped_in_the_midst_leaves_nothing(void **state)
{
    pd_store_config config = configuration();

    (void)state;
    config.batch_ns = 1;
    config.chunk_elements = 65536;
    for (int turns = 1; turns < 12; turns++) {
        pd_request *drop;
        uint32_t job;
        rig r;
        rig_new(&r, &config);
        job = rig_start(&r, "job", 1, 10, large_sizes, N, "clip_global_norm=1", NULL);
        for (uint32_t p = 0; p < N; p++) push_scaled(&r, job, 0, 10, 1, p, large_sizes[p], 1);
        for (int i = 0; i < turns; i++) pd_store_work(r.store, r.now);
        drop = pd_request_new(PD_REQ_DROP, rig_ticket(&r, 99));
        drop->u.info.job_name = strdup("job");
        assert_int_equal(rig_apply(&r, drop), PD_OK);
        rig_work(&r);
        assert_int_equal(pd_store_count_bytes(r.store).accumulators, 0);
        rig_free(&r);
    }
}

static void two_jobs_do_not_disturb_each_other(void **state)
{
    rig *r = *state;
    uint32_t a = start(r, "clip_global_norm=1", NULL), b = rig_start(r, "b", 1, 20, sizes, N, "clip_global_norm=2", NULL);
    float before[2] = { *rig_weights(r, a, 3), *rig_weights(r, b, 3) };

    for (uint32_t p = 0; p < N; p++) {
        push_one(r, a, 1, p, p == 3 ? 8 : 0);
        if (p < 3) assert_int_equal(rig_push(r, b, 0, 20, 1, p, (float[300]){ 0 }, sizes[p]), PD_OK);
        rig_work(r);
    }
    assert_true(*rig_weights(r, a, 3) == before[0] - 1);
    assert_int_equal(entry(r, b, 0)->step, 0);
    assert_int_equal(rig_push(r, b, 0, 20, 1, 3, (float[]){ 8 }, 1), PD_OK);
    rig_work(r);
    assert_true(*rig_weights(r, b, 3) == before[1] - 2);
}

/* ---- what has no part ---- */

static void absent_gradients_have_no_part_in_the_norm(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=1e3", NULL);

    push(r, job, 1, 0);
    push_absent(r, job, 1, 1);
    push_absent(r, job, 1, 2);
    push_absent(r, job, 1, 3);
    rig_work(r);
    assert_true(fabs(info_of(r)->gradient_norm - norm_of(1, 0, 1)) < 1e-14);
    assert_int_equal(entry(r, job, 1)->outcome, PD_NO_GRADIENT);
    assert_int_equal(entry(r, job, 0)->outcome, PD_STEPPED);
}

static void a_step_without_any_gradient_closes_and_keeps_the_last_norm(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=2", NULL);

    for (uint64_t step = 1; step <= 2; step++) {
        for (uint32_t p = 0; p < N; p++)
            if (step == 1) push_one(r, job, step, p, 3);
            else push_absent(r, job, step, p);
        rig_work(r);
    }
    for (uint32_t p = 0; p < N; p++) assert_int_equal(entry(r, job, p)->outcome, PD_NO_GRADIENT);
    assert_true(info_of(r)->gradient_norm == 6);
    assert_int_equal(info_of(r)->clipped_steps, 1);
}

static void values_are_neither_counted_nor_scaled(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=1", "p3 values lr=1;* sgd lr=1");
    float before[2] = { *rig_weights(r, job, 3), *rig_weights(r, job, 1) };

    for (uint32_t p = 0; p < N; p++) push_one(r, job, 1, p, p == 3 ? 50 : p == 1 ? 4 : 0);
    rig_work(r);
    assert_true(info_of(r)->gradient_norm == 4);
    assert_true(*rig_weights(r, job, 3) == before[0] - 50);
    assert_true(*rig_weights(r, job, 1) == before[1] - 1);
}

static void ranged_parameters_count_with_all_their_elements(void **state)
{
    static const char *const names[] = { "a", "b" };
    static const pd_shape shapes[] = { { 1, { 100 } }, { 1, { 2 } } };
    static const rig_range ranges[2][2] = { { { 0, 70 }, { -1, 0 } }, { { 50, 100 }, { -1, 0 } } };
    float ones[100], before = 0;
    rig *r = *state;
    uint32_t job;

    for (int i = 0; i < 100; i++) ones[i] = 1;
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, 2, rank + 1, 10 + rank, "clip_global_norm=1", "* sgd lr=1"), PD_OK);
        r->ranges = ranges[rank];
        assert_int_equal(rig_declare(r, r->job, rank, 10 + rank, names, shapes, NULL, 2, PD_F32), PD_OK);
    }
    job = r->job;
    for (int step = 0; step <= 1; step++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            rig_frame *frame = rig_frame_new(r, step == 0 ? PD_REQ_INIT : PD_REQ_PUSH, job, rank, 10 + rank, (uint64_t)step);
            if (rank == 0) rig_piece(frame, 0, PD_F32, 0, 64, ones);
            rig_piece(frame, 0, PD_F32, rank == 0 ? 64 : 50, rank == 0 ? 6 : 14, ones);
            if (rank == 1) rig_piece(frame, 0, PD_F32, 64, 36, ones);
            if (rank == 0 || step == 1) rig_piece(frame, 1, PD_F32, 0, 2, ones);
            assert_int_equal(rig_send(r, frame), PD_OK);
        }
        rig_work(r);
        before = step == 0 ? *rig_weights(r, job, 0) : before;
    }
    assert_true(fabs(info_of(r)->gradient_norm - sqrt(102)) < 1e-13);
    for (int i = 0; i < 100; i++) assert_true(rig_weights(r, job, 0)[i] == before - 1 / (float)sqrt(102));
}

/* ---- what is not finite, what is refused ---- */

static void one_gradient_that_is_not_finite_skips_the_step_of_all(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=1", NULL);

    for (uint64_t step = 1; step <= 2; step++) {
        for (uint32_t p = 0; p < N; p++) push_one(r, job, step, p, step == 1 && p == 2 ? NAN : 1);
        rig_work(r);
        for (uint32_t p = 0; p < N; p++) assert_int_equal(entry(r, job, p)->outcome, step == 1 ? PD_SKIPPED : PD_STEPPED);
    }
    assert_int_equal(r->warnings, 1);
    assert_non_null(strstr(r->warning, "step 1 of all parameters is skipped (gradients are clipped together), the gradient of p2 is not finite"));
    assert_true(info_of(r)->gradient_norm == 2);
}

static void what_is_applied_though_it_is_not_finite_spreads(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=1 nonfinite=apply", NULL), other = rig_start(r, "inf", 1, 11, sizes, N, "clip_global_norm=1 nonfinite=apply", NULL);
    float before = *rig_weights(r, other, 1);

    for (uint32_t p = 0; p < N; p++) {
        push_one(r, job, 1, p, p == 2 ? NAN : 1);
        assert_int_equal(rig_push(r, other, 0, 11, 1, p, (float[300]){ p == 2 ? INFINITY : 1 }, sizes[p]), PD_OK);
    }
    rig_work(r);
    for (uint32_t p = 0; p < N; p++) assert_true(isnan(*rig_weights(r, job, p)));
    assert_true(isnan(*rig_weights(r, other, 2)));
    assert_true(*rig_weights(r, other, 1) == before);
}

static void a_step_that_is_refused_is_refused_as_elsewhere(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=1e6", "p[01] counting;* sgd lr=1");

    for (uint64_t step = 1; step <= 2; step++) {
        for (uint32_t p = 0; p < N; p++) push_one(r, job, step, p, step == 1 && p == 0 ? 2 * COUNTING_LIMIT : 1);
        rig_work(r);
    }
    for (uint32_t p = 0; p < N; p++) assert_int_equal(entry(r, job, p)->outcome, PD_STEPPED);
    assert_int_equal(info_of(r)->refused_steps, 2);             /* both of the group */
    assert_int_equal(info_of(r)->steps, 6);
}

/* What is refused at its own size may be taken once it is clipped. */
static void rows_see_the_scaled_gradient(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=1", "* counting");

    for (uint32_t p = 0; p < N; p++) push_one(r, job, 1, p, p == 0 ? 2 * COUNTING_LIMIT : 0);
    rig_work(r);
    assert_int_equal(entry(r, job, 0)->outcome, PD_STEPPED);
}

/* ---- limits of rules ---- */

static void a_rules_limit_holds_for_its_parameters_alone(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, NULL, "p[01] limited lr=1 dampening=5;p2 limited lr=1 dampening=1;* sgd lr=1");
    float before[N];

    for (uint32_t p = 0; p < N; p++) before[p] = *rig_weights(r, job, p);
    for (uint32_t p = 0; p < N; p++) {
        push_one(r, job, 1, p, p == 0 ? 6 : 8);
        if (p < N - 1) rig_work(r);
        assert_int_equal(entry(r, job, 0)->step, 0);            /* it steps as a whole */
    }
    rig_work(r);
    assert_true(*rig_weights(r, job, 0) == before[0] - 3);
    assert_true(*rig_weights(r, job, 1) == before[1] - 4);
    assert_true(*rig_weights(r, job, 2) == before[2] - 1);
    assert_true(*rig_weights(r, job, 3) == before[3] - 8);
    assert_true(info_of(r)->gradient_norm == 10);               /* of the first rule that has a limit */
    assert_int_equal(info_of(r)->clipped_steps, 1);
}

static void the_jobs_limit_comes_first(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=5", "p[01] limited lr=1 dampening=1;* sgd lr=1");
    float before[N];

    for (uint32_t p = 0; p < N; p++) before[p] = *rig_weights(r, job, p);
    for (uint32_t p = 0; p < N; p++) push_one(r, job, 1, p, p == 0 ? 8 : p == 3 ? 6 : 0);
    rig_work(r);
    assert_true(*rig_weights(r, job, 3) == before[3] - 3);
    assert_true(*rig_weights(r, job, 0) == before[0] - 1);      /* 8, then 4, then 1 */
    assert_true(info_of(r)->gradient_norm == 10);
}

static void a_rule_without_a_limit_holds_nobody_up(void **state)
{
    rig *r = *state;
    uint32_t job = start(r, "clip_global_norm=off", "* limited lr=1");

    push(r, job, 1, 2);
    rig_work(r);
    assert_int_equal(entry(r, job, 2)->step, 1);
    assert_true(info_of(r)->gradient_norm == 0);
}

/* ---- the key ---- */

static void the_key_takes_a_limit_or_none(void **state)
{
    static const char *const good[] = { "off", "0", "-0", "0.0", "1", "1e-30", "1e30", "0.1" }, *const bad[] = { "", "on", "-1", "nan", "inf", "1e31", "1e-31", "1x", " 1" };
    pd_error err;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_int_equal(pd_job_key_check("clip_global_norm", good[i], &err), PD_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(pd_job_key_check("clip_global_norm", bad[i], &err), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "expected a number from 1e-30 to 1e+30, or off"));
    }
}

static void ranks_must_agree_on_it(void **state)
{
    rig *r = *state;

    assert_int_equal(rig_hello(r, "a", 0, 2, 1, 1, "clip_global_norm=0.1", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "a", 1, 2, 2, 2, "clip_global_norm=0.10", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "b", 0, 2, 1, 3, "clip_global_norm=0", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "b", 1, 2, 2, 4, "clip_global_norm=-0", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "b", 1, 2, 2, 4, "clip_global_norm=off", NULL), PD_OK);
    assert_int_equal(rig_hello(r, "a", 1, 2, 2, 2, NULL, NULL), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "clip_global_norm = 0.1, this worker comes with off"));
}

/* ---- memory ---- */

static void a_set_for_which_memory_is_short_is_refused_and_taken_later(void **state)
{
    static const char *const names[] = { "p0" };
    static const pd_shape shapes[] = { { 1, { 70 } } };
    rig *r = *state;

    assert_int_equal(rig_hello(r, "job", 0, 1, 1, 10, "clip_global_norm=1", "* sgd lr=1"), PD_OK);
    for (int64_t n = 0; ; n++) {
        pd_request *request = pd_request_new(PD_REQ_DECLARE, rig_ticket(r, 10));
        request->job = r->job;
        request->u.declare.n = 1;
        request->u.declare.params = calloc(1, sizeof(pd_param_decl));
        request->u.declare.params[0] = (pd_param_decl){ .name = strdup(names[0]), .shape = shapes[0], .pull_dtype = PD_F32 };
        r->error.code = PD_OK;
        oom_arm(n);
        pd_store_apply(r->store, request, r->now);
        if (!oom_disarm()) break;
        rig_absorb(r);
        if (r->error.code == PD_OK) break;                      /* only a line of the log was lost */
        assert_int_equal(r->error.code, PD_NO_MEMORY);
    }
    rig_absorb(r);
    assert_int_equal(r->error.code, PD_OK);
    assert_int_equal(rig_init(r, r->job, 10, 0, (float[70]){ 0 }, 70), PD_OK);
    push_one(r, r->job, 1, 0, 4);
    rig_work(r);
    assert_true(*rig_weights(r, r->job, 0) == -1);
}

static void what_clipping_holds_counts_against_the_limit(void **state)
{
    rig *r = *state;
    uint64_t least[2] = { 0, 0 };

    (void)r;
    for (int clips = 0; clips < 2; clips++)
        for (uint64_t total = 1000; least[clips] == 0; total += 1000) {
            static const char *const names[] = { "p0" };
            static const pd_shape shapes[] = { { 1, { 70 } } };
            pd_store_config config = configuration();
            rig own;
            config.max_total_bytes = total;
            rig_new(&own, &config);
            rig_hello(&own, "job", 0, 1, 1, 10, clips ? "clip_global_norm=1" : NULL, "* sgd lr=1");
            if (rig_declare(&own, own.job, 0, 10, names, shapes, NULL, 1, PD_F32) == PD_OK) least[clips] = total;
            rig_free(&own);
        }
    assert_in_range(least[1], least[0] + 1024 * sizeof(pd_clip_piece) - 1000, least[0] + 1024 * sizeof(pd_clip_piece) + 3000);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_norm_is_that_of_all_gradients_together), CASE(training_equals_that_with_gradients_scaled_by_hand), CASE(a_step_within_the_limit_is_as_without_one),
        CASE(steps_that_exceed_the_limit_are_counted), CASE(bits_do_not_depend_on_threads_batches_chunks_or_arrivals), CASE(the_library_gives_the_same_bits), CASE(no_step_begins_before_all_gradients_are_there),
        CASE(a_large_job_leaves_others_their_turns), CASE(a_turn_is_bounded), CASE(a_job_that_is_dropped_in_the_midst_leaves_nothing), CASE(two_jobs_do_not_disturb_each_other),
        CASE(absent_gradients_have_no_part_in_the_norm), CASE(a_step_without_any_gradient_closes_and_keeps_the_last_norm), CASE(values_are_neither_counted_nor_scaled),
        CASE(ranged_parameters_count_with_all_their_elements), CASE(one_gradient_that_is_not_finite_skips_the_step_of_all),
        CASE(what_is_applied_though_it_is_not_finite_spreads), CASE(a_step_that_is_refused_is_refused_as_elsewhere), CASE(rows_see_the_scaled_gradient),
        CASE(a_rules_limit_holds_for_its_parameters_alone), CASE(the_jobs_limit_comes_first), CASE(a_rule_without_a_limit_holds_nobody_up),
        CASE(a_set_for_which_memory_is_short_is_refused_and_taken_later), CASE(what_clipping_holds_counts_against_the_limit), CASE(the_key_takes_a_limit_or_none), CASE(ranks_must_agree_on_it),
    };
    return cmocka_run_group_tests_name("norm", tests, NULL, NULL);
}
