/* Tests jobs whose gradients are clipped by one global norm: the value of the norm, the same bits for any timing,
 * and that the store works for other jobs in between. */
#include "test.h"
#include "clip.h"
#include "clipped.h"

enum { LARGE = 2 * PD_CLIP_RANGE + 500 };
static const int64_t large_sizes[CLIPPED] = { LARGE, 5, 900, 64 };

EACH_TEST(clipped_set_up, rig_tear_down);

TEST(the_norm_is_that_of_all_gradients_together, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=1e30", NULL);

    assert_true(clipped_info(r)->gradient_norm == 0);
    for (uint64_t step = 1; step <= 5; step++) {
        double norm = clipped_norm(step, 0, CLIPPED);
        for (uint32_t p = 0; p < CLIPPED; p++) clipped_push(r, job, step, p);
        rig_work(r);
        assert_true(fabs(clipped_info(r)->gradient_norm - norm) < 1e-14 * norm);
    }
    assert_int_equal(clipped_info(r)->clipped_steps, 0);
}

/* A job that clips must give the same weights as a job without clipping whose pushed gradients are already scaled. */
TEST(training_equals_that_with_gradients_scaled_by_hand, rig *r)
{
    static const char *const rules[] = {
        "* sgd lr=0.1 momentum=0.9",
        "* adam lr=0.01",
        "* scalable_shampoo learning_rate=0.01 block_size=64",
        "* shampoo lr=0.01 max_preconditioner_dim=64 precondition_frequency=1 start_preconditioning_step=1",
        "p0 adam lr=0.01;p2 scalable_shampoo learning_rate=0.01 block_size=64;* sgd lr=1",
    };

    for (size_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        char name[2][16];
        uint32_t clipped, plain;
        snprintf(name[0], 16, "clipped%zu", k);
        snprintf(name[1], 16, "plain%zu", k);
        clipped = rig_start(r, name[0], 1, 20 + 2 * k, clipped_sizes, CLIPPED, "clip_global_norm=3.5", rules[k]);
        plain = rig_start(r, name[1], 1, 21 + 2 * k, clipped_sizes, CLIPPED, NULL, rules[k]);
        for (uint64_t step = 1; step <= 4; step++) {
            float scale = 3.5f * fminf((float)(1 / 3.5), 1 / (float)clipped_norm(step, 0, CLIPPED));
            for (uint32_t p = 0; p < CLIPPED; p++) {
                clipped_push_scaled(r, clipped, 0, 20 + 2 * k, step, p, clipped_sizes[p], 1);
                clipped_push_scaled(r, plain, 0, 21 + 2 * k, step, p, clipped_sizes[p], scale);
            }
            rig_work(r);
        }
        for (uint32_t p = 0; p < CLIPPED; p++)
            assert_memory_equal(rig_weights(r, clipped, p), rig_weights(r, plain, p),
                                (size_t)clipped_sizes[p] * sizeof(float));
    }
}

TEST(a_step_within_the_limit_is_as_without_one, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=64", NULL),
             plain = rig_start(r, "plain", 1, 11, clipped_sizes, CLIPPED, NULL, NULL);

    for (uint32_t p = 0; p < CLIPPED; p++) {
        clipped_push(r, job, 1, p);
        clipped_push_scaled(r, plain, 0, 11, 1, p, clipped_sizes[p], 1);
    }
    rig_work(r);
    for (uint32_t p = 0; p < CLIPPED; p++)
        assert_memory_equal(rig_weights(r, job, p), rig_weights(r, plain, p), (size_t)clipped_sizes[p] * sizeof(float));
}

TEST(steps_that_exceed_the_limit_are_counted, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=2", NULL);
    static const float value[] = { 2, 2.5f, 0, 100 };

    for (uint64_t step = 1; step <= 4; step++) {
        for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_one(r, job, step, p, p == 2 ? value[step - 1] : 0);
        rig_work(r);
        assert_true(clipped_info(r)->gradient_norm == value[step - 1]);
    }
    assert_int_equal(clipped_info(r)->clipped_steps, 2);
    assert_int_equal(clipped_info(r)->steps, 16);
}

typedef struct manner {
    int threads;
    double batch_ns;
    uint64_t chunk;
    bool backwards;
} manner;

/* Trains with two ranks for four steps. Writes the weights of all parameters to `out`, one parameter after the
 * other. */
