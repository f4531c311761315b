/* Tests inverse roots and power iterations against upstream's: every case of
 * google_shampoo/matrix_inverse_pth_root.safetensors and power_iteration.safetensors. The tolerance is 10 times the
 * noise that the trace records, plus 1e-6. It is relative to the norm for roots, relative to the value for
 * eigenvalues, and absolute for errors, which are at most about 1. A root whose error upstream finds too large must
 * be refused here, too. */
#include "test.h"
#include "golden.h"
#include "root_types.h"
#include "root.h"
#include "symmetric.h"

static golden_file roots, powers;
static double tolerance;

static const double refused = 0.1; /* upstream's inverse_failure_threshold */

/* Returns element i of a tensor, which is float32 or float64, as a double. */
static double element(const golden_file *file, const pd_st_tensor *tensor, int64_t i)
{
    const char *at = golden_data(file, tensor);
    double wide;
    float narrow;

    assert_non_null(tensor);
    if (tensor->dtype == PD_ST_F64) {
        memcpy(&wide, at + (size_t)i * sizeof wide, sizeof wide);
        return wide;
    }
    assert_int_equal(tensor->dtype, PD_ST_F32);
    memcpy(&narrow, at + (size_t)i * sizeof narrow, sizeof narrow);
    return (double)narrow;
}

static double recorded(int index, const char *field)
{
    return element(&roots, golden_find(&roots, "%03d/%s", index, field), 0);
}

/* Returns the input matrix of a case as a full matrix, also if it is recorded in block rows. The caller frees .at. */
static pd_mat matrix_of(int index)
{
    const pd_st_tensor *tensor = golden_find(&roots, "%03d/matrix", index);
    pd_mat given = pd_mat_dense(golden_floats(&roots, tensor), tensor->shape.dim[0], tensor->shape.dim[1]), whole;
    pd_blockrows rows;
    int64_t n;

    if (given.rows == given.cols) return given;
    assert_int_equal(pd_blockrows_of(&rows, given, NULL), PD_OK);
    n = rows.b * rows.k;
    whole = pd_mat_dense(malloc((size_t)(n * n) * sizeof(float)), n, n);
    pd_blockrows_materialise(whole, rows);
    free(given.at);
    return whole;
}

static void assert_near(int index, const char *what, double ours, double theirs, double scale)
{
    if (isnan(ours) && isnan(theirs)) return;
    if (!(fabs(ours - theirs) <= tolerance * scale))
        fail_msg("case %d: %s is %.9g, upstream's %.9g", index, what, ours, theirs);
}

/* Returns the difference between our root X and the top left corner of the recorded root, relative to the latter's
 * norm. */
static double difference(int index, pd_mat X)
{
    const pd_st_tensor *tensor = golden_find(&roots, "%03d/root", index);
    double off = 0, norm = 0;

    for (int64_t i = 0; i < X.rows; i++)
        for (int64_t j = 0; j < X.cols; j++) {
            double theirs = element(&roots, tensor, i * tensor->shape.dim[1] + j),
                   d = (double)X.at[i * X.stride + j] - theirs;
            off += d * d;
            norm += theirs * theirs;
        }
    return sqrt(off / norm);
}

static void check(int index, pd_mat A, int64_t padded_side, int p, double epsilon)
{
    pd_root_want want = { .p = p, .epsilon = epsilon, .padded_side = padded_side, .padding = 1 };
    pd_mat X = pd_mat_dense(malloc((size_t)(A.rows * A.rows) * sizeof(float)), A.rows, A.rows);
    double error = recorded(index, "error");
    pd_root_report report;
    int rc = pd_root_newton(X, A, &want, &report);

    assert_near(index, "the largest eigenvalue", report.largest, recorded(index, "max_ev"),
                fabs(recorded(index, "max_ev")));
    assert_int_equal(rc == PD_OK && report.error < refused, error < refused);
    assert_near(index, "the error", report.error, error, 1);
    if (rc == PD_OK) assert_near(index, "the root's difference", difference(index, X), 0, 1);
    free(X.at);
}

TEST(roots_are_upstreams)
{
    size_t i;
    json_t *entry;

    json_array_foreach(golden_cases(&roots), i, entry)
    {
        int index = (int)golden_int(entry, "index"), p = (int)golden_int(entry, "p");
        pd_mat A = matrix_of(index);
        assert_int_equal(A.rows, golden_int(entry, "size"));
        check(index, A, 0, p, golden_real(entry, "ridge_epsilon"));
        free(A.at);
    }
    assert_true(i > 0);
}

/* Returns the number of rows without the padding. The padding is the rows at the end that equal those of the
 * identity. */
static int64_t side_without_padding(pd_mat A)
{
    int64_t n = A.rows;

    for (; n > 1; n--)
        for (int64_t j = 0; j < n; j++)
            if (A.at[(n - 1) * A.stride + j] != (j == n - 1 ? 1.0f : 0.0f)) return n;
    return n;
}

TEST(padding_that_is_only_counted_gives_the_corner_of_the_padded_root)
{
    size_t i;
    json_t *entry;
    int padded = 0;

    json_array_foreach(golden_cases(&roots), i, entry)
    {
        int index = (int)golden_int(entry, "index");
        pd_mat A = matrix_of(index), corner;
        int64_t n = side_without_padding(A);
        if (n < A.rows && n > 1) {
            corner = (pd_mat){ A.at, n, n, A.stride };
            check(index, corner, A.rows, (int)golden_int(entry, "p"), golden_real(entry, "ridge_epsilon"));
            padded++;
        }
        free(A.at);
    }
    assert_true(padded > 0);
}

TEST(power_iterations_are_upstreams)
{
    size_t c;
    json_t *entry;

    json_array_foreach(golden_cases(&powers), c, entry)
    {
        int index = (int)golden_int(entry, "index");
        int64_t n = golden_int(entry, "size");
        const pd_st_tensor *matrix = golden_find(&powers, "%03d/matrix", index),
                           *vector = golden_find(&powers, "%03d/float64/vector", index);
        double *A = malloc((size_t)(n * n) * sizeof *A), *v = malloc((size_t)n * sizeof *v);
        double largest, theirs = element(&powers, golden_find(&powers, "%03d/float64/value", index), 0);

        for (int64_t i = 0; i < n * n; i++) A[i] = element(&powers, matrix, i);
        assert_int_equal(pd_power_iteration(&largest, v, A, n, 0, 1), PD_OK);
        if (!(fabs(largest - theirs) <= 1e-12 * fabs(theirs)))
            fail_msg("case %d: %.17g, upstream's %.17g", index, largest, theirs);
        for (int64_t i = 0; i < n; i++)
            assert_near(index, "an entry of the vector", v[i], element(&powers, vector, i), 1);
        free(A);
        free(v);
    }
    assert_true(c > 0);
}

TEST(start_vectors_are_upstreams)
{
    const pd_st_tensor *theirs = golden_find(&powers, "start_vector/64");
    double v[64];

    pd_start_vector(v, 64);
    for (int64_t i = 0; i < 64; i++) assert_true(v[i] == element(&powers, theirs, i));
}

static int open_files(void **state)
{
    (void)state;
    golden_open(&roots, "google_shampoo/matrix_inverse_pth_root.safetensors");
    golden_open(&powers, "google_shampoo/power_iteration.safetensors");
    tolerance = 10 * atof(pd_safetensors_meta(roots.tensors, "noise")) + 1e-6;
    return 0;
}

static int close_files(void **state)
{
    (void)state;
    golden_close(&powers);
    golden_close(&roots);
    return 0;
}

GROUP(open_files, close_files);
