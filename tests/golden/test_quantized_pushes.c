/* Compares the quantized element types with what a NumPy program wrote of them (quantized_pushes.py): the bytes of
 * vectors, and the values that the bytes have. */
#include "test.h"
#include "block_codec.h"
#include "golden.h"

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

FIXTURE(fixture, set_up, tear_down);
