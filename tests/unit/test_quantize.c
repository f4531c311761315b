/* Tests that quantized tensors are restored as exactly as their number of bits allows. */
#include <fenv.h>

#include "test.h"
#include "convert.h"
#include "quantize.h"

typedef struct box {
    void *memory;
    pd_quantized q;
    float *x, *back;
} box;

static box new_box(pd_storage storage, bool apart, int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    box b = { .memory = aligned_alloc(64, (size_t)pd_quantized_room(storage, apart, rows, cols) + 64) };

    memset(b.memory, 0x5a, (size_t)pd_quantized_room(storage, apart, rows, cols));
    b.q = pd_quantized_at(b.memory, storage, apart, rows, cols);
    b.x = calloc((size_t)n + 1, sizeof(float));
    b.back = calloc((size_t)n + 1, sizeof(float));
    return b;
}

static void free_box(box *b)
{
    free(b->memory);
    free(b->x);
    free(b->back);
}

/* Fills the tensor with numbers of both signs. The columns differ in size by up to 2^40. */
static void fill(box *b, uint32_t seed)
{
    for (int64_t i = 0; i < b->q.rows; i++) {
        for (int64_t j = 0; j < b->q.cols; j++) {
            seed = seed * 1664525u + 1013904223u;
            b->x[i * b->q.cols + j] = ((float)(seed >> 8) / 8388608.0f - 1.0f) * ldexpf(1, (int)(j % 41) - 20);
        }
    }
}

static void round_trip(box *b)
{
    pd_quantize(&b->q, b->x);
    pd_dequantize(b->back, &b->q);
}

static int code_at(const box *b, int64_t i)
{
    return b->q.storage == PD_STORE_INT8 ? ((int8_t *)b->q.codes)[i] : ((int16_t *)b->q.codes)[i];
}

static double buckets_of(pd_storage storage)
{
    return storage == PD_STORE_INT8 ? 127 : 32767;
}

static bool on_diagonal(const box *b, int64_t i)
{
    return b->q.diagonal_apart && i / b->q.cols == i % b->q.cols;
}

/* Calls `check` for each storage type, with and without a separate diagonal, and for sizes that loops could get
 * wrong: shorter and longer than a tile, and around its edges. */
static void for_all_forms(void (*check)(box *b))
{
    static const int64_t sizes[][2] = { { 1, 1 },    { 3, 3 },    { 17, 17 },  { 130, 130 }, { 1025, 1025 },
                                        { 1, 3 },    { 3, 1 },    { 17, 1 },   { 3000, 1 },  { 700, 3 },
                                        { 5, 1024 }, { 5, 1025 }, { 2, 2500 }, { 33, 512 },  { 33, 513 },
                                        { 9, 341 },  { 0, 4 },    { 4, 0 },    { 0, 0 } };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (pd_storage storage = PD_STORE_INT8; storage <= PD_STORE_INT16; storage++) {
            for (int apart = 0; apart <= (sizes[i][0] == sizes[i][1]); apart++) {
                box b = new_box(storage, apart, sizes[i][0], sizes[i][1]);
                fill(&b, (uint32_t)i + 1);
                check(&b);
                free_box(&b);
            }
        }
    }
}

static double twin_bucket(const box *b, int64_t j)
{
    float most = 0;

    for (int64_t i = 0; i < b->q.rows; i++) {
        if (!on_diagonal(b, i * b->q.cols + j)) most = fmaxf(most, fabsf(b->x[i * b->q.cols + j]));
    }
    return (double)(most / (float)buckets_of(b->q.storage));
}

static void equals_twin(box *b)
{
    round_trip(b);
    for (int64_t i = 0; i < b->q.rows * b->q.cols; i++) {
        float bucket = (float)twin_bucket(b, i % b->q.cols);
        float ratio = b->x[i] / (bucket > 0 ? bucket : 1);
        int code = on_diagonal(b, i) ? 0 : (int)nearbyintf(ratio);
        float value = on_diagonal(b, i) ? b->x[i] : (float)code * bucket;
        if (b->q.bucket[i % b->q.cols] != bucket || code_at(b, i) != code || b->back[i] != value) {
            fail_msg("%d x %d, entry %d: bucket %g code %d value %g, expected %g %d %g", (int)b->q.rows, (int)b->q.cols,
                     (int)i, (double)b->q.bucket[i % b->q.cols], code_at(b, i), (double)b->back[i], (double)bucket,
                     code, (double)value);
        }
        if (b->q.rows > 1000 && i % 7919 != 0) i += 97; /* large: compares only a sample */
    }
}

TEST(gives_what_the_definition_says)
{
    for_all_forms(equals_twin);
}

