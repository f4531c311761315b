/* Tests memory that is written past the cache: the bytes are those of the path through the cache, and only jobs that
 * are too large for the cache take it. */
#include "test.h"
#include "batch.h"
#include "convert.h"
#include "cpu.h"
#include "lone_step.h"
#include "optimizer.h"
#include "pages.h"
#include "quantize.h"
#include "vectors.h"

enum { N = 2 * PD_RANGE_ELEMENTS + 4099, STEPS = 3, ROOM = 700, AROUND = 0xa5 };

static void writes_and_touches_nothing_else(size_t n, size_t to_at, size_t from_at)
{
    static uint8_t from[ROOM + 128], to[ROOM + 128];

    for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)(i * 31 + 1), to[i] = AROUND;
    pd_past_cache(to + to_at, from + from_at, n);
    pd_past_cache_end();
    for (size_t i = 0; i < sizeof to; i++)
        if (to[i] != (i < to_at || i >= to_at + n ? AROUND : from[i - to_at + from_at])) fail_msg("byte %zu", i);
}

TEST(every_number_of_bytes_arrives_at_any_alignment)
{
    pd_cpu chosen = pd_cpu_in_use;

    for (pd_cpu set = PD_CPU_GENERIC; set <= pd_cpu_newest(); set++) {
        assert_int_equal(pd_cpu_use(pd_cpu_names[set], NULL), PD_OK);
        for (size_t n = 0; n < 300; n += n < 140 ? 1 : 7) writes_and_touches_nothing_else(n, n % 64, n * 5 % 64);
        for (size_t at = 0; at < 64; at++) writes_and_touches_nothing_else(ROOM - at, at, 63 - at);
    }
    assert_int_equal(pd_cpu_use(pd_cpu_names[chosen], NULL), PD_OK);
}

static void dequantizes_alike(pd_storage storage, bool diagonal_apart, int64_t rows, int64_t cols)
{
    size_t n = (size_t)(rows * cols);
    float *x = malloc(n * sizeof *x), *past = malloc(n * sizeof *past);
    void *memory = pd_pages_new((size_t)pd_quantized_room(storage, diagonal_apart, rows, cols));
    pd_quantized q;

    assert_true(x != NULL && past != NULL && memory != NULL);
    vectors_fill(x, (int64_t)n, (int)storage);
    q = pd_quantized_at(memory, storage, diagonal_apart, rows, cols);
    pd_quantize(&q, x);
    pd_dequantize(x, &q);
    pd_dequantize_past_cache(past, &q);
    assert_memory_equal(x, past, n * sizeof *x);
    free(x);
    free(past);
    free(memory);
}

TEST(dequantized_tensors_have_the_same_bits)
{
    static const pd_storage storages[] = { PD_STORE_INT8, PD_STORE_INT16, PD_STORE_BF16, PD_STORE_F16 };
    static const int64_t sides[][2] = { { 1, 1 }, { 37, 37 }, { 5, 1024 }, { 3, 2500 }, { 2500, 3 }, { 130, 130 } };

    for (size_t s = 0; s < sizeof storages / sizeof *storages; s++)
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
            dequantizes_alike(storages[s], false, sides[i][0], sides[i][1]);
            if (s < 2 && sides[i][0] == sides[i][1]) dequantizes_alike(storages[s], true, sides[i][0], sides[i][1]);
        }
}

static pd_optim *optim_of(const pd_optimizer_ops *row, pd_shape shape, int64_t job_bytes)
{
    pd_declaration declaration = { .name = "w", .shape = shape };
    double stats[PD_MAX_MODEL_STATS];
    pd_optim *optim;

    pd_hypers_init(&declaration.hypers, row);
    if (row->name != NULL && vectors_has(row->name, "learning_rate"))
        assert_int_equal(pd_hypers_set(&declaration.hypers, "learning_rate", "0.01", NULL), PD_OK);
    pd_model_stats_of(row, &declaration, 1, stats);
    assert_int_equal(pd_optim_new(&optim, &declaration, stats, NULL), PD_OK);
    pd_optim_set_job_bytes(optim, job_bytes);
    return optim;
}