static void train(float *out, manner m)
{
    pd_store_config config = clipped_configuration();
    rig r;
    uint32_t job;

    config.threads = m.threads;
    config.batch_ns = m.batch_ns;
    config.chunk_elements = m.chunk;
    rig_new(&r, &config);
    job = rig_start(&r, "job", 2, 10, large_sizes, CLIPPED, "clip_global_norm=7",
                    "p1 limited lr=0.5 dampening=0.1;* sgd lr=0.1 momentum=0.5");
    for (uint64_t step = 1; step <= 4; step++) {
        for (uint32_t k = 0; k < 2 * CLIPPED; k++) {
            uint32_t at = m.backwards ? 2 * CLIPPED - 1 - k : k;
            clipped_push_scaled(&r, job, at / CLIPPED, 10 + at / CLIPPED, step, at % CLIPPED, large_sizes[at % CLIPPED],
                                1);
            if (m.backwards) rig_work(&r);
        }
        rig_work(&r);
    }
    for (uint32_t p = 0; p < CLIPPED; p++, out += large_sizes[p - 1])
        memcpy(out, rig_weights(&r, job, p), (size_t)large_sizes[p] * sizeof *out);
    rig_free(&r);
}

TEST(bits_do_not_depend_on_threads_batches_chunks_or_arrivals)
{
    static const manner manners[] = { { 1, 50e6, 65536, false },
                                      { 3, 50e6, 65536, false },
                                      { 1, 1, 65536, false },
                                      { 2, 3e4, 65536, true },
                                      { 4, 1e4, 4096, true } };
    size_t bytes = (LARGE + 5 + 900 + 64) * sizeof(float);
    float *first = malloc(bytes), *other = malloc(bytes);

    train(first, manners[0]);
    for (size_t i = 1; i < sizeof manners / sizeof manners[0]; i++) {
        train(other, manners[i]);
        assert_memory_equal(first, other, bytes);
    }
    free(first);
    free(other);
}

/* The library's model (pd_model) and the daemon sum the norm over the same ranges of elements, so their bits agree. */
TEST(the_library_gives_the_same_bits)
{
    static const char *const rules[] = { "* limited lr=0.5 dampening=0.1", "* sgd lr=0.5" };
    const pd_optimizer_ops *rows[] = { limited_row(), pd_optim_find("sgd") };
    float *gradient[CLIPPED], *weights[CLIPPED];

    for (int k = 0; k < 2; k++) {
        pd_store_config config = clipped_configuration();
        pd_declaration params[CLIPPED];
        pd_step_io io[CLIPPED];
        pd_model *model;
        pd_error err;
        uint32_t job;
        rig r;
        config.chunk_elements = 65536;
        rig_new(&r, &config);
        job = rig_start(&r, "job", 1, 10, large_sizes, CLIPPED, k == 0 ? NULL : "clip_global_norm=0.1", rules[k]);
        for (uint32_t p = 0; p < CLIPPED; p++) {
            params[p] = (pd_declaration){ .name = "p", .shape = { 1, { (uint64_t)large_sizes[p] } } };
            pd_hypers_init(&params[p].hypers, rows[k]);
            assert_int_equal(pd_hypers_set(&params[p].hypers, "lr", "0.5", NULL), PD_OK);
            assert_int_equal(pd_hypers_set(&params[p].hypers, "dampening", k == 0 ? "0.1" : "0", NULL), PD_OK);
            gradient[p] = malloc((size_t)large_sizes[p] * sizeof(float));
            weights[p] = malloc((size_t)large_sizes[p] * sizeof(float));
            clipped_gradient(0, 1, p, gradient[p], large_sizes[p]);
            memcpy(weights[p], rig_weights(&r, job, p), (size_t)large_sizes[p] * sizeof(float));
            io[p] = (pd_step_io){ .gradient = gradient[p], .before = weights[p], .after = weights[p] };
            clipped_push_scaled(&r, job, 0, 10, 1, p, large_sizes[p], 1);
        }
        rig_work(&r);
        assert_int_equal(pd_model_new(&model, params, CLIPPED, 2, &err), PD_OK);
        assert_int_equal(pd_model_clip(model, k == 0 ? 0 : 0.1, &err), PD_OK);
        assert_int_equal(pd_model_step(model, io, &err), PD_OK);
        assert_true(pd_model_norm(model) == clipped_info(&r)->gradient_norm);
        for (uint32_t p = 0; p < CLIPPED; p++) {
            assert_memory_equal(rig_weights(&r, job, p), weights[p], (size_t)large_sizes[p] * sizeof(float));
            free(gradient[p]);
            free(weights[p]);
        }
        pd_model_free(model);
        rig_free(&r);
    }
}

TEST(no_step_begins_before_all_gradients_are_there, rig *r)
{
    uint32_t job = clipped_start(r, "clip_global_norm=1 step_timeout=10s", NULL);

    for (uint32_t p = 0; p < CLIPPED; p++) {
        for (uint32_t q = 0; q < CLIPPED; q++) assert_int_equal(rig_versions(r, job, q)->step, 0);
        if (p == 3) {
            rig_sleep(r, 11);
            assert_non_null(strstr(
                r->timeout.text,
                "has not contributed to step 1 of p3 (and 2 more parameters) for 11 s, which step 1 of p0 waits for"));
        }
        clipped_push(r, job, 1, p);
        rig_work(r);
    }
    for (uint32_t q = 0; q < CLIPPED; q++) assert_int_equal(rig_versions(r, job, q)->outcome, PD_STEPPED);
    rig_sleep(r, 30);
    assert_int_equal(r->timed_out, 1);
}

