/* Tests the orthogonalization of matrices against its definition in double, its roundings, and what becomes of zeros,
 * NaN and products that threads share. */
#include "test.h"
#include "blascore.h"
#include "convert.h"
#include "polar.h"
#include "polar_twin.h"
#include "vectors.h"

static const struct {
    int64_t rows, cols;
} sizes[] = { { 1, 1 }, { 1, 7 }, { 7, 1 }, { 12, 8 }, { 5, 9 }, { 31, 31 }, { 61, 40 }, { 33, 64 } };
enum { SIZES = sizeof sizes / sizeof *sizes };

static const double schulz[1][3] = { { 3.4445, -4.7750, 2.0315 } }, classic[1][3] = { { 1.875, -1.25, 0.375 } };

/* The triples of Polar Express, made safe as in algorithm 1 of its paper. */
static const double express[8][3] = {
    { 8.28721201814563 / 1.01, -23.595886519098837 / 1.030301, 17.300387312530933 / 1.0510100501 },
    { 4.107059111542203 / 1.01, -2.9478499167379106 / 1.030301, 0.5448431082926601 / 1.0510100501 },
    { 3.9486908534822946 / 1.01, -2.908902115962949 / 1.030301, 0.5518191394370137 / 1.0510100501 },
    { 3.3184196573706015 / 1.01, -2.488488024314874 / 1.030301, 0.51004894012372 / 1.0510100501 },
    { 2.300652019954817 / 1.01, -1.6689039845747493 / 1.030301, 0.4188073119525673 / 1.0510100501 },
    { 1.891301407787398 / 1.01, -1.2679958271945868 / 1.030301, 0.37680408948524835 / 1.0510100501 },
    { 1.8750014808534479 / 1.01, -1.2500016453999487 / 1.030301, 0.3750001645474248 / 1.0510100501 },
    { 1.875, -1.25, 0.375 }
};

static pd_polar way(pd_polar_form form, const double *factors, int steps)
{
    return (pd_polar){ .form = form,
                       .factors = { (float)factors[0], (float)factors[1], (float)factors[2] },
                       .eps = 1e-7f,
                       .steps = steps };
}

static void factor(float *x, int64_t rows, int64_t cols, const pd_polar *how)
{
    float *scratch = malloc((size_t)pd_polar_scratch(rows, cols) * sizeof *scratch);

    assert_non_null(scratch);
    pd_polar_factor(pd_mat_dense(x, rows, cols), how, scratch);
    free(scratch);
}

/* Fills a matrix that is not near a singular one: of random numbers, with a larger diagonal. */
static void fill(float *x, int64_t rows, int64_t cols, int t)
{
    vectors_fill(x, rows * cols, t);
    for (int64_t i = 0; i < rows && i < cols; i++) x[i * cols + i] += 4;
}

static void follows(const pd_polar *how, const double (*factors)[3], int triples, double safety, double eps)
{
    for (int k = 0; k < SIZES; k++) {
        static float x[POLAR_MOST];
        static double twin[POLAR_MOST];
        int64_t n = sizes[k].rows * sizes[k].cols;
        double off = 0;
        fill(x, sizes[k].rows, sizes[k].cols, k);
        for (int64_t i = 0; i < n; i++) twin[i] = (double)x[i];
        polar_twin(twin, sizes[k].rows, sizes[k].cols, safety * polar_norm(twin, n) + eps, factors, triples,
                   how->steps);
        factor(x, sizes[k].rows, sizes[k].cols, how);
        for (int64_t i = 0; i < n; i++) off = fmax(off, fabs((double)x[i] - twin[i]));
        if (!(off < 2e-5)) fail_msg("%d x %d: off by %.3g", (int)sizes[k].rows, (int)sizes[k].cols, off);
    }
}

TEST(iterations_follow_the_definition)
{
    for (int form = PD_POLAR_TORCH; form <= PD_POLAR_KELLER; form++) {
        pd_polar how = way((pd_polar_form)form, schulz[0], 5), other = way((pd_polar_form)form, classic[0], 8);
        follows(&how, schulz, 1, 1, 1e-7);
        follows(&other, classic, 1, 1, 1e-7);
    }
}

TEST(polar_express_follows_its_paper)
{
    for (int steps = 1; steps <= 10; steps += 3) {
        pd_polar how = { .express = true, .steps = steps };
        follows(&how, express, 8, 1.01, 1e-7);
    }
}

