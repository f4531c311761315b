/* Tests that a symmetric matrix stored in block rows represents the same matrix. */
#include "test.h"
#include "symmetric.h"

enum { GAP = 3 };

/* Makes a random matrix with gaps between its rows. Functions under test must not change the gaps. */
static pd_mat new_mat(int64_t rows, int64_t cols, uint32_t seed)
{
    pd_mat M = { malloc((size_t)(rows * (cols + GAP) + 1) * sizeof(float)), rows, cols, cols + GAP };

    for (int64_t i = 0; i < rows * M.stride; i++) {
        seed = seed * 1664525u + 1013904223u;
        M.at[i] = i % M.stride < cols ? (float)(seed >> 8) / 8388608.0f - 1.0f : 77;
    }
    return M;
}

static void free_mat(pd_mat M)
{
    for (int64_t i = 0; i < M.rows * M.stride; i++) {
        if (i % M.stride >= M.cols) assert_true(M.at[i] == 77);
    }
    free(M.at);
}

static float *entry(pd_mat M, int64_t i, int64_t j)
{
    return &M.at[i * M.stride + j];
}

/* Returns where S[i][j] is stored, by the definition. The block of column j must not lie behind the block of row i. */
static float *stored(pd_blockrows B, int64_t i, int64_t j)
{
    int64_t block_row = i / B.b, column = j;

    assert_true(j / B.b <= block_row);
    for (int64_t r = 0; r < block_row; r++) column += B.b * (r + 1);
    return entry(B.at, i % B.b, column);
}

static float full(pd_blockrows B, int64_t i, int64_t j)
{
    return j / B.b <= i / B.b ? *stored(B, i, j) : *stored(B, j, i);
}

static pd_blockrows new_blockrows(int64_t b, int64_t k, uint32_t seed)
{
    pd_blockrows B;

    assert_int_equal(pd_blockrows_of(&B, new_mat(b, pd_blockrows_cols(b, k), seed), NULL), PD_OK);
    assert_true(B.b == b && B.k == k);
    for (int64_t i = 0; i < b * k; i++) {
        for (int64_t j = i / b * b; j < i; j++)
            *stored(B, j, i) = *stored(B, i, j); /* blocks on the diagonal are symmetric */
    }
    return B;
}

static const int64_t shapes[][2] = { { 1, 1 }, { 4, 1 }, { 1, 5 }, { 4, 2 }, { 3, 3 }, { 2, 6 } }; /* b, k */
#define FOR_SHAPES(b, k)                                                                                               \
    for (size_t s_ = 0, once_; s_ < sizeof shapes / sizeof shapes[0]; s_++)                                            \
        for (int64_t b = shapes[s_][0], k = (once_ = 1, shapes[s_][1]); once_; once_ = 0)

TEST(number_of_blocks_is_found_from_the_shape)
{
    for (int64_t k = 0; k < 400; k++) {
        pd_blockrows B = { .k = -1 };
        float nothing;
        assert_int_equal(pd_blockrows_of(&B, pd_mat_dense(&nothing, 7, pd_blockrows_cols(7, k)), NULL), PD_OK);
        assert_true(B.k == k && B.b == 7);
    }
}

TEST(many_blocks_are_counted_exactly)
{
    float nothing;

    for (int64_t start = 1; start < 2900000000; start *= 3) {
        for (int64_t k = start; k < start + 40; k++) {
            pd_blockrows B = { .k = -1 };
            assert_int_equal(pd_blockrows_of(&B, pd_mat_dense(&nothing, 1, pd_blockrows_cols(1, k)), NULL), PD_OK);
            assert_true(B.k == k);
            assert_int_equal(pd_blockrows_of(&B, pd_mat_dense(&nothing, 1, pd_blockrows_cols(1, k + 1) - 1), NULL),
                             PD_INVALID_ARGUMENT);
        }
    }
}

static void refused(int64_t rows, int64_t cols, const char *text)
{
    pd_blockrows B = { .k = -1 };
    pd_error err = { 0 };
    float nothing;

    assert_int_equal(pd_blockrows_of(&B, pd_mat_dense(&nothing, rows, cols), &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, text) == NULL) fail_msg("%s", err.text);
    assert_int_equal(B.k, -1);
}