static void is_near(box *b)
{
    round_trip(b);
    for (int64_t i = 0; i < b->q.rows * b->q.cols; i++) {
        double half = (double)b->q.bucket[i % b->q.cols] / 2, ulp = fabs((double)b->x[i]) * 0x1p-23;
        if (!(fabs((double)b->x[i] - (double)b->back[i]) <= half + ulp)) {
            fail_msg("%g became %g, a bucket is %g", (double)b->x[i], (double)b->back[i], 2 * half);
        }
    }
}

TEST(comes_back_within_half_a_bucket)
{
    for_all_forms(is_near);
}

static void has_no_lowest_code(box *b)
{
    for (int64_t i = 0; i < b->q.rows * b->q.cols; i++) b->x[i] = i % 3 == 0 ? -b->x[i % b->q.cols] : b->x[i];
    pd_quantize(&b->q, b->x);
    for (int64_t i = 0; i < b->q.rows * b->q.cols; i++)
        assert_true(abs(code_at(b, i)) <= (int)buckets_of(b->q.storage));
}

TEST(never_uses_the_lowest_code)
{
    for_all_forms(has_no_lowest_code);
}

static void keeps_diagonal(box *b)
{
    if (!b->q.diagonal_apart) return;
    for (int64_t i = 0; i < b->q.rows; i++) b->x[i * b->q.cols + i] = 1e6f + (float)i / 16;
    round_trip(b);
    for (int64_t i = 0; i < b->q.rows; i++) {
        assert_true(b->back[i * b->q.cols + i] == b->x[i * b->q.cols + i] &&
                    b->q.diagonal[i] == b->x[i * b->q.cols + i]);
        assert_true(b->q.bucket[i] < 1e5f); /* the diagonal does not widen the buckets */
    }
}

TEST(a_diagonal_apart_is_exact_and_does_not_widen_buckets)
{
    for_all_forms(keeps_diagonal);
}

static void is_zero(box *b)
{
    memset(b->x, 0, (size_t)(b->q.rows * b->q.cols) * sizeof(float));
    round_trip(b);
    for (int64_t j = 0; b->q.rows > 0 && j < b->q.cols; j++) assert_true(b->q.bucket[j] == 0);
    assert_memory_equal(b->back, b->x, (size_t)(b->q.rows * b->q.cols) * sizeof(float));
    assert_true(pd_quantized_holds(&b->q, b->x));
    memset(b->memory, 0, (size_t)pd_quantized_room(b->q.storage, b->q.diagonal_apart, b->q.rows, b->q.cols));
    assert_true(pd_quantized_holds(&b->q, b->x));
}

TEST(zeros_stay_zeros_and_are_zero_bytes)
{
    for_all_forms(is_zero);
}

static void is_quantized_once(box *b)
{
    int64_t n = b->q.rows * b->q.cols;

    round_trip(b);
    assert_true(pd_quantized_holds(&b->q, b->back));
    for (int64_t i = 0; i < n; i += 1 + n / 50) {
        float was = b->back[i];
        b->back[i] = nextafterf(was, INFINITY);
        assert_false(pd_quantized_holds(&b->q, b->back));
        b->back[i] = was;
    }
    assert_true(pd_quantized_holds(&b->q, b->back));
    if (n > 0) b->back[n - 1] += 1;
    assert_true(pd_quantized_holds(&b->q, b->back) == (n == 0));
}

TEST(holds_what_was_read_until_one_element_changes)
{
    for_all_forms(is_quantized_once);
}

/* Checks that restored values are quantized again without loss. An import of exported state does that. */
static void quantizes_back(box *b)
{
    round_trip(b);
    pd_quantize(&b->q, b->back);
    assert_true(pd_quantized_holds(&b->q, b->back));
}

TEST(what_was_read_is_quantized_without_loss)
{
    for_all_forms(quantizes_back);
}

TEST(columns_do_not_know_each_other)
{
    box b = new_box(PD_STORE_INT16, false, 40, 1030);
    float *other = malloc(40 * 1030 * sizeof(float));

    fill(&b, 9);
    round_trip(&b);
    memcpy(other, b.back, 40 * 1030 * sizeof(float));
    for (int64_t i = 0; i < 40; i++) b.x[i * 1030 + 1027] *= 1e10f;
    round_trip(&b);
    for (int64_t i = 0; i < 40 * 1030; i++) assert_true((b.back[i] == other[i]) == (i % 1030 != 1027));
    free(other);
    free_box(&b);
}

/* Sets one element of column 2 in a 7 by 7 tensor to `value`. Checks that the whole column is restored as NaN, and
 * that the other columns stay finite. */