/* Takes steps of a job of `job_bytes`, from one buffer of weights to the other, and returns the last weights. */
static float *step(const pd_optimizer_ops *row, pd_shape shape, int64_t job_bytes)
{
    pd_optim *optim = optim_of(row, shape, job_bytes);
    int64_t n = pd_optim_elements(optim);
    float *gradient = pd_floats_new(n), *before = pd_floats_new(n), *after = pd_floats_new(n), *old;

    assert_true(gradient != NULL && before != NULL && after != NULL);
    vectors_fill(before, n, 0);
    for (int i = 1; i <= STEPS; i++) {
        vectors_fill(gradient, n, i);
        lone_step(optim, &(pd_step_io){ .gradient = gradient, .before = before, .after = after }, 2);
        old = before, before = after, after = old;
    }
    free(gradient);
    free(after);
    pd_optim_free(optim);
    return before;
}

static void steps_alike(const pd_optimizer_ops *row, pd_shape shape, size_t n)
{
    float *small = step(row, shape, 0), *large = step(row, shape, PD_BEYOND_CACHE);

    if (memcmp(small, large, n * sizeof *small) != 0) fail_msg("%s gives other bits past the cache", row->name);
    free(small);
    free(large);
}

TEST(every_optimizer_steps_to_the_same_bits)
{
    for (size_t i = 0; pd_optim_at(i) != NULL; i++) steps_alike(pd_optim_at(i), (pd_shape){ 2, { 37, 29 } }, 37 * 29);
    for (size_t i = 0; i < VECTORS_ROWS; i++) steps_alike(pd_optim_find(vectors_rows[i]), (pd_shape){ 1, { N } }, N);
    steps_alike(pd_optim_find("sgd"), (pd_shape){ 1, { N } }, N);
}

static const float *written; /* where the phase below has written the weight of element 0 */

static void write_ones(const pd_unit *unit)
{
    if (unit->first == 0) written = unit->after;
    for (int64_t i = 0; i < unit->n; i++) unit->after[unit->first + i] = unit->gradient[unit->first + i];
}

static int plan_nothing(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)declaration, (void)stats, (void)plan, (void)err;
    return PD_OK;
}

static const pd_hyper no_hypers[] = { { 0 } };
static const pd_optimizer_ops writer = { .name = "writer",
                                         .hypers = no_hypers,
                                         .plan = plan_nothing,
                                         .phases = { { .name = "write", .kind = PD_RANGES, .run = write_ones } } };

static float ones[N], old[N], new[N];

static bool goes_past_cache(int64_t job_bytes, float *before, float *after)
{
    pd_declaration declaration = { .name = "w", .shape = { 1, { N } } };
    double stats[PD_MAX_MODEL_STATS] = { 0 };
    pd_optim *optim;

    pd_hypers_init(&declaration.hypers, &writer);
    assert_int_equal(pd_optim_new(&optim, &declaration, stats, NULL), PD_OK);
    pd_optim_set_job_bytes(optim, job_bytes);
    for (int i = 0; i < N; i++) ones[i] = 1;
    lone_step(optim, &(pd_step_io){ .gradient = ones, .before = before, .after = after }, 1);
    assert_memory_equal(after, ones, sizeof ones);
    pd_optim_free(optim);
    return written != after;
}

TEST(only_new_weights_of_large_jobs_go_past_the_cache)
{
    assert_false(goes_past_cache(PD_BEYOND_CACHE - 1, old, new));
    assert_true(goes_past_cache(PD_BEYOND_CACHE, old, new));
    assert_false(goes_past_cache(PD_BEYOND_CACHE, old, old)); /* the cache has the lines of the old weights */
}

TEST(a_guarded_step_that_spoils_a_weight_is_refused)
{
    static const int bad[] = { 0, 512, PD_RANGE_ELEMENTS - 1, N - 1, -1 };

    for (int k = 0; k < 5; k++) {
        pd_optim *optim = optim_of(pd_optim_find("sgd"), (pd_shape){ 1, { N } }, PD_BEYOND_CACHE);
        memset(old, 0, sizeof old);
        memset(ones, 0, sizeof ones);
        if (bad[k] >= 0) old[bad[k]] = -3.402e38F, ones[bad[k]] = 3.4e38F;
        assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ .gradient = ones, .before = old, .after = new }), PD_OK);
        pd_optim_guard(optim);
        assert_int_equal(pd_batch_run(&optim, 1, 2), PD_OK);
        assert_true(pd_optim_done(optim));
        assert_int_equal(pd_optim_refused(optim) != NULL, bad[k] >= 0);
        pd_optim_free(optim);
    }
}
