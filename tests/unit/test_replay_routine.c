/* Tests when recorded cases of a routine are judged ok, failed or skipped. */
#include "test.h"
#include "replayed.h"

/* Case 0: a vector quantized to int8 with bucket 1; three values lie half-way between two codes. Case 1: a square
 * matrix quantized to int16, with its diagonal stored separately. */
static const float x0[4] = { 127, .5f, 1.5f, -2.5f }, bucket0[1] = { 1 }, value0[4] = { 127, 0, 2, -2 };
static const int8_t codes0[4] = { 127, 0, 2, -2 };
static const float x1[4] = { 5, 32767, -32767, 7 }, bucket1[2] = { 1, 1 }, diagonal1[2] = { 5, 7 };
static const int16_t codes1[4] = { 0, 32767, -32767, 0 };
/* Case 2: 1 + 3/256 lies half-way between two bfloat16 numbers and is rounded to the even one. */
static const float x2[2] = { 1, 1 + 3.0f / 256 }, value2[2] = { 1, 1 + 4.0f / 256 };
static const uint16_t bf16_2[2] = { 0x3f80, 0x3f82 };
static const char quantized_config[] =
    "{\"cases\": [{\"index\": 0, \"dtype\": \"int8\", \"extract_diagonal\": false}, {\"index\": 1, \"dtype\": "
    "\"int16\", \"extract_diagonal\": true}, {\"index\": 2, \"dtype\": \"bfloat16\", \"extract_diagonal\": false}]}";

static tracefile quantized_file(void)
{
    tracefile file = tracefile_of("google_shampoo", "quantized_value", "0", quantized_config);

    tracefile_add(&file, "000/input", x0, 4);
    tracefile_add_typed(&file, "000/value/quantized", PD_ST_I8, codes0, 4);
    tracefile_add(&file, "000/value/bucket_size", bucket0, 0);
    tracefile_add(&file, "000/to_float", value0, 4);
    tracefile_add_matrix(&file, "001/input", x1, 2, 2);
    tracefile_add_typed(&file, "001/value/quantized", PD_ST_I16, codes1, 4);
    tracefile_add(&file, "001/value/bucket_size", bucket1, 2);
    tracefile_add(&file, "001/value/diagonal", diagonal1, 2);
    tracefile_add(&file, "001/to_float", x1, 4);
    tracefile_add(&file, "002/input", x2, 2);
    tracefile_add_typed(&file, "002/value", PD_ST_BF16, bf16_2, 2);
    tracefile_add(&file, "002/to_float", value2, 2);
    return file;
}

/* X = [1; 2] gives the symmetric matrix X X' = [1 2; 2 4], stored as blocks of side 1. */
static const float x[2] = { 1, 2 }, concat[3] = { 1, 2, 4 }, vector[2] = { 3, -1 }, full[4] = { 1, 2, 2, 4 };
static const float diagonal[2] = { 1, 4 }, most[2] = { 2, 4 }, scaled[3] = { 3, -2, -4 }, of_diagonal[3] = { 3, 0, -1 },
                   updated[2] = { 3, 6 };
#define SYMMETRIC_CONFIG(b)                                                                                            \
    "{\"cases\": [{\"index\": 7, \"block_size\": " #b                                                                  \
    ", \"update_alpha\": 0.25, \"update_beta\": 0.5, \"update_input\": \"2 * input\"}]}"

static tracefile symmetric_file(void)
{
    tracefile file = tracefile_of("google_shampoo", "symmetric_matrices", "0", SYMMETRIC_CONFIG(1));

    tracefile_add_matrix(&file, "007/input", x, 2, 1);
    tracefile_add_matrix(&file, "007/concat", concat, 1, 3);
    tracefile_add(&file, "007/vector", vector, 2);
    tracefile_add(&file, "007/materialized", full, 4);
    tracefile_add(&file, "007/diagonal", diagonal, 2);
    tracefile_add(&file, "007/row_abs_maxes", most, 2);
    tracefile_add(&file, "007/times_vector", scaled, 3);
    tracefile_add(&file, "007/diag_as_concat", of_diagonal, 3);
    tracefile_add(&file, "007/updated_last_row_block", updated, 2);
    return file;
}

