/* replay_routine.c - recorded cases of single routines, computed by the arithmetic library in this process and judged one by one.
 *
 * A case is an entry of config.cases; its tensors are named INDEX/FIELD with an index of three digits. A routine is a line of the table at the
 * foot and a function that computes one case and notes how far each result is from the recorded one. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "quantize.h"
#include "replay.h"
#include "root.h"
#include "symmetric.h"

enum { MOST_CASES = 1000, MOST_HELD = 24 };

/* One case at work. Memory that it takes is held here and freed behind it. */
typedef struct sitting {
    const pd_trace *trace;
    const json_t   *config, *entry;
    int             index;
    size_t          number;             /* in the list */
    pd_verdict     *verdict;
    pd_error       *err;
    void           *held[MOST_HELD];
    int             n_held;
} sitting;

/* ---- memory and tensors ---- */

/* A float32 tensor of a case. */
typedef struct piece {
    float   *at;
    pd_shape shape;
    int64_t  n;
} piece;

static int hold(sitting *s, void **out, size_t bytes)
{
    assert(s->n_held < MOST_HELD);
    *out = pd_pages_new(bytes);
    if (*out == NULL) return pd_fail(s->err, PD_NO_MEMORY, "no memory for %zu bytes", bytes);
    s->held[s->n_held++] = *out;
    return PD_OK;
}

static int hold_floats(sitting *s, float **out, int64_t n)
{
    void *memory = NULL;
    int rc = hold(s, &memory, (size_t)n * sizeof(float));

    if (rc == PD_OK) memset(memory, 0, (size_t)n * sizeof(float));
    *out = memory;
    return rc;
}

static void let_go(sitting *s)
{
    while (s->n_held > 0) free(s->held[--s->n_held]);
}

static int refuse(const sitting *s, const char *field, const char *what)
{
    return pd_fail(s->err, PD_INVALID_ARGUMENT, "%03d/%s: %s", s->index, field, what);
}

/* A recorded tensor as float64. PD_INVALID_ARGUMENT: missing, no numbers. */
static int take_doubles(sitting *s, const char *field, double **at, pd_shape *shape, int64_t *n)
{
    char name[64];
    void *memory;
    int rc;

    snprintf(name, sizeof name, "%03d/%s", s->index, field);
    if (!pd_trace_tensor(s->trace, name, shape)) return refuse(s, field, "missing, or its elements are no numbers");
    if (pd_shape_elements(shape, n) != PD_OK) return refuse(s, field, "too large");
    if ((rc = hold(s, &memory, (size_t)*n * sizeof **at)) != PD_OK) return rc;
    pd_trace_values(s->trace, name, *at = memory);
    return PD_OK;
}

static int take(sitting *s, const char *field, piece *out)
{
    double *values = NULL;
    int rc = take_doubles(s, field, &values, &out->shape, &out->n);

    if (rc == PD_OK) rc = hold_floats(s, &out->at, out->n);
    for (int64_t i = 0; rc == PD_OK && i < out->n; i++) out->at[i] = (float)values[i];
    return rc;
}

/* A matrix. */
static int take_mat(sitting *s, const char *field, pd_mat *out)
{
    piece p;
    int rc = take(s, field, &p);

    if (rc == PD_OK && p.shape.rank != 2) rc = refuse(s, field, "expected a matrix");
    if (rc == PD_OK) *out = pd_mat_dense(p.at, p.shape.dim[0], p.shape.dim[1]);
    return rc;
}

/* A vector of n entries. */
static int take_vector(sitting *s, const char *field, int64_t n, float **out)
{
    piece p;
    int rc = take(s, field, &p);

    if (rc == PD_OK && p.n != n) rc = refuse(s, field, "not as long as the matrix has rows");
    if (rc == PD_OK) *out = p.at;
    return rc;
}

/* ---- judging ---- */

