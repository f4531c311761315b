/* checkpoint_sample.c - small checkpoints for tests, whose content follows from their step. */
#include "checkpoint_sample.h"

#include "stats.h"
#include "test.h"

const pd_checkpoint_about sample_about = {
    .paramd = "9.8.7", .blas = "Haswell", .cpu = "avx2", .written_ms = 1234567890123
};

static const struct {
    const char *name;
    pd_shape shape;
    size_t state_bytes;
} sample[] = {
    { "layers.0/w", { 2, { 3, 5 } }, 37 },
    { "bias \"b\"", { 1, { 7 } }, 0 },
    { "a scale", { 0, { 0 } }, 1 },
    { "none", { 2, { 0, 4 } }, 12 },
};
enum { PARAMS = sizeof sample / sizeof sample[0], ALIGN = 64, WEIGHTS = PARAMS * 2 * ALIGN };

/* Fills memory with bytes that depend on the step and on what it is for. */
static void fill(void *out, size_t bytes, uint64_t step, uint64_t what)
{
    uint8_t *at = out;
    uint64_t x = step * 0x9e3779b97f4a7c15u + what * 0xbf58476d1ce4e5b9u + 1;

    for (size_t i = 0; i < bytes; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        at[i] = (uint8_t)(x >> 56);
    }
}

static void *filled(size_t bytes, uint64_t step, uint64_t what)
{
    void *at = malloc(bytes + 1);

    if (at != NULL) fill(at, bytes, step, what);
    return at;
}

static bool add_params(pd_checkpoint_image *kept)
{
    uint8_t *at = kept->memory;

    for (uint32_t i = 0; i < PARAMS; i++, at += (size_t)2 * ALIGN) {
        pd_checkpoint_param *p = &kept->params[kept->n_params++];
        *p = (pd_checkpoint_param){ .shape = sample[i].shape,
                                    .step = kept->step + i,
                                    .state_bytes = sample[i].state_bytes };
        p->weights = (const float *)(void *)at;
        p->name = strdup(sample[i].name);
        p->state = filled(p->state_bytes, kept->step, i);
        if (p->name == NULL || p->state == NULL) return false;
        pd_shape_elements(&p->shape, &p->elements);
    }
    return true;
}

static bool add_notes(pd_checkpoint_image *kept)
{
    for (uint32_t i = 0; i < 2; i++) {
        pd_worker_state *note = &kept->worker_states[kept->n_worker_states++];
        *note = (pd_worker_state){ .rank = 2 * i, .step = kept->step - i, .bytes = 5 * i };
        if ((note->at = filled(note->bytes, kept->step, 50 + i)) == NULL) return false;
    }
    return true;
}

pd_checkpoint_image *sample_checkpoint(uint64_t step, uint64_t keep)
{
    pd_checkpoint_image *kept = calloc(1, sizeof *kept);

    if (kept == NULL) return NULL;
    *kept =
        (pd_checkpoint_image){ .creator = SAMPLE_CREATOR, .step = step, .place = step, .keep = keep, .head_bytes = 53 };
    kept->job = strdup(SAMPLE_JOB);
    kept->head = filled(kept->head_bytes, step, 99);
    kept->params = calloc(PARAMS, sizeof *kept->params);
    kept->worker_states = calloc(2, sizeof *kept->worker_states);
    kept->memory = aligned_alloc(ALIGN, WEIGHTS);
    if (kept->memory != NULL) fill(kept->memory, WEIGHTS, step, 77);
    if (kept->job != NULL && kept->head != NULL && kept->params != NULL && kept->worker_states != NULL &&
        kept->memory != NULL && add_params(kept) && add_notes(kept))
        return kept;
    pd_checkpoint_image_free(kept);
    return NULL;
}