/* Inverse square roots without a ridge: of the matrix [4], and of 4 I, whose lower half is stored as blocks. */
static const float four[1] = { 4 }, half[1] = { .5f }, none[1] = { 0 }, little[1] = { 1e-9f }, fours[3] = { 4, 0, 4 },
                   halves[4] = { .5f, 0, 0, .5f };
static const char root_config[] = "{\"num_iters\": 100, \"error_tolerance\": 1e-06, \"cases\": [{\"index\": 0, \"p\": "
                                  "2, \"ridge_epsilon\": 0}, {\"index\": 1, \"p\": 2, \"ridge_epsilon\": 0}]}";

static tracefile root_file(void)
{
    tracefile file = tracefile_of("google_shampoo", "matrix_inverse_pth_root", "0", root_config);

    tracefile_add_matrix(&file, "000/matrix", four, 1, 1);
    tracefile_add(&file, "000/root", half, 1);
    tracefile_add(&file, "000/error", little, 0); /* the replay computes 0; the difference is measured against 1 */
    tracefile_add(&file, "000/max_ev", four, 0);
    tracefile_add_matrix(&file, "001/matrix", fours, 1, 3);
    tracefile_add_matrix(&file, "001/root", halves, 2, 2);
    tracefile_add(&file, "001/error", none, 0);
    tracefile_add(&file, "001/max_ev", four, 0);
    return file;
}

static const double minus_one[1] = { -1 }, four64[1] = { 4 };

static tracefile power_file(void)
{
    tracefile file = tracefile_of("google_shampoo", "power_iteration", "0",
                                  "{\"num_iters\": 100, \"error_tolerance\": 1e-06, \"cases\": [{\"index\": 0}]}");

    tracefile_add_matrix(&file, "000/matrix", four, 1, 1);
    tracefile_add_typed(&file, "000/float64/value", PD_ST_F64, four64, 0);
    tracefile_add_typed(&file, "000/float64/vector", PD_ST_F64, minus_one, 1);
    return file;
}

TEST(right_cases_are_ok_one_verdict_each)
{
    tracefile file = quantized_file();
    pd_replay_result r = replayed(&file);

    if (r.outcome != PD_REPLAY_OK)
        fail_msg("error %g in %s: %s", r.verdict.error, r.params[r.verdict.param], r.why.text);
    assert_true(r.cases && r.n == 3 && r.verdict.error == 0);
    for (size_t i = 0; i < 3; i++) assert_true(r.verdicts[i].compared >= 2);
    assert_string_equal(r.params[2], "case 002");
    pd_replay_result_free(&r);
    file = symmetric_file();
    assert_outcome(&file, PD_REPLAY_OK, "");
    file = root_file();
    assert_outcome(&file, PD_REPLAY_OK, "");
    file = power_file();
    assert_outcome(&file, PD_REPLAY_OK, "");
}

/* Changes the last element of a tensor. Checks that the replay fails and names `expected` as the worst case. */
static void spoil(tracefile file, size_t entry, const char *expected)
{
    uint8_t *spoiled = malloc(file.entry[entry].bytes);
    size_t size = pd_st_dtype_size(file.entry[entry].dtype);
    pd_replay_result r;

    memcpy(spoiled, file.entry[entry].at, file.entry[entry].bytes);
    if (file.entry[entry].dtype == PD_ST_F32) {
        float f;
        memcpy(&f, spoiled + file.entry[entry].bytes - size, size);
        f += .25f;
        memcpy(spoiled + file.entry[entry].bytes - size, &f, size);
    } else {
        spoiled[file.entry[entry].bytes - (size == 8 ? 2 : size)] ^= 1; /* for a double, flips a high bit of the
                                                                         * mantissa */
    }
    file.entry[entry].at = spoiled;
    r = replayed(&file);
    if (r.outcome != PD_REPLAY_FAILED) fail_msg("a spoiled %s is not noticed", file.entry[entry].name);
    assert_string_equal(r.params[r.verdict.param], expected);
    assert_true(r.verdict.compared > 0 && r.verdict.error > r.tolerance);
    pd_replay_result_free(&r);
    free(spoiled);
}