/* How far `ours` is from a recorded tensor, which must have as many elements. `scale` as pd_relative_error has it. */
static int error_of(sitting *s, const char *field, const float *ours, int64_t n, double scale, double *error)
{
    double *recorded = NULL;
    pd_shape shape;
    int64_t recorded_n;
    int rc = take_doubles(s, field, &recorded, &shape, &recorded_n);

    if (rc == PD_OK && recorded_n != n) rc = refuse(s, field, "not of the size that the input calls for");
    if (rc == PD_OK) *error = pd_relative_error(ours, recorded, n, scale);
    return rc;
}

static int judge(sitting *s, const char *field, const float *ours, int64_t n)
{
    double error = 0;
    int rc = error_of(s, field, ours, n, 0, &error);

    if (rc == PD_OK) pd_verdict_add(s->verdict, s->number, 0, error);
    return rc;
}

/* The same for what must be equal: any difference is an infinite error. */
static int judge_equal(sitting *s, const char *field, const float *ours, int64_t n)
{
    double error = 0;
    int rc = error_of(s, field, ours, n, 0, &error);

    if (rc == PD_OK) pd_verdict_add(s->verdict, s->number, 0, error == 0 ? 0 : (double)INFINITY);
    return rc;
}

/* ---- quantized_value ---- */

static int storage_of(const sitting *s, pd_storage *out)
{
    const char *dtype = json_string_value(json_object_get(s->entry, "dtype"));

    for (*out = PD_STORE_BF16; dtype != NULL && *out <= PD_STORE_INT16; (*out)++) {
        if (strcmp(pd_storage_name(*out), dtype) == 0) return PD_OK;
    }
    return pd_fail(s->err, PD_UNIMPLEMENTED, "case %03d: expected a dtype of bfloat16, int8, int16", s->index);
}

static float code_at(const pd_quantized *q, int64_t i)
{
    return q->storage == PD_STORE_INT8 ? ((const int8_t *)q->codes)[i] : ((const int16_t *)q->codes)[i];
}

/* Codes are equal: the recorded input is the very float32 that upstream divided. Of bfloat16 the value is the code. */
static int judge_codes(sitting *s, const pd_quantized *q, const float *value, int64_t n)
{
    float *codes;
    int rc;

    if (q->storage == PD_STORE_BF16) return judge_equal(s, "value", value, n);
    if ((rc = hold_floats(s, &codes, n)) != PD_OK) return rc;
    for (int64_t i = 0; i < n; i++) codes[i] = code_at(q, i);
    if ((rc = judge_equal(s, "value/quantized", codes, n)) != PD_OK) return rc;
    if ((rc = judge(s, "value/bucket_size", q->bucket, q->cols)) != PD_OK) return rc;
    return q->diagonal_apart ? judge_equal(s, "value/diagonal", q->diagonal, q->rows) : PD_OK;
}

static int judge_quantized_value(sitting *s)
{
    bool apart = json_is_true(json_object_get(s->entry, "extract_diagonal"));
    piece input;
    pd_storage storage;
    pd_quantized q;
    int64_t rows, cols;
    void *memory;
    float *value;
    int rc = storage_of(s, &storage);

    if (rc == PD_OK) rc = take(s, "input", &input);
    if (rc != PD_OK) return rc;
    rows = input.shape.rank > 0 ? input.shape.dim[0] : 0;
    if (rows == 0 || input.n == 0) return refuse(s, "input", "a scalar or nothing cannot be quantized");
    cols = input.n / rows;
    if (apart && (input.shape.rank != 2 || rows != cols)) return refuse(s, "input", "only a square matrix has a diagonal to extract");
    if ((rc = hold(s, &memory, (size_t)pd_quantized_room(storage, apart, rows, cols))) != PD_OK) return rc;
    if ((rc = hold_floats(s, &value, input.n)) != PD_OK) return rc;
    q = pd_quantized_at(memory, storage, apart, rows, cols);
    pd_quantize(&q, input.at);
    pd_dequantize(value, &q);
    rc = judge_codes(s, &q, value, input.n);
    return rc == PD_OK ? judge(s, "to_float", value, input.n) : rc;
}

/* ---- symmetric_matrices ---- */