TEST(a_ratio_that_is_no_triangular_number_is_refused)
{
    refused(4, 8, "4 rows and 8 columns");
    refused(4, 20, "4 rows and 20 columns");
    refused(4, 13, "4 rows and 13 columns");
    refused(4, 3, "4 rows and 3 columns");
    refused(0, 3, "0 rows and 3 columns");
    refused(0, 0, "0 rows and 0 columns");
    refused(1, INT64_MAX, "rows");
    refused(1, 6125000001750000000, "rows"); /* a valid number of columns, but more block rows than fit into memory */
    refused(1, (int64_t)4000000 * 4000001 / 2 + 1, "rows");
}

TEST(rows_that_do_not_fill_blocks_are_refused)
{
    int64_t k = -1;
    pd_error err;

    assert_int_equal(pd_blockrows_count(&k, 10, 4, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "10 rows are not a multiple of the block side 4"));
    assert_int_equal(pd_blockrows_count(&k, 4, 0, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(k, -1);
    assert_int_equal(pd_blockrows_count(&k, 12, 4, &err), PD_OK);
    assert_int_equal(k, 3);
}

TEST(columns_that_do_not_fit_are_the_largest_number)
{
    assert_true(pd_blockrows_cols(128, 3) == 768);
    assert_true(pd_blockrows_cols(128, (int64_t)1 << 40) == INT64_MAX);
    assert_true(pd_blockrows_cols((int64_t)1 << 40, (int64_t)1 << 20) == INT64_MAX);
}

TEST(materialised_it_is_the_whole_matrix)
{
    FOR_SHAPES(b, k)
    {
        pd_blockrows B = new_blockrows(b, k, 3);
        pd_mat S = new_mat(b * k, b * k, 4);
        pd_blockrows_materialise(S, B);
        for (int64_t i = 0; i < b * k; i++) {
            for (int64_t j = 0; j < b * k; j++)
                assert_true(*entry(S, i, j) == full(B, i, j) && *entry(S, i, j) == *entry(S, j, i));
        }
        free_mat(S);
        free_mat(B.at);
    }
}

TEST(diagonal_and_row_maxima_are_those_of_the_whole_matrix)
{
    FOR_SHAPES(b, k)
    {
        pd_blockrows B = new_blockrows(b, k, 5);
        float d[16], most[16];
        pd_blockrows_diagonal(d, B);
        pd_blockrows_row_maxima(most, B);
        for (int64_t i = 0; i < b * k; i++) {
            float expected = 0;
            for (int64_t j = 0; j < b * k; j++) expected = fmaxf(expected, fabsf(full(B, i, j)));
            assert_true(d[i] == full(B, i, i) && most[i] == expected);
        }
        free_mat(B.at);
    }
}

TEST(a_nan_is_the_maximum_of_both_its_rows)
{
    pd_blockrows B = new_blockrows(2, 3, 6);
    float most[6];

    *stored(B, 5, 1) = NAN;
    pd_blockrows_row_maxima(most, B);
    for (int i = 0; i < 6; i++) assert_true(isnan(most[i]) == (i == 5 || i == 1));
    free_mat(B.at);
}

TEST(a_product_is_that_of_the_whole_matrix)
{
    FOR_SHAPES(b, k)
    {
        pd_blockrows B = new_blockrows(b, k, 7), was = new_blockrows(b, k, 7);
        pd_mat X = new_mat(b * k, 5, 8);
        pd_blockrows_product(B, .5f, .25f, X);
        for (int64_t i = 0; i < b * k; i++) {
            for (int64_t j = 0; j < b * k; j++) {
                double expected = .5 * (double)full(was, i, j);
                for (int64_t c = 0; c < 5; c++) expected += .25 * (double)*entry(X, i, c) * (double)*entry(X, j, c);
                assert_true(fabs((double)full(B, i, j) - expected) < 1e-6);
                if (j / b <= i / b && i / b == j / b) assert_true(*stored(B, i, j) == *stored(B, j, i));
            }
        }
        free_mat(X);
        free_mat(B.at);
        free_mat(was.at);
    }
}

TEST(a_product_without_what_was_there_does_not_read_it)
{
    pd_blockrows B = new_blockrows(3, 2, 9);
    pd_mat X = new_mat(6, 4, 10);

    for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 9; j++) *entry(B.at, i, j) = NAN;
    }
    pd_blockrows_product(B, 0, 1, X);
    for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 9; j++) assert_true(isfinite(*entry(B.at, i, j)));
    }
    free_mat(X);
    free_mat(B.at);
}

