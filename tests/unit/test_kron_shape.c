/* Tests which factors and blocks a parameter has under kron: factor types, merged dimensions, blocks. */
#include "test.h"
#include "kron_plan.h"
#include "kron_factor.h"

#define SHAPE(...) ((pd_shape){ .rank = sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), .dim = { __VA_ARGS__ } })

static void assert_types(pd_shape shape, int64_t max_size, int64_t min_ndim, int mode, const char *expected)
{
    char got[PD_MAX_RANK + 1] = "";
    bool diagonal[PD_MAX_RANK];

    pd_kron_types(&shape, max_size, min_ndim, mode, diagonal);
    for (int d = 0; d < shape.rank || d == 0; d++) got[d] = diagonal[d] ? 'd' : 't';
    assert_string_equal(got, expected);
}

TEST(matrices_get_triangles_and_vectors_diagonals)
{
    assert_types(SHAPE(5, 7), 8192, 2, KRON_SAVE_NONE, "tt");
    assert_types(SHAPE(7), 8192, 2, KRON_SAVE_NONE, "d");
    assert_types(SHAPE(7), 8192, 1, KRON_SAVE_NONE, "t");
    assert_types((pd_shape){ 0 }, 8192, 0, KRON_SAVE_NONE, "d");
    assert_types(SHAPE(5, 7), 8192, 3, KRON_SAVE_NONE, "dd");
}

TEST(long_dimensions_and_those_of_size_1_are_diagonal)
{
    assert_types(SHAPE(9, 8, 1), 8, 2, KRON_SAVE_NONE, "dtd");
    assert_types(SHAPE(2, 2), 0, 2, KRON_SAVE_NONE, "dd");
}

TEST(one_diag_takes_the_largest_dimension_and_of_several_the_last)
{
    assert_types(SHAPE(5, 7, 3), 8192, 2, KRON_SAVE_ONE_DIAG, "tdt");
    assert_types(SHAPE(7, 3, 7, 5), 8192, 2, KRON_SAVE_ONE_DIAG, "ttdt");
    assert_types(SHAPE(5, 7, 3), 8192, 2, KRON_SAVE_ALL_DIAG, "ddd");
}

/* Checks the shape after small dimensions are merged. `types` and `merged_types` have one letter for each dimension:
 * t for a triangular factor, d for a diagonal factor. */
static void assert_merged(pd_shape shape, const char *types, int64_t target, pd_shape expected,
                          const char *merged_types, const char *firsts)
{
    bool diagonal[PD_MAX_RANK] = { false };
    pd_kron_shape merged;

    for (int d = 0; types[d] != '\0'; d++) diagonal[d] = types[d] == 'd';
    merged = pd_kron_merged(&shape, diagonal, target);
    assert_true(pd_shape_equal(&merged.shape, &expected));
    for (int d = 0; d < expected.rank; d++) {
        assert_int_equal(merged.diagonal[d], merged_types[d] == 'd');
        assert_int_equal(merged.first[d], firsts[d] - '0');
    }
    assert_int_equal(merged.first[expected.rank], shape.rank);
}

TEST(small_dimensions_collapse_to_one)
{
    assert_merged(SHAPE(64, 32), "tt", 4096, SHAPE(2048), "t", "0");
    assert_merged(SHAPE(256, 128), "tt", 4096, SHAPE(32768), "t", "0");
    assert_merged(SHAPE(3, 3, 64, 64), "tttt", 4096, SHAPE(36864), "t", "0");
}

TEST(large_matrices_stay)
{
    assert_merged(SHAPE(512, 512), "tt", 4096, SHAPE(512, 512), "tt", "01");
    assert_merged(SHAPE(768, 3072), "tt", 4096, SHAPE(768, 3072), "tt", "01");
    assert_merged(SHAPE(8, 8, 8, 8), "tttt", 64, SHAPE(64, 64), "tt", "02");
}

TEST(a_merged_dimension_is_diagonal_only_where_all_its_parts_are)
{
    assert_merged(SHAPE(1, 64), "dt", 4096, SHAPE(64), "t", "0");
    assert_merged(SHAPE(4, 16), "dd", 64, SHAPE(64), "d", "0");
    assert_merged(SHAPE(8, 8, 8, 8), "dddt", 64, SHAPE(64, 64), "dt", "02");
}