/* Product, and the accumulation of another one to it; of that the last block row was recorded. */
static int judge_products(sitting *s, pd_blockrows C, pd_mat X)
{
    double alpha = json_number_value(json_object_get(s->entry, "update_alpha")), beta = json_number_value(json_object_get(s->entry, "update_beta"));
    const char *update = json_string_value(json_object_get(s->entry, "update_input"));
    int64_t n = C.b * C.k, width = C.at.cols;
    float *last;
    int rc;

    if (update == NULL || strcmp(update, "2 * input") != 0) {
        return pd_fail(s->err, PD_UNIMPLEMENTED, "case %03d: expected the update_input \"2 * input\"", s->index);
    }
    pd_blockrows_product(C, 0, 1, X);
    if ((rc = judge(s, "concat", C.at.at, C.b * width)) != PD_OK) return rc;
    for (int64_t i = 0; i < X.rows * X.cols; i++) X.at[i] *= 2;
    pd_blockrows_product(C, (float)beta, (float)alpha, X);
    if ((rc = hold_floats(s, &last, C.b * n)) != PD_OK) return rc;
    for (int64_t r = 0; r < C.b; r++) memcpy(last + r * n, C.at.at + (r + 1) * width - n, (size_t)n * sizeof *last);
    return judge(s, "updated_last_row_block", last, C.b * n);
}

/* What only reads starts from the recorded block rows B. C is room of the same shape. */
static int judge_readings(sitting *s, pd_blockrows B, pd_blockrows C, const float *vector)
{
    int64_t n = B.b * B.k, stored = B.b * B.at.cols;
    float *full;
    int rc = hold_floats(s, &full, n * n);

    if (rc != PD_OK) return rc;
    pd_blockrows_materialise(pd_mat_dense(full, n, n), B);
    rc = judge(s, "materialized", full, n * n);
    pd_blockrows_diagonal(full, B);
    if (rc == PD_OK) rc = judge(s, "diagonal", full, n);
    pd_blockrows_row_maxima(full, B);
    if (rc == PD_OK) rc = judge(s, "row_abs_maxes", full, n);
    pd_blockrows_scale(C, B, vector);
    if (rc == PD_OK) rc = judge(s, "times_vector", C.at.at, stored);
    pd_blockrows_set_diagonal(C, vector);
    return rc == PD_OK ? judge(s, "diag_as_concat", C.at.at, stored) : rc;
}

static int judge_symmetric_matrices(sitting *s)
{
    int64_t b = json_integer_value(json_object_get(s->entry, "block_size")), k;
    pd_mat X, concat;
    pd_blockrows B, C;
    float *vector = NULL, *room;
    int rc = take_mat(s, "input", &X);

    if (rc == PD_OK) rc = take_mat(s, "concat", &concat);
    if (rc == PD_OK) rc = take_vector(s, "vector", X.rows, &vector);
    if (rc == PD_OK) rc = pd_blockrows_count(&k, X.rows, b, s->err);
    if (rc == PD_OK) rc = pd_blockrows_of(&B, concat, s->err);
    if (rc == PD_OK && (B.b != b || B.k != k)) rc = refuse(s, "concat", "not the block rows of the input's product");
    if (rc == PD_OK) rc = hold_floats(s, &room, concat.rows * concat.cols);
    if (rc != PD_OK) return rc;
    C = (pd_blockrows){ pd_mat_dense(room, concat.rows, concat.cols), b, k };
    rc = judge_products(s, C, X);
    return rc == PD_OK ? judge_readings(s, B, C, vector) : rc;
}

/* ---- matrix_inverse_pth_root, power_iteration ---- */

/* Upstream's functions take these limits as arguments, its optimizer leaves them at their defaults: constants here. A recording made with others
 * is of another computation, and says nothing about ours. */
