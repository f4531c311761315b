/* Quantizes the values of upstream's table, google_shampoo/quantized_value.safetensors. The input is float32 and both
 * sides divide and round in the same way. So codes, bucket sizes, diagonals and the values read back are equal bit for
 * bit. */
#include "test.h"
#include "golden.h"
#include "quantize.h"

static golden_file file;

static pd_storage storage_of(const char *dtype)
{
    for (pd_storage s = PD_STORE_BF16; s <= PD_STORE_INT16; s++) {
        if (strcmp(pd_storage_name(s), dtype) == 0) return s;
    }
    fail_msg("dtype %s", dtype);
    return PD_STORE_F32;
}

/* Checks that the tensor `field` of case `index` exists and equals `ours` bit for bit. If `ours` is NULL, the tensor
 * must be missing. */
static void assert_equal(int index, const char *field, const void *ours, size_t bytes)
{
    const pd_st_tensor *tensor = golden_find(&file, "%03d/%s", index, field);

    if (ours == NULL) {
        assert_null(tensor);
        return;
    }
    assert_non_null(tensor);
    assert_int_equal(tensor->bytes, bytes);
    if (memcmp(golden_data(&file, tensor), ours, bytes) != 0) fail_msg("case %d: %s differs", index, field);
}

static void check_case(int index, const char *dtype, bool apart)
{
    const pd_st_tensor *input = golden_find(&file, "%03d/input", index);
    int64_t rows = input->shape.dim[0], cols = 1;
    pd_storage storage = storage_of(dtype);
    size_t n, code = storage == PD_STORE_INT8 ? 1 : 2;
    void *memory;
    pd_quantized q;
    float *back;

    for (int i = 1; i < input->shape.rank; i++) cols *= input->shape.dim[i];
    n = (size_t)(rows * cols);
    memory = aligned_alloc(64, (size_t)pd_quantized_room(storage, apart, rows, cols) + 64);
    back = malloc(n * sizeof *back);
    q = pd_quantized_at(memory, storage, apart, rows, cols);
    memcpy(back, golden_data(&file, input), n * sizeof *back);
    pd_quantize(&q, back);
    pd_dequantize(back, &q);
    assert_equal(index, storage == PD_STORE_BF16 ? "value" : "value/quantized", q.codes, n * code);
    assert_equal(index, "value/bucket_size", q.bucket, (size_t)cols * sizeof(float));
    assert_equal(index, "value/diagonal", q.diagonal, (size_t)rows * sizeof(float));
    assert_equal(index, "to_float", back, n * sizeof(float));
    free(back);
    free(memory);
}

TEST(every_case_is_equal_to_the_last_bit)
{
    json_t *cases = golden_cases(&file), *entry;
    size_t i;

    json_array_foreach(cases, i, entry)
    {
        check_case((int)golden_int(entry, "index"), json_string_value(json_object_get(entry, "dtype")),
                   json_is_true(json_object_get(entry, "extract_diagonal")));
    }
    print_message("%d cases\n", (int)i);
    assert_true(i > 0);
}

static int open_files(void **state)
{
    (void)state;
    golden_open(&file, "google_shampoo/quantized_value.safetensors");
    return 0;
}

static int close_files(void **state)
{
    (void)state;
    golden_close(&file);
    return 0;
}

GROUP(open_files, close_files);
