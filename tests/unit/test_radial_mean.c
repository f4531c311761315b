/* Tests the radial mean: its formula, whole vectors whose sums cancel or that are zero or not finite, weights, and that
 * no thread count, order or cut changes the bits. */
#include "test.h"
#include "adasum.h"
#include "rig.h"

enum { MOST = 20, N = 140001, CUTS = 3 };

/* The input vectors with their weights, and the result. */
typedef struct fixture {
    int k;
    int64_t n, ends[CUTS];
    float *x[MOST], *to, *other;
    pd_vector_weight weight[MOST];
    pd_vector_run at[CUTS * MOST];
} fixture;

static void set_up(fixture *f)
{
    for (int r = 0; r < MOST; r++) f->x[r] = malloc(N * sizeof(float));
    f->to = malloc(N * sizeof(float));
    f->other = malloc(N * sizeof(float));
}

static void tear_down(fixture *f)
{
    for (int r = 0; r < MOST; r++) free(f->x[r]);
    free(f->to);
    free(f->other);
}

/* Fills k vectors that share a part, with unlike norms, all of weight 1. */
static void fill(fixture *f, int k, int64_t n)
{
    f->k = k;
    f->n = n;
    rig_noise(1000, f->other, n);
    for (int r = 0; r < k; r++) {
        rig_noise((uint32_t)r + 1, f->x[r], n);
        for (int64_t i = 0; i < n; i++) f->x[r][i] = (f->x[r][i] + f->other[i] / 2) * (float)(1 + r % 5 * 3);
        f->weight[r] = (pd_vector_weight){ 1, 1, false };
    }
}

static void weigh(fixture *f)
{
    for (int r = 0; r < f->k; r++) f->weight[r] = (pd_vector_weight){ 1 + r % 7 * 2.5, 1.0 / (1 + r % 3), r % 4 == 2 };
}

static pd_vectors cut(fixture *f, int cuts)
{
    for (int p = 0; p < cuts; p++) {
        int64_t begin = f->n * p / cuts;
        f->ends[p] = f->n * (p + 1) / cuts;
        for (int r = 0; r < f->k; r++) f->at[p * f->k + r] = (pd_vector_run){ .at = f->x[r] + begin, .dtype = PD_F32 };
    }
    return (pd_vectors){ f->k, (size_t)cuts, f->ends, f->at };
}

/* Computes the radial mean into `to`. Returns its largest magnitude. */
static float compute(fixture *f, int cuts, int threads, bool backwards, float *to)
{
    pd_vectors v = cut(f, cuts);
    pd_adasum *a;
    float largest;

    (void)threads;
    assert_int_equal(pd_adasum_begin(&a, PD_RADIAL_MEAN_FORM, &v, f->n, to, NULL), PD_OK);
    for (int r = 0; r < f->k; r++) pd_adasum_weigh(a, r, f->weight[r]);
    for (int64_t units; (units = pd_adasum_units(a)) > 0; pd_adasum_turn(a)) {
        assert_true(pd_adasum_unit_ns(a) > 0);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
        for (int64_t i = 0; i < units; i++) pd_adasum_unit(a, backwards ? units - 1 - i : i);
    }
    largest = pd_adasum_largest(a);
    pd_adasum_end(a);
    return largest;
}

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* Computes the formula in float64, step by step. */
static double *formula(const fixture *f)
{
    double *v = malloc((size_t)f->n * sizeof *v), *sum = calloc((size_t)f->n, sizeof *sum), length = 0, total = 0, norm;

    for (int r = 0; r < f->k; r++) {
        double w = f->weight[r].weight * f->weight[r].damping;
        for (int64_t i = 0; i < f->n; i++) v[i] = f->x[r][i] / (f->weight[r].presummed ? f->weight[r].weight : 1);
        norm = norm_of(v, f->n);
        for (int64_t i = 0; i < f->n; i++) sum[i] += norm == 0 ? 0 : w * (v[i] / norm);
        length += w * norm;
        total += w;
    }
    for (int64_t i = 0; i < f->n; i++) sum[i] /= total;
    norm = norm_of(sum, f->n);
    for (int64_t i = 0; i < f->n; i++) sum[i] = norm == 0 ? 0 : length / total * (sum[i] / norm);
    free(v);
    return sum;
}

static void check_formula(fixture *f)
{
    double *wanted = formula(f), size = norm_of(wanted, f->n) / sqrt((double)f->n);

    assert_true(isfinite(compute(f, 1, 1, false, f->to)));
    for (int64_t i = 0; i < f->n; i++)
        if (fabs(f->to[i] - wanted[i]) > 6.1e-8 * fabs(wanted[i]) + 1e-12 * size)
            fail_msg("%d vectors of %lld, element %lld: %.9g, not %.9g", f->k, (long long)f->n, (long long)i, f->to[i],
                     wanted[i]);
    free(wanted);
}

FIXTURE(fixture, set_up, tear_down);

TEST(it_is_its_formula_rounded_once, fixture *f)
{
    static const int64_t lengths[] = { 1, 5, 127, 513, 70001 };

    for (int k = 2; k <= MOST; k += k < 9 ? 1 : 5)
        for (int l = 0; l < 5; l++) {
            fill(f, k, lengths[l]);
            check_formula(f);
            weigh(f);
            check_formula(f);
        }
}

/* The recorded numbers are those of a NumPy program in float64, with w = [3, 1, 2]:
 *
 *     norm = np.linalg.norm(g, axis=1)
 *     u = (w[:, None] * g / norm[:, None]).sum(0) / w.sum()
 *     (w * norm).sum() / w.sum() * u / np.linalg.norm(u) */