static int check_limits(const sitting *s)
{
    double tolerance = json_number_value(json_object_get(s->config, "error_tolerance"));
    json_int_t steps = json_integer_value(json_object_get(s->config, "num_iters"));

    if (tolerance == 1e-6 && steps == 100) return PD_OK;
    return pd_fail(s->err, PD_UNIMPLEMENTED, "config: recorded with limits that the optimizer does not use: expected error_tolerance 1e-6 and num_iters 100, got %g and %" JSON_INTEGER_FORMAT,
                   tolerance, steps);
}

/* The recorded input: a square matrix, or block rows of a symmetric one. */
static int take_symmetric(sitting *s, const char *field, pd_mat *out)
{
    pd_blockrows B;
    pd_mat M;
    int64_t n;
    float *full = NULL;
    int rc = take_mat(s, field, &M);

    if (rc == PD_OK && M.rows == M.cols && M.rows > 0) {
        *out = M;
        return PD_OK;
    }
    if (rc == PD_OK) rc = pd_blockrows_of(&B, M, s->err);
    if (rc != PD_OK) return rc;
    n = B.b * B.k;
    if (n == 0) return refuse(s, field, "no columns");
    if ((rc = hold_floats(s, &full, n * n)) != PD_OK) return rc;
    pd_blockrows_materialise(*out = pd_mat_dense(full, n, n), B);
    return PD_OK;
}

/* What the library refuses (PD_OUT_OF_RANGE) must be recorded as NaN or infinite. */
static int judge_refusal(sitting *s)
{
    piece root;
    int rc = take(s, "root", &root);
    bool finite = true;

    for (int64_t i = 0; rc == PD_OK && i < root.n; i++) finite &= isfinite(root.at[i]) != 0;
    if (rc == PD_OK) pd_verdict_add(s->verdict, s->number, 0, finite ? (double)INFINITY : 0);
    return rc;
}

/* The error is a difference of numbers near 1: that is its scale. */
static int judge_matrix_inverse_pth_root(sitting *s)
{
    json_int_t p = json_integer_value(json_object_get(s->entry, "p"));
    double epsilon = json_number_value(json_object_get(s->entry, "ridge_epsilon")), apart = 0;
    pd_root_want want = { .method = PD_ROOT_NEWTON, .p = (int)p, .epsilon = epsilon };
    pd_root_report report = { 0 };
    pd_mat A, X;
    float *root, numbers[2];
    int rc = check_limits(s);

    if (rc == PD_OK && (p < 1 || p > 1000 || !(epsilon >= 0))) {
        rc = pd_fail(s->err, PD_INVALID_ARGUMENT, "case %03d: expected p from 1 to 1000 and ridge_epsilon from 0 on", s->index);
    }
    if (rc == PD_OK) rc = take_symmetric(s, "matrix", &A);
    if (rc == PD_OK) rc = hold_floats(s, &root, A.rows * A.rows);
    if (rc != PD_OK) return rc;
    X = pd_mat_dense(root, A.rows, A.rows);
    rc = pd_root_newton(X, A, &want, &report);
    if (rc == PD_OUT_OF_RANGE) return judge_refusal(s);
    if (rc != PD_OK) return pd_fail(s->err, rc, "case %03d: %s", s->index, pd_code_text(rc));
    numbers[0] = (float)report.error;
    numbers[1] = (float)report.largest;
    if ((rc = judge(s, "root", root, A.rows * A.rows)) != PD_OK || (rc = judge(s, "max_ev", &numbers[1], 1)) != PD_OK) return rc;
    if ((rc = error_of(s, "error", &numbers[0], 1, 1, &apart)) == PD_OK) pd_verdict_add(s->verdict, s->number, 0, apart);
    return rc;
}