TEST(one_spoiled_tensor_fails_and_is_located)
{
    tracefile quantized = quantized_file(), symmetric = symmetric_file(), roots = root_file(), power = power_file();

    for (size_t i = 0; i < roots.n; i++) spoil(roots, i, i < 4 ? "case 000" : "case 001");
    for (size_t i = 0; i < power.n; i++) spoil(power, i, "case 000");
    for (size_t i = 0; i < quantized.n; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "case %.3s", quantized.entry[i].name);
        if (strcmp(quantized.entry[i].name, "000/input") == 0)
            continue; /* a small change of the input gives the same quantized code */
        if (strcmp(quantized.entry[i].name, "002/input") == 0) continue;
        spoil(quantized, i, expected);
    }
    for (size_t i = 0; i < symmetric.n; i++) spoil(symmetric, i, "case 007");
}

TEST(a_code_beside_the_right_one_is_an_infinite_error)
{
    static const int16_t beside[4] = { 0, 32766, -32767, 0 };
    tracefile file = quantized_file();
    pd_replay_result r;

    file.entry[5].at = beside;
    tracefile_meta(&file, "noise", "1000");
    r = replayed(&file);
    assert_int_equal(r.outcome, PD_REPLAY_FAILED);
    assert_true(isinf(r.verdict.error));
    pd_replay_result_free(&r);
}

TEST(a_diagonal_beside_the_right_one_fails)
{
    static const float beside[2] = { 5, 7.0000005f };
    tracefile file = quantized_file();

    file.entry[7].at = beside;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
}

TEST(a_missing_tensor_fails_by_name)
{
    tracefile file = quantized_file(), symmetric = symmetric_file();

    strcpy(file.entry[5].name, "001/elsewhere");
    assert_outcome(&file, PD_REPLAY_FAILED, "001/value/quantized: missing");
    for (size_t i = 0; i < symmetric.n; i++) {
        file = symmetric;
        strcpy(file.entry[i].name, "elsewhere");
        assert_outcome(&file, PD_REPLAY_FAILED, "missing");
    }
}

TEST(a_tensor_of_another_size_fails_by_name)
{
    tracefile file = quantized_file(), symmetric = symmetric_file();

    file.entry[6].shape.dim[0] = 1, file.entry[6].bytes = 4;
    assert_outcome(&file, PD_REPLAY_FAILED, "001/value/bucket_size: unexpected size");
    for (size_t i = 0; i < symmetric.n; i++) {
        file = symmetric;
        file.entry[i].shape = (pd_shape){ .rank = 2, .dim = { 1, 1 } };
        file.entry[i].bytes = 4;
        assert_outcome(&file, PD_REPLAY_FAILED, "");
    }
}

TEST(what_cannot_be_quantized_fails)
{
    tracefile file = quantized_file();

    file.entry[0].shape = (pd_shape){ .rank = 0 }, file.entry[0].bytes = 4;
    assert_outcome(&file, PD_REPLAY_FAILED, "000/input: a scalar");
    file = quantized_file();
    file.entry[4].shape = (pd_shape){ .rank = 2, .dim = { 4, 1 } };
    assert_outcome(&file, PD_REPLAY_FAILED, "001/input: only a square");
}