TEST(a_large_job_leaves_others_their_turns, void *given)
{
    pd_store_config config = clipped_configuration();
    rig *r = given, own;
    uint32_t job, small;
    bool was_first = false;

    (void)r;
    config.batch_ns = 2e4; /* a batch of work is long enough to sum two ranges of the norm */
    config.chunk_elements = 65536;
    rig_new(&own, &config);
    job = rig_start(&own, "large", 1, 10, large_sizes, CLIPPED, "clip_global_norm=1", NULL);
    small = rig_start(&own, "small", 1, 20, clipped_sizes, CLIPPED, NULL, NULL);
    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_scaled(&own, job, 0, 10, 1, p, large_sizes[p], 1);
    while (clipped_info(&own)->gradient_norm == 0) { /* the loop ends when the norm is known and the gradients are
                                                      * being scaled */
        assert_true(pd_store_work(own.store, own.now));
        rig_absorb(&own);
    }
    assert_int_equal(rig_versions(&own, job, 0)->step, 0);
    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_scaled(&own, small, 0, 20, 1, p, clipped_sizes[p], 1);
    while (pd_store_work(own.store, own.now)) {
        rig_absorb(&own);
        was_first = was_first || (rig_versions(&own, small, 3)->step == 1 && rig_versions(&own, job, 0)->step == 0);
    }
    rig_absorb(&own);
    assert_true(was_first);
    assert_int_equal(rig_versions(&own, job, 0)->step, 1);
    rig_free(&own);
}

/* Returns the number of calls of pd_store_work that a step of the large job takes when the time limit of a batch is
 * 1 ns. */
static int count_turns(const char *options)
{
    pd_store_config config = clipped_configuration();
    uint32_t job;
    int turns = 1;
    rig r;

    config.batch_ns = 1;
    config.chunk_elements = 65536;
    rig_new(&r, &config);
    job = rig_start(&r, "job", 1, 10, large_sizes, CLIPPED, options, NULL);
    for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_scaled(&r, job, 0, 10, 1, p, large_sizes[p], 1);
    while (pd_store_work(r.store, r.now)) turns++;
    rig_absorb(&r);
    rig_free(&r);
    return turns;
}

TEST(a_turn_is_bounded)
{
    assert_true(count_turns("clip_global_norm=1") >=
                count_turns(NULL) + 2 * (3 + 1 + 1 + 1)); /* the four parameters have 3 + 1 + 1 + 1 ranges of 65,536
                                                           * elements; each range is read twice, for the norm and to
                                                           * be scaled */
}

TEST(a_job_that_is_dropped_in_the_midst_leaves_nothing)
{
    pd_store_config config = clipped_configuration();

    config.batch_ns = 1;
    config.chunk_elements = 65536;
    for (int turns = 1; turns < 12; turns++) {
        pd_request *drop;
        uint32_t job;
        rig r;
        rig_new(&r, &config);
        job = rig_start(&r, "job", 1, 10, large_sizes, CLIPPED, "clip_global_norm=1", NULL);
        for (uint32_t p = 0; p < CLIPPED; p++) clipped_push_scaled(&r, job, 0, 10, 1, p, large_sizes[p], 1);
        for (int i = 0; i < turns; i++) pd_store_work(r.store, r.now);
        drop = pd_request_new(PD_REQ_DROP, rig_ticket(&r, 99));
        drop->u.info.job_name = strdup("job");
        assert_int_equal(rig_apply(&r, drop), PD_OK);
        rig_work(&r);
        assert_int_equal(pd_store_count_bytes(r.store).accumulators, 0);
        rig_free(&r);
    }
}

TEST(two_jobs_do_not_disturb_each_other, rig *r)
{
    uint32_t a = clipped_start(r, "clip_global_norm=1", NULL),
             b = rig_start(r, "b", 1, 20, clipped_sizes, CLIPPED, "clip_global_norm=2", NULL);
    float before[2] = { *rig_weights(r, a, 3), *rig_weights(r, b, 3) };

    for (uint32_t p = 0; p < CLIPPED; p++) {
        clipped_push_one(r, a, 1, p, p == 3 ? 8 : 0);
        if (p < 3) assert_int_equal(rig_push(r, b, 0, 20, 1, p, (float[300]){ 0 }, clipped_sizes[p]), PD_OK);
        rig_work(r);
    }
    assert_true(*rig_weights(r, a, 3) == before[0] - 1);
    assert_int_equal(rig_versions(r, b, 0)->step, 0);
    assert_int_equal(rig_push(r, b, 0, 20, 1, 3, (float[]){ 8 }, 1), PD_OK);
    rig_work(r);
    assert_true(*rig_weights(r, b, 3) == before[1] - 2);
}