TEST(it_equals_a_recorded_numpy_program, fixture *f)
{
    static const float g[3][4] = { { 3, -4, 0, 0.5F }, { 0, 0, 12, -5 }, { -1, 2, 0.25F, 8 } };
    static const double wanted[4] = { 3.5832177074318099, -4.4068183839228317, 2.2724217999665228, 4.2506628694778064 };

    fill(f, 3, 4);
    for (int r = 0; r < 3; r++) memcpy(f->x[r], g[r], sizeof g[r]);
    f->weight[0].weight = 3;
    f->weight[2].weight = 2;
    compute(f, 1, 1, false, f->to);
    for (int i = 0; i < 4; i++) assert_true(f->to[i] == (float)wanted[i]);
}

TEST(threads_order_and_cuts_change_no_bit, fixture *f)
{
    for (int k = 2; k <= MOST; k += 6) {
        fill(f, k, N);
        weigh(f);
        compute(f, 1, 1, false, f->other);
        for (int threads = 1; threads <= 4; threads *= 2)
            for (int cuts = 1; cuts <= CUTS; cuts++) {
                compute(f, cuts, threads, cuts % 2 == 0, f->to);
                assert_memory_equal(f->to, f->other, N * sizeof(float));
            }
    }
}

TEST(vectors_of_one_direction_have_their_mean, fixture *f)
{
    fill(f, 4, 1000);
    for (int64_t i = 0; i < f->n; i++)
        for (int r = 1; r < 4; r++) f->x[r][i] = f->x[0][i] * (float)(1 << r);
    compute(f, 1, 1, false, f->to);
    for (int64_t i = 0; i < f->n; i++) assert_true(fabsf(f->to[i] - 3.75F * f->x[0][i]) <= 1e-6F * fabsf(f->to[i]));
}

TEST(a_vector_of_zeros_shortens_the_result_and_does_not_turn_it, fixture *f)
{
    fill(f, 3, 1000);
    f->k = 2;
    compute(f, 1, 1, false, f->other);
    f->k = 3;
    memset(f->x[2], 0, 1000 * sizeof(float));
    compute(f, 1, 1, false, f->to);
    for (int64_t i = 0; i < f->n; i++) assert_true(fabsf(f->to[i] - f->other[i] * 2 / 3) <= 1e-6F * fabsf(f->to[i]));
}

TEST(zeros_alone_have_zeros, fixture *f)
{
    fill(f, 3, 1000);
    for (int r = 0; r < 3; r++) memset(f->x[r], 0, 1000 * sizeof(float));
    assert_true(compute(f, 1, 1, false, f->to) == 0);
    for (int64_t i = 0; i < f->n; i++) assert_true(f->to[i] == 0);
}

TEST(opposite_directions_have_zeros, fixture *f)
{
    for (int factor = 1; factor <= 7; factor++) {
        fill(f, 2, 1000);
        for (int64_t i = 0; i < f->n; i++) f->x[1][i] = -f->x[0][i] * (float)factor;
        assert_true(compute(f, 1, 1, false, f->to) == 0);
    }
}

TEST(a_vector_that_is_not_finite_makes_the_result_not_finite, fixture *f)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (int k = 1; k <= 9; k += 4)
        for (int b = 0; b < 3; b++) {
            fill(f, k, 300);
            f->x[k / 2][117] = bad[b];
            assert_false(isfinite(compute(f, 1, 1, false, f->to)));
        }
}

TEST(vectors_of_any_size_have_their_radial_mean, fixture *f)
{
    static const float sizes[] = { 1e-42F, 1e-30F, 1e30F };

    for (int s = 0; s < 3; s++) {
        fill(f, 3, 200);
        for (int r = 0; r < 3; r++)
            for (int64_t i = 0; i < f->n; i++) f->x[r][i] *= sizes[(r + s) % 3];
        check_formula(f);
    }
}

TEST(a_single_vector_keeps_its_bits, fixture *f)
{
    fill(f, 1, 1000);
    f->x[0][3] = -0.0F;
    f->x[0][4] = 1e-44F;
    f->weight[0].weight = 3;
    compute(f, 1, 1, false, f->to);
    assert_memory_equal(f->to, f->x[0], 1000 * sizeof(float));
}

TEST(a_single_old_vector_is_multiplied_by_its_damping, fixture *f)
{
    fill(f, 1, 1000);
    f->weight[0] = (pd_vector_weight){ 3, 1 / sqrt(3), false };
    compute(f, 1, 1, false, f->to);
    for (int64_t i = 0; i < f->n; i++) assert_true(f->to[i] == f->x[0][i] * (float)(1 / sqrt(3)));
}

TEST(a_single_sum_is_divided_by_its_weight, fixture *f)
{
    fill(f, 1, 1000);
    f->weight[0] = (pd_vector_weight){ 4, 1, true };
    compute(f, 1, 1, false, f->to);
    for (int64_t i = 0; i < f->n; i++) assert_true(f->to[i] == f->x[0][i] / 4);
}

TEST(without_memory_nothing_is_prepared, fixture *f)
{
    pd_vectors v;
    pd_adasum *a = NULL;
    int failed = 0;

    fill(f, 9, 1000);
    for (v = cut(f, 1);; failed++) {
        int rc;
        oom_arm(failed);
        rc = pd_adasum_begin(&a, PD_RADIAL_MEAN_FORM, &v, f->n, f->to, NULL);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_null(a);
    }
    assert_true(failed > 0);
    pd_adasum_end(a);
}
