/* replay_google.c - computes recorded cases of the functions of Google's Shampoo: inverse roots, power iteration,
 * quantized values, symmetric matrices. */
#include "replay_case.h"

#include <math.h>
#include <string.h>

#include "root_types.h"
#include "quantize.h"
#include "root.h"
#include "symmetric.h"

static int storage_of(const pd_case *c, pd_storage *out)
{
    const char *dtype = json_string_value(json_object_get(c->entry, "dtype"));

    for (*out = PD_STORE_BF16; dtype != NULL && *out <= PD_STORE_INT16; (*out)++)
        if (strcmp(pd_storage_name(*out), dtype) == 0) return PD_OK;
    return pd_fail(c->err, PD_UNIMPLEMENTED, "case %03d: expected a dtype of bfloat16, int8, int16", c->index);
}

static float code_at(const pd_quantized *q, int64_t i)
{
    return q->storage == PD_STORE_INT8 ? ((const int8_t *)q->codes)[i] : ((const int16_t *)q->codes)[i];
}

/* Compares the codes of a quantized value with the recorded codes. They must be equal, because the recorded input is
 * exactly the float32 value that the reference optimizer quantized. With bfloat16 storage there are no codes, so the
 * value itself is compared. */
static int judge_codes(pd_case *c, const pd_quantized *q, const float *value, int64_t n)
{
    float *codes;
    int rc;

    if (q->storage == PD_STORE_BF16) return pd_case_judge_equal(c, "value", value, n);
    if ((rc = pd_case_floats(c, &codes, n)) != PD_OK) return rc;
    for (int64_t i = 0; i < n; i++) codes[i] = code_at(q, i);
    if ((rc = pd_case_judge_equal(c, "value/quantized", codes, n)) != PD_OK) return rc;
    if ((rc = pd_case_judge(c, "value/bucket_size", q->bucket, q->cols)) != PD_OK) return rc;
    return q->diagonal_apart ? pd_case_judge_equal(c, "value/diagonal", q->diagonal, q->rows) : PD_OK;
}

int pd_judge_quantized_value(pd_case *c)
{
    bool apart = json_is_true(json_object_get(c->entry, "extract_diagonal"));
    pd_case_tensor input;
    pd_storage storage;
    pd_quantized q;
    int64_t rows, cols;
    void *memory;
    float *value;
    int rc = storage_of(c, &storage);

    if (rc == PD_OK) rc = pd_case_take(c, "input", &input);
    if (rc != PD_OK) return rc;
    rows = input.shape.rank > 0 ? input.shape.dim[0] : 0;
    if (rows == 0 || input.n == 0) return pd_case_refuse(c, "input", "a scalar or an empty tensor cannot be quantized");
    cols = input.n / rows;
    if (apart && (input.shape.rank != 2 || rows != cols))
        return pd_case_refuse(c, "input", "only a square matrix has a diagonal to extract");
    if ((rc = pd_case_memory(c, &memory, (size_t)pd_quantized_room(storage, apart, rows, cols))) != PD_OK) return rc;
    if ((rc = pd_case_floats(c, &value, input.n)) != PD_OK) return rc;
    q = pd_quantized_at(memory, storage, apart, rows, cols);
    pd_quantize(&q, input.at);
    pd_dequantize(value, &q);
    rc = judge_codes(c, &q, value, input.n);
    return rc == PD_OK ? pd_case_judge(c, "to_float", value, input.n) : rc;
}

/* Computes products of a recorded matrix X and compares them with the recorded ones: first X X', then beta X X' + alpha
 * Y Y' with Y = 2 X, the update. Only the last block row of the update was recorded. */
static int judge_products(pd_case *c, pd_blockrows C, pd_mat X)
{
    double alpha = json_number_value(json_object_get(c->entry, "update_alpha")),
           beta = json_number_value(json_object_get(c->entry, "update_beta"));
    const char *update = json_string_value(json_object_get(c->entry, "update_input"));
    int64_t n = C.b * C.k, width = C.at.cols;
    float *last;
    int rc;

    if (update == NULL || strcmp(update, "2 * input") != 0)
        return pd_fail(c->err, PD_UNIMPLEMENTED, "case %03d: expected the update_input \"2 * input\"", c->index);
    pd_blockrows_product(C, 0, 1, X);
    if ((rc = pd_case_judge(c, "concat", C.at.at, C.b * width)) != PD_OK) return rc;
    for (int64_t i = 0; i < X.rows * X.cols; i++) X.at[i] *= 2;
    pd_blockrows_product(C, (float)beta, (float)alpha, X);
    if ((rc = pd_case_floats(c, &last, C.b * n)) != PD_OK) return rc;
    for (int64_t r = 0; r < C.b; r++) memcpy(last + r * n, C.at.at + (r + 1) * width - n, (size_t)n * sizeof *last);
    return pd_case_judge(c, "updated_last_row_block", last, C.b * n);
}

