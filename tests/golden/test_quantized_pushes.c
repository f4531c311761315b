/* Compares the quantized element types with what a NumPy program wrote of them (quantized_pushes.py): the bytes of
 * vectors, the values that the bytes have, and the pushes of a worker with error feedback, some of which do not
 * count. */
#include "test.h"
#include "block_codec.h"
#include "golden.h"
#include "peer.h"

typedef struct fixture {
    golden_file file;
} fixture;

static void set_up(fixture *f)
{
    golden_open(&f->file, "quantized_pushes/codecs.safetensors");
}

static void tear_down(fixture *f)
{
    golden_close(&f->file);
}

static const char *case_of(const fixture *f, size_t i)
{
    return json_string_value(json_array_get(golden_cases(&f->file), i));
}

/* Calls `judge` for each recorded vector and element type. */
static void each(fixture *f,
                 void (*judge)(const fixture *f, const char *name, pd_dtype dtype, const float *x, int64_t n))
{
    for (size_t i = 0; i < json_array_size(golden_cases(&f->file)); i++) {
        const pd_st_tensor *vector = golden_find(&f->file, "%s/vector", case_of(f, i));
        float *x = golden_floats(&f->file, vector);
        for (pd_dtype dtype = PD_INT8; dtype <= PD_INT4; dtype++)
            judge(f, case_of(f, i), dtype, x, vector->shape.dim[0]);
        free(x);
    }
}

static void judge_bytes(const fixture *f, const char *name, pd_dtype dtype, const float *x, int64_t n)
{
    const pd_st_tensor *bytes = golden_find(&f->file, "%s/%s", name, pd_dtype_name(dtype));
    void *piece = malloc(bytes->bytes);

    assert_int_equal(pd_dtype_bytes(dtype, (uint64_t)n), bytes->bytes);
    pd_blocks_encode(piece, dtype, x, n);
    if (memcmp(piece, golden_data(&f->file, bytes), bytes->bytes) != 0)
        fail_msg("%s: other bytes as %s", name, pd_dtype_name(dtype));
    free(piece);
}

TEST(vectors_have_the_bytes_of_the_numpy_program, fixture *f)
{
    each(f, judge_bytes);
}

static void judge_values(const fixture *f, const char *name, pd_dtype dtype, const float *x, int64_t n)
{
    const pd_st_tensor *bytes = golden_find(&f->file, "%s/%s", name, pd_dtype_name(dtype));
    float *expected = golden_floats(&f->file, golden_find(&f->file, "%s/%s_values", name, pd_dtype_name(dtype)));
    float *values = malloc((size_t)n * sizeof *values);
    void *piece = malloc(bytes->bytes);

    (void)x;
    memcpy(piece, golden_data(&f->file, bytes), bytes->bytes);
    pd_blocks_decode(values, dtype, piece, n, 0, n);
    for (int64_t i = 0; i < n; i++)
        if (isnan(values[i]) ? !isnan(expected[i]) : memcmp(&values[i], &expected[i], sizeof(float)) != 0)
            fail_msg("%s: element %lld as %s is %.9g, expected %.9g", name, (long long)i, pd_dtype_name(dtype),
                     (double)values[i], (double)expected[i]);
    free(piece);
    free(values);
    free(expected);
}

TEST(bytes_have_the_values_of_the_numpy_program, fixture *f)
{
    each(f, judge_values);
}

enum { N = 150 };

/* Returns a worker whose job has open sets and one parameter of N elements, pushed as `dtype` in one piece. */
static peer *worker_new(pd_dtype dtype, bool carries)
{
    static const int64_t sizes[] = { N };
    pd_core_config config = peer_four;
    peer *p;
    pd_ticket_id ticket;

    config.feedback = carries ? PD_FEEDBACK_CARRY : PD_FEEDBACK_ON;
    p = peer_new(&config);
    p->open_sets = true;
    p->chunk_elements = 4 * CHUNK;
    p->push_dtype = dtype;
    peer_connect(p);
    peer_welcome(p);
    ticket = peer_declare(p, sizes, 1);
    peer_answer_declare(p, 1, 0);
    assert_int_equal(peer_finish(p, ticket, NULL), PD_OK);
    return p;
}

/* Answers a push as `fate` says, and returns the step after it. */
static uint64_t answer(peer *p, const peer_frame *l, const char *fate, uint64_t step)
{
    static const char *const fates[] = { "again", "stepped", "skipped", "none", "", "late" };
    uint32_t outcome = 0;

    if (strcmp(fate, "refused") == 0) {
        peer_refuse(p, &l->prefix, PD_DEADLINE_EXCEEDED, "rank 1 has not contributed");
        return step;
    }
    while (strcmp(fates[outcome], fate) != 0) outcome++;
    peer_reply_data(p, &l->prefix, 1, outcome == 0 ? 1 : outcome, step, NULL, 0);
    return step + 1;
}

/* Plays the recorded run `name` of a worker. */
static void judge_run(const golden_file *file, const char *name, pd_dtype dtype, bool carries)
{
    peer *p = worker_new(dtype, carries);
    uint64_t step = 1;

    for (size_t t = 1; t <= json_array_size(golden_cases(file)); t++) {
        const pd_st_tensor *bytes = golden_find(file, "%s/push/%04zu", name, t);
        float *gradient = golden_floats(file, golden_find(file, "%s/gradient/%04zu", name, t));
        pd_item item = { .param = 0, .gradient = gradient };
        pd_ticket_id ticket;
        peer_frame l;

        assert_int_equal(pd_core_push(p->core, PD_PUSH, &item, 1, NULL, &ticket, NULL), PD_OK);
        l = peer_expect(p, PD_PUSH);
        assert_int_equal(l.prefix.payload_bytes, bytes->bytes);
        if (memcmp(l.payload, golden_data(file, bytes), bytes->bytes) != 0)
            fail_msg("%s: push %zu has other bytes", name, t);
        step = answer(p, &l, json_string_value(json_array_get(golden_cases(file), t - 1)), step);
        peer_frame_drop(&l);
        (void)peer_finish(p, ticket, NULL);
        free(gradient);
    }
    peer_free(p);
}

TEST(pushes_with_error_feedback_have_the_bytes_of_the_numpy_program)
{
    golden_file file;

    golden_open(&file, "quantized_pushes/feedback.safetensors");
    judge_run(&file, "int8_drop", PD_INT8, false);
    judge_run(&file, "int4_drop", PD_INT4, false);
    judge_run(&file, "int8_carry", PD_INT8, true);
    judge_run(&file, "int4_carry", PD_INT4, true);
    golden_close(&file);
}

FIXTURE(fixture, set_up, tear_down);