TEST(of_equal_ways_the_first_group_ends_as_early_as_possible)
{
    assert_merged(SHAPE(8, 8, 8), "ttt", 8, SHAPE(8, 8, 8), "ttt", "012");
    assert_merged(SHAPE(8, 2, 8), "ttt", 16, SHAPE(8, 16), "tt", "01"); /* the merged shape (16, 8) would be as good,
                                                                         * but the first group must end as early as
                                                                         * possible */
    assert_merged(SHAPE(1, 4, 1), "dtd", 4, SHAPE(4), "t", "0");
}

TEST(nothing_is_merged_if_merging_is_off)
{
    assert_merged(SHAPE(4, 1, 4), "tdt", 0, SHAPE(4, 1, 4), "tdt", "012");
    assert_merged(SHAPE(1, 1), "dd", 0, SHAPE(1, 1), "dd", "01");
}

TEST(shapes_of_ones_become_one_dimension)
{
    assert_merged(SHAPE(1, 1, 1), "ddd", 4096, SHAPE(1), "d", "0");
    assert_merged((pd_shape){ 0 }, "d", 4096, SHAPE(1), "d", "0");
    assert_merged((pd_shape){ 0 }, "d", 0, SHAPE(1), "d", "0");
}

static pd_kron_shape typed(pd_shape shape, const char *types)
{
    pd_kron_shape merged = { .shape = shape };

    for (int d = 0; d < shape.rank; d++) merged.diagonal[d] = types[d] == 'd';
    return merged;
}

TEST(only_triangular_dimensions_are_cut)
{
    pd_kron_shape shape = typed(SHAPE(25, 25), "td");
    pd_kron_cut cut = pd_kron_cut_of(&shape, 10, true);

    assert_int_equal(cut.n_blocks, 3);
    assert_int_equal(cut.side[0], 10);
    assert_int_equal(cut.side[1], 30);
}

TEST(every_dimension_is_padded_to_a_multiple_of_the_block_size)
{
    pd_kron_shape shape = typed(SHAPE(5, 10, 11), "dtt");
    pd_kron_cut cut = pd_kron_cut_of(&shape, 10, true), real = pd_kron_cut_of(&shape, 10, false),
                whole = pd_kron_cut_of(&shape, 0, true);

    assert_memory_equal(cut.side, ((int64_t[]){ 10, 10, 10 }), 3 * sizeof(int64_t));
    assert_memory_equal(real.side, ((int64_t[]){ 5, 10, 10 }), 3 * sizeof(int64_t));
    assert_memory_equal(whole.side, ((int64_t[]){ 5, 10, 11 }), 3 * sizeof(int64_t));
    assert_int_equal(whole.n_blocks, 1);
}

TEST(blocks_are_numbered_with_the_last_dimension_fastest)
{
    pd_kron_shape shape = typed(SHAPE(12, 15, 3), "ttd");
    pd_kron_cut cut = pd_kron_cut_of(&shape, 10, true);

    assert_int_equal(cut.n_blocks, 4);
    for (int64_t i = 0; i < 4; i++) {
        pd_block block = pd_kron_block_at(&shape, &cut, i);
        assert_memory_equal(block.start, ((int64_t[]){ i / 2 * 10, i % 2 * 10, 0 }), 3 * sizeof(int64_t));
        assert_memory_equal(block.size, ((int64_t[]){ i / 2 == 0 ? 10 : 2, i % 2 == 0 ? 10 : 5, 3 }),
                            3 * sizeof(int64_t));
    }
}

TEST(a_number_of_blocks_that_overflows_is_the_largest_number)
{
    pd_kron_shape shape = typed(SHAPE((int64_t)1 << 40, (int64_t)1 << 40), "tt");

    assert_true(pd_kron_cut_of(&shape, 2, true).n_blocks == INT64_MAX);
}

/* The original (PSGD kron) updates every ceil(1/p) steps if the probability p is constant. */
TEST(a_probability_becomes_an_interval_of_steps)
{
    static const struct {
        double p;
        int interval;
    } cases[] = { { 1, 1 }, { 0.7, 2 }, { 0.5, 2 }, { 0.3, 4 }, { 0.1, 10 }, { 0.03, 34 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float counter = 0;
        for (int t = 1; t <= 3 * cases[i].interval; t++)
            assert_int_equal(pd_kron_counts(&counter, cases[i].p), t % cases[i].interval == 0);
        assert_true(counter == 0);
    }
}

TEST(the_counter_goes_by_the_probability_of_its_own_step)
{
    float counter = 0;

    assert_false(pd_kron_counts(&counter, 0.1));
    assert_false(pd_kron_counts(&counter, 0.1));
    assert_true(counter == 2);
    assert_true(pd_kron_counts(&counter, 0.34));
    assert_true(counter == 0);
}