/* Calls the functions that read a symmetric matrix without changing it, such as the one for its diagonal, and compares
 * their results with the recorded ones. B is the recorded matrix, stored as block rows; C is scratch memory of the same
 * shape. */
static int judge_readings(pd_case *c, pd_blockrows B, pd_blockrows C, const float *vector)
{
    int64_t n = B.b * B.k, stored = B.b * B.at.cols;
    float *full;
    int rc = pd_case_floats(c, &full, n * n);

    if (rc != PD_OK) return rc;
    pd_blockrows_materialise(pd_mat_dense(full, n, n), B);
    rc = pd_case_judge(c, "materialized", full, n * n);
    pd_blockrows_diagonal(full, B);
    if (rc == PD_OK) rc = pd_case_judge(c, "diagonal", full, n);
    pd_blockrows_row_maxima(full, B);
    if (rc == PD_OK) rc = pd_case_judge(c, "row_abs_maxes", full, n);
    pd_blockrows_scale(C, B, vector);
    if (rc == PD_OK) rc = pd_case_judge(c, "times_vector", C.at.at, stored);
    pd_blockrows_set_diagonal(C, vector);
    return rc == PD_OK ? pd_case_judge(c, "diag_as_concat", C.at.at, stored) : rc;
}

int pd_judge_symmetric_matrices(pd_case *c)
{
    int64_t b = json_integer_value(json_object_get(c->entry, "block_size")), k;
    pd_mat X, concat;
    pd_blockrows B, C;
    float *vector = NULL, *room;
    int rc = pd_case_mat(c, "input", &X);

    if (rc == PD_OK) rc = pd_case_mat(c, "concat", &concat);
    if (rc == PD_OK) rc = pd_case_vector(c, "vector", X.rows, &vector);
    if (rc == PD_OK) rc = pd_blockrows_count(&k, X.rows, b, c->err);
    if (rc == PD_OK) rc = pd_blockrows_of(&B, concat, c->err);
    if (rc == PD_OK && (B.b != b || B.k != k))
        rc = pd_case_refuse(c, "concat", "not the block rows of the input's product");
    if (rc == PD_OK) rc = pd_case_floats(c, &room, concat.rows * concat.cols);
    if (rc != PD_OK) return rc;
    C = (pd_blockrows){ pd_mat_dense(room, concat.rows, concat.cols), b, k };
    rc = judge_products(c, C, X);
    return rc == PD_OK ? judge_readings(c, B, C, vector) : rc;
}

/* Checks that a case was recorded with the tolerance and the limit of iterations that paramd has as constants. Google's
 * functions take them as arguments, and Google's optimizer passes the same values as paramd's constants. Results with
 * other values cannot be compared. */
static int check_limits(const pd_case *c)
{
    double tolerance = json_number_value(json_object_get(c->config, "error_tolerance"));
    json_int_t steps = json_integer_value(json_object_get(c->config, "num_iters"));

    if (tolerance == 1e-6 && steps == 100) return PD_OK;
    return pd_fail(c->err, PD_UNIMPLEMENTED,
                   "config: recorded with limits that the optimizer does not use: expected error_tolerance 1e-6 and "
                   "num_iters 100, got %g and %" JSON_INTEGER_FORMAT,
                   tolerance, steps);
}

/* Reads a recorded symmetric matrix, which is stored either as a square matrix or as block rows. */
static int take_symmetric(pd_case *c, const char *field, pd_mat *out)
{
    pd_blockrows B;
    pd_mat M;
    int64_t n;
    float *full = NULL;
    int rc = pd_case_mat(c, field, &M);

    if (rc == PD_OK && M.rows == M.cols && M.rows > 0) {
        *out = M;
        return PD_OK;
    }
    if (rc == PD_OK) rc = pd_blockrows_of(&B, M, c->err);
    if (rc != PD_OK) return rc;
    n = B.b * B.k;
    if (n == 0) return pd_case_refuse(c, field, "no columns");
    if ((rc = pd_case_floats(c, &full, n * n)) != PD_OK) return rc;
    pd_blockrows_materialise(*out = pd_mat_dense(full, n, n), B);
    return PD_OK;
}

