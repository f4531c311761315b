/* Tests symmetric matrices in block rows against every case of google_shampoo/symmetric_matrices.safetensors. Results
 * agree to 1e-6 of each tensor's norm, since products are summed in another order. Functions that only move numbers
 * start from upstream's block rows, and their results are equal. */
#include "test.h"
#include "golden.h"
#include "symmetric.h"

static golden_file file;

static float *recorded(int index, const char *field, int64_t n)
{
    const pd_st_tensor *tensor = golden_find(&file, "%03d/%s", index, field);

    if (tensor == NULL || tensor->bytes != (uint64_t)n * sizeof(float))
        fail_msg("case %d: %s is missing or of another size", index, field);
    return golden_floats(&file, tensor);
}

static void assert_near(int index, const char *field, pd_mat ours, double tolerance)
{
    float *theirs = recorded(index, field, ours.rows * ours.cols);
    double distance = 0, size = 0;

    for (int64_t i = 0; i < ours.rows * ours.cols; i++) {
        double x = (double)ours.at[i / ours.cols * ours.stride + i % ours.cols], y = (double)theirs[i];
        distance += (x - y) * (x - y);
        size += y * y;
    }
    if (!(sqrt(distance / size) <= tolerance))
        fail_msg("case %d: %s is off by %.3g", index, field, sqrt(distance / size));
    free(theirs);
}

static void check_case(const json_t *entry)
{
    int index = (int)golden_int(entry, "index");
    int64_t n = golden_int(entry, "rows"), c = golden_int(entry, "cols"), b = golden_int(entry, "block_size"), k, width,
            last;
    float *input = recorded(index, "input", n * c), *vector = recorded(index, "vector", n), *concat, *ours;
    float *full = malloc((size_t)(n * n) * sizeof *full);
    pd_blockrows B, C;
    pd_mat X = pd_mat_dense(input, n, c);

    assert_int_equal(pd_blockrows_count(&k, n, b, NULL), PD_OK);
    width = pd_blockrows_cols(b, k);
    last = b * k;
    concat = recorded(index, "concat", b * width);
    ours = calloc((size_t)(b * width), sizeof *ours);
    assert_int_equal(pd_blockrows_of(&B, pd_mat_dense(concat, b, width), NULL), PD_OK);
    assert_int_equal(pd_blockrows_of(&C, pd_mat_dense(ours, b, width), NULL), PD_OK);
    assert_int_equal(B.k, k);

    pd_blockrows_product(C, 0, 1, X);
    assert_near(index, "concat", C.at, 1e-6);
    for (int64_t i = 0; i < n * c; i++) input[i] *= 2; /* upstream's update_input */
    pd_blockrows_product(C, (float)golden_real(entry, "update_beta"), (float)golden_real(entry, "update_alpha"), X);
    assert_near(index, "updated_last_row_block", (pd_mat){ ours + width - last, b, last, width }, 1e-6);

    pd_blockrows_materialise(pd_mat_dense(full, n, n), B);
    assert_near(index, "materialized", pd_mat_dense(full, n, n), 0);
    pd_blockrows_diagonal(full, B);
    assert_near(index, "diagonal", pd_mat_dense(full, 1, n), 0);
    pd_blockrows_row_maxima(full, B);
    assert_near(index, "row_abs_maxes", pd_mat_dense(full, 1, n), 0);
    pd_blockrows_scale(C, B, vector);
    assert_near(index, "times_vector", C.at, 0);
    pd_blockrows_set_diagonal(C, vector);
    assert_near(index, "diag_as_concat", C.at, 0);
    free(input);
    free(vector);
    free(concat);
    free(ours);
    free(full);
}

TEST(every_case_agrees)
{
    json_t *entry;
    size_t i;

    json_array_foreach(golden_cases(&file), i, entry) check_case(entry);
    print_message("%d cases\n", (int)i);
    assert_true(i > 0);
}

static int open_files(void **state)
{
    (void)state;
    golden_open(&file, "google_shampoo/symmetric_matrices.safetensors");
    return 0;
}

static int close_files(void **state)
{
    (void)state;
    golden_close(&file);
    return 0;
}

GROUP(open_files, close_files);