TEST(eight_steps_of_polar_express_orthogonalize)
{
    static float x[POLAR_MOST];
    pd_polar how = { .express = true, .steps = 8 };

    fill(x, 40, 61, 1);
    factor(x, 40, 61, &how);
    for (int i = 0; i < 40; i++)
        for (int k = 0; k < 40; k++) {
            double dot = 0;
            for (int j = 0; j < 61; j++) dot += (double)x[i * 61 + j] * (double)x[k * 61 + j];
            assert_true(fabs(dot - (i == k)) < 1e-4);
        }
}

/* A matrix and its transpose have transposed results: the products stand on the other side. */
TEST(a_tall_matrix_is_treated_as_its_transpose)
{
    for (int form = PD_POLAR_TORCH; form <= PD_POLAR_KELLER; form++)
        for (int narrow = 0; narrow < 2; narrow++) {
            static float wide[12 * 40], tall[40 * 12];
            pd_polar how = way((pd_polar_form)form, schulz[0], 5);
            how.bfloat16 = narrow != 0;
            fill(wide, 12, 40, 3);
            for (int i = 0; i < 12; i++)
                for (int j = 0; j < 40; j++) tall[j * 12 + i] = wide[i * 40 + j];
            factor(wide, 12, 40, &how);
            factor(tall, 40, 12, &how);
            for (int i = 0; i < 12; i++)
                for (int j = 0; j < 40; j++)
                    assert_true(fabsf(tall[j * 12 + i] - wide[i * 40 + j]) < (narrow != 0 ? 2e-2f : 1e-5f));
        }
}

TEST(results_in_bfloat16_are_rounded_and_near_those_in_float32)
{
    static float x[2][POLAR_MOST], plain[POLAR_MOST];

    for (int form = PD_POLAR_TORCH; form <= PD_POLAR_KELLER; form++) {
        pd_polar how = way((pd_polar_form)form, schulz[0], 5);
        fill(plain, 33, 64, 2);
        memcpy(x[form], plain, sizeof plain);
        factor(plain, 33, 64, &how);
        how.bfloat16 = true;
        factor(x[form], 33, 64, &how);
        for (int i = 0; i < 33 * 64; i++) {
            assert_int_equal(pd_f32_bits(x[form][i]) & 0xffff, 0);
            assert_true(fabsf(x[form][i] - plain[i]) < 0.05f);
        }
    }
    assert_memory_not_equal(x[0], x[1], sizeof x[0]); /* the two programs round in other places */
}

TEST(zeros_stay_and_a_nan_spoils_the_matrix)
{
    static const float nothing[60];

    for (int form = PD_POLAR_TORCH; form <= PD_POLAR_KELLER; form++)
        for (int narrow = 0; narrow < 2; narrow++) {
            float x[60] = { 0 };
            pd_polar how = way((pd_polar_form)form, schulz[0], 5);
            how.bfloat16 = narrow != 0;
            factor(x, 6, 10, &how);
            assert_memory_equal(x, nothing, sizeof x);
            fill(x, 6, 10, 0);
            x[7] = NAN;
            factor(x, 6, 10, &how);
            for (int i = 0; i < 60; i++) assert_true(isnan(x[i]));
        }
}

/* Stripes of large products are computed by any thread. */
TEST(threads_change_no_bit_of_large_products)
{
    enum { SIDE = 1100 };
    float *x[2], *scratch = malloc((size_t)pd_polar_scratch(SIDE, SIDE) * sizeof *scratch);

    assert_true(pd_polar_is_large(SIDE, SIDE) && !pd_polar_is_large(256, 256));
    for (int narrow = 0; narrow < 2; narrow++) {
        pd_polar how = way(PD_POLAR_KELLER, schulz[0], 1);
        how.bfloat16 = narrow != 0;
        for (int k = 0; k < 2; k++) {
            x[k] = malloc(SIDE * SIDE * sizeof *x[k]);
            vectors_fill(x[k], SIDE * SIDE, 1);
        }
        pd_blas_one_thread();
        pd_polar_factor(pd_mat_dense(x[0], SIDE, SIDE), &how, scratch);
#pragma omp parallel num_threads(3)
        {
            pd_blas_one_thread();
#pragma omp single
            pd_polar_factor(pd_mat_dense(x[1], SIDE, SIDE), &how, scratch);
        }
        assert_memory_equal(x[0], x[1], SIDE * SIDE * sizeof *x[0]);
        for (int k = 0; k < 2; k++) free(x[k]);
    }
    free(scratch);
}

TEST(work_grows_with_the_smaller_side)
{
    assert_true(pd_polar_flops(10, 10, 5) == 5 * (3 * 1000 + 1000));
    assert_true(pd_polar_flops(10, 100, 1) == pd_polar_flops(100, 10, 1));
    assert_true(pd_polar_flops(10, 100, 1) == 3 * 10000 + 1000);
}