pd_checkpoint_image *sample_long_names(uint64_t step, uint32_t n)
{
    pd_checkpoint_image *kept = calloc(1, sizeof *kept);
    float *weights;

    assert_non_null(kept);
    *kept = (pd_checkpoint_image){ .creator = SAMPLE_CREATOR, .step = step, .place = step, .keep = 1, .n_params = n };
    kept->job = strdup(SAMPLE_JOB);
    kept->head = filled(0, step, 0);
    kept->params = calloc(n, sizeof *kept->params);
    weights = kept->memory = calloc(n, sizeof *weights);
    assert_true(kept->job != NULL && kept->head != NULL && kept->params != NULL && weights != NULL);
    for (uint32_t i = 0; i < n; i++) {
        pd_checkpoint_param *p = &kept->params[i];
        *p = (pd_checkpoint_param){ .shape = { 1, { 1 } }, .elements = 1, .step = step, .weights = &weights[i] };
        weights[i] = (float)i;
        p->state = filled(0, step, i);
        p->name = malloc(PD_NAME_MAX + 1);
        assert_true(p->name != NULL && p->state != NULL);
        memset(p->name, '"', PD_NAME_MAX);
        snprintf(p->name + PD_NAME_MAX - 10, 11, "%010u", i);
    }
    return kept;
}

pd_checkpoint_image *sample_large(uint64_t step, size_t bytes, size_t aligned)
{
    pd_checkpoint_image *kept = calloc(1, sizeof *kept);
    pd_checkpoint_param *p;

    assert_non_null(kept);
    *kept = (pd_checkpoint_image){ .creator = SAMPLE_CREATOR, .step = step, .place = step, .keep = 1, .n_params = 1 };
    kept->job = strdup(SAMPLE_JOB);
    kept->head = filled(0, step, 0);
    p = kept->params = calloc(1, sizeof *kept->params);
    kept->memory = aligned_alloc(4096, (bytes + aligned + 4095) / 4096 * 4096);
    assert_true(kept->job != NULL && kept->head != NULL && p != NULL && kept->memory != NULL);
    fill(kept->memory, bytes + aligned, step, 77);
    *p = (pd_checkpoint_param){ .name = strdup("w"), .step = step, .state_bytes = bytes };
    p->shape = (pd_shape){ 1, { (int64_t)(bytes / sizeof(float)) } };
    p->elements = p->shape.dim[0];
    p->weights = (const float *)(void *)((uint8_t *)kept->memory + aligned);
    p->state = filled(bytes, step, 1);
    assert_true(p->name != NULL && p->state != NULL);
    return kept;
}

static void assert_params_same(const pd_checkpoint_param *a, const pd_checkpoint_param *b)
{
    assert_string_equal(a->name, b->name);
    assert_true(pd_shape_equal(&a->shape, &b->shape));
    assert_int_equal(a->elements, b->elements);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->state_bytes, b->state_bytes);
    assert_memory_equal(a->state, b->state, a->state_bytes);
    assert_memory_equal(a->weights, b->weights, sizeof(float) * (size_t)a->elements);
}

void assert_checkpoints_same(const pd_checkpoint_image *a, const pd_checkpoint_image *b)
{
    assert_string_equal(a->job, b->job);
    assert_int_equal(a->creator, b->creator);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->head_bytes, b->head_bytes);
    assert_memory_equal(a->head, b->head, a->head_bytes);
    assert_int_equal(a->n_params, b->n_params);
    for (uint32_t i = 0; i < a->n_params; i++) assert_params_same(&a->params[i], &b->params[i]);
    assert_int_equal(a->n_worker_states, b->n_worker_states);
    for (uint32_t i = 0; i < a->n_worker_states; i++) {
        assert_int_equal(a->worker_states[i].rank, b->worker_states[i].rank);
        assert_int_equal(a->worker_states[i].step, b->worker_states[i].step);
        assert_int_equal(a->worker_states[i].bytes, b->worker_states[i].bytes);
        assert_memory_equal(a->worker_states[i].at, b->worker_states[i].at, a->worker_states[i].bytes);
    }
}