static int judge_power_iteration(sitting *s)
{
    pd_mat A;
    double *matrix, *vector, largest;
    float *short_vector, value;
    void *memory;
    int rc = check_limits(s);
    int64_t n;

    if (rc == PD_OK) rc = take_mat(s, "matrix", &A);
    if (rc == PD_OK && (A.rows != A.cols || A.rows == 0)) rc = refuse(s, "matrix", "expected a square matrix");
    if (rc != PD_OK) return rc;
    n = A.rows;
    if ((rc = hold(s, &memory, (size_t)(n * n + n) * sizeof *matrix)) != PD_OK || (rc = hold_floats(s, &short_vector, n)) != PD_OK) return rc;
    matrix = memory;
    vector = matrix + n * n;
    for (int64_t i = 0; i < n * n; i++) matrix[i] = (double)A.at[i];
    rc = pd_power_iteration(&largest, vector, matrix, n, 0, 0);
    if (rc != PD_OK) return pd_fail(s->err, rc, "case %03d: %s", s->index, pd_code_text(rc));
    value = (float)largest;
    for (int64_t i = 0; i < n; i++) short_vector[i] = (float)vector[i];
    rc = judge(s, "float64/value", &value, 1);
    return rc == PD_OK ? judge(s, "float64/vector", short_vector, n) : rc;
}

/* ---- the table ---- */

typedef struct routine {
    const char *system, *name;          /* as the metadata say: system, case */
    int       (*judge)(sitting *s);     /* one case */
} routine;

static const routine routines[] = {
    { "google_shampoo", "matrix_inverse_pth_root", judge_matrix_inverse_pth_root },
    { "google_shampoo", "power_iteration",         judge_power_iteration },
    { "google_shampoo", "quantized_value",         judge_quantized_value },
    { "google_shampoo", "symmetric_matrices",      judge_symmetric_matrices },
};

static const routine *find_routine(const pd_trace *trace)
{
    for (const routine *r = routines; r < routines + sizeof routines / sizeof *routines; r++) {
        if (strcmp(r->system, pd_trace_system(trace)) == 0 && strcmp(r->name, pd_trace_case(trace)) == 0) return r;
    }
    return NULL;
}

bool pd_replay_is_routine(const pd_trace *trace)
{
    return find_routine(trace) != NULL;
}

static int find_cases(pd_trace *trace, const json_t **config, const json_t **cases, pd_error *err)
{
    int rc = pd_trace_config(trace, config, err);

    if (rc != PD_OK) return rc;
    *cases = json_object_get(*config, "cases");
    if (!json_is_array(*cases) || json_array_size(*cases) == 0 || json_array_size(*cases) > MOST_CASES) {
        return pd_fail(err, PD_INVALID_ARGUMENT, "config: expected `cases`, a list of 1 to %d", MOST_CASES);
    }
    return PD_OK;
}

static int begin_case(sitting *s, pd_replay_result *out, size_t i, const json_t *entry)
{
    json_int_t index = json_is_integer(json_object_get(entry, "index")) ? json_integer_value(json_object_get(entry, "index")) : -1;
    char name[32];

    if (index < 0 || index >= MOST_CASES) {
        return pd_fail(&out->why, PD_INVALID_ARGUMENT, "config.cases: entry %d has no index below %d", (int)i, MOST_CASES);
    }
    snprintf(name, sizeof name, "case %03d", (int)index);
    if ((out->params[i] = strdup(name)) == NULL) return pd_fail(&out->why, PD_NO_MEMORY, "out of memory");
    s->entry = entry;
    s->index = (int)index;
    s->number = i;
    s->verdict = &out->verdicts[i];
    return PD_OK;
}

int pd_replay_routine(pd_replay_result *out, pd_trace *trace)
{
    sitting s = { .trace = trace, .err = &out->why };
    const json_t *cases = NULL, *entry;
    size_t i;
    int rc = find_cases(trace, &s.config, &cases, &out->why);

    if (rc != PD_OK) return rc;
    out->n = json_array_size(cases);
    out->params = calloc(out->n, sizeof *out->params);
    out->verdicts = calloc(out->n, sizeof *out->verdicts);
    if (out->params == NULL || out->verdicts == NULL) return pd_fail(&out->why, PD_NO_MEMORY, "out of memory");
    json_array_foreach(cases, i, entry) {
        if ((rc = begin_case(&s, out, i, entry)) != PD_OK) return rc;
        rc = find_routine(trace)->judge(&s);
        let_go(&s);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}