/* Checks a recorded case of an inverse root for which paramd found no root (PD_OUT_OF_RANGE): the recorded root
 * must contain a NaN or an infinity. */
static int judge_refusal(pd_case *c)
{
    pd_case_tensor root;
    int rc = pd_case_take(c, "root", &root);
    bool finite = true;

    for (int64_t i = 0; rc == PD_OK && i < root.n; i++) finite &= isfinite(root.at[i]) != 0;
    if (rc == PD_OK) pd_case_expect(c, !finite);
    return rc;
}

/* Computes an inverse root, and compares the root and the `error` that the root function reports with the recorded
 * ones. That error is a difference of numbers near 1, so it is compared with a scale of 1. */
int pd_judge_inverse_pth_root(pd_case *c)
{
    json_int_t p = json_integer_value(json_object_get(c->entry, "p"));
    double epsilon = json_number_value(json_object_get(c->entry, "ridge_epsilon")), apart = 0;
    pd_root_want want = { .method = PD_ROOT_NEWTON, .p = (int)p, .epsilon = epsilon };
    pd_root_report report = { 0 };
    pd_mat A, X;
    float *root, numbers[2];
    int rc = check_limits(c);

    if (rc == PD_OK && (p < 1 || p > 1000 || !(epsilon >= 0)))
        rc = pd_fail(c->err, PD_INVALID_ARGUMENT, "case %03d: expected p from 1 to 1000 and ridge_epsilon from 0 on",
                     c->index);
    if (rc == PD_OK) rc = take_symmetric(c, "matrix", &A);
    if (rc == PD_OK) rc = pd_case_floats(c, &root, A.rows * A.rows);
    if (rc != PD_OK) return rc;
    X = pd_mat_dense(root, A.rows, A.rows);
    rc = pd_root_newton(X, A, &want, &report);
    if (rc == PD_OUT_OF_RANGE) return judge_refusal(c);
    if (rc != PD_OK) return pd_fail(c->err, rc, "case %03d: %s", c->index, pd_code_text(rc));
    numbers[0] = (float)report.error;
    numbers[1] = (float)report.largest;
    if ((rc = pd_case_judge(c, "root", root, A.rows * A.rows)) != PD_OK ||
        (rc = pd_case_judge(c, "max_ev", &numbers[1], 1)) != PD_OK)
        return rc;
    if ((rc = pd_case_error(c, "error", &numbers[0], 1, 1, &apart)) == PD_OK)
        pd_verdict_add(c->verdict, c->number, 0, apart);
    return rc;
}

int pd_judge_power_iteration(pd_case *c)
{
    pd_mat A;
    double *matrix, *vector, largest;
    float *short_vector, value;
    void *memory;
    int rc = check_limits(c);
    int64_t n;

    if (rc == PD_OK) rc = pd_case_mat(c, "matrix", &A);
    if (rc == PD_OK && (A.rows != A.cols || A.rows == 0)) rc = pd_case_refuse(c, "matrix", "expected a square matrix");
    if (rc != PD_OK) return rc;
    n = A.rows;
    if ((rc = pd_case_memory(c, &memory, (size_t)(n * n + n) * sizeof *matrix)) != PD_OK ||
        (rc = pd_case_floats(c, &short_vector, n)) != PD_OK)
        return rc;
    matrix = memory;
    vector = matrix + n * n;
    for (int64_t i = 0; i < n * n; i++) matrix[i] = (double)A.at[i];
    rc = pd_power_iteration(&largest, vector, matrix, n, 0, 0);
    if (rc != PD_OK) return pd_fail(c->err, rc, "case %03d: %s", c->index, pd_code_text(rc));
    value = (float)largest;
    for (int64_t i = 0; i < n; i++) short_vector[i] = (float)vector[i];
    rc = pd_case_judge(c, "float64/value", &value, 1);
    return rc == PD_OK ? pd_case_judge(c, "float64/vector", short_vector, n) : rc;
}