TEST(block_rows_that_are_none_fail)
{
    tracefile file = symmetric_file();

    file.entry[1].shape.dim[1] = 2, file.entry[1].bytes = 8;
    assert_outcome(&file, PD_REPLAY_FAILED, "1 rows and 2 columns");
    file = symmetric_file();
    tracefile_meta(&file, "config", SYMMETRIC_CONFIG(3));
    assert_outcome(&file, PD_REPLAY_FAILED, "2 rows are not a multiple of the block side 3");
}

TEST(a_refused_root_is_ok_where_upstream_has_nan)
{
    static const float nan_in[4] = { NAN, 0, 0, 1 }, nan_out[4] = { NAN, NAN, NAN, NAN }, nan_1[1] = { NAN };
    tracefile file = root_file();

    file.entry[4].at = nan_in, file.entry[4].bytes = 16;
    file.entry[4].shape = (pd_shape){ .rank = 2, .dim = { 2, 2 } };
    file.entry[6].at = file.entry[7].at = nan_1;
    assert_outcome(&file, PD_REPLAY_FAILED, "");
    file.entry[5].at = nan_out;
    assert_outcome(&file, PD_REPLAY_OK, "");
}

TEST(roots_of_what_is_no_symmetric_matrix_fail)
{
    tracefile file = root_file();

    file.entry[4].shape.dim[1] = 2, file.entry[4].bytes = 8;
    assert_outcome(&file, PD_REPLAY_FAILED, "1 rows and 2 columns");
    file = root_file();
    tracefile_meta(&file, "config",
                   "{\"num_iters\": 100, \"error_tolerance\": 1e-06, \"cases\": [{\"index\": 0, \"p\": 0, "
                   "\"ridge_epsilon\": 0}]}");
    assert_outcome(&file, PD_REPLAY_FAILED, "expected p from 1");
    file = power_file();
    file.entry[0].shape = (pd_shape){ .rank = 1, .dim = { 1 } };
    assert_outcome(&file, PD_REPLAY_FAILED, "000/matrix: expected a matrix");
}

TEST(options_that_are_not_there_are_skipped)
{
    tracefile file = quantized_file();

    tracefile_meta(&file, "config", "{\"cases\": [{\"index\": 0, \"dtype\": \"int4\"}]}");
    assert_outcome(&file, PD_REPLAY_SKIPPED, "dtype");
    file = symmetric_file();
    tracefile_meta(&file, "config",
                   "{\"cases\": [{\"index\": 7, \"block_size\": 1, \"update_input\": \"3 * input\"}]}");
    assert_outcome(&file, PD_REPLAY_SKIPPED, "update_input");
    file = power_file();
    tracefile_meta(&file, "config", "{\"num_iters\": 50, \"error_tolerance\": 1e-06, \"cases\": [{\"index\": 0}]}");
    assert_outcome(&file, PD_REPLAY_SKIPPED, "num_iters");
}

TEST(a_file_without_cases_fails)
{
    static const char *const configs[] = { "{}",
                                           "{\"cases\": []}",
                                           "{\"cases\": 3}",
                                           "{\"cases\": [{}]}",
                                           "{\"cases\": [{\"index\": 1000}]}",
                                           "{\"cases\": [7]}" };

    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        tracefile file = quantized_file();
        tracefile_meta(&file, "config", configs[i]);
        assert_outcome(&file, PD_REPLAY_FAILED, "cases");
    }
}

TEST(a_server_does_not_judge_routines)
{
    tracefile file = quantized_file();
    pd_replay_result r = replayed_by(&file, &(pd_replay_options){ .local = false });

    assert_int_equal(r.outcome, PD_REPLAY_SKIPPED);
    assert_non_null(strstr(r.why.text, "--local"));
    pd_replay_result_free(&r);
}

TEST(without_memory_it_fails_and_leaks_nothing)
{
    tracefile symmetric = symmetric_file(), roots = root_file();

    assert_fails_without_memory(&symmetric);
    assert_fails_without_memory(&roots);
}