TEST(a_diagonal_matrix_comes_back_as_its_diagonal)
{
    FOR_SHAPES(b, k)
    {
        pd_blockrows B = new_blockrows(b, k, 11);
        pd_mat v = new_mat(1, b * k, 12);
        pd_blockrows_set_diagonal(B, v.at);
        for (int64_t i = 0; i < b * k; i++) {
            for (int64_t j = 0; j < b * k; j++) assert_true(full(B, i, j) == (i == j ? v.at[i] : 0));
        }
        free_mat(v);
        free_mat(B.at);
    }
}

TEST(scaling_multiplies_stored_rows_in_place_too)
{
    FOR_SHAPES(b, k)
    {
        pd_blockrows B = new_blockrows(b, k, 13), C = new_blockrows(b, k, 14), was = new_blockrows(b, k, 13);
        pd_mat v = new_mat(1, b * k, 15);
        pd_blockrows_scale(C, B, v.at);
        pd_blockrows_scale(B, B, v.at);
        for (int64_t i = 0; i < b * k; i++) {
            for (int64_t j = 0; j < (i / b + 1) * b; j++) {
                assert_true(*stored(C, i, j) == *stored(was, i, j) * v.at[i] && *stored(B, i, j) == *stored(C, i, j));
            }
        }
        free_mat(v);
        free_mat(B.at);
        free_mat(C.at);
        free_mat(was.at);
    }
}

TEST(a_small_square_gets_an_identity_corner_and_identity_blocks)
{
    pd_mat P = new_mat(4, 24, 16), X = new_mat(3, 3, 17);
    pd_blockrows B;

    for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < i; j++) *entry(X, j, i) = *entry(X, i, j);
    }
    assert_int_equal(pd_blockrows_pad(P, X, NULL), PD_OK);
    assert_int_equal(pd_blockrows_of(&B, P, NULL), PD_OK);
    for (int64_t i = 0; i < 12; i++) {
        for (int64_t j = 0; j < 12; j++)
            assert_true(full(B, i, j) == (i < 3 && j < 3 ? *entry(X, i, j) : (float)(i == j)));
    }
    free_mat(P);
    free_mat(X);
}

TEST(block_rows_get_identity_blocks)
{
    for (int64_t k = 1; k <= 4; k++) {
        pd_blockrows X = new_blockrows(2, k, 18), B;
        pd_mat P = new_mat(2, 20, 19);
        assert_int_equal(pd_blockrows_pad(P, X.at, NULL), PD_OK);
        assert_int_equal(pd_blockrows_of(&B, P, NULL), PD_OK);
        for (int64_t i = 0; i < 8; i++) {
            for (int64_t j = 0; j < 8; j++)
                assert_true(full(B, i, j) == (i < 2 * k && j < 2 * k ? full(X, i, j) : (float)(i == j)));
        }
        free_mat(P);
        free_mat(X.at);
    }
}

static void not_padded(int64_t b, int64_t cols, int64_t x_rows, int64_t x_cols, const char *text)
{
    pd_mat P = new_mat(b, cols, 20), untouched = new_mat(b, cols, 20), X = new_mat(x_rows, x_cols, 21);
    pd_error err = { 0 };

    assert_int_equal(pd_blockrows_pad(P, X, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, text) == NULL) fail_msg("%s", err.text);
    assert_memory_equal(P.at, untouched.at, (size_t)(b * P.stride) * sizeof(float));
    free_mat(P);
    free_mat(untouched);
    free_mat(X);
}

TEST(what_cannot_be_padded_is_refused_with_both_values)
{
    not_padded(4, 12, 5, 5, "5 rows are more than the block side, 4");
    not_padded(4, 12, 3, 2, "3 rows are more than the columns, 2");
    not_padded(4, 12, 4, 24, "24 columns are more than block side times number of blocks, 12");
    not_padded(4, 12, 2, 3, "2 rows, 3 columns");
    not_padded(4, 24, 4, 8, "4 rows and 8 columns");
    not_padded(4, 20, 4, 4, "4 rows and 20 columns");
    not_padded(4, 0, 0, 0, "the block side, 4");
}