static void spoils_one_column(pd_storage storage, bool apart, int64_t row, float value)
{
    box b = new_box(storage, apart, 7, 7);

    fill(&b, 3);
    b.x[row * 7 + 2] = value;
    round_trip(&b);
    for (int64_t i = 0; i < 49; i++)
        assert_true(i % 7 == 2 ? isnan(b.back[i]) && code_at(&b, i) == 0 : isfinite(b.back[i]));
    assert_true(pd_quantized_holds(&b.q, b.back));
    assert_false(isfinite(b.q.bucket[2]));
    free_box(&b);
}

TEST(what_is_not_finite_makes_its_column_nan_and_no_other)
{
    static const float values[] = { NAN, -NAN, INFINITY, -INFINITY };

    for (size_t i = 0; i < 4; i++) {
        spoils_one_column(PD_STORE_INT8, false, 3, values[i]);
        spoils_one_column(PD_STORE_INT16, false, 3, values[i]);
        spoils_one_column(PD_STORE_INT16, true, 3, values[i]);
        spoils_one_column(PD_STORE_INT16, true, 2, values[i]); /* on the diagonal */
    }
}

TEST(the_largest_and_the_smallest_numbers_survive)
{
    static const float x[6] = { 3.4e38f, -3.4e38f, 1e38f, 1e-37f, -1e-37f, 3e-38f };
    box b = new_box(PD_STORE_INT8, false, 3, 2);

    for (int i = 0; i < 6; i++) b.x[i % 3 * 2 + i / 3] = x[i]; /* large numbers in column 0 */
    round_trip(&b);
    for (int i = 0; i < 3; i++) {
        assert_true(fabs((double)b.back[2 * i] - (double)b.x[2 * i]) <= 3.4e38 / 254 * 1.0001);
        assert_true(fabs((double)b.back[2 * i + 1] - (double)b.x[2 * i + 1]) <= 1e-37 / 254 * 1.0001);
    }
    free_box(&b);
}

/* The largest value is 190 s, where s is the smallest subnormal number. The bucket, 190 s / 127 = 1.496 s, is
 * rounded to s. So the quotient is 190, which is beyond the last code, 127. */
TEST(a_quotient_beyond_the_last_code_is_the_last)
{
    box b = new_box(PD_STORE_INT8, false, 2, 1);

    b.x[0] = 190 * 0x1p-149f;
    b.x[1] = -190 * 0x1p-149f;
    pd_quantize(&b.q, b.x);
    assert_true(b.q.bucket[0] == 0x1p-149f);
    assert_int_equal(code_at(&b, 0), 127);
    assert_int_equal(code_at(&b, 1), -127);
    free_box(&b);
}

/* The values are 50 s and -50 s, where s is the smallest subnormal number. The bucket, 50 s / 127, is rounded to 0.
 * The function must not divide by it. */
TEST(what_is_too_small_for_a_bucket_is_code_zero)
{
    box b = new_box(PD_STORE_INT8, false, 2, 1);

    b.x[0] = 50 * 0x1p-149f;
    b.x[1] = -50 * 0x1p-149f;
    round_trip(&b);
    for (int i = 0; i < 2; i++) assert_true(b.q.bucket[0] == 0 && code_at(&b, i) == 0 && b.back[i] == 0);
    free_box(&b);
}

TEST(halves_go_to_the_even_code_in_every_rounding_mode)
{
    static const float x[8] = { 127, .5f, 1.5f, 2.5f, -.5f, -1.5f, -2.5f, 100.5f };
    static const int codes[8] = { 127, 0, 2, 2, 0, -2, -2, 100 };
    static const int modes[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };

    for (int m = 0; m < 4; m++) {
        box b = new_box(PD_STORE_INT8, false, 8, 1);
        memcpy(b.x, x, sizeof x);
        fesetround(modes[m]);
        pd_quantize(&b.q, b.x);
        fesetround(FE_TONEAREST);
        for (int i = 0; i < 8; i++) assert_int_equal(code_at(&b, i), codes[i]);
        free_box(&b);
    }
}

static void is_a_cast(pd_storage storage, uint16_t (*narrow)(float), float (*widen)(uint16_t))
{
    box b = new_box(storage, true, 40, 40);

    assert_true(b.q.bucket == NULL && b.q.diagonal == NULL && !b.q.diagonal_apart);
    fill(&b, 4);
    b.x[5] = INFINITY, b.x[6] = -INFINITY, b.x[7] = NAN;
    round_trip(&b);
    for (int64_t i = 0; i < 1600; i++) {
        uint16_t h = narrow(b.x[i]);
        assert_int_equal(((uint16_t *)b.q.codes)[i], h);
        assert_int_equal(pd_f32_bits(b.back[i]), pd_f32_bits(widen(h)));
    }
    assert_true(pd_quantized_holds(&b.q, b.back));
    assert_false(pd_quantized_holds(&b.q, b.x));
    b.back[1599] = pd_f32_from_bits(pd_f32_bits(b.back[1599]) ^ 1);
    assert_false(pd_quantized_holds(&b.q, b.back));
    free_box(&b);
}

