/* Tests the quantized element types int8 and int4: what encoding keeps of a vector, and that parts of a piece are read
 * and summed as the whole is. */
#include "test.h"
#include "block_codec.h"
#include "kernels.h"

enum { N = 64 * 5 + 37, ROOM = 4 * (N / 64 + 1) + N };

typedef struct fixture {
    float x[N], value[N], acc[N], other[N];
    _Alignas(64) uint8_t piece[ROOM];
} fixture;

static void set_up(fixture *f)
{
    uint32_t seed = 5;

    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        f->x[i] = ((float)(seed >> 8) / 8388608.0f - 1.0f) * powf(10.0f, (float)(i / 64) - 2.0f);
        f->acc[i] = f->other[i] = 0.1f * (float)i;
    }
}

static const pd_dtype types[] = { PD_INT8, PD_INT4 };

static float scale_of(const fixture *f, int i)
{
    float scale;

    memcpy(&scale, f->piece + sizeof scale * (size_t)(i / PD_BLOCK), sizeof scale);
    return scale;
}

TEST(a_piece_has_a_scale_for_each_block_and_a_code_for_each_element)
{
    static const uint64_t n[] = { 0, 1, 2, 63, 64, 65, 128, 129 }, eight[] = { 0, 5, 6, 67, 68, 73, 136, 141 },
                          four[] = { 0, 5, 5, 36, 36, 41, 72, 77 };

    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        assert_int_equal(pd_dtype_bytes(PD_INT8, n[i]), eight[i]);
        assert_int_equal(pd_dtype_bytes(PD_INT4, n[i]), four[i]);
    }
}

TEST(bytes_of_too_many_elements_are_too_many_to_count)
{
    assert_true(pd_dtype_bytes(PD_INT8, UINT64_MAX) == UINT64_MAX);
    assert_true(pd_dtype_bytes(PD_F32, UINT64_MAX / 2) == UINT64_MAX);
}

TEST(values_are_off_by_half_a_scale_at_most, fixture *f)
{
    for (int t = 0; t < 2; t++) {
        pd_blocks_encode(f->piece, types[t], f->x, N);
        pd_blocks_decode(f->value, types[t], f->piece, N, 0, N);
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)f->x[i] - (double)f->value[i]) <= 0.500001 * (double)scale_of(f, i));
    }
}

TEST(values_encode_to_themselves, fixture *f)
{
    for (int t = 0; t < 2; t++) {
        pd_blocks_encode(f->piece, types[t], f->x, N);
        pd_blocks_decode(f->value, types[t], f->piece, N, 0, N);
        pd_blocks_encode(f->piece, types[t], f->value, N);
        pd_blocks_decode(f->other, types[t], f->piece, N, 0, N);
        for (int i = 0; i < N; i++) assert_true(fabsf(f->value[i] - f->other[i]) <= 1e-6f * fabsf(f->value[i]));
    }
}

TEST(parts_of_a_piece_have_the_values_of_the_whole, fixture *f)
{
    for (int t = 0; t < 2; t++) {
        pd_blocks_encode(f->piece, types[t], f->x, N);
        pd_blocks_decode(f->value, types[t], f->piece, N, 0, N);
        for (int first = 0; first < N; first += 3)
            for (int n = 0; first + n <= N; n += 1 + n / 2) {
                pd_blocks_decode(f->acc, types[t], f->piece, N, first, n);
                assert_memory_equal(f->acc, f->value + first, (size_t)n * sizeof(float));
            }
    }
}

/* Adds the values to f->other one by one. volatile keeps the compiler from fusing a product and a sum. */
static void add_naively(fixture *f, pd_dtype dtype, int first, int n, float weight)
{
    pd_blocks_decode(f->value, dtype, f->piece, N, 0, N);
    for (int i = 0; i < n; i++) {
        volatile float product = weight * f->value[first + i], sum = f->other[i] + product;
        f->other[i] = sum;
    }
}

TEST(sums_round_each_product_and_each_sum, fixture *f)
{
    for (int t = 0; t < 2; t++) {
        static const int firsts[] = { 0, 1, 63, 64, 65, 200 };
        pd_blocks_encode(f->piece, types[t], f->x, N);
        for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
            pd_addend addend = { pd_vector_run_of(f->piece, types[t], firsts[i], N), 0.3f };
            memcpy(f->acc, f->other, sizeof f->acc);
            add_naively(f, types[t], firsts[i], N - firsts[i], 0.3f);
            pd_accumulate(f->acc, N - firsts[i], true, &addend, 1, 1);
            assert_memory_equal(f->acc, f->other, (size_t)(N - firsts[i]) * sizeof(float));
        }
    }
}

TEST(the_rest_is_what_the_values_lack, fixture *f)
{
    for (int t = 0; t < 2; t++) {
        pd_blocks_encode(f->piece, types[t], f->x, N);
        pd_blocks_decode(f->value, types[t], f->piece, N, 0, N);
        pd_blocks_rest(f->other, f->x, types[t], f->piece, N);
        for (int i = 0; i < N; i++) f->acc[i] = f->x[i] - f->value[i];
        assert_memory_equal(f->other, f->acc, sizeof f->acc);
    }
}

TEST(a_block_that_is_not_finite_leaves_the_rest_as_it_was, fixture *f)
{
    f->x[70] = INFINITY;
    pd_blocks_encode(f->piece, PD_INT4, f->x, N);
    pd_blocks_rest(f->other, f->x, PD_INT4, f->piece, N);
    for (int i = 64; i < 128; i++) assert_true(f->other[i] == f->acc[i]);
    assert_true(f->other[63] != f->acc[63] && f->other[128] != f->acc[128]);
}

TEST(one_element_that_is_not_finite_spoils_its_block_alone, fixture *f)
{
    pd_vector_run run = pd_vector_run_of(f->piece, PD_INT8, 0, N);

    f->x[100] = NAN;
    pd_blocks_encode(f->piece, PD_INT8, f->x, N);
    assert_false(pd_vector_run_is_finite(&run, 127, 1));
    assert_true(pd_vector_run_is_finite(&run, 0, 64));
    assert_true(pd_vector_run_is_finite(&run, 128, N - 128));
}

TEST(a_scale_that_makes_a_value_infinite_is_found, fixture *f)
{
    const float scale = 3e38f;
    pd_vector_run run = pd_vector_run_of(f->piece, PD_INT8, 0, N);

    pd_blocks_encode(f->piece, PD_INT8, f->x, N);
    memcpy(f->piece, &scale, sizeof scale);
    assert_false(pd_vector_run_is_finite(&run, 0, N));
}

TEST(every_code_that_a_peer_may_send_has_a_value, fixture *f)
{
    const float scale = 2;

    memset(f->piece, 0x88, sizeof f->piece);
    memcpy(f->piece, &scale, sizeof scale);
    pd_blocks_decode(f->value, PD_INT8, f->piece, 3, 0, 3);
    assert_true(f->value[0] == -240 && f->value[1] == -240 && f->value[2] == -240);
    pd_blocks_decode(f->value, PD_INT4, f->piece, 3, 0, 3);
    assert_true(f->value[0] == -16 && f->value[1] == -16 && f->value[2] == -16);
}

FIXTURE(fixture, set_up, NULL);