static uint16_t to_bf16(float x)
{
    return pd_bf16_from_f32(x);
}
static float from_bf16(uint16_t h)
{
    return pd_f32_from_bf16(h);
}
static uint16_t to_f16(float x)
{
    return pd_f16_from_f32(x);
}
static float from_f16(uint16_t h)
{
    return pd_f32_from_f16(h);
}

HOLDS(bfloat16_is_a_cast_and_keeps_what_is_not_finite, is_a_cast(PD_STORE_BF16, to_bf16, from_bf16));

HOLDS(float16_is_a_cast_and_keeps_what_is_not_finite, is_a_cast(PD_STORE_F16, to_f16, from_f16));

TEST(a_run_gives_what_the_whole_gives)
{
    static const pd_storage storages[] = { PD_STORE_BF16, PD_STORE_INT8, PD_STORE_INT16, PD_STORE_F16 };
    static const int64_t runs[][2] = { { 0, 49 }, { 0, 1 }, { 48, 1 }, { 3, 20 }, { 6, 9 }, { 21, 7 }, { 5, 0 } };

    for (size_t s = 0; s < 4; s++)
        for (int apart = 0; apart < 2; apart++) {
            box b = new_box(storages[s], apart != 0, 7, 7);
            fill(&b, 5);
            round_trip(&b);
            for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
                float run[49];
                pd_dequantize_run(run, &b.q, runs[r][0], runs[r][1]);
                assert_memory_equal(run, b.back + runs[r][0], (size_t)runs[r][1] * sizeof *run);
            }
            free_box(&b);
        }
}

TEST(bytes_are_those_of_codes_buckets_and_diagonal)
{
    assert_int_equal(pd_quantized_bytes(PD_STORE_F32, false, 7, 5), 140);
    assert_int_equal(pd_quantized_bytes(PD_STORE_BF16, false, 7, 5), 70);
    assert_int_equal(pd_quantized_bytes(PD_STORE_BF16, true, 7, 7), 98);
    assert_int_equal(pd_quantized_bytes(PD_STORE_F16, true, 7, 7), 98);
    assert_int_equal(pd_quantized_bytes(PD_STORE_F64, false, 7, 5), 280);
    assert_int_equal(pd_quantized_bytes(PD_STORE_INT8, false, 7, 5), 35 + 20);
    assert_int_equal(pd_quantized_bytes(PD_STORE_INT16, true, 7, 7), 98 + 28 + 28);
    assert_int_equal(pd_quantized_room(PD_STORE_INT8, false, 7, 5), 64 + 64);
    assert_int_equal(pd_quantized_room(PD_STORE_INT16, true, 7, 7), 128 + 64 + 64);
    assert_int_equal(pd_quantized_room(PD_STORE_INT8, false, 0, 0), 0);
}

TEST(parts_are_aligned_and_do_not_overlap)
{
    box b = new_box(PD_STORE_INT16, true, 7, 7);

    assert_int_equal((char *)b.q.bucket - (char *)b.memory, 128);
    assert_int_equal((char *)b.q.diagonal - (char *)b.memory, 192);
    free_box(&b);
}

TEST(sizes_that_do_not_fit_are_the_largest_number)
{
    assert_true(pd_quantized_bytes(PD_STORE_INT8, false, INT64_MAX / 2, 3) == INT64_MAX);
    assert_true(pd_quantized_bytes(PD_STORE_INT16, false, INT64_MAX / 2 + 1, 1) == INT64_MAX);
    assert_true(pd_quantized_bytes(PD_STORE_INT8, false, 1, INT64_MAX / 4) == INT64_MAX);
    assert_true(pd_quantized_room(PD_STORE_INT8, false, INT64_MAX - 2, 1) == INT64_MAX);
    assert_true(pd_quantized_room(PD_STORE_INT16, true, 3037000500, 3037000500) == INT64_MAX);
    assert_true(pd_quantized_bytes(PD_STORE_INT8, false, (int64_t)1 << 40, 1000) == ((int64_t)1000 << 40) + 4000);
}

TEST(every_storage_has_a_name)
{
    assert_string_equal(pd_storage_name(PD_STORE_F32), "float32");
    assert_string_equal(pd_storage_name(PD_STORE_BF16), "bfloat16");
    assert_string_equal(pd_storage_name(PD_STORE_INT8), "int8");
    assert_string_equal(pd_storage_name(PD_STORE_INT16), "int16");
    assert_string_equal(pd_storage_name(PD_STORE_F16), "float16");
    assert_string_equal(pd_storage_name(PD_STORE_F64), "float64");
}
